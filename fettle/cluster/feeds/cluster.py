"""Everything Fettle reads of a cluster, each kind by its own reflector. Trouble with one kind does
not affect the others. First step of *watch → inventory → health → verdict → answer*.
"""

import asyncio
from collections.abc import Sequence

import structlog

from fettle.api import Lost, Sink
from fettle.api.kinds import KINDS, Kind
from fettle.client import Reflector, Session

log = structlog.get_logger(__name__)


class ClusterFeed:
    def __init__(
        self,
        session: Session,
        kinds: Sequence[Kind] = KINDS,
        *,
        restart_s: float = 5.0,
    ) -> None:
        self._session = session
        self._kinds = kinds
        self._restart_s = restart_s

    async def run(self, sink: Sink) -> None:
        """Never returns."""
        async with asyncio.TaskGroup() as group:
            for kind in self._kinds:
                group.create_task(self._keep(kind, sink), name=f"reflect {kind.name}")

    async def _keep(self, kind: Kind, sink: Sink) -> None:
        while True:
            try:
                await Reflector(self._session, kind, sink).run()
            except Exception:
                log.exception("reflector failed, restarting", kind=kind.name)
                await sink.send([Lost(kind, f"reading {kind.name} failed; retrying")])
                await asyncio.sleep(self._restart_s)
