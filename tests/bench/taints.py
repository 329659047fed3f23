"""How many DeviceTaintRules a storm makes the steward write: a whole fleet whose faults come and go
for minutes. No API server: what is due is written at once, as fast as the settings allow."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from fettle.api import kinds
from fettle.cel import SelectorEngine
from fettle.cluster import Publisher
from fettle.config import Settings
from fettle.pacing import run_within
from fettle.scheduling import Answers, PlannedTaint, plan_for
from fettle.steward.health_taints import DueWrites, due_writes
from fettle.steward.taint_rules import OWN_LABELS
from tests.bench import fleets, inventories
from tests.bench.figures import Figure
from tests.bench.houses import House
from tests.controlplane.api import Object

STORM_S, CALM_S = 300, 2700
"""How long faults come and go, and how long it is watched after that: longer than any dwell."""
LOOK_S, FLAP_S = 30, 30
SETTINGS = msgspec.convert({"deviceTaints": {"unhealthy": "NoSchedule"}}, Settings)
PER_S = SETTINGS.device_taints.writes_per_second

Storm = Callable[[int, int], Object]
"""What the node of this number publishes at this time, in seconds since the storm began."""


class Written(NamedTuple):
    """`writes` by kind; `most`: rules that there were at one time; `devices` that had one; `left`:
    rules in the end; `look_ms`: the longest plan and comparison."""

    writes: Counter[str]
    most: int
    devices: int
    left: int
    look_ms: float

    @property
    def total(self) -> int:
        return sum(self.writes.values())


async def measure(_: House) -> list[Figure]:
    found = []
    for what, storm, bound in STORMS:
        written = await weather(storm, fleets.NODES)
        name = f"taints: {fleets.NODES * fleets.GPUS} devices, {what}"
        found += [
            Figure(f"{name}: writes", written.total, "writes", target=bound),
            Figure(f"{name}: rules at one time", written.most, "rules"),
            Figure(f"{name}: plan and compare, the longest", written.look_ms, "ms"),
        ]
    return found


# --- storms


def _slice(number: int, lost: int | None, key: str = "gpu.nvidia.com/xid") -> Object:
    devices = inventories.alike(number)
    if lost is not None:
        devices[lost]["taints"] = [{"key": key, "value": "79", "effect": "None"}]
    return inventories.slice_of(fleets.name_of(number), devices)


def _flaps(at: int, until: int = STORM_S) -> bool:
    return at < until and at // FLAP_S % 2 == 0


def reboots(number: int, at: int) -> Object:
    """Every node goes and comes back, a while after the one before; its driver publishes nothing
    meanwhile, and then its devices as they were."""
    gone = number % 120 <= at < number % 120 + 180
    return inventories.slice_of(fleets.name_of(number), [] if gone else inventories.alike(number))


def some_flap(number: int, at: int) -> Object:
    return _slice(number, 3 if number % 50 == 0 and _flaps(at) else None)


def all_flap(number: int, at: int) -> Object:
    return _slice(number, number % 8 if _flaps(at) else None)


def ever_more_flap(number: int, at: int) -> Object:
    """The fault spreads, node by node, over half of the fleet."""
    reached = number % 2 == 0 and number % STORM_S <= at
    return _slice(number, number % 8 if reached and _flaps(at) else None)


STORMS: tuple[tuple[str, Storm, float], ...] = (
    ("all nodes reboot", reboots, 0),
    ("1 device on each 50th node comes and goes", some_flap, 3 * fleets.NODES / 50),
    ("1 device on each node comes and goes", all_flap, 0),
    (
        "a fault that comes and goes spreads over half the nodes",
        ever_more_flap,
        PER_S * (STORM_S + CALM_S),
    ),
)


async def weather(storm: Storm, nodes: int) -> Written:
    """Let the storm pass over so many nodes."""
    fleet = _Fleet(nodes)
    writes: Counter[str] = Counter()
    ever, most, look_ms = set[str](), 0, 0.0
    for at in range(0, STORM_S + CALM_S, LOOK_S):
        now = inventories.NOW + at
        if at <= STORM_S:
            fleet.publish(storm, at)
        fleet.look(now)
        began = time.process_time()
        due = await fleet.due(now)
        look_ms = max(look_ms, 1000 * (time.process_time() - began))
        for verb, name, planned in islice(_all(due), round(PER_S * LOOK_S)):
            writes[verb] += 1
            ever.add(name)
            fleet.write(name, planned, now)
        most = max(most, len(fleet.rules))
    return Written(writes, most, len(ever), len(fleet.rules), look_ms)


class _Fleet:
    """Nodes with eight devices each, the rules that there are, and the newest view of both."""

    def __init__(self, nodes: int) -> None:
        self.rules: set[str] = set()
        self._inventory = inventories.of_nodes(inventories.alike, nodes)
        self._publisher = Publisher()
        self._answers = Answers(self._publisher, SelectorEngine(), SETTINGS)
        self._published: list[Object] = [{}] * nodes
        self.look(inventories.NOW)

    def publish(self, storm: Storm, at: int) -> None:
        """What changes at this time of the storm."""
        for number, before in enumerate(self._published):
            raw = storm(number, at)
            if raw != before:
                self._published[number] = raw
                self._put(kinds.SLICE, raw, inventories.NOW + at)

    def look(self, now: float) -> None:
        self._inventory.age(now)
        for _ in self._inventory.refresh(now):
            pass
        before, served = self._publisher.view, {"DeviceTaintRule": True}
        made = self._inventory.view(before, synced=True, served=served)
        if made is not None:
            self._publisher.publish(made, self._inventory.settle())

    async def due(self, now: float) -> DueWrites:
        plan = await plan_for(self._answers, SETTINGS.device_taints, now, steers=True)
        assert plan is not None
        return await run_within(None, lambda: due_writes(self._publisher.view, plan.taints))

    def write(self, name: str, planned: PlannedTaint | None, now: float) -> None:
        """Set the taint by the rule of this name; None: remove the rule."""
        if planned is None:
            self._inventory.remove(kinds.TAINT_RULE, name, now)
            self.rules.discard(name)
        else:
            self._put(kinds.TAINT_RULE, _rule(name, planned), now)
            self.rules.add(name)

    def _put(self, kind: kinds.Kind, raw: Object, now: float) -> None:
        self._inventory.put(kind, kind.decode(msgspec.json.encode(raw)), now)


def _all(due: DueWrites) -> Iterator[tuple[str, str, PlannedTaint | None]]:
    """In the order in which the steward writes."""
    return chain(
        (("removed", name, None) for name in due.removed),
        (("changed", *one) for one in due.changed.items()),
        (("new", *one) for one in due.new.items()),
    )


def _rule(name: str, planned: PlannedTaint) -> Object:
    device, taint = planned.device, planned.taint
    return {
        "metadata": {"name": name, "labels": OWN_LABELS},
        "spec": {
            "deviceSelector": {
                "driver": device.driver,
                "pool": device.pool,
                "device": device.device,
            },
            "taint": {"key": taint.key, "value": taint.value, "effect": taint.effect},
        },
    }
