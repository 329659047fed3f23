"""Everything that Fettle reads of a cluster, each kind by its own reflector: trouble with one kind
does not affect the others. First step of *watch → inventory → health → verdict → answer*. Also
knows whether the newest view shows what has come, for requests that need to see all of it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import structlog

from fettle.api import Lost, Sink
from fettle.api.kinds import KINDS, Kind
from fettle.client import Reflector, Session, Streams
from fettle.cluster.feeds.writer import Writer

CATCH_UP_S = 0.1
"""A few milliseconds are usual. Changes may come without an end, and nobody shall wait for that."""

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


class FeedFreshness:
    """Whether a view shows what the cluster has sent. Watches are read, and views published, a
    moment after something came, so that a burst costs less (decision 0011); `catch_up` has both
    done at once."""

    def __init__(self, streams: Streams, writer: Writer) -> None:
        self._streams = streams
        self._writer = writer

    @property
    def stale(self) -> bool:
        """Whether something came that no view shows yet."""
        return self._streams.stale or self._writer.stale

    async def catch_up(self) -> None:
        """Return once the newest view shows what has come, or after CATCH_UP_S."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                await self._streams.catch_up()
                await self._writer.catch_up()
