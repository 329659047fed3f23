"""Judging every device of the fleet by a selection, in short slices.

Pools that look alike to a selection are judged once, and of the devices that look alike to an
expression one is evaluated: a fleet of few models costs little more than to go over its pools.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from fettle.amounts import Unreadable, nano
from fettle.inventory.shapes import read_by
from fettle.lint.surveys import Abort, Look, Selection, Survey
from fettle.selectors import rows, versions
from fettle.selectors.outcomes import Kind, Outcome
from fettle.selectors.rows import Key, Read, Reads, Value
from fettle.view import DeviceView, PoolView, View
from fettle.wire.resource import Device, DeviceAttribute, DeviceTaint

_Value = TypeVar("_Value")
_SLICE_S = 0.0002
_ABORTS = 3
_MISSED = 1024

_taints = attrgetter("taints")


class Evaluator(Protocol):
    """Outcomes of selectors; see `fettle.selectors.engine`."""

    def outcome(self, expression: str, driver: str, device: Device) -> Outcome | None: ...

    def reads(self, expression: str) -> Reads: ...

    async def nearest(self, expression: str, devices: Sequence[tuple[str, Device]]) -> str: ...

    async def evaluate(
        self, expressions: Iterable[str], devices: Iterable[tuple[str, Device]]
    ) -> None: ...


class _Standing(Enum):
    """What is known of a device before any selector: it can be judged, it is for other nodes, or
    one of the two cannot be told."""

    SOUND = "sound"
    ELSEWHERE = "elsewhere"
    UNCLEAR = "unclear"


class Makeup(msgspec.Struct, frozen=True, eq=False):
    """What pools alike have in common, but for their attributes' values: looks and standings, a
    device each. Equal ones are one object."""

    looks: tuple[Look, ...]
    standings: tuple[_Standing, ...]


class Seen(NamedTuple):
    """What a pool holds, as one node or several see it.

    `unclear`: devices may be missing. `devices` is equal where the same ones are published, and for
    nodes that may use the same of them.
    """

    pool: PoolView
    makeup: Makeup
    unclear: bool
    devices: Hashable


def see(pool: PoolView, alike: dict[object, Any]) -> Seen:
    """`alike` keeps what is equal as one: there are few makeups, and thousands of pools."""
    looks = tuple(_one(alike, _look(device)) for device in pool.devices)
    standings = tuple(map(_standing, pool.devices))
    makeup = Makeup(looks, standings)
    if pool.columns:  # else nothing tells whether attributes are equal
        makeup = alike.setdefault((looks, standings), makeup)
    published = hash(tuple([id(device.published) for device in pool.devices]))
    unclear = bool(pool.incomplete or pool.invalid or pool.unclear)
    return Seen(pool, makeup, unclear, (published, makeup.standings))


def _standing(device: DeviceView) -> _Standing:
    if device.misplaced or rows.problem(device.id.driver, device.device):
        return _Standing.UNCLEAR
    return _Standing.SOUND if device.here else _Standing.ELSEWHERE


def _one(alike: dict[object, Any], value: _Value) -> _Value:
    same: _Value = alike.setdefault(value, value)
    return same


def _look(device: DeviceView) -> Look:
    wire = device.device
    capacity = msgspec.json.encode(wire.capacity) if wire.capacity else b""
    multiple = bool(wire.allow_multiple_allocations)
    return Look(device.id.driver, frozenset(wire.attributes or ()), capacity, multiple)


Likeness = tuple[Makeup, tuple[bytes | None, ...]]
"""Pools of equal likeness look alike to a selection: their makeup, and digests of the attributes
that the selection reads."""


class Judged(msgspec.Struct, frozen=True, gc=False):
    """Pools of one likeness under one selection, devices by their places: those that all selectors
    match, that the class's match, and that only those match. `aborts` have expression and reason.
    """

    matched: tuple[int, ...]
    of_class: tuple[int, ...]
    missed: tuple[int, ...]
    undecided: int
    aborts: tuple[tuple[int, str, str], ...]


class Slices:
    """Lets others have their turn whenever a short time has passed."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pause(self) -> None:
        if time.perf_counter() - self._began > _SLICE_S:
            await asyncio.sleep(0)
            self._began = time.perf_counter()


class Judging(NamedTuple):
    """How all pools stand to a selection: each pool's likeness, and what is found of each."""

    likeness: Mapping[int, Likeness]
    judged: Mapping[Likeness, Judged]


