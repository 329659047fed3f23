"""Judging every device of the fleet by a selection, in short slices.

Pools that look alike to a selection are judged once, and of the devices that look alike to an
expression one is evaluated: a fleet of few models costs little more than to go over its pools.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from fettle.api.resource import Device
from fettle.cel import Equation, Outcome, OutcomeKind, Reads, RowFingerprint, rows
from fettle.cluster import attributes_read
from fettle.dra import SOME_DRIVER, DeviceView, PoolView
from fettle.lint.survey.surveys import DeviceFingerprint, Selection, TypeOf, comparable_type
from fettle.pacing import Slices

_Value = TypeVar("_Value")


class Evaluator(Protocol):
    """Outcomes of selectors; see `fettle.cel.runtime.engine`."""

    def outcome(self, expression: str, driver: str, device: Device) -> Outcome | None: ...

    def reads(self, expression: str) -> Reads: ...

    def equations(self, expression: str) -> tuple[Equation, ...]: ...

    def driver(self, expression: str) -> str | None: ...

    async def nearest(
        self, expressions: Iterable[str], devices: Sequence[tuple[str, Device]]
    ) -> str: ...

    async def evaluate(
        self, expressions: Iterable[str], devices: Iterable[tuple[str, Device]]
    ) -> object: ...


class _Standing(Enum):
    """What is known of a device before any selector: it can be judged, it is for other nodes, no
    selector can be decided on it, any fails on it, or taking it does, whatever matches it."""

    SOUND = "sound"
    ELSEWHERE = "elsewhere"
    UNCLEAR = "unclear"
    ABORTS = "aborts"
    MISPLACED = "misplaced"


class PoolFingerprint(msgspec.Struct, frozen=True, eq=False):
    """What pools alike have in common, but for their attributes' values: looks and standings, a
    device each. Equal ones are one object."""

    looks: tuple[DeviceFingerprint, ...]
    standings: tuple[_Standing, ...]


class SurveyedPool(NamedTuple):
    """What a pool holds, as one node or several see it.

    `unclear` is why devices may be missing, "" if none may. `devices` is equal where the same ones
    are published, and for nodes that may use the same of them. `types` are those of its devices'
    attributes.
    """

    pool: PoolView
    pool_fingerprint: PoolFingerprint
    unclear: str
    devices: Hashable
    types: frozenset[TypeOf]


def fingerprint_pool(pool: PoolView, alike: dict[object, Any]) -> SurveyedPool:
    """`alike` keeps what is equal as one: there are few makeups, and thousands of pools."""
    looks = tuple(_one(alike, _look(device)) for device in pool.devices)
    standings = tuple(map(_standing, pool.devices))
    pool_fingerprint = PoolFingerprint(looks, standings)
    if pool.attribute_fingerprints:  # else nothing tells whether attributes are equal
        pool_fingerprint = alike.setdefault((looks, standings), pool_fingerprint)
    published = hash(tuple([id(device.published) for device in pool.devices]))
    types = frozenset(
        (*rows.split_name(name, pool.driver), comparable_type(value))
        for device in pool.devices
        for name, value in (device.device.attributes or {}).items()
    )
    return SurveyedPool(
        pool,
        pool_fingerprint,
        _unclear(pool),
        (published, pool_fingerprint.standings),
        _one(alike, types),
    )


def _unclear(pool: PoolView) -> str:
    """Why devices of a pool may be missing; "" if none may."""
    if pool.unclear:
        return f"{pool.told}: {pool.unclear}"
    return f"{pool.told} is {pool.flaw}" if pool.flaw else ""


def _standing(device: DeviceView) -> _Standing:
    if device.published.abort:
        return _Standing.ABORTS
    if rows.problem(device.id.driver, device.device):
        return _Standing.UNCLEAR
    if device.misplaced:
        return _Standing.MISPLACED
    return _Standing.SOUND if device.here else _Standing.ELSEWHERE


def _one(alike: dict[object, Any], value: _Value) -> _Value:
    same: _Value = alike.setdefault(value, value)
    return same


def _look(device: DeviceView) -> DeviceFingerprint:
    wire = device.device
    capacity = msgspec.json.encode(wire.capacity) if wire.capacity else b""
    multiple = bool(wire.allow_multiple_allocations)
    return DeviceFingerprint(device.id.driver, frozenset(wire.attributes or ()), capacity, multiple)


SelectionFingerprint = tuple[PoolFingerprint, tuple[bytes | None, ...]]
"""Pools of equal likeness look alike to a selection: their makeup, and digests of the attributes
that the selection reads."""


class PoolMatches(msgspec.Struct, frozen=True, gc=False):
    """Pools of one likeness under one selection, devices by their places: those that all selectors
    match, that the class's match, and that only those match. `undecided` have the reason, `aborts`
    expression and reason, `fatal` are those that end scheduling whatever the expressions are.
    """

    matched: tuple[int, ...]
    of_class: tuple[int, ...]
    missed: tuple[int, ...]
    undecided: tuple[tuple[int, str], ...]
    aborts: tuple[tuple[int, str, str], ...]
    fatal: tuple[tuple[int, str], ...]


class Judging(NamedTuple):
    """How all pools stand to a selection: each pool's likeness, and what is found of each.
    `driver` is the one whose devices alone it can match, "" if any."""

    likeness: Mapping[int, SelectionFingerprint]
    judged: Mapping[SelectionFingerprint, PoolMatches]
    driver: str

    def unclear(self, seen: SurveyedPool) -> str:
        """Why devices of a pool may be missing that the selection could match."""
        concerned = not self.driver or seen.pool.driver in (self.driver, SOME_DRIVER)
        return seen.unclear if concerned else ""


async def judge(
    selection: Selection,
    seen: Mapping[int, SurveyedPool],
    before: Mapping[SelectionFingerprint, PoolMatches],
    evaluator: Evaluator,
) -> Judging:
    """All pools under a selection; `before` is what was found of such pools and holds still."""
    slices = Slices()
    expressions = (*selection.of_class, *selection.of_request)
    await evaluator.evaluate(expressions, ())  # now it is known what they read
    reads = [evaluator.reads(expression) for expression in expressions]
    attributes = attributes_read(reads)
    likeness: dict[int, SelectionFingerprint] = {}
    judged: dict[SelectionFingerprint, PoolMatches] = {}
    working: dict[SelectionFingerprint, _Working] = {}
    for key, pool in seen.items():
        attribute_fingerprints = pool.pool.attribute_fingerprints
        like = (
            pool.pool_fingerprint,
            tuple([attribute_fingerprints.get(attribute) for attribute in attributes]),
        )
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
    driver = evaluator.driver(expressions[0]) if expressions else ""
    return Judging(likeness, judged, driver or "")


class _Working:
    """A pool while it is being judged: the devices that all expressions so far match."""

    def __init__(self, seen: SurveyedPool) -> None:
        self.seen = seen
        standings = seen.pool_fingerprint.standings
        self.alive = [i for i, s in enumerate(standings) if s is not _Standing.ELSEWHERE]
        self.of_class: tuple[int, ...] = ()
        self.keys: list[RowFingerprint] = []
        self._missed: list[int] = []
        self._undecided: list[tuple[int, str]] = []
        self._aborts: list[tuple[int, str, str]] = []
        self._fatal: list[tuple[int, str]] = []

    def begin(self) -> None:
        """There is an expression: this is as far as devices get that none can be decided on."""
        devices, standings = self.seen.pool.devices, self.seen.pool_fingerprint.standings
        alive: list[int] = []
        for index in self.alive:
            if standings[index] is _Standing.ABORTS:
                self._fatal.append((index, devices[index].published.abort))
            elif standings[index] is _Standing.UNCLEAR:
                why = rows.problem(devices[index].id.driver, devices[index].device)
                self._undecided.append((index, why))
            else:
                alive.append(index)
        self.alive = alive

    def sift(
        self, expression: str, outcomes: Mapping[RowFingerprint, Outcome | None], *, own: bool
    ) -> None:
        """Keep what the expression matches; `own`: it is of the request, not of the class."""
        alive: list[int] = []
        for index, key in zip(self.alive, self.keys, strict=True):
            outcome = outcomes[key]
            if outcome is None or outcome.undecided:
                reason = outcome.reason if outcome is not None else ""
                self._undecided.append((index, reason or "it is not evaluated yet"))
            elif outcome.matches:
                alive.append(index)
            elif outcome.kind is OutcomeKind.WOULD_ABORT:
                self._aborts.append((index, expression, outcome.reason))
            elif own:
                self._missed.append(index)
        self.alive = alive
        self.keys = []

    def judged(self) -> PoolMatches:
        devices, standings = self.seen.pool.devices, self.seen.pool_fingerprint.standings
        misplaced = {i for i in self.alive if standings[i] is _Standing.MISPLACED}
        return PoolMatches(
            tuple(i for i in self.alive if i not in misplaced) if misplaced else tuple(self.alive),
            self.of_class,
            tuple(self._missed),
            tuple(self._undecided),
            tuple(self._aborts),
            (*self._fatal, *((i, devices[i].misplaced) for i in sorted(misplaced))),
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
    examples: dict[RowFingerprint, Device] = {}
    for pool in pools:
        devices, driver = pool.seen.pool.devices, pool.seen.pool.driver
        pool.begin()
        pool.keys = [
            rows.row_fingerprint(reads, driver, devices[index].device) for index in pool.alive
        ]
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
