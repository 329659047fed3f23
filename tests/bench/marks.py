"""How much a storm makes the steward write on Nodes, as faults of a whole fleet come and go for
minutes. What is due is written as fast as the settings allow."""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice
from typing import NamedTuple

import msgspec

from fettle.api import kinds
from fettle.cluster import NodeMarks
from fettle.config import Settings
from fettle.model import CORDONED, DEVICES_SOUND, HEALTH, HEALTH_REASON
from fettle.pacing import run_within
from fettle.scheduling.plans import NodeHealths, plan_cordons
from fettle.steward.node_marks import DueMark, Holds, Mark, due_marks, marks_after, wanted_marks
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

SETTINGS = msgspec.convert(
    {"nodeMarks": {"label": True, "condition": True, "cordon": "AnyDevice"}}, Settings
)
MOST_PER_NODE = 12
"""Writes on one node whose device comes and goes each minute, for five minutes."""
PER_S = SETTINGS.node_marks.writes_per_second


class Marked(NamedTuple):
    """`writes` by kind, besides those that mark a sound fleet; `nodes` that had one; `left`: nodes
    that are not marked as sound in the end; `look_ms`: the longest plan and comparison."""

    writes: Counter[Mark]
    nodes: int
    left: int
    look_ms: float

    @property
    def total(self) -> int:
        return sum(self.writes.values())


async def measure(_: House) -> list[Figure]:
    found = []
    for what, storm, bound in STORMS:
        marked = await weather(storm, fleets.NODES)
        name = f"node marks: {fleets.NODES} nodes, {what}"
        found += [
            Figure(f"{name}: writes", marked.total, "writes", target=bound),
            Figure(f"{name}: plan and compare, the longest", marked.look_ms, "ms"),
        ]
    return found


STORMS = with_bounds(0, MOST_PER_NODE * fleets.NODES / 50, 0, MOST_PER_NODE * fleets.NODES / 2)


async def weather(storm: Storm, nodes: int) -> Marked:
    """Let the storm pass over so many nodes, which are marked as sound before."""
    fleet = _Fleet(nodes)
    for one in await fleet.due(inventories.NOW):
        fleet.write(one, inventories.NOW)
    writes: Counter[Mark] = Counter()
    ever, look_ms = set[str](), 0.0
    for at in range(0, STORM_S + CALM_S, LOOK_S):
        now = inventories.NOW + at
        if at <= STORM_S:
            fleet.publish(storm, at)
        fleet.look(now)
        began = time.process_time()
        due = await fleet.due(now)
        look_ms = max(look_ms, 1000 * (time.process_time() - began))
        for mark in Mark:
            for one in islice((d for d in due if d.mark is mark), round(PER_S * LOOK_S)):
                writes[mark] += 1
                ever.add(one.node)
                fleet.write(one, now)
    left = sum(marks.status != "True" or bool(marks.cordon) for marks in fleet.marks.values())
    return Marked(writes, len(ever), left, look_ms)


class _Fleet(StormyFleet):
    """And what is on its Nodes."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes, SETTINGS)
        self.marks = {name: NodeMarks() for name in self.answers.view.nodes}
        self._healths = NodeHealths(self.answers)
        self._of_hardware = NodeHealths(self.answers, of_hardware=True)
        self._holds = Holds(SETTINGS.node_marks)

    async def due(self, now: float) -> list[DueMark]:
        return await run_within(lambda: self._due(now))

    def _due(self, now: float) -> list[DueMark]:
        nodes, settings = self.answers.view.nodes, SETTINGS.node_marks
        healths, of_hardware = self._healths.look(nodes), self._of_hardware.look(nodes)
        assert healths is not None
        assert of_hardware is not None
        cordons = plan_cordons(nodes, of_hardware, settings, now)
        wanted = wanted_marks(settings, healths, of_hardware, cordons)
        return self._holds.ripe(due_marks(nodes, wanted), nodes, wanted, now)[0]

    def write(self, due: DueMark, now: float) -> None:
        marks = self.marks[due.node] = marks_after(self.marks[due.node], due)
        self.put(kinds.NODE, _node(due.node, marks), now)


def _node(name: str, marks: NodeMarks) -> Object:
    said = {"status": marks.status, "reason": marks.cause, "message": marks.message}
    annotations = {HEALTH_REASON: marks.annotation, CORDONED: marks.cordon}
    return {
        "metadata": {
            "name": name,
            "labels": {**({HEALTH: marks.tier} if marks.tier else {}), **dict(marks.labels)},
            "annotations": {key: value for key, value in annotations.items() if value},
        },
        "spec": {"unschedulable": bool(marks.cordon)},
        "status": {"conditions": [{"type": DEVICES_SOUND, **said}] if marks.status else []},
    }
