"""Which nodes have fewer devices than expected, and since when: for whoever repairs them. What is
there is as good as it was, so no score and no verdict depends on this.

What a node had is remembered for as long as it runs with the same labels about how its devices are
shared and divided. Nothing is missing while these change, or while work on the node is under way,
but work that is stuck hides nothing for ever.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from math import inf

import msgspec

from fettle.api import core
from fettle.api.own_group import (
    MOST_COUNTED,
    DeviceHealthStatus,
    StoredCount,
    StoredLabel,
    StoredMost,
    StoredShortage,
)
from fettle.cluster.inventory.expected_devices import (
    DeviceCounts,
    Expected,
    changes,
    expected_devices,
    is_change,
    is_hardware,
    is_nvidia_unit,
    is_split,
    layout,
    type_and_pool,
)
from fettle.cluster.inventory.unit_counts import Peers
from fettle.cluster.view import PluginView, Shortage
from fettle.config import HealthSettings
from fettle.dra import PoolView, PublishedDevice
from fettle.health import expected_on_node, gpu_names
from fettle.model import EXPECTED_DEVICES, DeviceId, is_device_name, utc

HIDES_S = 6 * 3600.0
"""So long a change of devices hides what is missing, from its first attempt on, work on a node
while what is said of it stays the same, and a pool that is not whole. Upgrades of drivers take
minutes, a drain some hours; what takes longer is stuck."""
MOST_SHOWN = 64
"""Resources and drivers of a node of which it is shown and stored what it lacks, and stored how
many it had. Its kubelet may name thousands."""


def may_lack_others(old: core.Node, new: core.Node) -> bool:
    """Whether anything differs that says what a node has or should have. Most changes of Nodes are
    heartbeats."""
    return _facts(old) != _facts(new)


def _facts(node: core.Node) -> tuple[object, ...]:
    status, metadata = node.status or core.NodeStatus(), node.metadata
    return (
        node.cut,
        metadata.labels,
        (metadata.annotations or {}).get(EXPECTED_DEVICES),
        is_split(metadata.annotations or {}),
        status.capacity,
        status.allocatable,
        boot_of(node),
    )


def boot_of(node: core.Node) -> str:
    info = node.status.node_info if node.status is not None else None
    return info.boot_id if info is not None else ""


class Has(msgspec.Struct, frozen=True, gc=False):
    """What one node has now. `devices`: by driver. `unclear`: drivers whose pools are not whole."""

    plugins: Collection[PluginView] = ()
    devices: Mapping[str, int] = {}
    unclear: Collection[str] = ()

    @property
    def found(self) -> Mapping[str, int]:
        """What can be given out, or is."""
        units = {one.resource: min(one.capacity, one.allocatable) for one in self.plugins}
        return {**units, **self.devices}

    @property
    def counted(self) -> Mapping[str, int]:
        """What its plugins and drivers know of, also what they have withdrawn."""
        return {**{one.resource: one.capacity for one in self.plugins}, **self.devices}


class _Past(msgspec.Struct):
    """What is remembered of a node since `began`, of one boot and layout: the `most` it had, and
    since when it has had too few. While the layout changes, labels about that are part of it."""

    boot: str
    layout: dict[str, str]
    began: float
    most: dict[str, int] = {}
    since: dict[str, float] = {}
    last: dict[str, int] = {}
    """What its plugins and drivers knew of when it was last looked at."""
    unclear: dict[str, float] = {}
    """By driver, since when its pools have not been whole."""


class MissingDevices:
    """Of all nodes."""

    def __init__(self, settings: HealthSettings, *, looks_once: bool = False) -> None:
        """`looks_once`: what is missing may have been for long, unless it is stored since when."""
        self._looks_once = looks_once
        self._after_s = settings.missing_after_seconds
        self._rows = [(one.label.partition("="), one.devices) for one in settings.expected_devices]
        self._peers = Peers(type_and_pool)
        self._past: dict[str, _Past] = {}
        self._concerned: set[str] = set()
        self._lacking: dict[str, tuple[Shortage, ...]] = {}
        """By node that has too few devices."""
        self._hidden_until: dict[str, float] = {}
        """By node on which something is under way, or a pool is not whole."""

    def of(self, name: str) -> tuple[Shortage, ...]:
        """What a node lacked when it was last looked at."""
        return self._lacking.get(name, ())

    def concerned(self) -> set[str]:
        """The nodes of whose peers something else is to be expected since this was last asked."""
        concerned, self._concerned = self._concerned, set()
        return concerned

    def shown_again(self, now: float) -> set[str]:
        """The nodes of which nothing hides any longer what is missing."""
        shown = {name for name, until in self._hidden_until.items() if until <= now}
        for name in shown:
            del self._hidden_until[name]
        return shown

    def adopt(self, name: str, status: DeviceHealthStatus) -> None:
        """Take over what is stored of a node, before it was looked at. A time to come counts as
        now."""
        if (most := status.most_devices) is not None:
            self._past[name] = _Past(
                status.boot_id,
                {one.key: one.value for one in most.labels},
                most.since.timestamp(),
                {one.name: one.number for one in most.counts if is_device_name(one.name)},
                {one.name: one.since.timestamp() for one in status.missing},
            )

    def recall(self, name: str) -> tuple[StoredMost | None, tuple[StoredShortage, ...]]:
        """What is to be stored of a node."""
        past = self._past.get(name)
        if past is None or not (past.most or past.since or is_change(past.layout)):
            return None, ()
        most = StoredMost(
            since=utc(past.began),
            labels=tuple(StoredLabel(key=k, value=v) for k, v in sorted(past.layout.items())),
            counts=tuple(
                StoredCount(name=what, number=min(number, MOST_COUNTED))
                for what, number in sorted(past.most.items())[:MOST_SHOWN]
            ),
        )
        missing = (
            StoredShortage(
                name=one.name,
                expected=min(one.expected, MOST_COUNTED),
                found=min(one.found, MOST_COUNTED),
                source=one.source,
                since=utc(one.since),
            )
            for one in self.of(name)
            if one.since is not None
        )
        return most, tuple(missing)

    def pass_over(self, name: str) -> None:
        """Nothing can be said of what a node lacks."""
        self._lacking.pop(name, None)
        self._hidden_until.pop(name, None)

    def forget(self, name: str) -> None:
        self._past.pop(name, None)
        self.pass_over(name)
        self._concerned |= self._peers.put(name, {}, None)

    def look(
        self,
        node: core.Node,
        has: Has,
        now: float,
        worked_on_since: float = -inf,
    ) -> tuple[Shortage, ...]:
        """What the node lacks now. `worked_on_since`: when work on it began that is under way."""
        name, labels = node.metadata.name, node.metadata.labels or {}
        self.pass_over(name)
        self._concerned |= self._peers.put(name, labels, has.counted)
        past = self._recall(node, now)
        if is_change(past.layout):
            past.began = min(past.began, now)
            worked_on_since = max(worked_on_since, past.began)
        if now < worked_on_since + HIDES_S:
            self._hidden_until[name] = worked_on_since + HIDES_S
            return ()
        self._remember_most(past, has, now)
        unclear = self._unclear(name, past, has, now)
        found = has.found
        lacking = {
            what: expected
            for what, expected in self._expected(node, has, past).items()
            if found.get(what, 0) < expected.number and what not in unclear
        }
        if not lacking:
            past.since = {}
            return ()
        missing = []
        for what, (count, source) in sorted(lacking.items()):
            there = found.get(what, 0)
            since = self._since(past, what, now)
            lost_at = since + self._after_s if since is not None else inf
            missing.append(Shortage(what, count, there, source, since, lost_at))
        past.since = {one.name: one.since for one in missing if one.since is not None}
        self._lacking[name] = tuple(missing[:MOST_SHOWN])
        return self._lacking[name]

    def _unclear(self, name: str, past: _Past, has: Has, now: float) -> Collection[str]:
        """The drivers of which nobody knows what they have."""
        past.unclear = {driver: min(past.unclear.get(driver, now), now) for driver in has.unclear}
        until = {driver: since + HIDES_S for driver, since in past.unclear.items()}
        unclear = {driver for driver, ends in until.items() if now < ends}
        if unclear:
            self._hidden_until[name] = min(until[driver] for driver in unclear)
        return unclear

    def _since(self, past: _Past, what: str, now: float) -> float | None:
        if what not in past.since:
            return None if self._looks_once else now
        return min(past.since[what], now)

    def _recall(self, node: core.Node, now: float) -> _Past:
        """A label that goes says nothing: whoever wrote it may have lost the devices, too. That a
        change is no longer told of says that it is over; until then all attempts are one."""
        boot, labels = boot_of(node), node.metadata.labels or {}
        changed = changes(labels)
        told = {**layout(labels), **changed}
        past = self._past.get(node.metadata.name)
        is_over = past is not None and is_change(past.layout) and not changed
        is_same = past is not None and past.boot == boot and not is_over
        if past is not None and is_same and {**past.layout, **told} == past.layout:
            return past
        goes_on = past is not None and not past.layout.keys().isdisjoint(changed)
        began = past.began if past is not None and goes_on else now
        made = self._past[node.metadata.name] = _Past(boot, dict(told), began)
        return made

    def _remember_most(self, past: _Past, has: Has, now: float) -> None:
        """A plugin follows its new configuration only after a while: until then nothing is the
        most. Where there are more NVIDIA units of some resource than ever, somebody may have
        divided or shared the GPUs anew, by hand: then there are fewer of others by that. Where all
        units became fewer at once, by one whole factor, they are no longer shared."""
        began = past.began = min(past.began, now)
        before = past.most if now - began >= self._after_s else {}
        if any(is_nvidia_unit(what) and n > before.get(what, 0) for what, n in has.counted.items()):
            before = {what: n for what, n in before.items() if not is_nvidia_unit(what)}
        units = {one.resource: one for one in has.plugins if is_hardware(one.resource)}
        if _are_shared_by_fewer(before, past, units):
            before = {what: n for what, n in before.items() if what not in units}
        past.last = dict(has.counted)
        past.most = {
            what: max(before.get(what, 0), has.counted.get(what, 0))
            for what in {**before, **has.counted}
        }

    def _expected(self, node: core.Node, has: Has, past: _Past) -> Mapping[str, Expected]:
        labels = node.metadata.labels or {}
        fitting = (devices for (key, _, value), devices in self._rows if labels.get(key) == value)
        known = {what: 0 for what in past.most if "/" not in what}
        return expected_devices(
            DeviceCounts(
                labels=labels,
                capacities={one.resource: one.capacity for one in has.plugins},
                devices={**known, **has.devices},
                annotation=expected_on_node(node.metadata) or {},
                row=next(fitting, {}),
                most=past.most,
                usual=self._peers.usual(labels),
                split=is_split(node.metadata.annotations or {}),
            )
        )


def _are_shared_by_fewer(
    before: Mapping[str, int], past: _Past, units: Mapping[str, PluginView]
) -> bool:
    """Whether a plugin has a new setting. One unit fewer is a device that is gone. What became
    fewer one after the other was lost; while the plugin restarts, it is withdrawn, but known."""
    factors = set()
    for what, now in units.items():
        most = before.get(what, 0)
        if not most and not now.capacity:
            continue
        was = past.last.get(what, 0 if what in past.since else most)
        is_at_once = was == most > now.capacity + 1 and now.allocatable == now.capacity > 0
        if not is_at_once or most % now.capacity:
            return False
        factors.add(most // now.capacity)
    return len(factors) == 1


def hardware(devices: Iterable[PublishedDevice], parts: Collection[DeviceId]) -> Mapping[str, int]:
    """By driver, how many pieces of hardware its devices are. `parts`: of what is published, too,
    and so counted as that.

    MIG devices are as many as the GPUs that they are made of: dividing one loses nothing.
    """
    found: dict[str, set[str]] = {}
    for published in devices:
        names = filter(gpu_names.is_own, gpu_names.of_hardware(published.device))
        name = next(chain(names, (published.id.device,)))
        if published.id not in parts:
            found.setdefault(published.id.driver, set()).add(name)
    return {driver: len(names) for driver, names in found.items()}


def counted_as_others(wholes: Mapping[DeviceId, Collection[DeviceId]]) -> Iterator[DeviceId]:
    """The parts, by their wholes, and all but one of the devices that are the same hardware in
    other forms: each of these is the whole of the others."""
    for part, of in wholes.items():
        if any(part not in wholes.get(whole, ()) or whole < part for whole in of):
            yield part


def unclear_drivers(pools: Iterable[PoolView]) -> Collection[str]:
    """Drivers of which not all slices are there, or can be read."""
    return {one.driver for one in pools if one.incomplete or one.invalid or one.unclear}
