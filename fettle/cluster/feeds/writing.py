"""The one writer task: takes changes from feeds, folds them in, publishes views.

Folds and refreshes in slices that let waiting requests go first. Nothing is published before every
kind that is needed is synced once; from then on a view follows each burst of changes, and each
second whatever time alone has changed.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

import msgspec
import structlog

from fettle.api import (
    Bad,
    Change,
    Contact,
    Gone,
    ListEnded,
    ListStarted,
    Lost,
    Put,
    Unserved,
    concern,
    kinds,
)
from fettle.api.kinds import Kind, WireObject
from fettle.cluster import Inventory, Publisher, SourceStatus, View
from fettle.pacing import in_slices, pause

_LOG = structlog.get_logger(__name__)

TICK_S = 1.0
PUBLISH_EVERY_S = 0.05
MAX_WAITING = 64
"""Batches of changes a feed may be ahead of the writer."""


Follow = Callable[[View, View, frozenset[str]], None]
"""Hears of a view: the one before, itself, and the names of the nodes that changed."""


class Writer:
    """A `Sink`; `run` until cancelled."""

    def __init__(
        self,
        inventory: Inventory,
        publisher: Publisher,
        clock: Callable[[], float] = time.time,
        watched: Iterable[Kind] = kinds.KINDS,
        on_put: Collection[Callable[[WireObject], None]] = (),
        on_view: Collection[Follow] = (),
    ) -> None:
        """`clock` is compared with times of API objects, in Unix seconds. `on_put` hear of each
        object before a view shows it, `on_view` of each view once it is published."""
        self._on_put = on_put
        self._on_view = on_view
        self._inventory = inventory
        self._publisher = publisher
        self._clock = clock
        self._queue: asyncio.Queue[list[Change]] = asyncio.Queue(MAX_WAITING)
        self._unshown = False
        """Whether changes were taken that no view shows yet."""
        self._hurried = asyncio.Event()
        self._wait_for_next: list[asyncio.Future[None]] = []
        """Those who wait for changes that are still to be taken; and for the next view."""
        self._wait_for_view: list[asyncio.Future[None]] = []
        for kind in watched:
            needed = kind not in kinds.ON_DEMAND
            publisher.sources[kind.name] = SourceStatus(kind.name, False, True, 0.0, needed=needed)

    async def send(self, changes: list[Change]) -> None:
        """Take changes in order; waits while the writer is behind."""
        await self._queue.put(changes)

    @property
    def behind(self) -> bool:
        """Whether something was sent that no view shows yet."""
        return self._unshown or not self._queue.empty()

    async def catch_up(self) -> None:
        """Until a view shows what was sent before: no burst is waited for."""
        if not self.behind:
            return
        shown = asyncio.get_running_loop().create_future()
        waits = self._wait_for_view if self._queue.empty() else self._wait_for_next
        waits.append(shown)
        self._hurried.set()
        await shown

    async def run(self) -> None:
        """Fold and publish, until cancelled."""
        frozen = False
        aged_at = published_at = float("-inf")
        while True:
            await self._fold_what_came()
            if not all(s.synced for s in self._publisher.sources.values() if s.needed):
                continue
            if (early_s := published_at + PUBLISH_EVERY_S - time.monotonic()) > 0:
                await self._gather(early_s)
                await self._fold_what_came(wait=False)
            now = self._clock()
            if not 0 <= now - aged_at < TICK_S:
                self._inventory.age(now)
                aged_at = now
            await in_slices(partial(self._refresh, now))
            await self._publish()
            published_at = time.monotonic()
            if not frozen:
                # What was loaded stays: collections need not walk it again and again.
                gc.collect()
                gc.freeze()
                frozen = True

    async def _fold_what_came(self, *, wait: bool = True) -> None:
        """Fold all changes that are there; wait for some, at most a tick, if none are."""
        first: list[Change] = []
        if wait and self._queue.empty():
            try:
                async with asyncio.timeout(TICK_S):
                    first = await self._queue.get()
            except TimeoutError:
                return
        self._unshown = True
        await in_slices(partial(self._fold, first))

    async def _gather(self, seconds: float) -> None:
        """A burst of changes becomes one view, unless somebody waits for it."""
        self._hurried.clear()
        if self._wait_for_view or self._wait_for_next:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurried.wait()

    async def _publish(self) -> None:
        sources = self._publisher.sources
        served = {name: source.synced and source.served for name, source in sources.items()}
        before = self._publisher.view
        view = self._inventory.view(before, synced=True, served=served)
        if view is None:
            self._shown()
            return
        changed = self._inventory.settle()
        self._publisher.publish(view, changed)
        self._shown()
        for follow in self._on_view:
            try:
                await in_slices(partial(follow, before, view, changed))
            except Exception:
                _LOG.exception("a view cannot be followed")

    def _shown(self) -> None:
        self._unshown = False
        waited, self._wait_for_view = self._wait_for_view, []
        for shown in waited:
            if not shown.done():  # who waited may have given up
                shown.set_result(None)

    def _fold(self, changes: list[Change]) -> None:
        """These and those that wait after them, as one piece of work: many short ones in a row
        would never end a slice."""
        self._apply_each(changes)
        while not self._queue.empty():
            self._apply_each(self._queue.get_nowait())
        self._wait_for_view += self._wait_for_next
        self._wait_for_next = []

    def _apply_each(self, changes: list[Change]) -> None:
        for change in changes:
            self._apply(change)
            pause()

    def _refresh(self, now: float) -> None:
        for _ in self._inventory.refresh(now):
            pause()

    def _apply(self, change: Change) -> None:
        now = self._clock()
        match change:
            case Put(kind, new):
                self._put(kind, new, now)
            case Gone(kind, key):
                self._inventory.remove(kind, key, now)
            case Bad(kind, key, reason):
                if self._quarantine(change, now):
                    _LOG.warning("object quarantined", kind=kind.name, key=key, reason=reason)
            case ListStarted(kind):
                self._inventory.begin_list(kind)
            case ListEnded(kind):
                self._inventory.end_list(kind, now)
                self._heard(kind, synced=True, served=True)
            case Contact(kind):
                self._heard(kind)
            case Lost(kind, note):
                self._lost(kind, note)
            case Unserved(kind, note):
                self._unserved(kind, note, now)

    def _put(self, kind: Kind, new: WireObject, now: float) -> None:
        """A failure on one object must not affect the others."""
        try:
            for hear in self._on_put:
                hear(new)
            self._inventory.put(kind, new, now)
        except Exception as error:
            key = new.metadata.key
            _LOG.exception("object cannot be applied, quarantined", kind=kind.name, key=key)
            node, pools = concern(kind, msgspec.json.decode(msgspec.json.encode(new)))
            self._quarantine(Bad(kind, key, f"cannot be applied: {error!r}", node, pools), now)

    def _quarantine(self, bad: Bad, now: float) -> bool:
        """What is left of an object is taken as carefully as a whole one. Whether it is news."""
        try:
            return self._inventory.quarantine(bad, now)
        except Exception:
            _LOG.exception("the remaining fields cannot be used", kind=bad.kind.name, key=bad.key)
            return self._inventory.quarantine(bad._replace(left=None), now)

    def _note(self, kind: Kind, **fields: object) -> None:
        source = self._publisher.sources[kind.name]
        self._publisher.sources[kind.name] = source._replace(**fields)  # type: ignore[arg-type]

    def _heard(self, kind: Kind, *, note: str = "", **fields: object) -> None:
        if self._publisher.sources[kind.name].note and not note:
            _LOG.info("source found", kind=kind.name)
        self._note(kind, contact_at=time.monotonic(), note=note, **fields)

    def _lost(self, kind: Kind, note: str) -> None:
        if self._publisher.sources[kind.name].note != note:
            _LOG.warning("source lost", kind=kind.name, reason=note)
        self._note(kind, note=note)

    def _unserved(self, kind: Kind, note: str, now: float) -> None:
        if self._publisher.sources[kind.name].served:
            _LOG.info("not served by this cluster", kind=kind.name, reason=note)
            self._inventory.begin_list(kind)
            self._inventory.end_list(kind, now)
        self._heard(kind, synced=True, served=False, note=note)
