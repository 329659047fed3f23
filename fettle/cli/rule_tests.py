"""`fettle rules test`: what each row of a rules file would say about the objects of a snapshot or
cluster. A row says what would not be said without it, and keeps others from saying what would be.
"""

import asyncio
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from fettle.api import Bad, Change, ObjectFact, ObjectReported, Put, core, kinds, read_object
from fettle.api.kinds import EVENTS, KINDS, Kind, any_kind
from fettle.cel import ObjectJudge, RowOutcome
from fettle.cli import tables
from fettle.cli.sources import Reading
from fettle.cluster import EMPTY, Inventory, View
from fettle.cluster.feeds import MOST_FACTS_OF_TENANTS, OtherObject, SnapshotFolder, read_once
from fettle.config import Settings, load_settings
from fettle.health import (
    HealthBook,
    ObjectKind,
    ObjectRow,
    SignalRules,
    Tables,
    gpu_names,
    make_rules,
    one_line,
    own_rows,
    readable,
    rule_mistakes,
    rules_without,
    subject_called,
)
from fettle.model import ClusterError, DeviceId, EvidenceKind, NodeId, SnapshotError, UnitId

if TYPE_CHECKING:
    from fettle.client import Session

SAID, SILENT, UNUSABLE = 0, 1, 2
_NOT_ASKED = frozenset(("metrics", "alerts", "exporters"))
"""Tables about what Prometheus and Alertmanager say, which no object tells."""
_LONGEST_INDEX = 9
_MOST_SHOWN = 20
"""Facts of a row that are shown one by one."""


class RulesTestOptions(NamedTuple):
    """The flags of `fettle rules test`. `reading`: of the cluster, if there is no `snapshot`."""

    file: str
    snapshot: Path | None
    reading: Reading
    output: str
    fail_on: str


class Fact(NamedTuple):
    """What is said of a node or a device, as `fettle explain` has it."""

    about: str
    weight: float
    family: str
    said: str
    namespace: str
    evidence: EvidenceKind

    @property
    def shown(self) -> str:
        if self.evidence is EvidenceKind.UNKNOWN:
            return f"makes {self.about} Unknown: {self.said}"
        latched = ", latched" if self.evidence is EvidenceKind.LATCHED else ""
        word = f", the word of namespace {self.namespace}" if self.namespace else ""
        return f"{self.about}  {self.weight:g} {self.family}{latched}{word}: {self.said}"


class RowResult(NamedTuple):
    """What a row says. `instead`: what others say without it. `skipped`: why it is not tried.

    Of a row about objects, by object: `unknown`: why it says nothing; `absent`: why what it says is
    about nothing that there is; `unsaid`: why a part of its message cannot be told. `looked_at`:
    which objects there are.
    """

    table: str
    name: str
    says: tuple[Fact, ...] = ()
    instead: tuple[Fact, ...] = ()
    unknown: Mapping[str, str] = {}
    absent: Mapping[str, str] = {}
    unsaid: Mapping[str, str] = {}
    looked_at: str = ""
    skipped: str = ""

    @property
    def is_silent(self) -> bool:
        return not (self.says or self.instead or self.skipped)


class Told:
    """What rows about objects say. By row and object: what it counts for, why that could not be
    told, and why a part of its message could not."""

    def __init__(self) -> None:
        self.reported: list[ObjectReported] = []
        self.counts: defaultdict[str, dict[str, tuple[ObjectFact, ...]]] = defaultdict(dict)
        self.unknown: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self.unsaid: defaultdict[str, dict[str, str]] = defaultdict(dict)

    def take(self, row: str, name: str, outcome: RowOutcome) -> None:
        if outcome.problem:
            self.unknown[row][name] = outcome.problem
        if outcome.counts:
            self.counts[row][name] = outcome.facts
        if outcome.unsaid:
            self.unsaid[row][name] = outcome.unsaid


