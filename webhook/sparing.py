"""A log line that anybody who reaches the port can cause must not fill the disk."""

import time
from collections.abc import Callable


class RateLimit:
    """Gives one turn each `every_s` seconds."""

    def __init__(self, every_s: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._next_at = float("-inf")
        self._held_back = 0

    def turn(self) -> int | None:
        """How many were held back since the last turn; None where this one is held back."""
        now = self._clock()
        if now < self._next_at:
            self._held_back += 1
            return None
        held_back, self._held_back = self._held_back, 0
        self._next_at = now + self._every_s
        return held_back
