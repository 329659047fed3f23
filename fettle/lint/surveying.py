"""Judging every device of the fleet by a selection, pool by pool, in short slices.

Devices that look alike to an expression are evaluated once. What is kept of each pool is little,
since there are thousands of pools and dozens of selections.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from fettle.amounts import Unreadable, nano
from fettle.lint.surveys import Abort, Look, Selection, Survey
from fettle.selectors import rows
from fettle.selectors.outcomes import Kind, Outcome
from fettle.selectors.rows import Key, Reads
from fettle.view import DeviceView, PoolView, View
from fettle.wire.resource import Device, DeviceTaint

_Value = TypeVar("_Value")
_SLICE_S = 0.0002
_ABORTS = 3


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


class Seen(NamedTuple):
    """What a pool holds, as one node or several see it: for each device its look and standing.

    `unclear`: devices may be missing. `devices` is equal for pools with the same devices.
    """

    pool: PoolView
    looks: tuple[Look, ...]
    standings: tuple[_Standing, ...]
    unclear: bool
    devices: tuple[str, str, int]


def see(pool: PoolView, alike: dict[object, Any]) -> Seen:
    """`alike` keeps equal looks as one: there are few of them, and thousands of pools."""
    looks = tuple(_one(alike, _look(device)) for device in pool.devices)
    standings = tuple(map(_standing, pool.devices))
    first = id(pool.devices[0].published) if pool.devices else 0
    return Seen(
        pool,
        _one(alike, looks),
        _one(alike, standings),
        bool(pool.incomplete or pool.invalid),
        (pool.driver, pool.name, first),
    )


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
    return Look(device.id.driver, frozenset(wire.attributes or ()), capacity)


class Judged(msgspec.Struct, frozen=True, gc=False):
    """One pool under one selection: `missed` is one device of each look that only
    the class's selectors match."""

    seen: Seen
    matched: tuple[DeviceView, ...]
    missed: tuple[tuple[Look, DeviceView], ...]
    of_class: int
    undecided: int
    aborts: tuple[Abort, ...]


class Slices:
    """Lets others have their turn whenever a short time has passed."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pause(self) -> None:
        if time.perf_counter() - self._began > _SLICE_S:
            await asyncio.sleep(0)
            self._began = time.perf_counter()


class _Working:
    """A pool while it is being judged: the devices that all expressions so far match."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.alive = [i for i, s in enumerate(seen.standings) if s is _Standing.SOUND]
        self.undecided = seen.standings.count(_Standing.UNCLEAR) + seen.unclear
        self.of_class = 0
        self.keys: list[Key] = []
        self._missed: dict[Look, DeviceView] = {}
        self._aborts: list[Abort] = []

    def sift(self, expression: str, outcomes: Mapping[Key, Outcome | None], *, own: bool) -> None:
        """Keep what the expression matches; `own`: it is of the request, not of the class."""
        alive: list[int] = []
        devices = self.seen.pool.devices
        for index, key in zip(self.alive, self.keys, strict=True):
            outcome = outcomes[key]
            if outcome is None or outcome.undecided:
                self.undecided += 1
            elif outcome.matches:
                alive.append(index)
            elif outcome.kind is Kind.WOULD_ABORT:
                self._aborts.append(Abort(expression, devices[index].id, outcome.reason))
            elif own:
                self._missed.setdefault(self.seen.looks[index], devices[index])
        self.alive = alive
        self.keys = []

    def judged(self) -> Judged:
        devices = self.seen.pool.devices
        everything = len(self.alive) == len(devices)
        return Judged(
            self.seen,
            devices if everything else tuple(devices[index] for index in self.alive),
            tuple(self._missed.items()),
            self.of_class,
            self.undecided,
            tuple(self._aborts),
        )


async def judge(
    selection: Selection,
    seen: Mapping[int, Seen],
    before: Mapping[int, Judged],
    evaluator: Evaluator,
) -> dict[int, Judged]:
    """All pools under a selection; `before` are those that were judged and did not change."""
    slices = Slices()
    judged: dict[int, Judged] = {}
    working: dict[int, _Working] = {}
    for key, pool in seen.items():
        if (same := before.get(key)) is not None:
            judged[key] = same
        else:
            working[key] = _Working(pool)
        await slices.pause()
    await _sift(selection, working.values(), evaluator, slices)
    for key, done in working.items():
        judged[key] = done.judged()
        await slices.pause()
    return judged