class Objects:
    """What was read: `known` kinds for the inventory, `others` for rows about objects. It is a
    sink."""

    def __init__(self) -> None:
        self.known: list[tuple[Kind, Any]] = []
        self.bad: list[Bad] = []
        self.others: list[OtherObject] = []
        self.notes: list[str] = []

    async def send(self, changes: list[Change]) -> None:
        for change in changes:
            self.take(change)

    def take(self, change: Change) -> None:
        match change:
            case Put(kind, new):
                self.known.append((kind, new))
            case Bad():
                self.bad.append(change)


def run(options: RulesTestOptions) -> int:
    """Print what the rows say; returns the exit code. Raises FettleError."""
    settings = load_settings(options.reading.settings)
    own = _rows(options.file)
    if own is None:
        return UNUSABLE
    objects, results = asyncio.run(_tested(options, settings, own))
    if options.output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode([*map(_plain, results)])))
    else:
        _show(results)
    for note in objects.notes:
        click.echo(f"fettle: {note}", err=True)
    if any(one.unknown for one in results):
        return SILENT
    return SILENT if options.fail_on == "silent" and any(one.is_silent for one in results) else SAID


def _rows(file: str) -> Tables | None:
    """The rows of the file; None if there are mistakes, which are told."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise SnapshotError(f"rules file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SnapshotError(f"rules file {file}: not valid UTF-8: {error}") from error
    mistakes = rule_mistakes(text, file)
    for one in mistakes:
        row = f"row {one.row!r}: " if one.row else ""
        fix = f"; {one.fix}" if one.fix else ""
        click.echo(f"fettle: {file}: {one.path}: {row}{one.problem}{fix}", err=True)
    return None if mistakes else own_rows(file, text)


# --- what there is


async def _tested(
    options: RulesTestOptions, settings: Settings, own: Tables
) -> tuple[Objects, list[RowResult]]:
    rows = [row for row in own["objects"].values() if isinstance(row, ObjectRow)]
    wanted = dict.fromkeys(row.of for row in rows)
    if options.snapshot is not None:
        objects = _of_folder(options.snapshot, wanted)
    else:
        objects = await _of_cluster(options.reading, wanted)
    objects.notes += (f"{one.kind.name} {one.key}: {one.reason}" for one in objects.bad)
    now = time.time()
    told = await _told(objects.others, rows, now)
    return objects, [*_results(own, objects, told, settings, now)]


def _of_folder(path: Path, wanted: Collection[ObjectKind]) -> Objects:
    folder, objects = SnapshotFolder(path, wanted), Objects()
    folder.poll()
    if folder.problems and not folder.objects and not folder.others:
        raise SnapshotError("; ".join(folder.problems.values()))
    for key, raw in folder.objects.items():
        if key.kind != kinds.DEVICE_HEALTH.name:  # what Fettle remembers, no row decides
            objects.take(read_object(kinds.BY_NAME[key.kind], raw))
    objects.others = folder.others
    objects.notes = [*folder.problems.values(), *folder.clashes]
    return objects


async def _of_cluster(reading: Reading, wanted: Collection[ObjectKind]) -> Objects:
    from fettle.client import Chosen, Session

    read = [kind for kind in (*KINDS, *EVENTS) if kind is not kinds.DEVICE_HEALTH]
    chosen, objects = Chosen(reading.context, reading.acts_as, reading.groups), Objects()
    async with await Session.open(reading.kubeconfig, chosen=chosen) as session:
        unread = await read_once(session, objects, read)
        objects.notes += dict.fromkeys(map(str, unread.values()))
        for of in wanted:
            try:
                await _read_others(session, of, objects)
            except ClusterError as error:
                objects.notes.append(f"{of}: {error}")
    return objects


async def _read_others(session: "Session", of: ObjectKind, objects: Objects) -> None:
    """Raises ClusterError."""
    from fettle.client import served_kinds

    same = [one for one in await served_kinds(session, of.group) if one.kind == of.kind]
    served = next((one for one in same if one.version == of.version), None)
    if served is None:
        versions = ", ".join(one.version for one in same)
        others = f", only {versions}" if versions else ""
        objects.notes.append(f"{of}: the cluster does not serve {of.api_version}{others}")
        return
    found = Objects()
    kind = any_kind(of.group, of.version, of.kind, served.plural)
    unread = await read_once(session, found, [kind])
    objects.notes += (f"{of}: {error}" for error in unread.values())
    objects.others += (OtherObject(of, Put(kind, one)) for _, one in found.known)
    objects.others += (OtherObject(of, one) for one in found.bad)


# --- what is said of it


async def _told(others: Sequence[OtherObject], rows: Sequence[ObjectRow], now: float) -> Told:
    told, judge = Told(), ObjectJudge()
    try:
        for of, read in others:
            about = [row for row in rows if row.of == of]
            if isinstance(read, Bad):
                key, uid = read.key, ""
                outcomes: Sequence[RowOutcome] = [RowOutcome(problem=read.reason)] * len(about)
            else:
                assert isinstance(read.object, core.WatchedObject)
                key, uid = read.object.metadata.key, read.object.metadata.uid
                texts = [row.expressions for row in about]
                judged = await judge.judge(texts, read.object.raw, now)
                outcomes = [*map(readable, judged)]
            facts: dict[str, tuple[ObjectFact, ...]] = {}
            for row, outcome in zip(about, outcomes, strict=True):
                told.take(row.name, f"{of} {key}", outcome)
                if outcome.facts:
                    trusted = row.trusts(key.rpartition("/")[0])
                    facts[row.name] = outcome.facts[: None if trusted else MOST_FACTS_OF_TENANTS]
            told.reported.append(ObjectReported(str(of), key, uid, facts))
    finally:
        await judge.close()
    return told


def _results(
    own: Tables,
    objects: Objects,
    told: Told,
    settings: Settings,
    now: float,
) -> Iterator[RowResult]:
    view = _view(objects, told.reported, make_rules(own), settings, now)
    whole = _facts(view)
    number = Counter(one.of for one in objects.others)
    for table, rows in own.items():
        for name, row in rows.items():
            if table in _NOT_ASKED:
                yield RowResult(table, name, skipped="no object tells: Prometheus is asked")
                continue
            others = rules_without(own, table, name)
            without = _facts(_view(objects, told.reported, others, settings, now))
            result = RowResult(
                table,
                name,
                tuple(fact for fact in whole if fact not in without),
                tuple(fact for fact in without if fact not in whole),
            )
            if isinstance(row, ObjectRow):
                result = result._replace(
                    unknown=told.unknown[name],
                    absent=_absent(told.counts[name], view),
                    unsaid=told.unsaid[name],
                    looked_at=_looked_at(row.of, number),
                )
            yield result


def _looked_at(of: ObjectKind, number: Mapping[ObjectKind, int]) -> str:
    if of in number:
        return f" of {number[of]} {of.kind}"
    others = {one.version for one in number if (one.group, one.kind) == (of.group, of.kind)}
    if others:
        versions = one_line(", ".join(sorted(others)))
        return f": there is no {of.kind} of {of.api_version}, only of {versions}"
    return f": there is no {of.kind}"


def _absent(counts: Mapping[str, tuple[ObjectFact, ...]], view: View | None) -> dict[str, str]:
    """By object, why what is said of it is about nothing that there is."""
    found = {}
    for name, facts in counts.items():
        why = [_why_absent(fact, view) for fact in facts] or ["`node` names none"]
        if told := "; ".join(dict.fromkeys(filter(None, why))):
            found[name] = told
    return found


def _why_absent(fact: ObjectFact, view: View | None) -> str:
    """Why there is not what a fact is about; "" as far as anything tells."""
    node = None if view is None else view.nodes.get(fact.node)
    if node is None:
        return f"there is no node {one_line(fact.node)!r}"
    subject = subject_called(fact.device, NodeId(fact.node))
    has_not = f"node {fact.node} has no such device as {one_line(fact.device)!r}"
    if isinstance(subject, DeviceId):
        devices = (one for pool in node.pools for one in (*pool.devices, *pool.withheld))
        is_there = any(str(one.published.id) == str(subject) for one in devices)
        return "" if is_there else has_not
    if isinstance(subject, UnitId):
        plugin = node.plugins.get(subject.resource)
        number = plugin.capacity if plugin is not None else 0
        index = subject.unit.removeprefix("index:") if gpu_names.is_index(subject.unit) else ""
        if not number or (index.isdecimal() and int(index[:_LONGEST_INDEX]) >= number):
            return f"{has_not}: it has {number} {subject.resource}"
    return ""


def _view(
    objects: Objects,
    reported: Iterable[ObjectReported],
    rules: SignalRules,
    settings: Settings,
    now: float,
) -> View | None:
    """What becomes of it by these rules, by the code that serves."""
    inventory = Inventory(HealthBook(settings.health, rules), rules, health=settings.health)
    for kind, one in objects.known:
        inventory.put(kind, one, now)
    for bad in objects.bad:
        inventory.quarantine(bad, now)
    for one in reported:
        inventory.take_report(one, now)
    inventory.age(now)
    for _ in inventory.refresh(now):
        pass
    return inventory.view(EMPTY, synced=True, served={})


def _facts(view: View | None) -> Mapping[Fact, None]:
    """What is said of nodes and devices."""
    return dict.fromkeys(sorted(_facts_of(view))) if view is not None else {}


def _facts_of(view: View) -> Iterator[Fact]:
    for node in view.nodes.values():
        units = (unit.health for plugin in node.plugins.values() for unit in plugin.units)
        devices = (one.health for pool in node.pools for one in (*pool.devices, *pool.withheld))
        for health in chain((node.health,), units, devices):
            for one in (weighed.evidence for weighed in health.evidence):
                yield Fact(
                    str(one.subject),
                    one.weight,
                    one.family,
                    one.said,
                    one.reporting_namespace,
                    one.kind,
                )


# --- how it is told


def _show(results: Sequence[RowResult]) -> None:
    for table, rows in groupby(results, key=lambda row: row.table):
        for row in rows:
            click.echo(f"{table}  {row.name}: {_summary(row)}")
            for line in _lines(row):
                click.echo(f"    {tables.readable(line)}")
    silent = sum(row.is_silent for row in results)
    says = "says" if silent == 1 else "say"
    click.echo(f"{len(results)} rows, {silent} {says} nothing", err=True)


def _summary(row: RowResult) -> str:
    if row.skipped:
        return row.skipped
    if not row.is_silent:
        said = f"says {len(row.says)}" if row.says else ""
        kept = f"keeps from being said {len(row.instead)}" if row.instead else ""
        return ", ".join(filter(None, (said, kept)))
    matches = f"matches {len(row.absent)}, and " if row.absent else ""
    return f"{matches}says nothing{row.looked_at}"


def _lines(row: RowResult) -> Iterator[str]:
    for mark, facts in (("+", row.says), ("-", row.instead)):
        yield from (f"{mark} {fact.shown}" for fact in facts[:_MOST_SHOWN])
        if (more := len(facts) - _MOST_SHOWN) > 0:
            yield f"{mark} and {more} more"
    for mark, problems in (
        ("! matches", row.absent),
        ("? cannot be told of", row.unknown),
        ("? a part of the message cannot be told of", row.unsaid),
    ):
        if problems:
            key, why = min(problems.items())
            number = len(problems)
            objects = "1 object" if number == 1 else f"{number} objects, such as"
            yield f"{mark} {objects} {one_line(key)}: {one_line(why)}"


def _plain(row: RowResult) -> dict[str, Any]:
    return {
        "table": row.table,
        "row": row.name,
        "says": [fact._asdict() for fact in row.says],
        "instead": [fact._asdict() for fact in row.instead],
        "unknown": row.unknown,
        "absent": row.absent,
        "unsaid": row.unsaid,
        "skipped": row.skipped,
    }
