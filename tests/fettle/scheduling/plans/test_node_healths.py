"""How healthy a node is as a whole, and which nodes are to be cordoned."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec
import pytest

from fettle.cluster import NodeMarks, NodeView, PluginView, UnitView
from fettle.model import (
    LEFT_ALONE,
    SOUND,
    Family,
    Health,
    NodeId,
    Source,
    SourceKind,
    State,
    Weighed,
)
from fettle.scheduling.judge.acceptance import Cause
from fettle.scheduling.plans import NodeHealths, plan_cordons
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import Cluster
from tests.fettle.scheduling.plans.builders import (
    CORDONS,
    DEAD,
    NOW,
    OURS,
    fault,
    health_of,
    ill,
    node,
)

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("devices", "state", "unhealthy"),
    [
        ((ill(), ill()), State.HEALTHY, 0),
        ((ill(), ill(fault("g", 0.5))), State.DEGRADED, 0),
        ((ill(), ill(DEAD)), State.DEGRADED, 1),
        ((ill(DEAD), ill(DEAD)), State.UNHEALTHY, 2),
        ((ill(), b.UNKNOWN), State.UNKNOWN, 0),
        ((b.UNKNOWN, ill(DEAD)), State.DEGRADED, 1),
        (
            (ill(fault("g", 1.0, reporting_namespace="a pod")), ill()),
            State.HEALTHY,
            0,
        ),  # a tenant could do it
    ],
)
def test_a_node_is_unhealthy_if_every_device_is_and_degraded_if_only_some_are(
    devices: tuple[Health, ...], state: State, unhealthy: int
) -> None:
    found = health_of(node("n", *devices))
    assert (found.state, len(found.unhealthy), found.devices) == (state, unhealthy, 2)


def test_a_node_of_which_all_gpus_are_dead_is_unhealthy_though_its_network_device_is_sound() -> (
    None
):
    view = node("n", ill(DEAD), ill(DEAD))
    plugins = {"rdma/hca": PluginView("rdma/hca", 1, 1)}
    view = msgspec.structs.replace(view, plugins=plugins)
    assert health_of(view).state is State.UNHEALTHY
    dead = UnitView("hca-0", ill(DEAD))
    gpus = PluginView("nvidia.com/gpu", 8, 7, (dead,))
    found = health_of(msgspec.structs.replace(view, pools=(), plugins={"nvidia.com/gpu": gpus}))
    assert (found.state, found.devices, len(found.unhealthy)) == (State.DEGRADED, 8, 1)


@pytest.mark.parametrize(
    ("plugin", "state"),
    [
        (PluginView(GPU, 8, 8), "healthy"),
        (PluginView(GPU, 8, 8, (UnitView("g", ill(DEAD)),)), "partly-unhealthy"),
        (PluginView(GPU, 8, 8, (UnitView("g", ill(DEAD), count=8),)), "unhealthy"),
        (PluginView(GPU, 8, 8, (UnitView("g", ill(fault("g", 0.5))),)), "degraded"),
        (PluginView(GPU, 8, 8, (UnitView("g", b.UNKNOWN),)), "unknown"),
        # A device that the plugin has withdrawn is given to nobody.
        (PluginView(GPU, 8, 7, (UnitView("g", ill(DEAD), withdrawn=1),)), "healthy"),
        (PluginView(GPU, 1, 0, (UnitView("g", ill(DEAD), withdrawn=1),)), None),
    ],
)
def test_what_is_said_of_units_is_about_those_that_a_pod_may_be_given(
    plugin: PluginView, state: str | None
) -> None:
    view = msgspec.structs.replace(node("n", ill(DEAD)), plugins={GPU: plugin})
    assert health_of(view).units.get(GPU) == state


@pytest.mark.parametrize(
    ("devices", "tier"),
    [
        ((ill(), ill()), "healthy"),
        ((ill(), ill(fault("g", 0.5))), "degraded"),
        ((ill(), ill(DEAD)), "degraded"),
        ((ill(DEAD), ill(DEAD)), "unhealthy"),
        ((ill(), b.UNKNOWN), "unknown"),
        ((b.UNKNOWN, ill(DEAD)), "degraded"),
    ],
)
def test_what_may_refuse_a_node_is_told_like_its_state(
    devices: tuple[Health, ...], tier: str
) -> None:
    assert health_of(node("n", *devices)).proven == tier


def test_no_tenant_and_nothing_that_the_breaker_has_set_aside_may_refuse_a_node() -> None:
    rumour = ill(fault("g", 0.6, reporting_namespace="team-a"))
    rumour = msgspec.structs.replace(rumour, tenant_caused=0.6, suspected=2)
    suspected = health_of(node("n", rumour, ill()))
    assert (suspected.tier, suspected.proven) == (State.DEGRADED, "healthy")
    aside = frozenset({Cause(Source(SourceKind.TAINT, "rule"), named=True)})
    wrong = health_of(node("n", ill(DEAD), ill(DEAD)), aside=aside)
    assert (wrong.tier, wrong.proven) == (State.UNHEALTHY, "healthy")


def test_what_is_said_of_units_leaves_out_tenants_and_what_the_breaker_has_set_aside() -> None:
    """Required affinity refuses by it."""
    rumour = ill(fault("g", 1.0, reporting_namespace="team-a"))
    for dead, aside in (
        (rumour, frozenset[Cause]()),
        (ill(DEAD), frozenset({Cause(Source(SourceKind.TAINT, "rule"), named=True)})),
    ):
        plugin = PluginView(b.DRIVER, 8, 8, (UnitView("g", dead),))
        view = msgspec.structs.replace(node("n", ill()), plugins={b.DRIVER: plugin})
        assert health_of(view, aside=aside).units == {b.DRIVER: "healthy"}


def test_what_the_breaker_has_set_aside_is_said_and_not_acted_on() -> None:
    view = node("n", ill(DEAD), ill(DEAD))
    found = health_of(view, aside=frozenset({Cause(Source(SourceKind.TAINT, "rule"), named=True)}))
    assert (found.state, len(found.bad)) == (State.UNHEALTHY, 2)
    assert found.acted_on == (inf, inf)
    assert health_of(view).acted_on == (found.since_any, found.since_every)


def test_holds_plans_and_what_nvsentinel_does_are_no_faults_of_the_hardware() -> None:
    """Else it would be quarantined because of our condition, and our condition would stay because
    it is quarantined."""
    echo = fault("g", 0.75, of=NodeId("n"))
    echo = Weighed(
        msgspec.structs.replace(
            echo.evidence, source=Source(SourceKind.LABEL, "nvsentinel-draining")
        ),
        0.75,
    )
    plan = fault("g", 0.75, of=NodeId("n"), family=Family.MAINTENANCE)
    for said in (fault("g", 1.0, family=Family.OPERATOR), plan, echo):
        view = node("n", ill(said))
        assert health_of(view).state is State.UNHEALTHY
        assert health_of(view, of_hardware=True).state is State.HEALTHY
        both = node("n", ill(said, DEAD))
        assert health_of(both, of_hardware=True).state is State.UNHEALTHY


def cordons(*nodes: NodeView, **changes: Any) -> set[str]:
    settings = msgspec.structs.replace(CORDONS, **changes)
    healths = {one.name: health_of(one) for one in nodes}
    return set(plan_cordons({one.name: one for one in nodes}, healths, settings, NOW).nodes)


BAD = ill(DEAD, since=100.0)


def test_bad_nodes_are_cordoned_once_confirmed_and_only_if_it_is_asked_for() -> None:
    part, whole = node("part", BAD, SOUND), node("whole", BAD, BAD)
    new, sound = node("new", ill(DEAD, since=NOW - 30)), node("sound", SOUND)
    nodes = part, whole, new, sound
    assert cordons(*nodes) == {"part", "whole"}
    assert cordons(*nodes, cordon="EveryDevice") == {"whole"}
    assert cordons(*nodes, cordon=None) == set()
    healths = {one.name: health_of(one) for one in nodes}
    plan = plan_cordons({one.name: one for one in nodes}, healths, CORDONS, NOW)
    assert plan.due == NOW + 30


def test_the_budget_counts_what_others_have_cordoned_and_ours_stay_within_it() -> None:
    older, newer = node("older", ill(DEAD, since=10.0)), node("newer", BAD)
    ours, theirs = node("ours", BAD, **OURS), node("theirs", SOUND, unschedulable=True)
    assert cordons(older, newer, ours, max_cordoned=2) == {"ours", "older"}
    assert cordons(older, newer, ours, theirs, max_cordoned=2) == {"ours"}
    assert cordons(older, newer, ours, max_cordoned=0) == set()
    healed = node("healed", SOUND, **OURS)  # the steward waits before it uncordons it
    assert cordons(older, newer, ours, healed, max_cordoned=2) == {"ours"}
    many = [node(f"sound{i}", SOUND) for i in range(17)]
    assert cordons(older, newer, ours, *many, max_cordoned_share=0.10) == {"ours", "older"}
    assert cordons(older, newer, max_cordoned_share=0.10) == {"older"}  # rounded up


def test_nobody_elses_cordon_is_taken_over_and_an_uncordoned_node_is_not_cordoned_again() -> None:
    theirs = node("theirs", BAD, unschedulable=True)
    assert cordons(theirs) == set()
    uncordoned = node("freed", BAD, marks=NodeMarks(cordon="dead"))
    assert cordons(uncordoned) == set()
    assert cordons(uncordoned, node("bad", BAD), max_cordoned=1) == {"bad"}  # it takes no budget
    left = NodeMarks(cordon=LEFT_ALONE)
    again = node("again", BAD, unschedulable=True, marks=left)
    assert cordons(again, node("bad", BAD), max_cordoned=1) == set()
    healths = {one.name: health_of(one) for one in (uncordoned, again)}
    nodes = {one.name: one for one in (uncordoned, again)}
    assert plan_cordons(nodes, healths, CORDONS, NOW).left == {"freed", "again"}


def test_only_nodes_that_changed_are_looked_at_again() -> None:
    cluster = Cluster()
    healths = NodeHealths(cluster.answers)
    fleet = {f"n{i}": node(f"n{i}", BAD, SOUND) for i in range(3)}
    cluster.show(fleet)
    first = healths.look(cluster.publisher.view.nodes)
    fleet["n1"] = node("n1", SOUND, SOUND)
    cluster.show(fleet)
    second = healths.look(cluster.publisher.view.nodes)
    assert first is not None
    assert second is not None
    assert second["n0"] is first["n0"]
    assert (first["n1"].state, second["n1"].state) == (State.DEGRADED, State.HEALTHY)
