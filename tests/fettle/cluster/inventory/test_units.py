"""Which of a device plugin's units evidence is about, and which of them it has withdrawn."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.api.kinds import Kind as Wired
from fettle.cluster.inventory.units import NodeFacts, node_and_held_units, place_units, plugin_views
from fettle.cluster.view import PluginView, UnitView
from fettle.explain.users import Users
from fettle.model import (
    SOUND,
    Evidence,
    EvidenceKind,
    Family,
    Health,
    ReporterId,
    Source,
    SourceKind,
    State,
    UnitId,
    Weighed,
)
from fettle.scheduling.judge.units import Draw, allocatable_units, free_units
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet

WORN, LINK = 94, 74
GPU, RENAMED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"


def node(
    *lost: str,
    xids: Mapping[str, int] | None = None,
    capacity: Mapping[str, int] | None = None,
    left: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A node whose monitor says that GPUs are `lost`, or had an XID; `left` is allocatable."""
    capacity = {GPU: 8} if capacity is None else capacity
    said = [(gpu, 79, "RESTART_BM") for gpu in lost]
    said += [(gpu, xid, "NONE") for gpu, xid in (xids or {}).items()]
    errors = [f"ErrorCode:{xid} GPU_UUID:{gpu} x Recommended Action={a};" for gpu, xid, a in said]
    bad = {"type": "SysLogsXIDError", "status": "True", "message": "".join(errors)}
    return {
        "metadata": {"name": "n", "labels": dict(labels or {})},
        "status": {
            "capacity": {name: str(number) for name, number in capacity.items()},
            "allocatable": {
                name: str(number) for name, number in {**capacity, **(left or {})}.items()
            },
            "conditions": [bad] if errors else [],
        },
    }


def holding(name: str, **said: str) -> dict[str, Any]:
    """A running pod that holds units of GPUs, with what the kubelet says of their health."""
    return held_of(GPU, name, {id_.replace("_", "-"): word for id_, word in said.items()})


def held_of(resource: str, name: str, said: Mapping[str, str]) -> dict[str, Any]:
    pod = b.gpu_pod(name=name)
    pod["spec"]["nodeName"] = "n"
    found = [{"resourceID": id_, "health": health} for id_, health in said.items()]
    status = [{"allocatedResourcesStatus": [{"name": resource, "resources": found}]}]
    pod["status"] = {"phase": "Running", "containerStatuses": status}
    return pod


def seen(fleet: Fleet, resource: str = GPU) -> dict[str, UnitView]:
    plugin = fleet.look().nodes["n"].plugins[resource]
    return {unit.unit: unit for unit in plugin.units}


def withdrawn(fleet: Fleet, resource: str = GPU) -> dict[str, int]:
    return {name: unit.withdrawn for name, unit in seen(fleet, resource).items()}


# -- who holds which


@pytest.mark.parametrize("called", ["GPU-4", "4", "4::1", "0000:C4:00.0", "pci:0000:c4:00.0"])
def test_a_gpu_is_held_by_the_pod_whose_kubelet_calls_it_by_another_of_its_names(
    fleet: Fleet, called: str
) -> None:
    """A monitor tells all its names at once, and a device plugin calls it by any one of them."""
    said = "ErrorCode:79 GPU:4 PCI:0000:c4:00.0 GPU_UUID:GPU-4 x Recommended Action=RESTART_BM;"
    named = node("GPU-4")
    named["status"]["conditions"][0]["message"] = said
    fleet.put(kinds.NODE, named)
    fleet.put(kinds.POD, held_of(GPU, "p", {called: "Healthy"}))
    fleet.put(kinds.POD, held_of(GPU, "q", {"5": "Healthy"}))
    (unit,) = seen(fleet).values()
    assert (unit.unit, unit.allocated) == ("GPU-4", 1)
    record = fleet.view.nodes["n"]
    assert Users(fleet.view).of_unit("n", record.plugins[GPU], unit).certain == ("default/p",)


