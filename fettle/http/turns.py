"""Who is read next, of those who have sent something to one listener.

To read a request and begin to answer it takes a fraction of a millisecond, and an event loop does
it for all who have sent one before anybody else has a turn: of a thousand connections, or for a
scheduler in the same process. So a few are read in each turn of the loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable

AT_ONCE = 2
"""How many are read before others have a turn."""


class Turns:
    """Each address has its turn in a circle, however many connections it has."""

    def __init__(self) -> None:
        self._taken = 0
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    def take(self, source: str, read: Callable[[], None]) -> None:
        """Call `read` now, or once the turn of this address has come."""
        if not self._taken:
            asyncio.get_running_loop().call_soon(self._next)
        if self._taken < AT_ONCE:
            self._taken += 1
            read()
        else:
            self._waiting.setdefault(source, deque()).append(read)

    def _next(self) -> None:
        self._taken = 0
        while self._waiting and self._taken < AT_ONCE:
            source = next(iter(self._waiting))
            reads = self._waiting.pop(source)
            self.take(source, reads.popleft())
            if reads:
                self._waiting[source] = reads
