"""Surveys: what a selection matches in all pools, where, and which device misses it narrowly.

Each device counts once, though nodes may see different devices of a pool.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from fettle.api.resource import DeviceAttribute, DeviceTaint
from fettle.cel import AttributeRead, Value, rows
from fettle.cel import semver as versions
from fettle.cluster import View
from fettle.dra import DeviceView, Unreadable, nano
from fettle.lint.survey.matching import (
    DeviceFingerprint,
    Evaluator,
    PoolMatches,
    Selection,
    SelectionFingerprint,
    SelectionMatches,
    SurveyedPool,
)
from fettle.model import DeviceId
from fettle.pacing import pause, run_within

_EXAMPLES = 3
_MISSED = 1024
"""How many devices are compared to find the nearest miss."""

_taints = attrgetter("taints")


class Abort(NamedTuple):
    """An expression that fails on a device, which ends scheduling; "" if any expression fails."""

    expression: str
    device: DeviceId
    reason: str


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What a selection matches: how many devices, where, and which.

    Counts: `surveyed` devices in `pools` pools were checked. `of_class` of them match the selectors
    of the class, in `pools_of_class` pools; `matched` match all selectors. A selector fails on
    `aborted` devices. `fatal` devices end scheduling whatever the selectors are. `undecided` counts
    devices that could not be decided and pools that may lack devices; `undecided_reasons` are some
    of the reasons.

    `local`: each pool with matches serves one node only. `by_node` has the matches of each node,
    `most` the largest number on one node, `fingerprints` one match of each fingerprint, `taints`
    how many matches have which taints. `missed` are examples that match only the class, and
    `nearest` says what the nearest of them lacks if nothing matches. `by_count` caches the nodes
    that have at least so many matches.
    """

    selection: Selection
    surveyed: int
    pools: int
    pools_of_class: int
    local: bool
    of_class: int
    matched: int
    aborted: int
    fatal: int
    undecided: int
    undecided_reasons: tuple[str, ...]
    drivers: frozenset[str]
    aborts: tuple[Abort, ...]
    fatal_on: tuple[Abort, ...]
    by_node: Mapping[str, tuple[DeviceView, ...]]
    fingerprints: Mapping[DeviceFingerprint, DeviceView]
    missed: tuple[DeviceView, ...]
    taints: Mapping[tuple[DeviceTaint, ...], int]
    most: int
    nearest: str = ""
    by_count: dict[int, frozenset[str]] = {}

    @property
    def decided(self) -> bool:
        return not self.undecided

    @property
    def lists_all_missed(self) -> bool:
        return len(self.missed) < _MISSED

    def nodes(self, count: int) -> frozenset[str]:
        """The nodes with at least so many matches."""
        found = self.by_count.get(count)
        if found is None:
            found = frozenset(
                node for node, devices in self.by_node.items() if len(devices) >= count
            )
            self.by_count[count] = found
        return found


def value_at(read: AttributeRead, device: DeviceView) -> Value | bool | None:
    """What a device publishes for a read; None if nothing."""
    return rows.value_at_read(read, device.id.driver, device.device)


async def nearest_miss(selection: Selection, survey: Survey, evaluator: Evaluator) -> str:
    """What the nearest device of the class lacks, if none matches.

    Of devices that lack as much, the one with the largest values is the nearest. The evaluator
    compares only the first few, so the largest of each kind come first.
    """
    if survey.matched or not survey.missed:
        return ""
    reads = [read for e in selection.of_request for read in evaluator.reads(e) or ()]
    largest = await run_within(lambda: _largest_of_each_kind_first(survey.missed, reads))
    devices = [(device.id.driver, device.device) for device in largest]
    return await evaluator.nearest(selection.of_request, devices)


