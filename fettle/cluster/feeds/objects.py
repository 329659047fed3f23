"""Follows the kinds of object that rows of the table `objects` name, each by its own reflector, has
the rows evaluated by a worker, and sends what they say to the writer. First step of *watch →
inventory → health → verdict → answer*, beside the other watches.

Whoever may write such objects decides what is in them, how many there are and how often they
change. So objects are bounded in size and number, only the newest state of each waits, and a row
that takes long on objects of a namespace rests for that namespace. What cannot be evaluated is
unknown, which is told and refuses nothing.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from fettle.api import (
    Bad,
    Change,
    Finding,
    Gone,
    ListEnded,
    ListStarted,
    Lost,
    ObjectFact,
    ObjectReported,
    Put,
    Unserved,
    core,
)
from fettle.api.kinds import Kind, any_kind
from fettle.cel import ObjectJudge, RowOutcome
from fettle.client import Reflector, Session, served_kinds
from fettle.health import ObjectKind, ObjectRow, expressions_of, one_line, readable
from fettle.logs import Logger
from fettle.model import ClusterError
from fettle.pacing import keep

MOST_OBJECTS = 5000
"""Of a kind, that count in full."""
MOST_OF_TENANTS = 500
"""Of a kind, in namespaces that no row trusts."""
MOST_FACTS_OF_TENANTS = 32
"""Of a row about one object in such a namespace."""
AGAIN_S = 60.0
"""How often rows that read `now` are evaluated again."""
LOOK_S = 30.0
"""How often it is tried to find a kind that is not served."""
MOST_SLOW, RESTS_S = 3, 600.0
"""A row that took too long so often on objects of a namespace rests for that namespace."""
TOLD_EVERY_S = 60.0
_MAY_NOT = "grant the verb"
RIGHT = "deploy/rbac/optional/object-rules.yaml has the right"
_LOG = Logger(__name__)


class ObjectMetrics(Protocol):
    """What is counted."""

    def failed(self, rule: str) -> None: ...


class _Waiting(NamedTuple):
    """An object that is to be judged; `raw` is None if it cannot be read, for a `reason`."""

    uid: str
    raw: bytes | None
    reason: str = ""


class _Said(NamedTuple):
    """What was last said of an object. `waiting` is kept where time alone may change that."""

    reported: ObjectReported
    waiting: _Waiting | None


class WatchedKind:
    """What is known of one kind, and its sink: which objects there are, and why it is not read."""

    def __init__(
        self, of: ObjectKind, rows: Sequence[ObjectRow], reads_now: bool, most_of_tenants: int
    ) -> None:
        self._most_of_tenants = most_of_tenants
        self.of = of
        self.rows = rows
        self.reads_now = reads_now
        self.note = ""
        self.said: dict[str, _Said] = {}
        self.known: set[str] = set()
        self._number: Counter[bool] = Counter()
        """Of the known, by whether they are trusted."""
        self.left_out: set[str] = set()
        self.listed: set[str] | None = None

    def is_trusted(self, key: str) -> bool:
        namespace = key.rpartition("/")[0]
        return any(row.trusts(namespace) for row in self.rows)

    def takes(self, key: str) -> bool:
        """Whether there is room for an object."""
        if key in self.known:
            return True
        trusted = self.is_trusted(key)
        if self._number[trusted] < (MOST_OBJECTS if trusted else self._most_of_tenants):
            self._number[trusted] += 1
            self.known.add(key)
            self.left_out.discard(key)
            return True
        if len(self.left_out) < MOST_OBJECTS:
            self.left_out.add(key)
        return False

    def forget(self, key: str) -> None:
        self.said.pop(key, None)
        if key in self.known:
            self._number[self.is_trusted(key)] -= 1
            self.known.remove(key)
        self.left_out.discard(key)

    def notes(self) -> list[str]:
        found = [f"objects: {self.of}: {self.note}"] if self.note else []
        if self.left_out:
            found.append(
                f"objects: {self.of}: {len(self.left_out)} are not looked at, such as "
                f"{one_line(min(self.left_out))}: there are more than "
                f"{MOST_OBJECTS}, or than {self._most_of_tenants} in namespaces that no row trusts"
            )
        return found


class ObjectFeed:
    """`run` until cancelled."""

    def __init__(
        self,
        session: Session,
        rows: Mapping[str, ObjectRow],
        send: Callable[[Finding], Awaitable[None]],
        counted: ObjectMetrics,
        clock: Callable[[], float] = time.time,
        judge: ObjectJudge | None = None,
        *,
        look_s: float = LOOK_S,
        again_s: float = AGAIN_S,
        most_of_tenants: int = MOST_OF_TENANTS,
    ) -> None:
        """`clock` is `now` of expressions, in Unix seconds. It looks every `look_s` whether a kind
        is served, and evaluates what reads the time again every `again_s`."""
        self._look_s = look_s
        self._again_s = again_s
        self._session = session
        self._send = send
        self._counted = counted
        self._clock = clock
        self._judge = judge or ObjectJudge()
        self._waiting: dict[tuple[ObjectKind, str], _Waiting] = {}
        self._came = asyncio.Event()
        self._failing: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """By row and object, why it could not be evaluated."""
        self._logged_at: dict[str, float] = {}
        self._slow: Counter[tuple[str, str]] = Counter()
        """By row and namespace, how often in a row it took too long."""
        self._rests_until: dict[tuple[str, str], float] = {}
        by_kind: defaultdict[ObjectKind, list[ObjectRow]] = defaultdict(list)
        for row in rows.values():
            by_kind[row.of].append(row)
        read = expressions_of(rows.values())
        self._kinds = {
            of: WatchedKind(
                of,
                own,
                any(read[t].reads_now for row in own for t in row.texts),
                most_of_tenants,
            )
            for of, own in by_kind.items()
        }

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for kind in self._kinds.values():
                    watch = partial(self._watch, kind)
                    group.create_task(keep(f"objects of {kind.of}", watch))
                group.create_task(
                    keep("rules about objects", self._judge_waiting, when=self._came.wait)
                )
                group.create_task(keep("rules that read now", self._again, when=self._pause))
        finally:
            await self._judge.close()

    def notes(self) -> list[str]:
        """For `/readyz?verbose` and `fettle status`."""
        found = [note for kind in self._kinds.values() for note in kind.notes()]
        for rule, failing in sorted(self._failing.items()):
            if failing:
                key, why = min(failing.items())
                found.append(
                    f"objects: row {rule} says nothing of {len(failing)} objects, such as "
                    f"{one_line(key)}: {one_line(why)}"
                )
        return found

    # --- what comes

    async def _watch(self, kind: WatchedKind) -> None:
        served = await self._served(kind)
        if served is None:
            await asyncio.sleep(self._look_s)
            return
        await Reflector(self._session, served, _KindSink(self, kind)).run()

    async def _served(self, kind: WatchedKind) -> Kind | None:
        of = kind.of
        try:
            found = await served_kinds(self._session, of.group)
        except ClusterError as error:
            self._note(kind, str(error))
            return None
        same = [one for one in found if one.kind == of.kind]
        for one in same:
            if one.version == of.version:
                return any_kind(of.group, of.version, of.kind, one.plural)
        versions = ", ".join(one.version for one in same)
        others = f", only {versions}" if versions else ""
        self._note(kind, f"the cluster does not serve {of.api_version}{others}")
        return None

    async def handle(self, kind: WatchedKind, change: Change) -> None:
        match change:
            case Put(_, new):
                if isinstance(new, core.WatchedObject):
                    waiting = _Waiting(new.metadata.uid, new.raw)
                    await self._enqueue(kind, new.metadata.key, waiting)
            case Bad(_, key, reason):
                await self._enqueue(kind, key, _Waiting("", None, reason))
            case Gone(_, key):
                await self._gone(kind, key)
            case ListStarted():
                kind.listed = set()
            case ListEnded():
                self._note(kind, "")
                await self._only(kind, kind.listed)
                kind.listed = None
            case Lost(_, note):
                self._note(kind, f"{note}; {RIGHT}" if _MAY_NOT in note else note)
            case Unserved(_, note):
                self._note(kind, note)
                await self._only(kind, set())

    async def _enqueue(self, kind: WatchedKind, key: str, new: _Waiting) -> None:
        if kind.listed is not None:
            kind.listed.add(key)
        if key and kind.takes(key):
            self._waiting[kind.of, key] = new
            self._came.set()

    async def _only(self, kind: WatchedKind, keys: set[str] | None) -> None:
        """The list is complete: what it did not name is gone."""
        if keys is not None:
            for key in (kind.known | kind.left_out) - keys:
                await self._gone(kind, key)

    async def _gone(self, kind: WatchedKind, key: str) -> None:
        self._waiting.pop((kind.of, key), None)
        kind.forget(key)
        for row in kind.rows:
            self._failing[row.name].pop(f"{kind.of} {key}", None)
        await self._send(ObjectReported(str(kind.of), key, gone=True))

    def _note(self, kind: WatchedKind, note: str) -> None:
        if note and note != kind.note:
            _LOG.warning("objects are not read", kind=str(kind.of), reason=note)
        kind.note = note

    # --- what is said of it

    async def _pause(self) -> None:
        await asyncio.sleep(self._again_s)

    async def _again(self) -> None:
        for kind in self._kinds.values():
            for key, said in kind.said.items():
                if said.waiting is not None:
                    self._waiting.setdefault((kind.of, key), said.waiting)
                    self._came.set()

    async def _judge_waiting(self) -> None:
        while self._waiting:
            of, key = next(iter(self._waiting))
            waiting = self._waiting.pop((of, key))
            kind = self._kinds[of]
            try:
                reported = await self._reported(kind, key, waiting)
            except Exception:
                self._waiting.setdefault((of, key), waiting)
                raise
            await self._report(kind, reported, waiting)
        self._came.clear()

    async def _report(self, kind: WatchedKind, reported: ObjectReported, waiting: _Waiting) -> None:
        if reported.key not in kind.known:
            return  # it went meanwhile
        before = kind.said.get(reported.key)
        kind.said[reported.key] = _Said(reported, waiting if kind.reads_now else None)
        if before is None or before.reported != reported:
            await self._send(reported)

    async def _reported(self, kind: WatchedKind, key: str, waiting: _Waiting) -> ObjectReported:
        outcomes = await self._outcomes(kind, key, waiting)
        facts: dict[str, tuple[ObjectFact, ...]] = {}
        unknown = []
        most = None if kind.is_trusted(key) else MOST_FACTS_OF_TENANTS
        for row, outcome in zip(kind.rows, outcomes, strict=True):
            self._note_outcome(row, f"{kind.of} {key}", outcome)
            if outcome.problem:
                unknown.append(row.name)
            elif outcome.facts:
                facts[row.name] = outcome.facts[:most]
        return ObjectReported(str(kind.of), key, waiting.uid, facts, tuple(unknown))

    async def _outcomes(
        self, kind: WatchedKind, key: str, waiting: _Waiting
    ) -> Sequence[RowOutcome]:
        """One for each row of the kind."""
        if waiting.raw is None:
            return [RowOutcome(problem=waiting.reason)] * len(kind.rows)
        namespace, now = key.rpartition("/")[0], self._clock()
        asked = [row for row in kind.rows if not self._rests(row, namespace)]
        judged = await self._judge.judge([row.expressions for row in asked], waiting.raw, now)
        found = {row.name: readable(one) for row, one in zip(asked, judged, strict=True)}
        for row in asked:
            self._note_pace(row, namespace, found[row.name])
        rests = RowOutcome(problem="it took too long on such objects, so it rests for some minutes")
        return [found.get(row.name, rests) for row in kind.rows]

    def _rests(self, row: ObjectRow, namespace: str) -> bool:
        place, now = (row.name, namespace), time.monotonic()
        if self._rests_until.get(place, now) <= now:
            self._rests_until.pop(place, None)
        return place in self._rests_until

    def _note_pace(self, row: ObjectRow, namespace: str, outcome: RowOutcome) -> None:
        place = row.name, namespace
        if not outcome.slow:
            self._slow.pop(place, None)
            return
        self._slow[place] += 1
        if self._slow[place] >= MOST_SLOW:
            del self._slow[place]
            self._rests_until[place] = time.monotonic() + RESTS_S

    def _note_outcome(self, row: ObjectRow, name: str, outcome: RowOutcome) -> None:
        failing = self._failing[row.name]
        if not outcome.problem:
            failing.pop(name, None)
            return
        self._counted.failed(row.name)
        first, failing[name] = not failing, outcome.problem
        now = time.monotonic()
        if first and now >= self._logged_at.get(row.name, float("-inf")) + TOLD_EVERY_S:
            self._logged_at[row.name] = now
            _LOG.warning(
                "a rule about objects says nothing of one",
                rule=row.name,
                object=one_line(name),
                reason=one_line(outcome.problem),
            )


class _KindSink:
    """Takes the changes of one kind."""

    def __init__(self, feed: ObjectFeed, kind: WatchedKind) -> None:
        self._feed = feed
        self._kind = kind

    async def send(self, changes: list[Change]) -> None:
        for change in changes:
            await self._feed.handle(self._kind, change)
