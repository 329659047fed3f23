"""The controller: one replica leads, by a Lease, and does what is given to it. Not started if the
source is a snapshot.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine

from fettle.client import Session, lead
from fettle.config import StewardSettings
from fettle.observing import StewardMetrics
from fettle.pacing import keep

STEWARD = "fettle.dev/steward"
"""The `reportingController` of the steward's Events."""


class Steward:
    """`identity` must differ between replicas; `namespace` holds the lease."""

    def __init__(
        self,
        session: Session,
        *,
        namespace: str,
        identity: str,
        settings: StewardSettings,
        metrics: StewardMetrics,
        keeping: Collection[Callable[[], Coroutine[None, None, None]]],
        notes: Collection[Callable[[], list[str]]] = (),
    ) -> None:
        """`keeping`: what the leader keeps doing; none of it returns. `notes`: what is amiss with
        it."""
        self._session = session
        self._namespace = namespace
        self._identity = identity
        self._settings = settings
        self._metrics = metrics
        self._keeping = keeping
        self._notes = notes
        self.leads = False
        self.leader = ""
        """Who holds the lease, as last seen."""

    async def run(self) -> None:
        """Never returns: stands for election, and works while leading."""
        await keep("election of the steward", self._lead)

    async def _lead(self) -> None:
        await lead(
            self._session,
            self._namespace,
            self._settings.lease,
            self._identity,
            self._settings.lease_seconds,
            self.work,
            self._note_leader,
        )

    def _note_leader(self, name: str) -> None:
        self.leader = name

    def notes(self) -> list[str]:
        """For `/readyz?verbose`: those of the leader only."""
        return [note for notes in self._notes for note in notes()] if self.leads else []

    async def work(self) -> None:
        """What the leader does."""
        self.leads = True
        try:
            with self._metrics.leading():
                async with asyncio.TaskGroup() as group:
                    for keep in self._keeping:
                        group.create_task(keep())
        finally:
            self.leads = False
