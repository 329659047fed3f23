"""Pods in: which are kept, what they hold, and what they say of nodes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.dra.extended_resources import device_units, uses_devices
from fettle.model import State
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, claim, node, slice_


def test_pods_that_use_no_devices_are_not_kept(fleet: Fleet) -> None:
    plain = {"metadata": {"name": "p", "namespace": "d"}, "spec": {"containers": [{"name": "c"}]}}
    fleet.put(kinds.POD, plain)
    fleet.put(kinds.POD, b.gpu_pod(name="q"))
    assert list(fleet.look().pods) == ["default/q"]


def test_a_pod_that_finishes_is_kept_no_more(fleet: Fleet) -> None:
    fleet.put(kinds.POD, b.gpu_pod())
    assert fleet.look().pods
    fleet.put(kinds.POD, {**b.gpu_pod(), "status": {"phase": "Succeeded"}})
    assert not fleet.look().pods


def test_a_pod_alone_does_not_touch_what_verdicts_rest_on(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    before = fleet.look()
    fleet.put(kinds.POD, b.gpu_pod())
    after = fleet.look()
    assert (after.generation, after.basis) == (before.generation + 1, before.basis)


def holding(health: str, *, phase: str = "Running") -> Any:
    resources = [{"resourceID": "GPU-1", "health": health}]
    said = [{"name": b.RESOURCE, "resources": resources}]
    pod = b.gpu_pod()
    pod["spec"]["nodeName"] = "n"
    pod["status"] = {"phase": phase, "containerStatuses": [{"allocatedResourcesStatus": said}]}
    return pod


def test_a_unit_that_a_live_pod_holds_is_taken_until_the_pod_ends(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.POD, holding("Unhealthy"))
    (unit,) = fleet.look().nodes["n"].plugins[b.RESOURCE].units
    assert (unit.unit, unit.allocated) == ("GPU-1", True)
    assert unit.health.state is not State.HEALTHY
    fleet.put(kinds.POD, holding("Unhealthy", phase="Succeeded"))
    (unit,) = fleet.look().nodes["n"].plugins[b.RESOURCE].units
    assert not unit.allocated


def test_a_refusal_counts_in_full_where_the_pod_was_seen_before_it_was_bound(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    meta = {"name": "p", "namespace": "d", "uid": "u"}
    spec = {"containers": [{"resources": {"limits": {b.RESOURCE: "1"}}}]}
    refused = {
        "metadata": meta,
        "spec": {**spec, "nodeName": "n"},
        "status": {
            "phase": "Failed",
            "reason": "UnexpectedAdmissionError",
            "message": "Pod was rejected: Allocate failed due to requested number of devices "
            "unavailable for example.com/gpu. Requested: 1, Available: 0, which is unexpected",
            "startTime": "1970-01-12T13:46:40Z",
        },
    }
    fleet.put(kinds.POD, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})
    fleet.put(kinds.POD, refused)
    assert fleet.look().nodes["n"].health.score == 0.6
    fleet.put(kinds.POD, {**refused, "metadata": {**meta, "labels": {"seen": "twice"}}})
    assert fleet.look().nodes["n"].health.score == 0.6  # one pod, one refusal

    created_there = {**meta, "name": "q", "uid": "v"}
    fleet.put(kinds.NODE, node("m"))
    fleet.put(kinds.POD, {**refused, "metadata": created_there, "spec": {**spec, "nodeName": "m"}})
    assert fleet.look().nodes["m"].health.score == 0.65


def test_a_race_of_schedulers_says_nothing_of_a_node_that_withholds_a_unit(fleet: Fleet) -> None:
    """Running pods have all that its plugin offers, and it has one more that it does not offer."""
    fleet.put(kinds.NODE, node(allocatable=7))
    before = fleet.look().nodes["n"].health.score
    for number in range(7):
        running = b.gpu_pod(1, name=f"runs-{number}")
        running["metadata"]["uid"] = f"uid-{number}"
        running["spec"]["nodeName"] = "n"
        running["status"] = {"phase": "Running"}
        fleet.put(kinds.POD, running)
    late = b.gpu_pod(1, name="late")
    late["metadata"]["uid"] = "uid-late"
    fleet.put(kinds.POD, {**late, "status": {"phase": "Pending"}})
    message = (
        "Pod was rejected: Allocate failed due to requested number of devices unavailable for "
        f"{b.RESOURCE}. Requested: 1, Available: 0, which is unexpected"
    )
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message}
    fleet.put(kinds.POD, {**late, "spec": {**late["spec"], "nodeName": "n"}, "status": status})
    assert fleet.look().nodes["n"].health.score == before


def test_a_fault_outlives_the_pod_that_reported_it_and_fades(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.POD, holding("Unhealthy"))
    (before,) = fleet.look().nodes["n"].plugins[b.RESOURCE].units
    fleet.now += 1000 * 3600.0
    (still,) = fleet.look().nodes["n"].plugins[b.RESOURCE].units
    assert still.health.score == before.health.score  # while the pod says it, it does not fade
    fleet.inventory.remove(kinds.POD, "default/p", fleet.now)
    (after,) = fleet.look().nodes["n"].plugins[b.RESOURCE].units
    assert after.health.score == before.health.score
    fleet.now += 1000 * 3600.0
    assert not [
        unit
        for unit in fleet.look().nodes["n"].plugins[b.RESOURCE].units
        if unit.health.state is not State.HEALTHY
    ]


def ill_units(fleet: Fleet) -> dict[str, float]:
    return {
        unit.unit: unit.health.score
        for unit in fleet.look().nodes["n"].plugins[b.RESOURCE].units
        if unit.health.state is not State.HEALTHY
    }


WITHOUT_ENTRY = [
    {"phase": "Running", "containerStatuses": [{"name": "c"}]},
    {"phase": "Running"},
    {"phase": "Succeeded", "containerStatuses": [{"name": "c"}]},
    {"phase": "Failed", "reason": "Evicted"},
]


@pytest.mark.parametrize("status", WITHOUT_ENTRY)
def test_a_fault_that_a_living_pod_no_longer_reports_fades(fleet: Fleet, status: Any) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.POD, holding("Unhealthy"))
    assert ill_units(fleet) == {"GPU-1": 0.25}
    fleet.put(kinds.POD, {**holding("Unhealthy"), "status": status})
    (unit,) = fleet.look().nodes["n"].plugins[b.RESOURCE].units
    assert unit.health.score == 0.25
    assert unit.health.evidence[0].evidence.text.endswith("; no longer reported")
    fleet.now += 3600.0
    assert ill_units(fleet) == {"GPU-1": pytest.approx(0.625)}
    fleet.now += 24 * 3600.0
    assert ill_units(fleet) == {}


def test_a_unit_whose_health_a_pod_no_longer_says_is_not_called_unknown(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.POD, holding("Unknown"))
    assert ill_units(fleet) == {"GPU-1": 0.75}
    fleet.put(kinds.POD, {**holding("Unknown"), "status": {"phase": "Running"}})
    assert ill_units(fleet) == {}


def test_what_a_pod_says_no_longer_another_that_holds_the_unit_may_clear(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.POD, holding("Unhealthy"))
    fleet.look()
    fleet.put(kinds.POD, {**holding("Unhealthy"), "status": {"phase": "Succeeded"}})
    assert ill_units(fleet) == {"GPU-1": 0.25}
    later = holding("Healthy")
    later["metadata"]["name"] = "later"
    fleet.put(kinds.POD, later)
    assert ill_units(fleet) == {}


def test_a_pod_that_says_its_device_is_fine_as_it_ends_clears_its_word(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.POD, holding("Unhealthy"))
    fleet.look()
    fleet.put(kinds.POD, holding("Healthy", phase="Failed"))
    assert ill_units(fleet) == {}


def test_a_pod_that_ended_long_ago_clears_nothing_that_was_said_since(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    ended = holding("Healthy", phase="Succeeded")
    ended["metadata"]["name"] = "ended"
    fleet.put(kinds.POD, ended)
    fleet.put(kinds.POD, holding("Unhealthy"))
    fleet.look()
    fleet.inventory.remove(kinds.POD, "default/p", fleet.now)
    ended["metadata"]["labels"] = {"seen": "again"}
    fleet.put(kinds.POD, ended)
    assert ill_units(fleet) == {"GPU-1": 0.25}


def test_a_fault_fades_when_its_pod_is_replaced_by_one_without_devices(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.POD, holding("Unhealthy"))
    fleet.look()
    metadata = {"name": "p", "namespace": "default", "uid": "another"}
    fleet.put(kinds.POD, {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}})
    assert ill_units(fleet) == {"GPU-1": 0.25}
    fleet.now += 3600.0
    assert ill_units(fleet) == {"GPU-1": pytest.approx(0.625)}


@pytest.mark.parametrize("first", ["pod", "claim"])
def test_a_device_that_only_the_claim_names_is_found_whichever_is_seen_first(
    fleet: Fleet, first: str
) -> None:
    """The kubelet names a DRA device by its CDI id, where the driver gives one."""
    pod = holding("Unhealthy")
    (said,) = pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
    said |= {"name": "claim:gpu/r"}
    said["resources"][0]["resourceID"] = "k8s.gpu.example.com/claim=0-gpu-1"
    pod["metadata"]["namespace"] = "d"
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]

    def scores() -> list[float]:
        return [d.health.score for d in fleet.look().nodes["n"].pools[0].devices]

    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, slice_())
    fleet.put(kinds.CLAIM, claim("c", None if first == "pod" else "gpu-1"))
    fleet.put(kinds.POD, pod)
    fleet.look()
    fleet.put(kinds.CLAIM, claim("c", "gpu-1"))
    assert scores() == [1.0, 0.25]
    fleet.inventory.remove(kinds.CLAIM, "d/c", fleet.now)
    fleet.now += 3600.0
    assert scores() == [1.0, pytest.approx(0.625)]


QUANTITIES = st.dictionaries(
    st.sampled_from(["cpu", b.RESOURCE, "kubernetes.io/x", "fettle.dev/claims", "a/b"]),
    st.sampled_from(["0", "1", "2k", "x", ""]),
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"resources": st.fixed_dictionaries({"limits": QUANTITIES, "requests": QUANTITIES})},
        optional={"restartPolicy": st.just("Always")},
    ),
    max_size=2,
)


@given(init=CONTAINERS, main=CONTAINERS)
def test_a_pod_uses_devices_if_and_only_if_it_needs_units_of_some(init: Any, main: Any) -> None:
    spec = {"initContainers": init, "containers": main}
    pod = b.pod({"metadata": {"name": "p"}, "spec": spec})
    assert uses_devices(pod) is bool(list(device_units(pod)))


def unit_pod(name: str, phase: str = "Running", **status: Any) -> Any:
    """One unit on node n; a kubelet that takes a pod sets its startTime."""
    made = b.gpu_pod(name=name)
    made["metadata"]["uid"] = f"uid-{name}"
    made["spec"]["nodeName"] = "n"
    made["status"] = {"phase": phase, "startTime": "1970-01-12T13:46:40Z", **status}
    return made


PLACED = {"conditions": [{"type": "PodScheduled", "status": "True"}]}


def refused_for(name: str, cause: str = "requested number of devices unavailable for {}") -> Any:
    message = f"Pod was rejected: Allocate failed due to {cause.format(b.RESOURCE)}, which is"
    return unit_pod(name, "Failed", reason="UnexpectedAdmissionError", message=message)


def of_node(fleet: Fleet) -> float:
    return fleet.look().nodes["n"].health.score


@pytest.mark.parametrize("ended", ["Succeeded", "Failed"])
def test_what_had_ended_is_not_refused_though_a_kubelet_that_restarts_says_so(
    fleet: Fleet, ended: str
) -> None:
    """kubernetes#117955: it takes ended pods up again, and finds no devices for them."""
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.POD, unit_pod("p"))
    fleet.put(kinds.POD, unit_pod("p", ended))
    fleet.look()
    for cause in (
        "no healthy devices present; cannot allocate unhealthy devices {}",
        "GPU is lost",
    ):
        fleet.put(kinds.POD, refused_for("p", cause))
        assert of_node(fleet) == 1.0
    another = refused_for("p", "GPU is lost")
    another["metadata"]["uid"] = "another"
    fleet.put(kinds.POD, another)  # of the same name: it has not run
    assert of_node(fleet) == 0.6


DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}


@pytest.mark.parametrize(
    ("states", "score"),
    [
        ([DONE, DONE], 1.0),
        ([DONE, {"running": {}}], 0.6),
        ([DONE, {}], 0.6),
        ([{"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}], 0.6),
        ([], 0.6),
    ],
)
def test_a_refused_pod_that_had_completed_says_nothing_though_it_was_never_seen_before(
    fleet: Fleet, states: list[Any], score: float
) -> None:
    fleet.put(kinds.NODE, node())
    refused = refused_for("p", "GPU is lost")
    refused["status"]["containerStatuses"] = [
        {"name": f"c{n}", "state": state} for n, state in enumerate(states)
    ]
    fleet.put(kinds.POD, refused)
    assert of_node(fleet) == score


def test_a_list_that_lacks_an_ended_pod_forgets_it(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.POD, unit_pod("p", "Succeeded"))
    fleet.inventory.begin_list(kinds.POD)
    fleet.put(kinds.POD, unit_pod("q", "Succeeded"))
    fleet.inventory.end_list(kinds.POD, fleet.now)
    for name, score in (("q", 1.0), ("p", 0.6)):
        fleet.put(kinds.POD, refused_for(name, "GPU is lost"))
        assert of_node(fleet) == score


@pytest.mark.parametrize("first", ["the refused", "the others"])
def test_a_refusal_says_nothing_where_live_pods_hold_all_units_whoever_is_read_first(
    fleet: Fleet, first: str
) -> None:
    fleet.put(kinds.NODE, node(gpus=2))
    others = [unit_pod("a"), unit_pod("b", "Pending")]
    refused = [refused_for("p")]
    for one in (*refused, *others) if first == "the refused" else (*others, *refused):
        fleet.put(kinds.POD, one)
    assert of_node(fleet) == 1.0
    fleet.inventory.remove(kinds.POD, "default/a", fleet.now)
    fleet.put(kinds.POD, {**refused_for("p"), "metadata": {**refused[0]["metadata"], "labels": {}}})
    assert of_node(fleet) == 1.0  # nor once a unit is free
    fleet.put(kinds.POD, refused_for("q"))
    assert of_node(fleet) == 0.65


def test_pods_that_no_kubelet_has_taken_yet_hold_no_units(fleet: Fleet) -> None:
    """A whole gang is bound to a node that swallows it, one pod after the other."""
    fleet.put(kinds.NODE, node(gpus=2))
    for name in ("a", "b"):
        fleet.put(kinds.POD, {**unit_pod(name), "status": {**PLACED, "phase": "Pending"}})
    fleet.put(kinds.POD, refused_for("p"))
    assert of_node(fleet) == 0.65


def test_a_pod_that_names_its_node_takes_units_from_one_that_a_scheduler_just_placed(
    fleet: Fleet,
) -> None:
    """Whoever creates both can have a sound node refuse the second, which a scheduler placed."""
    fleet.put(kinds.NODE, node(gpus=2))
    unbound = b.gpu_pod(name="p")
    unbound["metadata"]["uid"] = "uid-p"
    fleet.put(kinds.POD, unbound)
    for name in ("a", "b"):
        fleet.put(kinds.POD, {**unit_pod(name), "status": {"phase": "Pending"}})
    fleet.put(kinds.POD, refused_for("p"))
    assert of_node(fleet) == 1.0


def test_running_pods_are_no_excuse_where_a_device_is_missing_or_the_plugin_is_away(
    fleet: Fleet,
) -> None:
    """All that are left are held, but the node has more."""
    fleet.put(kinds.NODE, node(gpus=2, allocatable=0))
    fleet.put(kinds.POD, unit_pod("a"))
    fleet.put(kinds.POD, refused_for("p"))
    assert of_node(fleet) < 0.65
    fleet.put(kinds.NODE, node("m", gpus=0))
    on_m = refused_for("q")
    on_m["spec"]["nodeName"] = "m"
    fleet.put(kinds.POD, on_m)
    assert fleet.look().nodes["m"].health.score == 0.65


def test_a_refused_pod_that_is_deleted_at_once_was_refused_all_the_same(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.POD, refused_for("p", "GPU is lost"))
    fleet.inventory.remove(kinds.POD, "default/p", fleet.now)
    assert of_node(fleet) == 0.6
