"""What lately was waited for in vain, and is not waited for again soon. Pure."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping

MOST = 1000


class Patience:
    """`clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[Hashable, float] = OrderedDict()

    def has(self, *whats: Hashable) -> bool:
        """Whether to wait for what is all of these."""
        now = self._clock()
        return all(now >= self._until.get(what, now) for what in whats)

    def lose(self, pauses_s: Mapping[Hashable, float]) -> None:
        """It was waited for in vain what is all of these: for so long, none of them is again."""
        now = self._clock()
        for what, pause_s in pauses_s.items():
            self._until[what] = now + pause_s
            self._until.move_to_end(what)
        while len(self._until) > MOST:
            self._until.popitem(last=False)