def _largest_of_each_kind_first(
    devices: Sequence[DeviceView], reads: Sequence[AttributeRead]
) -> list[DeviceView]:
    sizes = []
    for at, device in enumerate(devices):
        sizes.append((_size(device, reads), -at))
        pause()
    kinds: set[Hashable] = set()
    first: list[DeviceView] = []
    others: list[DeviceView] = []
    for _, at in sorted(sizes, reverse=True):
        device = devices[-at]
        (others if (kind := _kind(device, reads)) in kinds else first).append(device)
        kinds.add(kind)
        pause()
    return [*first, *others]


def _size(device: DeviceView, reads: Iterable[AttributeRead]) -> list[tuple[int, ...]]:
    """The amounts that expressions read, then the capacities."""
    values = [value_at(read, device) for read in reads]
    capacity = device.device.capacity or {}
    return [_amount(v) for v in (*values, *(capacity[name].value for name in sorted(capacity)))]


def _kind(device: DeviceView, reads: Iterable[AttributeRead]) -> Hashable:
    """The values that expressions read, without amounts, which only differ in size."""
    values = [value_at(read, device) for read in reads]
    return tuple(value if value is None or not _amount(value) else "an amount" for value in values)


def _amount(value: Value | bool | None) -> tuple[int, ...]:
    """Comparable with amounts of the same attribute or capacity; empty if it has no size."""
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
    """What one pool counts for, whichever nodes see it; `undecided` are the reasons."""

    surveyed: int
    of_class: int
    matched: Collection[DeviceView]
    undecided: Sequence[str]
    aborts: Sequence[Abort]
    fatal: Sequence[Abort]


def _counted(
    pools_as_seen: Sequence[tuple[SurveyedPool, PoolMatches]], selected: SelectionMatches
) -> _Counted:
    """Counts each device once, though nodes may see and use different devices of a pool."""
    devices: dict[int, DeviceView] = {}
    of_class: set[int] = set()
    matched: dict[int, DeviceView] = {}
    aborts: dict[int, Abort] = {}
    fatal: dict[int, Abort] = {}
    for surveyed, found in pools_as_seen:
        ids = [id(device.published) for device in surveyed.pool.devices]
        devices.update(zip(ids, surveyed.pool.devices, strict=True))
        of_class.update(ids[at] for at in found.of_class)
        matched.update((ids[at], surveyed.pool.devices[at]) for at in found.matched)
        aborts.update((ids[at], _abort(surveyed, at, *why)) for at, *why in found.aborts)
        fatal.update((ids[at], _abort(surveyed, at, "", why)) for at, why in found.fatal)
    undecided = max((_undecided(*variant, selected) for variant in pools_as_seen), key=len)
    return _Counted(
        len(devices),
        len(of_class),
        matched.values(),
        undecided,
        list(aborts.values()),
        list(fatal.values()),
    )


def _counted_once(
    surveyed: SurveyedPool, found: PoolMatches, selected: SelectionMatches
) -> _Counted:
    """The same for a pool that all nodes see equally."""
    devices = surveyed.pool.devices
    return _Counted(
        len(devices),
        len(found.of_class),
        _at(devices, found.matched),
        _undecided(surveyed, found, selected),
        [_abort(surveyed, at, *why) for at, *why in found.aborts],
        [_abort(surveyed, at, "", why) for at, why in found.fatal],
    )


def _undecided(surveyed: SurveyedPool, found: PoolMatches, selected: SelectionMatches) -> list[str]:
    """Why the pool, and which of its devices, could not be decided."""
    unclear = selected.unclear(surveyed)
    devices = surveyed.pool.devices
    return [unclear] * bool(unclear) + [f"{devices[at].id}: {why}" for at, why in found.undecided]


def _abort(surveyed: SurveyedPool, at: int, expression: str, reason: str) -> Abort:
    return Abort(expression, surveyed.pool.devices[at].id, reason)