def test_the_kubelet_and_a_monitor_may_write_one_uuid_in_different_case(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU-b5f21324-f1f9"))
    fleet.put(kinds.POD, held_of(GPU, "p", {"GPU-B5F21324-F1F9::1": "Healthy"}))
    (unit,) = seen(fleet).values()
    assert (unit.unit, unit.allocated) == ("GPU-b5f21324-f1f9", 1)


# -- what the plugin has withdrawn


def test_the_gpu_that_a_monitor_calls_lost_is_the_one_that_was_withdrawn(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU-4", left={GPU: 7}))
    assert withdrawn(fleet) == {"GPU-4": 1}
    record = fleet.view.nodes["n"]
    assert allocatable_units(record.plugins[GPU]) == Draw((), 7)
    assert record.health.score == 0.95  # the gap, and no more


def test_while_nothing_is_withdrawn_a_lost_gpu_may_still_be_handed_out(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU-4"))
    assert withdrawn(fleet) == {"GPU-4": 0}
    fleet.put(kinds.NODE, node("GPU-4", left={GPU: 7}))
    assert withdrawn(fleet) == {"GPU-4": 1}
    fleet.put(kinds.NODE, node("GPU-4"))
    assert withdrawn(fleet) == {"GPU-4": 0}


def test_no_more_are_withdrawn_than_are_missing(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU-1", "GPU-2", "GPU-3", left={GPU: 6}))
    assert sorted(withdrawn(fleet).values()) == [0, 1, 1]


def test_units_without_evidence_may_be_withdrawn_too(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU-1", left={GPU: 5}))
    assert withdrawn(fleet) == {"GPU-1": 1}
    assert allocatable_units(fleet.view.nodes["n"].plugins[GPU]) == Draw((), 5)


def test_a_gpu_with_only_light_evidence_is_not_the_withdrawn_one(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node(xids={"GPU-1": WORN}, left={GPU: 7}))
    assert withdrawn(fleet) == {"GPU-1": 0}
    fleet.put(kinds.NODE, node("GPU-2", xids={"GPU-1": WORN}, left={GPU: 6}))
    assert withdrawn(fleet) == {"GPU-1": 0, "GPU-2": 1}


def test_a_gpu_that_the_kubelet_calls_unhealthy_is_withdrawn_before_one_with_a_worse_score(
    fleet: Fleet,
) -> None:
    fleet.put(kinds.NODE, node("GPU-1", left={GPU: 7}))
    fleet.put(kinds.POD, holding("p", GPU_2="Unhealthy"))
    found = seen(fleet)
    assert found["GPU-1"].health.score < found["GPU-2"].health.score
    assert {name: unit.withdrawn for name, unit in found.items()} == {"GPU-1": 0, "GPU-2": 1}


def test_a_gpu_of_which_the_kubelet_knows_nothing_is_as_likely_as_it_is_bad(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU-1", xids={"GPU-2": LINK}, left={GPU: 7}))
    fleet.put(kinds.POD, holding("p", GPU_2="Unknown"))
    assert withdrawn(fleet) == {"GPU-1": 1, "GPU-2": 0}
    fleet.put(kinds.NODE, node("GPU-1", xids={"GPU-2": LINK}, left={GPU: 6}))
    assert withdrawn(fleet) == {"GPU-1": 1, "GPU-2": 1}


def test_a_pod_that_has_ended_holds_nothing() -> None:
    raw = holding("p", GPU_1="Healthy")
    assert node_and_held_units(b.pod(raw)) == ("n", {(GPU, "GPU-1"): "Healthy"})
    raw["status"]["phase"] = "Succeeded"
    assert node_and_held_units(b.pod(raw)) == ("n", {})


def test_what_the_kubelet_calls_healthy_is_not_withdrawn(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU-1", left={GPU: 7}))
    fleet.put(kinds.POD, holding("p", GPU_1="Healthy"))
    assert withdrawn(fleet) == {"GPU-1": 0}
    fleet.put(kinds.POD, holding("p", GPU_1="Unhealthy"))
    assert withdrawn(fleet) == {"GPU-1": 1}


def test_what_the_kubelet_reported_counts_until_it_has_faded(fleet: Fleet) -> None:
    """A pod that is gone has taken its word along, and the GPU is as dead as before."""
    fleet.put(kinds.NODE, node(left={GPU: 7}))
    fleet.put(kinds.POD, holding("p", GPU_1="Unhealthy"))
    fleet.look()
    fleet.inventory.remove(kinds.POD, "default/p", fleet.now)
    states = []
    for _ in range(20):
        unit = seen(fleet).get("GPU-1")
        states.append(unit.health.state if unit is not None else State.HEALTHY)
        if unit is not None and unit.health.state is not State.HEALTHY:
            assert unit.withdrawn == 1
        fleet.now += 1800
        fleet.put(kinds.NODE, node(left={GPU: 7}))
    assert list(dict.fromkeys(states)) == [State.UNHEALTHY, State.DEGRADED, State.HEALTHY]


def test_a_pod_that_holds_a_withdrawn_gpu_takes_none_from_the_others(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU-1", left={GPU: 7}))
    fleet.put(kinds.POD, holding("p", GPU_1="Unhealthy"))
    plugin = fleet.look().nodes["n"].plugins[GPU]
    assert free_units(plugin, 1) == Draw((), 7)
    assert allocatable_units(plugin) == Draw((), 7)


def test_a_fault_of_the_node_does_not_show_which_gpu_was_withdrawn(fleet: Fleet) -> None:
    """What makes every unit Degraded makes none the likelier."""
    ill = node(xids={"GPU-1": WORN}, left={GPU: 7})
    lost = {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79Error"}
    ill["status"]["conditions"].append(lost)
    fleet.put(kinds.NODE, ill)
    record = fleet.look().nodes["n"]
    assert record.health.state is State.UNHEALTHY
    assert withdrawn(fleet) == {"GPU-1": 0}


# -- shared GPUs


@pytest.mark.parametrize("resource", [GPU, RENAMED])
def test_a_shared_gpu_is_all_its_replicas(fleet: Fleet, resource: str) -> None:
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "2"}
    fleet.put(kinds.NODE, node("GPU-1", capacity={resource: 8}, labels=labels))
    assert {name: unit.count for name, unit in seen(fleet, resource).items()} == {"GPU-1": 4}
    assert fleet.view.nodes["n"].health.score == 1.0
    assert allocatable_units(fleet.view.nodes["n"].plugins[resource]).rest == 4


@pytest.mark.parametrize("resource", [GPU, RENAMED])
def test_a_replica_that_the_kubelet_names_is_its_gpu(fleet: Fleet, resource: str) -> None:
    labels = {"nvidia.com/gpu.replicas": "4"}
    fleet.put(kinds.NODE, node("GPU-1", capacity={resource: 8}, labels=labels))
    fleet.put(kinds.POD, held_of(resource, "p", {"GPU-1::0": "Healthy", "GPU-1::2": "Healthy"}))
    fleet.put(kinds.POD, held_of(resource, "q", {"GPU-2::3": "Unhealthy"}))
    found = seen(fleet, resource)
    assert {name: (u.count, u.allocated) for name, u in found.items()} == {
        "GPU-1": (4, 2),
        "GPU-2": (4, 1),
    }
    drawn = free_units(fleet.view.nodes["n"].plugins[resource], 1)
    assert [(health.score, number) for health, number in drawn.named] == [(0.0, 2), (0.25, 3)]
    assert drawn.rest == 0


def test_units_that_pods_hold_are_in_no_draw_though_nothing_is_said_of_them(fleet: Fleet) -> None:
    """Seven of eight are held, so whoever asks for one gets the bad one."""
    fleet.put(kinds.NODE, node("GPU-0", capacity={GPU: 8}))
    for i in range(1, 8):
        fleet.put(kinds.POD, held_of(GPU, f"p{i}", {f"GPU-{i}": "Healthy"}))
    plugin = fleet.look().nodes["n"].plugins[GPU]
    drawn = free_units(plugin, 1)
    assert ([number for _, number in drawn.named], drawn.rest) == ([1], 0)
    fleet.inventory.remove(kinds.POD, "default/p1", fleet.now)
    drawn = free_units(fleet.look().nodes["n"].plugins[GPU], 1)
    assert ([number for _, number in drawn.named], drawn.rest) == ([1], 1)


def test_a_gpu_goes_by_its_best_name(fleet: Fleet) -> None:
    named = node("GPU-1", capacity={RENAMED: 8})
    named["status"]["conditions"][0]["message"] += (
        "ErrorCode:79 GPU:3 PCI:0000:c0:00.0 GPU_UUID:GPU-2 x Recommended Action=RESTART_BM;"
    )
    fleet.put(kinds.NODE, named)
    fleet.put(kinds.POD, held_of(RENAMED, "p", {"GPU-2::1": "Unhealthy"}))
    assert set(seen(fleet, RENAMED)) == {"GPU-1", "GPU-2"}


def test_replicas_of_one_gpu_are_one_unit_whatever_each_is_called(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node(labels={"nvidia.com/gpu.replicas": "4"}))
    fleet.put(kinds.POD, held_of(GPU, "p", {"GPU-1::0": "Unhealthy", "GPU-1::1": "Unhealthy"}))
    (unit,) = seen(fleet).values()
    assert (unit.unit, unit.allocated, unit.health.score) == ("GPU-1", 2, 0.25)


def test_the_plugin_may_withdraw_one_replica_of_a_gpu_and_leave_the_rest(fleet: Fleet) -> None:
    """It knows a GPU by the last of its replicas only."""
    labels = {"nvidia.com/gpu.replicas": "4"}
    fleet.put(kinds.NODE, node("GPU-1", left={GPU: 7}, labels=labels))
    assert withdrawn(fleet) == {"GPU-1": 1}
    (drawn,) = allocatable_units(fleet.view.nodes["n"].plugins[GPU]).named
    assert drawn[1] == 3


# -- GPUs in MIG mode


def test_a_lost_gpu_may_be_one_of_several_resources(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU-1", capacity={GPU: 7, MIG: 7}))
    for resource, other in ((GPU, MIG), (MIG, GPU)):
        (unit,) = seen(fleet, resource).values()
        assert (unit.unit, unit.count, unit.alternatives) == ("GPU-1", 1, (other,))
    assert fleet.view.nodes["n"].health.score == 1.0


@pytest.mark.parametrize(("gone", "stays"), [(GPU, MIG), (MIG, GPU)])
def test_a_gap_shows_to_which_resource_a_lost_gpu_belongs(
    fleet: Fleet, gone: str, stays: str
) -> None:
    fleet.put(kinds.NODE, node("GPU-1", capacity={GPU: 7, MIG: 7}, left={gone: 6}))
    assert withdrawn(fleet, gone) == {"GPU-1": 1}
    assert seen(fleet, stays) == {}


def test_where_a_pod_holds_it_a_gpu_is_not_in_mig_mode(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU-1", capacity={GPU: 7, MIG: 7}))
    fleet.put(kinds.POD, holding("p", GPU_1="Healthy"))
    (unit,) = seen(fleet).values()
    assert (unit.count, unit.allocated, unit.alternatives) == (1, 1, ())
    assert seen(fleet, MIG) == {}


def test_where_all_gpus_are_in_mig_mode_a_lost_one_is_its_devices(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU-1", capacity={GPU: 0, MIG: 56}))
    (unit,) = seen(fleet, MIG).values()
    assert (unit.unit, unit.count) == ("GPU-1", 7)
    assert fleet.view.nodes["n"].health.score == 1.0


def test_a_mig_device_that_the_kubelet_names_is_itself_alone(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node(capacity={GPU: 7, MIG: 7}))
    fleet.put(kinds.POD, held_of(MIG, "p", {"MIG-1": "Unhealthy"}))
    (unit,) = seen(fleet, MIG).values()
    assert (unit.unit, unit.count) == ("MIG-1", 1)
    assert seen(fleet) == {}


# -- whatever is said


CHANGES = st.lists(
    st.tuples(st.integers(4, 8), st.sampled_from(["1", "2"]))
    | st.tuples(
        st.sampled_from("pq"),
        st.dictionaries(st.sampled_from(["GPU-1", "GPU-2", "GPU-2::1"]), st.just("Healthy")),
    ),
    min_size=1,
    max_size=8,
)


@given(CHANGES)
def test_units_are_as_after_a_restart(changes: list[tuple[Any, Any]]) -> None:
    seen_it_all = Fleet()
    last: dict[str, tuple[Wired, dict[str, Any]]] = {}
    for what, how in changes:
        if isinstance(what, int):
            labels = {f"{GPU}.replicas": how}
            last["n"] = (kinds.NODE, node("GPU-1", "GPU-2", left={GPU: what}, labels=labels))
            seen_it_all.put(*last["n"])
        else:
            last[what] = (kinds.POD, held_of(GPU, what, how))
            seen_it_all.put(*last[what])
        seen_it_all.look()
    restarted = Fleet()
    for put in last.values():
        restarted.put(*put)
    assert figures(seen_it_all) == figures(restarted)


def figures(fleet: Fleet) -> list[tuple[str, int, int, int]]:
    return [
        (unit.unit, unit.count, unit.allocated, unit.withdrawn)
        for record in fleet.look().nodes.values()
        for unit in record.plugins[GPU].units
    ]


RESOURCES = (GPU, RENAMED, MIG)
IDS = st.sampled_from(["GPU-1", "GPU-2", "GPU-1::0", "GPU-1::3", "GPU-2::1", "MIG-1", "index:0"])
UNITS = st.builds(UnitId, st.just("n"), st.sampled_from(RESOURCES), IDS)
SCORES = st.sampled_from([0.0, 0.25, 0.5, 0.95])
WORDS = st.sampled_from(["Healthy", "Unhealthy", "Unknown"])


def said_of(unit: UnitId, score: float, source: str) -> Health:
    evidence = Evidence(
        subject=unit,
        family=Family.BUS,
        kind=EvidenceKind.LEVEL,
        weight=1 - score,
        source=Source(SourceKind.TAINT, source),
        reporter=ReporterId("Node", "n"),
        said="x",
        observed_at=0.0,
    )
    state = State.UNHEALTHY if score < 0.3 else State.DEGRADED if score < 0.8 else State.HEALTHY
    return Health(score, state, 0.0, (Weighed(evidence, 1 - score),))


@given(
    about=st.dictionaries(
        UNITS, st.tuples(SCORES, st.sampled_from(["condition x", "allocatedResourcesStatus"]))
    ),
    sizes=st.dictionaries(
        st.sampled_from(RESOURCES), st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1
    ),
    held=st.dictionaries(st.tuples(st.sampled_from(RESOURCES), IDS), WORDS),
    replicas=st.integers(0, 5),
)
def test_draws_always_have_as_many_units_as_the_node_offers(
    about: dict[UnitId, tuple[float, str]],
    sizes: dict[str, tuple[int, int]],
    held: dict[tuple[str, str], str],
    replicas: int,
) -> None:
    resources = tuple(PluginView(name, *size) for name, size in sizes.items())
    placing = place_units("n", about, (), {one.resource for one in resources if one.capacity}, ())
    healths = {unit: said_of(unit, *said) for unit, said in about.items()}
    pods = [
        b.pod(held_of(resource, f"p{i}", {id_: word}))
        for i, ((resource, id_), word) in enumerate(held.items())
    ]
    labels = {f"{GPU}.replicas": str(replicas)}
    known = NodeFacts(healths, SOUND, pods, labels)
    for name, plugin in plugin_views(resources, placing, known).items():
        assert (plugin.capacity, plugin.allocatable) == sizes[name]
        assert sum(unit.withdrawn for unit in plugin.units) <= plugin.withdrawn
        assert all(0 <= unit.withdrawn <= unit.count for unit in plugin.units)
        assert all(unit.allocated <= unit.count for unit in plugin.units)
        assert allocatable_units(plugin).size == plugin.allocatable
        assert free_units(plugin, 0).size <= plugin.allocatable
        assert free_units(plugin, 9).size >= 9
