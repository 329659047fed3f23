"""How long to wait before the next try. Quick at first, so that a restarted API server is followed
again within a second or two; bounded by what failed: a server that is away costs nothing to ask,
a refusal changes only when a person acts. One that is overloaded says how long to leave it alone.
"""

import random

from fettle.model import ClusterError, Unreachable

_FIRST_S = 0.1
_LONGEST_UNREACHABLE_S = 1.5
_LONGEST_REFUSED_S = 30.0


class Backoff:
    """Doubles from failure to failure of the same type, jittered; `reset` on success. `tries`: how
    often that type has failed in a row.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()  # noqa: S311 (jitter is no secret)
        self._failed: type[ClusterError] | None = None
        self.tries = 0

    def reset(self) -> None:
        self._failed, self.tries = None, 0

    def next_s(self, error: ClusterError) -> float:
        """Seconds to wait after this failure."""
        if type(error) is not self._failed:
            self._failed, self.tries = type(error), 0
        reachable = not isinstance(error, Unreachable)
        longest_s = _LONGEST_REFUSED_S if reachable else _LONGEST_UNREACHABLE_S
        wait_s = min(longest_s, _FIRST_S * 2.0 ** min(self.tries, 20))
        self.tries += 1
        wait_s *= self._rng.uniform(0.5, 1.0)
        if isinstance(error, Unreachable):
            asked_s = error.retry_after_s * self._rng.uniform(1.0, 1.25)
            wait_s = max(wait_s, min(asked_s, _LONGEST_REFUSED_S))
        return wait_s
