"""Whether the process is ready, and what else `/readyz?verbose` shows."""

import asyncio
import time
from collections.abc import Callable, Mapping

from fettle.browse import Leader
from fettle.cluster import Publisher, readiness
from fettle.observing import LastRequests

PROBLEM_HOLDS_S = 0.02
POLL_S = 0.02


class Readiness:
    """Collects what the parts of the process report.

    They add to `problems`, which give a sentence or "", and to `notes`, which give sentences, or to
    `caller_notes` if these are about who calls a listener, or should.
    `opening` says what the start waits for; "" once it is over.
    """

    def __init__(self, publisher: Publisher, silent_after_s: float) -> None:
        self._publisher = publisher
        self._silent_after_s = silent_after_s
        self.opening = "it is starting"
        self.problems: list[Callable[[], str]] = [lambda: self.opening, self._no_view]
        self.notes: list[Callable[[], list[str]]] = []
        self.caller_notes: list[Callable[[], list[str]]] = []
        self.last_requests: dict[str, LastRequests] = {}
        """By role."""
        self.leader: Callable[[], Leader | None] = lambda: None
        self._problem_now = ""
        self._problem_until = 0.0

    def current_problems(self) -> list[str]:
        """Why the process is not ready; those of sources are reported elsewhere."""
        return [why for problem in self.problems if (why := problem())]

    def current_notes(self) -> list[str]:
        called = [last.note() for last in self.last_requests.values()]
        return [
            *(note for notes in self.notes for note in notes()),
            *called,
            *self.current_caller_notes(),
        ]

    def current_caller_notes(self) -> list[str]:
        return [note for notes in self.caller_notes for note in notes()]

    def current_last_requests(self) -> Mapping[str, LastRequests]:
        return self.last_requests

    def current_leader(self) -> Leader | None:
        return self.leader()

    def all_problems(self) -> list[str]:
        """Why the process is not ready, whatever the reason; empty if it is."""
        found = [self._find_problem(), *self.current_problems()]
        return [*dict.fromkeys(filter(None, found))]

    async def may_refuse(self) -> None:
        """Return once there is no `problem`."""
        while True:
            if not self._find_problem():
                return
            await asyncio.sleep(POLL_S)

    def problem(self) -> str:
        """Why the extender must not refuse anything now; "" if it may."""
        # Each request asks, so the result is kept for a moment.
        now = time.monotonic()
        if now >= self._problem_until:
            self._problem_now = self._find_problem()
            self._problem_until = now + PROBLEM_HOLDS_S
        return self._problem_now

    def _find_problem(self) -> str:
        sources = self._publisher.sources.values()
        found = readiness.problems(sources, time.monotonic(), self._silent_after_s, notes=False)
        return found[0] if found else self._no_view()

    def _no_view(self) -> str:
        # All sources may be synced a moment before a view shows them.
        return "" if self._publisher.view.synced else "the first view is being built"