def total(
    selection: Selection,
    selected: SelectionMatches,
    surveyed: Mapping[int, SurveyedPool],
    view: View,
) -> Survey:
    """Add up the matches of all pools to a survey."""
    sums: Counter[str] = Counter()
    taints: Counter[tuple[DeviceTaint, ...]] = Counter()
    fingerprints: dict[DeviceFingerprint, DeviceView] = {}
    missed: list[DeviceView] = []
    drivers: set[str] = set()
    aborts: list[Abort] = []
    fatal: list[Abort] = []
    reasons: dict[str, None] = {}
    matches: dict[int, tuple[DeviceView, ...]] = {}
    noted: set[SelectionFingerprint] = set()
    pools_as_seen: dict[tuple[str, str], dict[Hashable, tuple[SurveyedPool, PoolMatches]]] = {}
    for key, pool in surveyed.items():
        fingerprint = selected.fingerprints[key]
        found, devices = selected.by_fingerprint[fingerprint], pool.pool.devices
        matches[key] = _at(devices, found.matched)
        pools_as_seen.setdefault((pool.pool.driver, pool.pool.name), {})[pool.devices] = pool, found
        if fingerprint not in noted:
            noted.add(fingerprint)
            for at in found.matched:
                fingerprints.setdefault(pool.pool_fingerprint.device_fingerprints[at], devices[at])
            missed += _at(devices, found.missed)[: _MISSED - len(missed)]
        pause()
    for (driver, _), as_seen in pools_as_seen.items():
        variants = list(as_seen.values())
        counted = (
            _counted_once(*variants[0], selected)
            if len(variants) == 1
            else _counted(variants, selected)
        )
        sums["surveyed"] += counted.surveyed
        sums["of_class"] += counted.of_class
        sums["matched"] += len(counted.matched)
        sums["undecided"] += len(counted.undecided)
        sums["aborted"] += len(counted.aborts)
        sums["fatal"] += len(counted.fatal)
        taints.update(map(_taints, counted.matched))
        if counted.of_class:
            sums["pools_of_class"] += 1
            drivers.add(driver)
        aborts += counted.aborts[: _EXAMPLES - len(aborts)]
        fatal += counted.fatal[: _EXAMPLES - len(fatal)]
        if len(reasons) < _EXAMPLES:
            reasons.update(dict.fromkeys(counted.undecided[:_EXAMPLES]))
        pause()
    by_node, local = _by_node(matches, view)
    return Survey(
        selection=selection,
        surveyed=sums["surveyed"],
        pools=len(pools_as_seen),
        pools_of_class=sums["pools_of_class"],
        local=local,
        of_class=sums["of_class"],
        matched=sums["matched"],
        aborted=sums["aborted"],
        fatal=sums["fatal"],
        undecided=sums["undecided"],
        undecided_reasons=tuple(reasons)[:_EXAMPLES],
        drivers=frozenset(drivers),
        aborts=tuple(aborts),
        fatal_on=tuple(fatal),
        by_node=by_node,
        fingerprints=fingerprints,
        missed=tuple(missed),
        taints=taints,
        most=max(map(len, by_node.values()), default=0),
    )


def _at(devices: tuple[DeviceView, ...], places: tuple[int, ...]) -> tuple[DeviceView, ...]:
    if len(places) == len(devices):
        return devices
    return tuple([devices[at] for at in places])


def _by_node(
    matches: Mapping[int, tuple[DeviceView, ...]], view: View
) -> tuple[dict[str, tuple[DeviceView, ...]], bool]:
    """Matches by node, and whether each pool with matches serves one node only."""
    by_node: dict[str, tuple[DeviceView, ...]] = {}
    places: set[tuple[str, str]] = set()
    local = True
    for name, node in view.nodes.items():
        for pool in node.pools:
            if matched := matches.get(id(pool), ()):
                by_node[name] = by_node[name] + matched if name in by_node else matched
                local = local and (pool.driver, pool.name) not in places
                places.add((pool.driver, pool.name))
        pause()
    return by_node, local
