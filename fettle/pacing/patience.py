"""Waits that brought nothing are not repeated at once. Pure."""

import time
from collections.abc import Callable, Hashable, Mapping

from cachetools import TLRUCache

MOST = 1000


class Patience:
    """`clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._pauses_s: TLRUCache[Hashable, float] = TLRUCache(MOST, _ends_at, timer=clock)

    def has(self, *keys: Hashable) -> bool:
        """Whether to wait: no wait for any of these keys was in vain lately."""
        return not any(key in self._pauses_s for key in keys)

    def lose(self, pauses_s: Mapping[Hashable, float]) -> None:
        """A wait for these keys brought nothing: skip further waits for any of them for this many
        seconds."""
        self._pauses_s.update(pauses_s)


def _ends_at(_key: Hashable, pause_s: float, now: float) -> float:
    return now + pause_s
