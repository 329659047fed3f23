"""How many units of a device plugin the pods on a node have taken, as the scheduler counts them."""

from typing import Any

import msgspec
import pytest

from fettle.api import core
from fettle.cluster import NodeView
from fettle.explain.wording import texts
from fettle.model import BUILT_IN
from fettle.scheduling.demand import Demand, Units
from fettle.scheduling.judge.units import Taken, count_taken, lacking_units
from tests.fettle import building as b

R = b.RESOURCE
REFUSED = "which the scheduler's own check refuses"


def on(node: str, count: int = 1, *, phase: str = "Running", **spec: Any) -> core.Pod:
    raw = b.gpu_pod(count)
    raw["spec"] |= {"nodeName": node, **spec}
    return b.pod({**raw, "status": {"phase": phase}})


def demand(count: int) -> Demand:
    return Demand(BUILT_IN["inference"], units=(Units(R, count),))


def told(node: NodeView, count: int, *pods: core.Pod) -> list[str]:
    return texts(lacking_units(demand(count), node, count_taken(pods)))


NODE = b.node("n1", gpus=8)


def test_a_node_with_fewer_free_units_than_a_pod_needs_says_so() -> None:
    assert told(NODE, 2, on("n1", 4), on("n1", 3)) == [
        f"{R}: 7 of 8 are taken by pods, 2 requested, {REFUSED}"
    ]
    assert told(NODE, 1, on("n1", 4), on("n1", 3)) == []
    assert told(NODE, 1, on("n1", 8)) == [f"{R}: 8 of 8 are taken by pods, 1 requested, {REFUSED}"]


def test_a_pod_that_needs_all_units_of_a_node_lacks_any_that_is_taken() -> None:
    assert told(NODE, 8, on("n1")) == [f"{R}: 1 of 8 are taken by pods, 8 requested, {REFUSED}"]


def test_pods_elsewhere_or_finished_or_waiting_take_nothing() -> None:
    assert told(NODE, 1, on("n2", 8), on("n1", 8, phase="Succeeded"), on("", 8)) == []
    assert told(NODE, 1, on("n1", 8, phase="Failed")) == []
    assert told(NODE, 1, on("n1", 8, phase="Pending")) != []


def test_units_withdrawn_under_pods_that_hold_them_are_not_counted_twice() -> None:
    node = b.node("n1", gpus=6)
    assert told(node, 1, on("n1", 8)) == [f"{R}: 6 of 6 are taken by pods, 1 requested, {REFUSED}"]


def test_a_node_that_never_had_enough_is_told_of_elsewhere() -> None:
    assert told(NODE, 9, on("n1", 8)) == []
    assert told(b.node("n1"), 1, on("n1", 8)) == []


def test_an_init_container_counts_only_where_it_needs_more() -> None:
    init = {"name": "i", "resources": {"limits": {R: "3"}}}
    assert told(NODE, 6, on("n1", 2, initContainers=[init])) != []
    assert told(NODE, 5, on("n1", 2, initContainers=[init])) == []


@pytest.mark.parametrize(("priority", "fits"), [(None, False), (0, False), (1, True)])
def test_a_pod_may_preempt_those_of_less_priority(priority: int | None, fits: bool) -> None:
    taken = count_taken([on("n1", 8, priority=0)])
    waiting = on("", priority=priority)
    assert (not list(lacking_units(demand(1), NODE, taken, preemptor=waiting))) is fits


def test_without_pods_nothing_is_taken() -> None:
    taken: Taken = count_taken([])
    assert list(lacking_units(demand(8), NODE, taken)) == []


def test_units_of_several_resources_are_counted_apart() -> None:
    both = msgspec.structs.replace(
        NODE, plugins={r: msgspec.structs.replace(NODE.plugins[R], resource=r) for r in (R, "x/y")}
    )
    wants = Demand(BUILT_IN["inference"], units=(Units(R, 1), Units("x/y", 1)))
    (why,) = lacking_units(wants, both, count_taken([on("n1", 8)]))
    assert why.resource == R
