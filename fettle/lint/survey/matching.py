"""Which devices of the fleet a selection matches, pool by pool.

Pools with the same fingerprint are evaluated once, and so are devices that are equal in all that an
expression reads: a fleet of few models costs little more than a walk over its pools.
"""

import asyncio
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from fettle.api.resource import Device, DeviceAttribute
from fettle.cel import AttributeRead, Equation, Outcome, OutcomeKind, Reads, RowFingerprint, rows
from fettle.dra import DeviceView, PoolView
from fettle.model import SOME_DRIVER
from fettle.pacing import pause, run_within

if TYPE_CHECKING:
    from fettle.cluster import Attribute

_Value = TypeVar("_Value")
TypeOf = tuple[str, str, str]
"""An attribute's domain and name, and the type of a value that a device has for it."""


class Selection(NamedTuple):
    """The CEL expressions that choose devices, those of the class first."""

    of_class: tuple[str, ...]
    of_request: tuple[str, ...] = ()


class DeviceFingerprint(NamedTuple):
    """What is equal in devices that differ only by the values of their attributes."""

    driver: str
    attributes: frozenset[str]
    capacity: bytes
    multiple: bool


class Evaluator(Protocol):
    """Outcomes of selectors; see `fettle.cel.runtime.engine`."""

    def outcome(self, expression: str, driver: str, device: Device) -> Outcome | None: ...

    def reads(self, expression: str) -> Reads: ...

    def equations(self, expression: str) -> tuple[Equation, ...]: ...

    def needed(self, expression: str) -> tuple[AttributeRead, ...]: ...

    def driver(self, expression: str) -> str | None: ...

    async def nearest(
        self, expressions: Iterable[str], devices: Sequence[tuple[str, Device]]
    ) -> str: ...

    async def evaluate(
        self, expressions: Iterable[str], devices: Iterable[tuple[str, Device]]
    ) -> object: ...


class _Standing(Enum):
    """What is known of a device before any selector is evaluated.

    It is sound; it belongs to other nodes; no selector can be decided on it; every selector fails
    on it; or allocating it fails, whatever matches it.
    """

    SOUND = "sound"
    ELSEWHERE = "elsewhere"
    UNCLEAR = "unclear"
    ABORTS = "aborts"
    MISPLACED = "misplaced"


class PoolFingerprint(msgspec.Struct, frozen=True, eq=False):
    """What is equal in pools that differ only by the values of attributes.

    Has a device fingerprint and a standing for each device. Equal ones are one object.
    """

    device_fingerprints: tuple[DeviceFingerprint, ...]
    standings: tuple[_Standing, ...]


class SurveyedPool(NamedTuple):
    """A pool as one or several nodes see it.

    `unclear` is why devices may be missing, "" if none is. `devices` is equal for views with the
    same published devices of which nodes may use the same. `types` are the types of attributes.
    """

    pool: PoolView
    pool_fingerprint: PoolFingerprint
    unclear: str
    devices: Hashable
    types: frozenset[TypeOf]


def fingerprint_pool(pool: PoolView, interned: dict[object, Any]) -> SurveyedPool:
    """`alike` interns equal values: there are thousands of pools, but few fingerprints."""
    device_fingerprints = tuple(_intern(interned, _fingerprint(device)) for device in pool.devices)
    standings = tuple(map(_standing, pool.devices))
    pool_fingerprint = PoolFingerprint(device_fingerprints, standings)
    if pool.attribute_fingerprints:  # else equal attributes cannot be recognized
        pool_fingerprint = interned.setdefault((device_fingerprints, standings), pool_fingerprint)
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
        _intern(interned, types),
    )


