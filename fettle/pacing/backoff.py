"""How long to pause between tries of something that fails: pauses grow until a try succeeds. And
waits for something newer: one that brought nothing is not repeated soon. Pure: `Backoff` says how
long, and the caller waits."""

import random
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Generic, Literal, NamedTuple, TypeVar

from cachetools import TLRUCache

_MOST_STEPS = 64  # more would overflow a float
MOST = 1000

_Found = TypeVar("_Found")


class Backoff:
    """Exponential backoff. The first pause is `first_s`, each further one is `factor` times as
    long, up to `longest_s`.

    The first `free` failures cost no pause. `jitter` is the share by which chance may shorten a
    pause, so that many who fail together do not try again together. `failures` counts those since
    the last success.

    >>> pauses = Backoff(1.0, 5.0)
    >>> [pauses.next_s() for _ in range(4)]
    [1.0, 2.0, 4.0, 5.0]
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


class Waited(NamedTuple, Generic[_Found]):
    """What was found in the end, and what the wait for it brought."""

    found: _Found
    result: Literal["no_wait", "caught_up", "in_vain"]


class Patience:
    """Remembers for which keys a wait brought nothing lately; `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._skipped: TLRUCache[Hashable, float] = TLRUCache(
            MOST, ttu=lambda _key, pause_s, now: now + pause_s, timer=clock
        )

    def allows(self, *keys: Hashable) -> bool:
        """Whether to wait for something that has all of these keys."""
        return not any(key in self._skipped for key in keys)

    def skip(self, pauses_s: Mapping[Hashable, float]) -> None:
        """A wait for these keys brought nothing: skip further waits for any of them for this many
        seconds."""
        self._skipped.update(pauses_s)

    async def wait(
        self,
        found: _Found,
        missing: Callable[[_Found], Mapping[Hashable, float]],
        newer: Callable[[_Found], Awaitable[_Found | None]],
    ) -> Waited[_Found]:
        """Replace what was found by what `newer` finds, until nothing is missing in it.

        `missing` gives the keys of what is missing, and for how long to skip waits for them once
        one brought nothing. `newer` returns None when nothing newer came in time.
        """
        waited = False
        while pauses_s := missing(found):
            if not self.allows(*pauses_s):
                return Waited(found, "in_vain" if waited else "no_wait")
            waited = True
            if (again := await newer(found)) is None:
                self.skip(pauses_s)
                return Waited(found, "in_vain")
            found = again
        return Waited(found, "caught_up" if waited else "no_wait")
