"""How long to pause between tries of something that fails: pauses grow until a try succeeds. Pure:
it says how long, and the caller waits.
"""

import random
from collections.abc import Callable

_MOST_STEPS = 64  # more would overflow a float


class Backoff:
    """Exponential backoff. The first pause is `first_s`, each further one is `factor` times as
    long, up to `longest_s`.

    The first `free` failures cost no pause. `jitter` is the share by which chance may shorten a
    pause, so that many who fail together do not try again together. `failures` counts those since
    the last success.
    """

    __slots__ = ("_factor", "_first_s", "_free", "_jitter", "_longest_s", "_uniform", "failures")

    def __init__(
        self,
        first_s: float,
        longest_s: float = float("inf"),
        *,
        factor: float = 2.0,
        free: int = 0,
        jitter: float = 0.0,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._factor = factor
        self._free = free
        self._jitter = jitter
        self._uniform = uniform
        self.failures = 0

    def succeeded(self) -> None:
        """Begin again with the first pause."""
        self.failures = 0

    def failed(self) -> None:
        self.failures += 1

    def pause_s(self, longest_s: float | None = None) -> float:
        """Seconds from the latest failure to the next try; `longest_s` overrides the usual limit,
        where it depends on what failed."""
        counted = self.failures - self._free
        if counted <= 0:
            return 0.0
        longest_s = self._longest_s if longest_s is None else longest_s
        pause_s = min(longest_s, self._first_s * self._factor ** min(counted - 1, _MOST_STEPS))
        return pause_s * self._uniform(1.0 - self._jitter, 1.0) if self._jitter else pause_s

    def next_s(self, longest_s: float | None = None) -> float:
        """Count a failure, and say how long to pause after it."""
        self.failed()
        return self.pause_s(longest_s)