def comparable_type(value: DeviceAttribute) -> str:
    """The type of values that a value can be equal to; "" if it is not known.

    One of "number", "bool", "string", "version" and "list".
    """
    scalars = {
        "number": value.int_,
        "bool": value.bool_,
        "string": value.string,
        "version": value.version,
    }
    lists = (value.ints, value.bools, value.strings, value.versions)
    kinds = [kind for kind, scalar in scalars.items() if scalar is not None]
    kinds += ["list" for one in lists if one is not None]
    return kinds[0] if len(kinds) == 1 else ""


def _unclear(pool: PoolView) -> str:
    """Why devices of a pool may be missing; "" if none is."""
    if pool.unclear:
        return f"{pool.ref}: {pool.unclear}"
    return f"{pool.ref} is {pool.flaw}" if pool.flaw else ""


def _standing(device: DeviceView) -> _Standing:
    if device.published.abort:
        return _Standing.ABORTS
    if rows.problem(device.id.driver, device.device):
        return _Standing.UNCLEAR
    if device.misplaced:
        return _Standing.MISPLACED
    return _Standing.SOUND if device.here else _Standing.ELSEWHERE


def _intern(interned: dict[object, Any], value: _Value) -> _Value:
    same: _Value = interned.setdefault(value, value)
    return same


def _fingerprint(device: DeviceView) -> DeviceFingerprint:
    wire = device.device
    capacity = msgspec.json.encode(wire.capacity) if wire.capacity else b""
    multiple = bool(wire.allow_multiple_allocations)
    return DeviceFingerprint(device.id.driver, frozenset(wire.attributes or ()), capacity, multiple)


SelectionFingerprint = tuple[PoolFingerprint, tuple[bytes | None, ...]]
"""The pool's fingerprint, and digests of the attributes that the selection reads: where they are
equal, the selection matches the same devices."""


class PoolMatches(msgspec.Struct, frozen=True, gc=False):
    """What a selection matches in pools of one fingerprint; devices are indexes into the pool.

    `matched` match all selectors, `of_class` those of the class, `missed` only those of the class.
    `undecided` have the reason, `aborts` the expression and the reason. `fatal` devices end
    scheduling whatever the expressions are.
    """

    matched: tuple[int, ...]
    of_class: tuple[int, ...]
    missed: tuple[int, ...]
    undecided: tuple[tuple[int, str], ...]
    aborts: tuple[tuple[int, str, str], ...]
    fatal: tuple[tuple[int, str], ...]


class SelectionMatches(NamedTuple):
    """The matches of a selection in all pools: each pool's fingerprint, and its matches.

    `driver` is the only driver whose devices it can match, "" if it can match any.
    """

    fingerprints: Mapping[int, SelectionFingerprint]
    by_fingerprint: Mapping[SelectionFingerprint, PoolMatches]
    driver: str

    def unclear(self, surveyed: SurveyedPool) -> str:
        """Why the pool may lack devices that the selection could match."""
        concerned = not self.driver or surveyed.pool.driver in (self.driver, SOME_DRIVER)
        return surveyed.unclear if concerned else ""


async def match_pools(
    selection: Selection,
    surveyed: Mapping[int, SurveyedPool],
    known: Mapping[SelectionFingerprint, PoolMatches],
    evaluator: Evaluator,
) -> SelectionMatches:
    """The matches of a selection in all pools; `known` are matches of pools that are unchanged."""
    expressions = (*selection.of_class, *selection.of_request)
    await evaluator.evaluate(expressions, ())  # after this, it is known what they read
    reads = [evaluator.reads(expression) for expression in expressions]
    from fettle.cluster import attributes_read  # late: only where devices are known

    attributes = attributes_read(reads)
    fingerprints = await run_within(partial(_fingerprints, surveyed, attributes))
    by_fingerprint: dict[SelectionFingerprint, PoolMatches] = {}
    in_progress: dict[SelectionFingerprint, _PoolInProgress] = {}

    def find_known() -> None:
        for key, fingerprint in fingerprints.items():
            if (same := known.get(fingerprint)) is not None:
                by_fingerprint[fingerprint] = same
            elif fingerprint not in in_progress:
                in_progress[fingerprint] = _PoolInProgress(surveyed[key])
            pause()

    def collect() -> None:
        for fingerprint, done in in_progress.items():
            by_fingerprint[fingerprint] = done.matches()
            pause()

    await run_within(find_known)
    if in_progress:
        await _sift(selection, in_progress.values(), evaluator)
    await run_within(collect)
    driver = evaluator.driver(expressions[0]) if expressions else ""
    return SelectionMatches(fingerprints, by_fingerprint, driver or "")