async def _sift(
    selection: Selection, pools: Collection[_Working], evaluator: Evaluator, slices: Slices
) -> None:
    """Apply all expressions, in the allocator's order: the first that does not match decides.

    Of the devices that look alike to an expression, only one is evaluated.
    """
    for expression in selection.of_class:
        await _sift_by(expression, pools, evaluator, slices, own=False)
    for pool in pools:
        pool.of_class = len(pool.alive)
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
    await evaluator.evaluate((expression,), ())  # now it is known what it reads
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
    """What the nearest device of the class lacks, where none matches."""
    if survey.matched or not survey.missed:
        return ""
    missed = sorted(survey.missed.values(), key=_size, reverse=True)
    devices = [(device.id.driver, device.device) for device in missed]
    found = [await evaluator.nearest(e, devices) for e in selection.of_request]
    return " and ".join(filter(None, found))


def _size(device: DeviceView) -> list[int]:
    """Capacities in 1e-9: of devices that lack as much, the largest is the nearest."""
    try:
        return [nano(c.value) for _, c in sorted((device.device.capacity or {}).items())]
    except Unreadable:
        return []


async def total(selection: Selection, judged: Mapping[int, Judged], view: View) -> Survey:
    """The survey that follows from all pools."""
    slices = Slices()
    on, local = await _by_node(judged, view, slices)
    sums: Counter[str] = Counter()
    taints: Counter[tuple[DeviceTaint, ...]] = Counter()
    looks: dict[Look, DeviceView] = {}
    missed: dict[Look, DeviceView] = {}
    drivers: set[str] = set()
    aborts: list[Abort] = []
    counted: set[tuple[str, str, int]] = set()
    for found in judged.values():
        if found.seen.devices in counted and found.seen.pool.devices:
            continue  # the same devices, as another node sees them
        counted.add(found.seen.devices)
        sums["looked"] += len(found.seen.looks)
        sums["of_class"] += found.of_class
        sums["matched"] += len(found.matched)
        sums["undecided"] += found.undecided
        if found.of_class:
            sums["pools_of_class"] += 1
            drivers.add(found.seen.pool.driver)
        aborts += found.aborts
        missed.update(found.missed)
        for device in found.matched:
            taints[device.taints] += 1
        _note_looks(found, looks)
        await slices.pause()
    return Survey(
        selection=selection,
        looked=sums["looked"],
        pools=len(counted),
        pools_of_class=sums["pools_of_class"],
        local=local,
        of_class=sums["of_class"],
        matched=sums["matched"],
        aborted=len(aborts),
        undecided=sums["undecided"],
        drivers=frozenset(drivers),
        aborts=tuple(aborts[:_ABORTS]),
        on=on,
        looks=looks,
        missed=missed,
        taints=taints,
        most=max(map(len, on.values()), default=0),
    )


async def _by_node(
    judged: Mapping[int, Judged], view: View, slices: Slices
) -> tuple[dict[str, tuple[DeviceView, ...]], bool]:
    """Matches by node, and whether each pool with matches serves one node only."""
    on: dict[str, tuple[DeviceView, ...]] = {}
    places: Counter[tuple[str, str]] = Counter()
    for name, node in view.nodes.items():
        here = [found for pool in node.pools if (found := judged.get(id(pool)))]
        matched = [found.matched for found in here if found.matched]
        places.update((f.seen.pool.driver, f.seen.pool.name) for f in here if f.matched)
        if matched:
            on[name] = matched[0] if len(matched) == 1 else sum(matched, ())
        await slices.pause()
    return on, all(count == 1 for count in places.values())


def _note_looks(found: Judged, looks: dict[Look, DeviceView]) -> None:
    matched = set(map(id, found.matched))
    for look, device in zip(found.seen.looks, found.seen.pool.devices, strict=True):
        if id(device) in matched:
            looks.setdefault(look, device)
