"""How many DeviceTaintRules a storm makes the steward write: a whole fleet whose faults come and go
for minutes. No API server: what is due is written at once, as fast as the settings allow."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from fettle.api import kinds
from fettle.config import Settings
from fettle.pacing import run_within
from fettle.scheduling.plans import PlannedTaint, plan_for
from fettle.steward.health_taints import DueWrites, due_writes
from fettle.steward.taint_rules import OWN_LABELS
from tests.bench import fleets, inventories
from tests.bench.figures import Figure
from tests.bench.houses import House
from tests.bench.storms import (
    CALM_S,
    LOOK_S,
    STORM_S,
    Storm,
    StormyFleet,
    with_bounds,
)
from tests.controlplane.api import Object

SETTINGS = msgspec.convert({"deviceTaints": {"unhealthy": "NoSchedule"}}, Settings)
PER_S = SETTINGS.device_taints.writes_per_second


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


STORMS = with_bounds(0, 3 * fleets.NODES / 50, 0, PER_S * (STORM_S + CALM_S))


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


class _Fleet(StormyFleet):
    """And the rules that there are."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes, SETTINGS)
        self.rules: set[str] = set()

    async def due(self, now: float) -> DueWrites:
        plan = await plan_for(self.answers, SETTINGS.device_taints, now, steers=True)
        assert plan is not None
        return await run_within(lambda: due_writes(self.answers.view, plan.taints))

    def write(self, name: str, planned: PlannedTaint | None, now: float) -> None:
        """Set the taint by the rule of this name; None: remove the rule."""
        if planned is None:
            self.remove(kinds.TAINT_RULE, name, now)
            self.rules.discard(name)
        else:
            self.put(kinds.TAINT_RULE, _rule(name, planned), now)
            self.rules.add(name)


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
