"""How the parts of the steward write: so many a second at most, not for a while after one failed,
and why it failed is said once.
"""

import time
from collections.abc import Awaitable, Callable, Iterable
from math import inf

from fettle.logs import Logger
from fettle.model import ClusterError, Denied, Forbidden, NotServed, Unreachable
from fettle.pacing import Backoff

Write = Callable[[], Awaitable[object]]
"""Makes one write; raises ClusterError."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0

_LOG = Logger(__name__)


def concerns_all(error: ClusterError) -> bool:
    """Whether the next write would fail alike, whatever it is about."""
    return isinstance(error, Forbidden | NotServed | Unreachable) and not isinstance(error, Denied)


class PacedWrites:
    """Of one part of the steward. `failing` is said when a write fails, such as "pods cannot be
    evicted", with the `remedy`, such as which file grants the right. `wrote` is called after each
    write."""

    def __init__(
        self,
        failing: str,
        remedy: str = "",
        *,
        per_s: float,
        longest_pause_s: float = LONGEST_PAUSE_S,
        wrote: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._failing = failing
        self._remedy = remedy
        self._per_s = per_s
        self._wrote = wrote
        self._clock = clock
        self._most = self._left = max(1.0, per_s)
        """How many may be written at once at most, and now."""
        self._at = -inf
        """When it was `_left`."""
        self._backoff = Backoff(min(FIRST_PAUSE_S, longest_pause_s), longest_pause_s)
        self._retry_at = -inf
        self._failure: ClusterError | None = None

    async def do(self, *groups: Iterable[Write]) -> bool:
        """Make as many of these writes as may be made now, in this order; true if those were all.

        The writes of a group need the same right and kind: if one is missing, or the API server
        does not answer, the rest of the group is not tried.
        """
        is_all, tried, failure = True, False, None
        for group in groups:
            for write in group:
                if self.pause_s() > 0:
                    is_all = False
                    break
                self._left -= 1
                tried = True
                try:
                    await write()
                except ClusterError as error:
                    failure = error
                    if concerns_all(error):
                        break
                else:
                    self._wrote()
        if failure is not None:
            self._failed(failure)
        elif is_all or tried:
            self._failure = None
            self._backoff.succeeded()
        return is_all and failure is None

    def pause_s(self) -> float:
        """In how many seconds something may be written again; 0 if now."""
        now = self._clock()
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_s)
        self._at = now
        return max(0.0, self._retry_at - now, (1 - self._left) / self._per_s)

    def notes(self) -> list[str]:
        """Why the last write failed, for `/readyz?verbose`."""
        if self._failure is None:
            return []
        remedy = self._remedy_for(self._failure)
        return [f"{self._failing}: {self._failure}" + (f" ({remedy})" if remedy else "")]

    def _remedy_for(self, failure: ClusterError) -> str:
        return "" if isinstance(failure, Denied) else self._remedy

    def _failed(self, failure: ClusterError) -> None:
        self._retry_at = self._clock() + self._backoff.next_s()
        if type(failure) is not type(self._failure):
            remedy = {"remedy": found} if (found := self._remedy_for(failure)) else {}
            _LOG.warning(self._failing, reason=str(failure), **remedy)
        self._failure = failure
