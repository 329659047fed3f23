"""Everything that Fettle reads of a cluster, each kind by its own reflector: trouble with one kind
does not affect the others. First step of *watch → inventory → health → verdict → answer*. Also
knows whether the newest view shows what has come, for requests that need to see all of it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from fettle.api import Change, ListEnded, Lost, Sink, Unserved, core
from fettle.api.kinds import DEVICE_HEALTH, KINDS, Kind
from fettle.client import Reflector, Session, Streams
from fettle.cluster.feeds.workloads import WorkloadFeed
from fettle.cluster.feeds.writer import Writer
from fettle.logs import Logger
from fettle.model import ClusterError, Forbidden, NotServed, Unreachable
from fettle.pacing import keep

CATCH_UP_S = 0.1
"""A few milliseconds are usual. Changes may come without an end, and nobody shall wait for that."""

_TRIES = 3
"""How often reading what is remembered may fail while the server answers. Then Fettle goes on
without, since nothing may depend on it."""

log = Logger(__name__)


class ClusterFeed:
    """`goes_without`: what may not be read counts as empty, and the rest is told."""

    def __init__(
        self,
        session: Session,
        kinds: Sequence[Kind] = KINDS,
        *,
        goes_without: bool = False,
    ) -> None:
        self._session = session
        self._kinds = kinds
        self._goes_without = goes_without
        self._recalled = asyncio.Event()
        """Set once what is remembered was read, or cannot be."""

    async def run(self, sink: Sink) -> None:
        """Never returns. What is remembered is read before what is now."""
        first = FirstWord(sink)
        async with asyncio.TaskGroup() as group:
            for kind in self._kinds:
                if kind is DEVICE_HEALTH:
                    group.create_task(self._keep(kind, first))
                    group.create_task(self._recall(first))
                else:
                    group.create_task(self._keep(kind, sink, when=self._recalled.wait))
            if DEVICE_HEALTH not in self._kinds:
                self._recalled.set()

    async def _recall(self, first: "FirstWord") -> None:
        """Return once what is remembered was read, or cannot be though the server answers."""
        answered = 0
        try:
            while answered < _TRIES and not await first.is_read():
                answered += await self._answers()
        except Exception:
            log.exception("it cannot be told whether what is remembered was read")
        self._recalled.set()

    async def _answers(self) -> bool:
        try:
            await self._session.get("/version")
        except Unreachable:
            return False
        except ClusterError:
            pass
        return True

    async def _keep(
        self, kind: Kind, sink: Sink, when: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        async def read() -> None:
            try:
                without = self._goes_without
                await Reflector(self._session, kind, sink, goes_without=without).run()
            except Exception:
                await sink.send([Lost(kind, f"reading {kind.name} failed; retrying")])
                raise

        await keep(f"reading of {kind.name}{f' {kind.only}' if kind.only else ''}", read, when=when)


async def read_once(
    session: Session, sink: Sink, kinds: Sequence[Kind] = KINDS
) -> Mapping[Kind, ClusterError]:
    """Send each kind's list, what is remembered before what is now. What may not be read, or is not
    served, counts as empty: returns why. Raises ClusterError where a list fails otherwise."""
    unread: dict[Kind, ClusterError] = {}

    async def read(kind: Kind) -> None:
        try:
            await Reflector(session, kind, sink).list_once()
        except (Forbidden, NotServed) as error:
            unread[kind] = error
            await sink.send([Unserved(kind, str(error))])

    for some in ({DEVICE_HEALTH}.intersection(kinds), [k for k in kinds if k is not DEVICE_HEALTH]):
        await asyncio.gather(*map(read, some))
    return unread


class FirstWord:
    """A sink that passes changes on, and knows whether the list that begins them has come."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._spoke = asyncio.Event()
        self._is_read = False

    async def send(self, changes: list[Change]) -> None:
        await self._sink.send(changes)
        self._is_read |= any(isinstance(each, ListEnded | Unserved) for each in changes)
        if self._is_read or any(isinstance(each, Lost) for each in changes):
            self._spoke.set()

    async def is_read(self) -> bool:
        """Wait until the list has come, or until reading has failed once more."""
        await self._spoke.wait()
        self._spoke.clear()
        return self._is_read


class FeedFreshness:
    """Whether a view shows what the cluster has sent. Watches are read, and views published, a
    moment after something came, so that a burst costs less (decision 0011); `catch_up` has both
    done at once."""

    def __init__(self, streams: Streams, writer: Writer, workloads: WorkloadFeed) -> None:
        """`workloads` writes to the same writer."""
        self._streams = streams
        self._writer = writer
        self._workloads = workloads

    @property
    def stale(self) -> bool:
        """Whether something came that no view shows yet."""
        return self._streams.stale or self._writer.stale

    def lacks_workload(self, pod: core.Pod) -> bool:
        """Whether it is yet to be asked which policy the pod's workload names."""
        return self._workloads.lacks(pod)

    async def learn_workload(self, pod: core.Pod) -> None:
        """Ask, and return once the newest view shows what was answered, or after a moment."""
        await self._workloads.learn(pod)
        await self.catch_up()

    async def catch_up(self) -> None:
        """Return once the newest view shows what has come, or after CATCH_UP_S."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                await self._streams.catch_up()
                await self._writer.catch_up()