async def judge(
    selection: Selection,
    seen: Mapping[int, Seen],
    before: Mapping[Likeness, Judged],
    evaluator: Evaluator,
) -> Judging:
    """All pools under a selection; `before` is what was found of such pools and holds still."""
    slices = Slices()
    expressions = (*selection.of_class, *selection.of_request)
    await evaluator.evaluate(expressions, ())  # now it is known what they read
    reads = [evaluator.reads(expression) for expression in expressions]
    attributes = read_by((), reads)
    likeness: dict[int, Likeness] = {}
    judged: dict[Likeness, Judged] = {}
    working: dict[Likeness, _Working] = {}
    for key, pool in seen.items():
        columns = pool.pool.columns
        like = pool.makeup, tuple([columns.get(attribute) for attribute in attributes])
        likeness[key] = like
        if like in judged or like in working:
            continue
        if (same := before.get(like)) is not None:
            judged[like] = same
        else:
            working[like] = _Working(pool)
        await slices.pause()
    if working:
        await _sift(selection, working.values(), evaluator, slices)
    for like, done in working.items():
        judged[like] = done.judged()
        await slices.pause()
    return Judging(likeness, judged)


class _Working:
    """A pool while it is being judged: the devices that all expressions so far match."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        standings = seen.makeup.standings
        self.alive = [i for i, s in enumerate(standings) if s is _Standing.SOUND]
        self.undecided = standings.count(_Standing.UNCLEAR)
        self.of_class: tuple[int, ...] = ()
        self.keys: list[Key] = []
        self._missed: list[int] = []
        self._aborts: list[tuple[int, str, str]] = []

    def sift(self, expression: str, outcomes: Mapping[Key, Outcome | None], *, own: bool) -> None:
        """Keep what the expression matches; `own`: it is of the request, not of the class."""
        alive: list[int] = []
        for index, key in zip(self.alive, self.keys, strict=True):
            outcome = outcomes[key]
            if outcome is None or outcome.undecided:
                self.undecided += 1
            elif outcome.matches:
                alive.append(index)
            elif outcome.kind is Kind.WOULD_ABORT:
                self._aborts.append((index, expression, outcome.reason))
            elif own:
                self._missed.append(index)
        self.alive = alive
        self.keys = []

    def judged(self) -> Judged:
        return Judged(
            tuple(self.alive),
            self.of_class,
            tuple(self._missed),
            self.undecided,
            tuple(self._aborts),
        )


async def _sift(
    selection: Selection, pools: Collection[_Working], evaluator: Evaluator, slices: Slices
) -> None:
    """Apply all expressions, in the allocator's order: the first that does not match decides.

    Of the devices that look alike to an expression, only one is evaluated.
    """
    for expression in selection.of_class:
        await _sift_by(expression, pools, evaluator, slices, own=False)
    for pool in pools:
        pool.of_class = tuple(pool.alive)
    for expression in selection.of_request:
        await _sift_by(expression, pools, evaluator, slices, own=True)


async def _sift_by(
    expression: str,
    pools: Collection[_Working],
    evaluator: Evaluator,
    slices: Slices,
    *,
    own: bool,
) -> None:
    reads = evaluator.reads(expression)
    examples: dict[Key, Device] = {}
    for pool in pools:
        devices, driver = pool.seen.pool.devices, pool.seen.pool.driver
        pool.keys = [rows.key(reads, driver, devices[index].device) for index in pool.alive]
        for index, key in zip(pool.alive, pool.keys, strict=True):
            examples.setdefault(key, devices[index].device)
        await slices.pause()
    known = [(str(key[0]), device) for key, device in examples.items()]
    await evaluator.evaluate((expression,), known)
    outcomes = {
        key: evaluator.outcome(expression, driver, device)
        for key, (driver, device) in zip(examples, known, strict=True)
    }
    for pool in pools:
        pool.sift(expression, outcomes, own=own)
        await slices.pause()


async def nearest_miss(selection: Selection, survey: Survey, evaluator: Evaluator) -> str:
    """What the nearest device of the class lacks, where none matches.

    Of devices that lack as much, the one with the largest values is the nearest.
    """
    if survey.matched or not survey.missed:
        return ""
    reads = [read for e in selection.of_request for read in evaluator.reads(e) or ()]
    missed = sorted(survey.missed, key=lambda device: _size(device, reads), reverse=True)
    devices = [(device.id.driver, device.device) for device in missed]
    found = [await evaluator.nearest(e, devices) for e in selection.of_request]
    return " and ".join(filter(None, found))


def _size(device: DeviceView, reads: Iterable[Read]) -> list[tuple[int, ...]]:
    """What it has where expressions look, and then its capacities."""
    looked = [rows.look(read, device.id.driver, device.device) for read in reads]
    capacity = device.device.capacity or {}
    return [_amount(v) for v in (*looked, *(capacity[name].value for name in sorted(capacity)))]


def _amount(value: Value | bool | None) -> tuple[int, ...]:
    """Comparable with those of the same attribute or capacity; empty where nothing is larger."""
    if isinstance(value, DeviceAttribute):
        if value.version is not None and versions.is_version(value.version):
            major, minor, patch, *_ = versions.parse(value.version)
            return major, minor, patch
        return (value.int_,) if value.int_ is not None else ()
    if value is None or isinstance(value, bool):
        return ()
    try:
        return (nano(value),)
    except Unreadable:
        return ()


class _Counted(NamedTuple):
    """One pool as the cluster has it, whoever sees it."""

    looked: int
    of_class: int
    matched: Collection[DeviceView]
    undecided: int
    aborts: Sequence[Abort]


def _counted(sightings: Sequence[tuple[Seen, Judged]]) -> _Counted:
    """Each device once: nodes may see different ones of a pool, and may use different ones."""
    devices: dict[int, DeviceView] = {}
    of_class: set[int] = set()
    matched: dict[int, DeviceView] = {}
    aborts: dict[int, Abort] = {}
    for seen, found in sightings:
        ids = [id(device.published) for device in seen.pool.devices]
        devices.update(zip(ids, seen.pool.devices, strict=True))
        of_class.update(ids[at] for at in found.of_class)
        matched.update((ids[at], seen.pool.devices[at]) for at in found.matched)
        aborts.update((ids[at], _abort(seen, at, *why)) for at, *why in found.aborts)
    undecided = max(found.undecided + seen.unclear for seen, found in sightings)
    return _Counted(len(devices), len(of_class), matched.values(), undecided, list(aborts.values()))


def _counted_once(seen: Seen, found: Judged) -> _Counted:
    """The same, of a pool that all see alike."""
    devices = seen.pool.devices
    return _Counted(
        len(devices),
        len(found.of_class),
        _at(devices, found.matched),
        found.undecided + seen.unclear,
        [_abort(seen, at, *why) for at, *why in found.aborts],
    )


def _abort(seen: Seen, at: int, expression: str, reason: str) -> Abort:
    return Abort(expression, seen.pool.devices[at].id, reason)


async def total(
    selection: Selection, judging: Judging, seen: Mapping[int, Seen], view: View
) -> Survey:
    """The survey that follows from all pools."""
    slices = Slices()
    sums: Counter[str] = Counter()
    taints: Counter[tuple[DeviceTaint, ...]] = Counter()
    looks: dict[Look, DeviceView] = {}
    missed: list[DeviceView] = []
    drivers: set[str] = set()
    aborts: list[Abort] = []
    matches: dict[int, tuple[DeviceView, ...]] = {}
    noted: set[Likeness] = set()
    sightings: dict[tuple[str, str], dict[Hashable, tuple[Seen, Judged]]] = {}
    for key, pool in seen.items():
        like = judging.likeness[key]
        found, devices = judging.judged[like], pool.pool.devices
        matches[key] = _at(devices, found.matched)
        sightings.setdefault((pool.pool.driver, pool.pool.name), {})[pool.devices] = pool, found
        if like not in noted:
            noted.add(like)
            for at in found.matched:
                looks.setdefault(pool.makeup.looks[at], devices[at])
            missed += _at(devices, found.missed)[: _MISSED - len(missed)]
        await slices.pause()
    for (driver, _), seen_as in sightings.items():
        ways = list(seen_as.values())
        counted = _counted_once(*ways[0]) if len(ways) == 1 else _counted(ways)
        sums["looked"] += counted.looked
        sums["of_class"] += counted.of_class
        sums["matched"] += len(counted.matched)
        sums["undecided"] += counted.undecided
        sums["aborted"] += len(counted.aborts)
        taints.update(map(_taints, counted.matched))
        if counted.of_class:
            sums["pools_of_class"] += 1
            drivers.add(driver)
        aborts += counted.aborts[: _ABORTS - len(aborts)]
        await slices.pause()
    on, local = await _by_node(matches, view, slices)
    return Survey(
        selection=selection,
        looked=sums["looked"],
        pools=len(sightings),
        pools_of_class=sums["pools_of_class"],
        local=local,
        of_class=sums["of_class"],
        matched=sums["matched"],
        aborted=sums["aborted"],
        undecided=sums["undecided"],
        drivers=frozenset(drivers),
        aborts=tuple(aborts),
        on=on,
        looks=looks,
        missed=tuple(missed),
        taints=taints,
        most=max(map(len, on.values()), default=0),
    )


def _at(devices: tuple[DeviceView, ...], places: tuple[int, ...]) -> tuple[DeviceView, ...]:
    if len(places) == len(devices):
        return devices
    return tuple([devices[at] for at in places])


async def _by_node(
    matches: Mapping[int, tuple[DeviceView, ...]], view: View, slices: Slices
) -> tuple[dict[str, tuple[DeviceView, ...]], bool]:
    """Matches by node, and whether each pool with matches serves one node only."""
    on: dict[str, tuple[DeviceView, ...]] = {}
    places: set[tuple[str, str]] = set()
    local = True
    for name, node in view.nodes.items():
        for pool in node.pools:
            if matched := matches.get(id(pool), ()):
                on[name] = on[name] + matched if name in on else matched
                local = local and (pool.driver, pool.name) not in places
                places.add((pool.driver, pool.name))
        await slices.pause()
    return on, local
