"""Waits for something newer; one that brought nothing is not repeated soon. Pure."""

import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Generic, Literal, NamedTuple, TypeVar

from cachetools import TLRUCache

MOST = 1000

_Found = TypeVar("_Found")


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
