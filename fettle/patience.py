"""What is worth waiting for again, and what lately was waited for in vain. Pure."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

MOST = 1000


class Patience:
    """After a wait in vain there is none for the same for `again_s`, and none at all for `rest_s`;
    `clock` is in seconds."""

    def __init__(
        self, again_s: float, rest_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._again_s = again_s
        self._rest_s = rest_s
        self._clock = clock
        self._rests_until = float("-inf")
        self._until: OrderedDict[Hashable, float] = OrderedDict()

    def has(self, what: Hashable) -> bool:
        """Whether to wait for it."""
        now = self._clock()
        return now >= self._rests_until and now >= self._until.get(what, now)

    def lose(self, what: Hashable) -> None:
        """It was waited for in vain."""
        now = self._clock()
        self._rests_until = now + self._rest_s
        self._until[what] = now + self._again_s
        self._until.move_to_end(what)
        if len(self._until) > MOST:
            self._until.popitem(last=False)
