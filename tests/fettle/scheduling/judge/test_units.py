"""Which units of a device plugin a pod may be given, and how many are taken."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import core, kinds
from fettle.cluster import NodeView, PluginView, UnitView
from fettle.explain.wording import texts
from fettle.model import BUILT_IN, State
from fettle.scheduling.demand import Demand, Units
from fettle.scheduling.judge.units import (
    Draw,
    Taken,
    allocatable_units,
    count_taken,
    free_units,
    lacking_units,
)
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet
from tests.fettle.scheduling.census import BreakerWithCensus, share

TRAINING = BUILT_IN["training"].placement
DEAD = b.health(0.0)


def test_units_in_use_are_allocatable_but_not_free() -> None:
    plugin = PluginView("r", 8, 8, (UnitView("a", DEAD, allocated=1, count=4),))
    assert free_units(plugin, 1) == Draw(((DEAD, 3),), 4)
    assert allocatable_units(plugin) == Draw(((DEAD, 4),), 4)


def test_a_gpu_that_one_source_names_by_index_and_another_by_uuid_is_drawn_once() -> None:
    """As bad as the worse of both says, as long as nothing tells that they are two."""
    worn = b.health(0.5)
    by_index = UnitView("index:3", DEAD)
    by_uuid = UnitView("GPU-1", worn, others=("pci:0000:c1:00.0",))
    for units, named in (
        ((by_index, by_uuid), ((DEAD, 1),)),
        ((UnitView("index:3", worn), UnitView("GPU-1", DEAD)), ((DEAD, 1),)),
        ((by_index, by_uuid, UnitView("GPU-2", worn)), ((DEAD, 1), (worn, 1))),
        ((by_index, UnitView("GPU-1", worn, others=("index:1",))), ((DEAD, 1), (worn, 1))),
        ((by_index, UnitView("index:4", worn)), ((DEAD, 1), (worn, 1))),
        ((by_index, UnitView("MIG-1", worn)), ((DEAD, 1), (worn, 1))),
    ):
        plugin = PluginView("r", 8, 8, units)
        assert allocatable_units(plugin).named == free_units(plugin, 1).named == named


def test_as_many_units_are_free_as_the_scheduler_found_the_worst_of_those_that_seem_in_use() -> (
    None
):
    """Their pods have ended, and the view does not show it yet."""
    units = UnitView("a", DEAD, allocated=1), UnitView("b", b.health(0.5), allocated=1)
    full = PluginView("r", 2, 2, units)
    assert free_units(full, 1) == Draw(((DEAD, 1),), 0)
    eight = PluginView("r", 8, 8, units[:1])
    assert free_units(eight, 7) == Draw((), 7)
    assert free_units(eight, 8) == Draw(((DEAD, 1),), 7)


def test_the_only_unit_that_no_pod_holds_is_the_draw() -> None:
    plugin = PluginView("r", 8, 8, (UnitView("a", DEAD),), others_held=7)
    assert free_units(plugin, 1) == Draw(((DEAD, 1),), 0)


def test_if_more_units_are_known_than_exist_the_worst_ones_count() -> None:
    worn = b.health(0.5)
    plugin = PluginView("r", 2, 2, (UnitView("a", worn, count=2), UnitView("b", DEAD)))
    assert allocatable_units(plugin) == Draw(((DEAD, 1), (worn, 1)), 0)


NUMBERS = st.integers(0, 9)
UNITS = st.builds(
    lambda score, allocated, count, withdrawn: UnitView(
        "u", b.health(score), allocated, count, min(withdrawn, count)
    ),
    st.sampled_from([0.0, 0.5, 0.9]),
    NUMBERS,
    NUMBERS,
    NUMBERS,
)


@given(st.lists(UNITS, max_size=5), NUMBERS, NUMBERS, NUMBERS)
def test_no_more_of_a_named_unit_is_drawn_than_is_left_of_it(
    units: list[UnitView], capacity: int, allocatable: int, least: int
) -> None:
    plugin = PluginView("r", capacity, allocatable, tuple(units))
    for drawn in (allocatable_units(plugin), free_units(plugin, least)):
        for score in (0.0, 0.5, 0.9):
            number = sum(n for health, n in drawn.named if health.score == score)
            assert number <= sum(u.left for u in units if u.health.score == score)
        assert drawn.rest >= 0
        assert all(number > 0 for _, number in drawn.named)
    assert allocatable_units(plugin).size == allocatable
    assert free_units(plugin, least).size >= least


def lost(name: str, left: int) -> dict[str, object]:
    """A node with two dead GPUs of eight."""
    entries = [f"ErrorCode:79 GPU_UUID:GPU-{i} x Recommended Action=RESTART_BM;" for i in (4, 5)]
    bad = {"type": "SysLogsXIDError", "status": "True", "message": "".join(entries)}
    status = {
        "capacity": {"nvidia.com/gpu": "8"},
        "allocatable": {"nvidia.com/gpu": str(left)},
        "conditions": [bad],
    }
    return {"metadata": {"name": name}, "status": status}


@pytest.mark.parametrize(("left", "condemned"), [(8, 0.25), (6, 0.0)])
def test_gpus_withdrawn_on_all_nodes_leave_the_breaker_closed(left: int, condemned: float) -> None:
    fleet = Fleet()
    for i in range(12):
        fleet.put(kinds.NODE, lost(f"n{i}", left))
    nodes = dict(fleet.look().nodes)
    assert {node.health.state for node in nodes.values()} == {State.HEALTHY}
    breaker = BreakerWithCensus(TRAINING)
    breaker.update(nodes, nodes)
    assert share(breaker, "nvidia.com/gpu") == condemned
    assert not breaker.open


# Units that pods have taken, as the scheduler counts them

R = b.RESOURCE
REFUSED = "which the scheduler's own check refuses"


def on(node: str, count: int = 1, *, phase: str = "Running", **spec: Any) -> core.Pod:
    raw = b.gpu_pod(count)
    raw["spec"] |= {"nodeName": node, **spec}
    return b.pod({**raw, "status": {"phase": phase}})


def demand(count: int) -> Demand:
    return Demand(BUILT_IN["inference"], units=(Units(R, count),))


def why_not(node: NodeView, count: int, *pods: core.Pod) -> list[str]:
    return texts(lacking_units(demand(count), node, count_taken(pods)))


NODE = b.node("n1", gpus=8)


def test_a_node_with_too_few_free_units_says_how_many_are_taken() -> None:
    assert why_not(NODE, 2, on("n1", 4), on("n1", 3)) == [
        f"{R}: 7 of 8 are taken by pods, 2 requested, {REFUSED}"
    ]
    assert why_not(NODE, 1, on("n1", 4), on("n1", 3)) == []
    assert why_not(NODE, 1, on("n1", 8)) == [
        f"{R}: 8 of 8 are taken by pods, 1 requested, {REFUSED}"
    ]


def test_a_pod_that_needs_all_units_of_a_node_does_not_fit_beside_one_taken_unit() -> None:
    assert why_not(NODE, 8, on("n1")) == [f"{R}: 1 of 8 are taken by pods, 8 requested, {REFUSED}"]


def test_pods_on_other_nodes_or_finished_or_pending_take_no_units() -> None:
    assert why_not(NODE, 1, on("n2", 8), on("n1", 8, phase="Succeeded"), on("", 8)) == []
    assert why_not(NODE, 1, on("n1", 8, phase="Failed")) == []
    assert why_not(NODE, 1, on("n1", 8, phase="Pending")) != []


def test_pods_may_hold_more_units_than_the_node_has_now() -> None:
    """kubernetes: a plugin that restarts registers only the devices that are free."""
    node = b.node("n1", gpus=6)
    assert why_not(node, 1, on("n1", 8)) == [
        f"{R}: pods hold 8, more than the 6 that it has now, 1 requested, {REFUSED}"
    ]


def test_a_node_without_enough_units_at_all_is_reported_elsewhere() -> None:
    assert why_not(NODE, 9, on("n1", 8)) == []
    assert why_not(b.node("n1"), 1, on("n1", 8)) == []


def test_an_init_container_counts_only_if_it_needs_more_units() -> None:
    init = {"name": "i", "resources": {"limits": {R: "3"}}}
    assert why_not(NODE, 6, on("n1", 2, initContainers=[init])) != []
    assert why_not(NODE, 5, on("n1", 2, initContainers=[init])) == []


@pytest.mark.parametrize(("priority", "fits"), [(None, False), (0, False), (1, True)])
def test_units_of_pods_with_lower_priority_count_as_free_for_a_preemptor(
    priority: int | None, fits: bool
) -> None:
    taken = count_taken([on("n1", 8, priority=0)])
    waiting = on("", priority=priority)
    assert (not list(lacking_units(demand(1), NODE, taken, preemptor=waiting))) is fits


def test_without_pods_no_units_are_taken() -> None:
    taken: Taken = count_taken([])
    assert list(lacking_units(demand(8), NODE, taken)) == []


def test_units_are_counted_for_each_resource_by_itself() -> None:
    both = msgspec.structs.replace(
        NODE, plugins={r: msgspec.structs.replace(NODE.plugins[R], resource=r) for r in (R, "x/y")}
    )
    wants = Demand(BUILT_IN["inference"], units=(Units(R, 1), Units("x/y", 1)))
    (why,) = lacking_units(wants, both, count_taken([on("n1", 8)]))
    assert why.resource == R
