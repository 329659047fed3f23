"""The one writer task: takes changes from feeds, folds them into the inventory, publishes views.

It folds in slices that let waiting requests go first. Nothing is published before every kind that
is needed is synced once. From then on a view follows each burst of changes, and each second a view
follows if time alone has changed something.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import inf

from fettle.api import (
    Alerted,
    Bad,
    Change,
    Contact,
    Finding,
    Gone,
    Inheritance,
    ListEnded,
    ListStarted,
    Lost,
    Measured,
    ObjectReported,
    Put,
    Unmeasured,
    Unserved,
    kinds,
)
from fettle.api.kinds import Kind, WireObject
from fettle.cluster import Inventory, Publisher, SourceStatus, View
from fettle.health import one_line
from fettle.logs import Logger
from fettle.pacing import keep, part, pause, run_within

_LOG = Logger(__name__)

TICK_S = 1.0
"""How often time alone changes something: evidence fades, holds and waits end."""
PUBLISH_EVERY_S = 0.05
"""A burst of events makes one view. An answer that needs the newest makes one at once (decision
0028)."""
_LOG_CUT_EVERY_S = 60.0
"""Of each kind: whoever writes a long object may write it often."""
MAX_WAITING = 64
"""Batches of changes that feeds may be ahead of the writer."""


OnView = Callable[[View, View, frozenset[str]], None]
"""Called with the previous view, the new one, and the names of the nodes that changed."""


class Writer:
    """A `Sink`; `run` until cancelled."""

    def __init__(
        self,
        inventory: Inventory,
        publisher: Publisher,
        clock: Callable[[], float] = time.time,
        watched: Iterable[Kind] = kinds.KINDS,
        on_object: Collection[Callable[[WireObject], None]] = (),
        on_view: Collection[OnView] = (),
        publish_every_s: float = PUBLISH_EVERY_S,
    ) -> None:
        """`clock` is compared with times of API objects, in Unix seconds. `on_object` are called
        with each object before a view shows it, `on_view` with each view once it is published, at
        most every `publish_every_s`."""
        self._on_object = [part(one.__qualname__, one) for one in on_object]
        self._on_view = [part(one.__qualname__, one) for one in on_view]
        self._applying = part("changes", self._apply)
        self._inventory = inventory
        self._publisher = publisher
        self._clock = clock
        self._publish_every_s = publish_every_s
        self._queue: asyncio.Queue[list[Change] | list[Finding]] = asyncio.Queue(MAX_WAITING)
        self._unshown = False
        """Whether changes were folded that no view shows yet."""
        self._cut_logged_at: dict[str, float] = {}
        """By kind: when the log last said so of an object."""
        self._hurried = asyncio.Event()
        self._aged_at = self._published_at = -inf
        self._wait_for_next: list[asyncio.Future[None]] = []
        """Callers that wait for changes that are still to be folded."""
        self._wait_for_view: list[asyncio.Future[None]] = []
        """Callers that wait for the next view."""
        for kind in watched:
            needed = kind not in (*kinds.ON_DEMAND, kinds.DEVICE_HEALTH, *kinds.EVENTS)
            publisher.sources[kind.name] = SourceStatus(kind.name, False, True, 0.0, needed=needed)

    async def send(self, changes: list[Change]) -> None:
        """Take changes in order; waits while the queue is full."""
        await self._queue.put(changes)

    async def find(self, found: Finding) -> None:
        """Take what was asked for; waits while the queue is full."""
        await self._queue.put([found])

    @property
    def stale(self) -> bool:
        """Whether something was sent that no view shows yet."""
        return self._unshown or not self._queue.empty()

    async def catch_up(self) -> None:
        """Return once a view shows what was sent before; the view does not wait for a burst."""
        if not self.stale:
            return
        shown = asyncio.get_running_loop().create_future()
        waits = self._wait_for_view if self._queue.empty() else self._wait_for_next
        waits.append(shown)
        self._hurried.set()
        await shown

    async def run(self) -> None:
        """Fold and publish, until cancelled."""
        await keep("views", self._round)

    async def _round(self) -> None:
        await self._fold_changes()
        if not all(s.synced for s in self._publisher.sources.values() if s.needed):
            return
        if (early_s := self._published_at + self._publish_every_s - time.monotonic()) > 0:
            await self._gather(early_s)
            await self._fold_changes(wait=False)
        now = self._clock()
        if not 0 <= now - self._aged_at < TICK_S:
            self._aged_at = now
            self._inventory.age(now)
        await run_within(partial(self._refresh, now))
        await self._publish()
        if self._published_at == -inf:
            # What was loaded stays: garbage collections need not walk it each time.
            gc.collect()
            gc.freeze()
        self._published_at = time.monotonic()

    async def _fold_changes(self, *, wait: bool = True) -> None:
        """Fold all changes that are there; if there are none, wait for some, at most a tick."""
        first: Sequence[Change | Finding] = []
        if wait and self._queue.empty():
            try:
                async with asyncio.timeout(TICK_S):
                    first = await self._queue.get()
            except TimeoutError:
                return
        self._unshown = True
        await run_within(partial(self._fold, first))

    async def _gather(self, seconds: float) -> None:
        """Let a burst of changes become one view, unless somebody waits for it."""
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
        for on_view in self._on_view:
            await run_within(partial(on_view.attempt, before, view, changed))

    def _shown(self) -> None:
        self._unshown = False
        waited, self._wait_for_view = self._wait_for_view, []
        for shown in waited:
            if not shown.done():  # the caller may have given up
                shown.set_result(None)

    def _fold(self, changes: Sequence[Change | Finding]) -> None:
        # All that wait are one piece of work: many short ones in a row would never end a slice.
        self._apply_each(changes)
        while not self._queue.empty():
            self._apply_each(self._queue.get_nowait())
        self._wait_for_view += self._wait_for_next
        self._wait_for_next = []

    def _apply_each(self, changes: Sequence[Change | Finding]) -> None:
        for change in changes:
            self._applying.attempt(change)
            pause()

    def _refresh(self, now: float) -> None:
        for _ in self._inventory.refresh(now):
            pause()

    def _apply(self, change: Change | Finding) -> None:
        now = self._clock()
        match change:
            case Put(kind, new, cut):
                for on_object in self._on_object:
                    on_object.attempt(new)
                self._inventory.put(kind, new, now)
                if cut:
                    self._cut(kind, new.metadata.key, cut)
            case Gone(kind, key):
                self._inventory.remove(kind, key, now)
            case Bad(kind, key, reason):
                if self._quarantine(change, now):
                    _LOG.warning("object quarantined", kind=kind.name, key=key, reason=reason)
            case ListStarted(kind):
                self._inventory.begin_list(kind)
            case ListEnded(kind):
                self._inventory.end_list(kind, now)
                self._in_contact(kind, synced=True, served=True)
            case Contact(kind):
                self._in_contact(kind)
            case Lost(kind, note):
                self._lost(kind, note)
            case Unserved(kind, note):
                self._unserved(kind, note, now)
            case Inheritance(identity, inherited):
                self._inventory.inherit(identity, inherited)
            case ObjectReported() as reported:
                self._inventory.take_report(reported, now)
            case Measured() as found:
                self._inventory.measuring.measure(found, now)
            case Alerted(alerts):
                self._inventory.measuring.report_alerts(alerts, now)
            case Unmeasured(rule, alert):
                self._inventory.measuring.unmeasure(rule, alert, now)

    def _quarantine(self, bad: Bad, now: float) -> bool:
        """Note an object that cannot be read, and fold in the rest of it; whether it is news."""
        try:
            return self._inventory.quarantine(bad, now)
        except Exception:
            _LOG.exception("the remaining fields cannot be used", kind=bad.kind.name, key=bad.key)
            return self._inventory.quarantine(bad._replace(salvaged=None), now)

    def _note(self, kind: Kind, **fields: object) -> None:
        source = self._publisher.sources[kind.name]
        self._publisher.sources[kind.name] = source._replace(**fields)  # type: ignore[arg-type]

    def _cut(self, kind: Kind, key: str, cut: Sequence[str]) -> None:
        """An object was too long to be read whole. Whoever writes many shall not fill the log."""
        said = f"{one_line(key)}: {one_line('; '.join(cut))}"
        before = self._publisher.sources[kind.name].cut
        self._note(kind, cut=before + 1, last_cut=said)
        if (now := time.monotonic()) >= self._cut_logged_at.get(kind.name, -inf) + _LOG_CUT_EVERY_S:
            self._cut_logged_at[kind.name] = now
            _LOG.warning("object too long to be read whole", kind=kind.name, what=said)

    def _in_contact(self, kind: Kind, *, note: str = "", **fields: object) -> None:
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
        self._in_contact(kind, synced=True, served=False, note=note)
