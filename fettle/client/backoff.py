"""How long to wait before the next try. Quick at first, so that a restarted API server is followed
again within a second or two; bounded by what failed: a server that is away costs nothing to ask,
a refusal changes only when a person acts. One that is overloaded says how long to leave it alone.
"""

import random
from collections.abc import Callable

from fettle.model import ClusterError, Unreachable
from fettle.pacing import Backoff

_FIRST_S = 0.1
_LONGEST_UNREACHABLE_S = 1.5
_LONGEST_REFUSED_S = 30.0


class ErrorBackoff:
    """Begins again with each other type of failure, and on success."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._backoff = Backoff(_FIRST_S, jitter=0.5, uniform=uniform)
        self._failed: type[ClusterError] | None = None

    @property
    def tries(self) -> int:
        """How often the latest type of failure came in a row."""
        return self._backoff.failures

    def succeeded(self) -> None:
        self._failed = None
        self._backoff.succeeded()

    def next_s(self, error: ClusterError) -> float:
        """Seconds to wait after this failure."""
        if type(error) is not self._failed:
            self._failed = type(error)
            self._backoff.succeeded()
        if not isinstance(error, Unreachable):
            return self._backoff.next_s(_LONGEST_REFUSED_S)
        asked_s = error.retry_after_s * self._uniform(1.0, 1.25)
        pause_s = self._backoff.next_s(_LONGEST_UNREACHABLE_S)
        return max(pause_s, min(asked_s, _LONGEST_REFUSED_S))
