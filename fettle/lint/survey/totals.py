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
    Judging,
    PoolMatches,
    Selection,
    SelectionFingerprint,
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

    def nodes(self, count: int) -> frozenset[str]:
        """The nodes with at least so many matches."""
        found = self.by_count.get(count)
        if found is None:
            found = frozenset(
                node for node, devices in self.by_node.items() if len(devices) >= count
            )
            self.by_count[count] = found
        return found


async def nearest_miss(selection: Selection, survey: Survey, evaluator: Evaluator) -> str:
    """What the nearest device of the class lacks, if none matches.

    Of devices that lack as much, the one with the largest values is the nearest. The evaluator
    compares only the first few, so the largest of each kind come first.
    """
    if survey.matched or not survey.missed:
        return ""
    reads = [read for e in selection.of_request for read in evaluator.reads(e) or ()]
    largest = await run_within(None, lambda: _largest_of_each_kind_first(survey.missed, reads))
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
    values = [rows.value_at_read(read, device.id.driver, device.device) for read in reads]
    capacity = device.device.capacity or {}
    return [_amount(v) for v in (*values, *(capacity[name].value for name in sorted(capacity)))]


def _kind(device: DeviceView, reads: Iterable[AttributeRead]) -> Hashable:
    """The values that expressions read, without amounts, which only differ in size."""
    values = [rows.value_at_read(read, device.id.driver, device.device) for read in reads]
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

    looked: int
    of_class: int
    matched: Collection[DeviceView]
    undecided: Sequence[str]
    aborts: Sequence[Abort]
    fatal: Sequence[Abort]


def _counted(sightings: Sequence[tuple[SurveyedPool, PoolMatches]], judging: Judging) -> _Counted:
    """Counts each device once, though nodes may see and use different devices of a pool."""
    devices: dict[int, DeviceView] = {}
    of_class: set[int] = set()
    matched: dict[int, DeviceView] = {}
    aborts: dict[int, Abort] = {}
    fatal: dict[int, Abort] = {}
    for seen, found in sightings:
        ids = [id(device.published) for device in seen.pool.devices]
        devices.update(zip(ids, seen.pool.devices, strict=True))
        of_class.update(ids[at] for at in found.of_class)
        matched.update((ids[at], seen.pool.devices[at]) for at in found.matched)
        aborts.update((ids[at], _abort(seen, at, *why)) for at, *why in found.aborts)
        fatal.update((ids[at], _abort(seen, at, "", why)) for at, why in found.fatal)
    undecided = max((_undecided(*way, judging) for way in sightings), key=len)
    return _Counted(
        len(devices),
        len(of_class),
        matched.values(),
        undecided,
        list(aborts.values()),
        list(fatal.values()),
    )


def _counted_once(seen: SurveyedPool, found: PoolMatches, judging: Judging) -> _Counted:
    """The same for a pool that all nodes see equally."""
    devices = seen.pool.devices
    return _Counted(
        len(devices),
        len(found.of_class),
        _at(devices, found.matched),
        _undecided(seen, found, judging),
        [_abort(seen, at, *why) for at, *why in found.aborts],
        [_abort(seen, at, "", why) for at, why in found.fatal],
    )


def _undecided(seen: SurveyedPool, found: PoolMatches, judging: Judging) -> list[str]:
    """Why the pool, and which of its devices, could not be decided."""
    unclear = judging.unclear(seen)
    devices = seen.pool.devices
    return [unclear] * bool(unclear) + [f"{devices[at].id}: {why}" for at, why in found.undecided]


def _abort(seen: SurveyedPool, at: int, expression: str, reason: str) -> Abort:
    return Abort(expression, seen.pool.devices[at].id, reason)


def total(
    selection: Selection, judging: Judging, seen: Mapping[int, SurveyedPool], view: View
) -> Survey:
    """The survey that follows from all pools."""
    sums: Counter[str] = Counter()
    taints: Counter[tuple[DeviceTaint, ...]] = Counter()
    looks: dict[DeviceFingerprint, DeviceView] = {}
    missed: list[DeviceView] = []
    drivers: set[str] = set()
    aborts: list[Abort] = []
    fatal: list[Abort] = []
    left_open: dict[str, None] = {}
    matches: dict[int, tuple[DeviceView, ...]] = {}
    noted: set[SelectionFingerprint] = set()
    sightings: dict[tuple[str, str], dict[Hashable, tuple[SurveyedPool, PoolMatches]]] = {}
    for key, pool in seen.items():
        like = judging.likeness[key]
        found, devices = judging.judged[like], pool.pool.devices
        matches[key] = _at(devices, found.matched)
        sightings.setdefault((pool.pool.driver, pool.pool.name), {})[pool.devices] = pool, found
        if like not in noted:
            noted.add(like)
            for at in found.matched:
                looks.setdefault(pool.pool_fingerprint.looks[at], devices[at])
            missed += _at(devices, found.missed)[: _MISSED - len(missed)]
        pause()
    for (driver, _), seen_as in sightings.items():
        ways = list(seen_as.values())
        counted = _counted_once(*ways[0], judging) if len(ways) == 1 else _counted(ways, judging)
        sums["looked"] += counted.looked
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
        if len(left_open) < _EXAMPLES:
            left_open.update(dict.fromkeys(counted.undecided[:_EXAMPLES]))
        pause()
    on, local = _by_node(matches, view)
    return Survey(
        selection=selection,
        surveyed=sums["looked"],
        pools=len(sightings),
        pools_of_class=sums["pools_of_class"],
        local=local,
        of_class=sums["of_class"],
        matched=sums["matched"],
        aborted=sums["aborted"],
        fatal=sums["fatal"],
        undecided=sums["undecided"],
        undecided_reasons=tuple(left_open)[:_EXAMPLES],
        drivers=frozenset(drivers),
        aborts=tuple(aborts),
        fatal_on=tuple(fatal),
        by_node=on,
        fingerprints=looks,
        missed=tuple(missed),
        taints=taints,
        most=max(map(len, on.values()), default=0),
    )


def _at(devices: tuple[DeviceView, ...], places: tuple[int, ...]) -> tuple[DeviceView, ...]:
    if len(places) == len(devices):
        return devices
    return tuple([devices[at] for at in places])


def _by_node(
    matches: Mapping[int, tuple[DeviceView, ...]], view: View
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
        pause()
    return on, local