def _fingerprints(
    surveyed: Mapping[int, SurveyedPool], attributes: Sequence["Attribute"]
) -> dict[int, SelectionFingerprint]:
    fingerprints: dict[int, SelectionFingerprint] = {}
    for key, pool in surveyed.items():
        attribute_fingerprints = pool.pool.attribute_fingerprints
        fingerprints[key] = (
            pool.pool_fingerprint,
            tuple([attribute_fingerprints.get(attribute) for attribute in attributes]),
        )
        pause()
    return fingerprints


class _PoolInProgress:
    """A pool while expressions are applied; `alive` are the devices that match all so far."""

    def __init__(self, surveyed: SurveyedPool) -> None:
        self.surveyed = surveyed
        standings = surveyed.pool_fingerprint.standings
        self.alive = [i for i, s in enumerate(standings) if s is not _Standing.ELSEWHERE]
        self.of_class: tuple[int, ...] = ()
        self.keys: list[RowFingerprint] = []
        self._missed: list[int] = []
        self._undecided: list[tuple[int, str]] = []
        self._aborts: list[tuple[int, str, str]] = []
        self._fatal: list[tuple[int, str]] = []

    def begin(self) -> None:
        """Before an expression: sort out the devices on which none can be decided."""
        devices, standings = self.surveyed.pool.devices, self.surveyed.pool_fingerprint.standings
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

    def matches(self) -> PoolMatches:
        devices, standings = self.surveyed.pool.devices, self.surveyed.pool_fingerprint.standings
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
    selection: Selection, pools: Collection[_PoolInProgress], evaluator: Evaluator
) -> None:
    """Apply all expressions, in the allocator's order: the first that does not match decides.

    Of devices that are equal in what an expression reads, only one is evaluated.
    """
    for expression in selection.of_class:
        await _sift_by(expression, pools, evaluator, own=False)
    for pool in pools:
        pool.of_class = tuple(pool.alive)
    for expression in selection.of_request:
        await _sift_by(expression, pools, evaluator, own=True)


async def _sift_by(
    expression: str,
    pools: Collection[_PoolInProgress],
    evaluator: Evaluator,
    *,
    own: bool,
) -> None:
    await asyncio.sleep(0)  # many expressions may each take less than a slice
    examples = await run_within(partial(_example_devices, pools, evaluator.reads(expression)))
    known = [(str(key[0]), device) for key, device in examples.items()]
    await evaluator.evaluate((expression,), known)
    outcomes = {
        key: evaluator.outcome(expression, driver, device)
        for key, (driver, device) in zip(examples, known, strict=True)
    }

    def sift() -> None:
        for pool in pools:
            pool.sift(expression, outcomes, own=own)
            pause()

    await run_within(sift)


def _example_devices(
    pools: Collection[_PoolInProgress], reads: Reads
) -> dict[RowFingerprint, Device]:
    """One device for each set of devices that are equal in what an expression reads."""
    examples: dict[RowFingerprint, Device] = {}
    for pool in pools:
        devices, driver = pool.surveyed.pool.devices, pool.surveyed.pool.driver
        pool.begin()
        pool.keys = [
            rows.row_fingerprint(reads, driver, devices[index].device) for index in pool.alive
        ]
        for index, key in zip(pool.alive, pool.keys, strict=True):
            examples.setdefault(key, devices[index].device)
        pause()
    return examples
