"""Pods that do not start: what that says of their nodes, and when of their workload."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.api.meta import rfc3339_at
from fettle.cluster.inventory.starts import KEEP_S
from fettle.health.signals.starts import AWAITED_S
from fettle.model import DeviceId, State
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, claim, node, slice_
from tests.fettle.cluster.inventory.test_device_healths import read, uid

DEAD = "OCI runtime create failed: nvidia-container-cli: initialization error: nvml error"
CANNOT_START = {"waiting": {"reason": "RunContainerError", "message": DEAD}}
RUNS: dict[str, Any] = {"running": {}}
NEVER_RAN = {"terminated": {"reason": "StartError", "message": DEAD}}


def started(
    name: str,
    on: str = "n",
    state: dict[str, Any] = CANNOT_START,
    *,
    job: str = "train",
    namespace: str = "ml",
    phase: str = "Pending",
    conditions: Any = (),
) -> Any:
    """A pod of a Job on a node; by itself if the Job has no name."""
    made = b.gpu_pod(name=name)
    owner = {"kind": "Job", "name": job, "uid": f"{namespace}-{job}", "controller": True}
    made["metadata"] |= {
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        "ownerReferences": [owner] if job else [],
    }
    made["spec"]["nodeName"] = on
    made["status"] = {
        "phase": phase,
        "containerStatuses": [{"name": "c", "state": state}],
        "conditions": list(conditions),
    }
    return made


def running(name: str, on: str = "n", **more: Any) -> Any:
    ready = [{"type": "Ready", "status": "True"}]
    return started(name, on, RUNS, phase="Running", conditions=ready, **more)


def waiting(name: str, since: float, ready: str = "False", **more: Any) -> Any:
    """A pod with a claim."""
    at = rfc3339_at(since)
    condition = {"type": "PodReadyToStartContainers", "status": ready, "lastTransitionTime": at}
    made = started(name, state={}, conditions=[condition], **more)
    made["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": f"claim-of-{name}"}]
    return made


def event(name: str, message: str, *, uid: str = "", reason: str = kinds.PREPARE_FAILED) -> Any:
    about = {"kind": "Pod", "namespace": "ml", "name": name, "uid": uid or f"uid-ml-{name}"}
    return {
        "metadata": {"namespace": "ml", "name": f"{name}.1"},
        "involvedObject": about,
        "reason": reason,
        "message": f"Failed to prepare dynamic resources: prepare dynamic resources: {message}",
    }


GONE = "DRA driver gpu.example.com is not registered"


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    for name in "nmo":
        fleet.put(kinds.NODE, node(name))
    return fleet


def scores(fleet: Fleet) -> dict[str, float]:
    """Of the nodes that something is said of."""
    found = {name: n.health.score for name, n in fleet.look().nodes.items()}
    assert all(n.health.proven == 1.0 for n in fleet.view.nodes.values())
    assert all(n.health.state is State.HEALTHY for n in fleet.view.nodes.values())
    return {name: score for name, score in found.items() if score < 1.0}


def blamed(fleet: Fleet) -> dict[str, tuple[str, ...]]:
    starts = fleet.look().failed_starts
    return {key: start.blamed for key, start in starts.items() if start.blamed}


def test_a_start_that_fails_lowers_its_node_until_the_pod_has_started(fleet: Fleet) -> None:
    fleet.put(kinds.POD, started("p"))
    assert scores(fleet) == {"n": 0.65}
    fleet.now += 100 * 3600
    assert scores(fleet) == {"n": 0.65}  # it still does not start
    fleet.put(kinds.POD, running("p"))
    assert scores(fleet) == {}  # without a trace: a driver may restart
    assert not fleet.view.failed_starts


def test_many_failed_starts_of_a_namespace_are_one_word_and_of_several_they_are_bounded(
    fleet: Fleet,
) -> None:
    for number in range(5):
        fleet.put(kinds.POD, started(f"p{number}"))
        fleet.put(kinds.POD, started(f"q{number}", job=f"j{number}"))
    assert scores(fleet) == {"n": 0.65}
    fleet.put(kinds.POD, started("p", namespace="other"))
    assert scores(fleet) == {"n": 0.4225}
    for number in range(20):
        fleet.put(kinds.POD, started("p", namespace=f"ns-{number}"))
    assert scores(fleet) == {"n": 0.4}


def test_a_workload_that_fails_on_several_nodes_is_the_cause_itself(fleet: Fleet) -> None:
    fleet.put(kinds.POD, started("p"))
    assert scores(fleet) == {"n": 0.65}
    fleet.put(kinds.POD, started("q", "m"))
    assert scores(fleet) == {}
    assert blamed(fleet) == {"ml/p": ("m", "n"), "ml/q": ("m", "n")}
    fleet.put(kinds.POD, started("other", job="sound"))  # another workload of the namespace
    assert scores(fleet) == {"n": 0.65}


def test_a_workload_that_runs_somewhere_is_not_the_cause(fleet: Fleet) -> None:
    fleet.put(kinds.POD, running("r", "o"))
    fleet.put(kinds.POD, started("p"))
    fleet.put(kinds.POD, started("q", "m"))
    assert scores(fleet) == {"n": 0.65, "m": 0.65}
    fleet.inventory.remove(kinds.POD, "ml/r", fleet.now)
    fleet.put(kinds.POD, started("q2", "m"))
    assert scores(fleet) == {}
    fleet.put(kinds.POD, running("r2", "o"))
    assert scores(fleet) == {"n": 0.65, "m": 0.65}


def test_a_pod_that_is_restarted_in_vain_does_not_run_though_its_phase_says_so(
    fleet: Fleet,
) -> None:
    for name, on in (("p", "n"), ("q", "m")):
        fleet.put(kinds.POD, started(name, on, phase="Running"))
    assert scores(fleet) == {}


def test_where_pods_of_other_namespaces_fail_too_the_node_is_the_cause(fleet: Fleet) -> None:
    for namespace in ("ml", "vision"):
        fleet.put(kinds.POD, started("p", namespace=namespace))
    for number, namespace in enumerate(("ml", "vision")):
        fleet.put(kinds.POD, started("q", "mo"[number], namespace=namespace))
    assert scores(fleet) == {"n": 0.4225}
    assert set(blamed(fleet)) == {"ml/p", "ml/q", "vision/p", "vision/q"}
    fleet.put(kinds.POD, running("p", namespace="vision"))
    assert scores(fleet) == {"o": 0.65}  # ml alone fails on n and m; vision runs elsewhere


@pytest.mark.parametrize("read_first", ["n", "m"])
def test_a_cold_start_blames_no_node_for_a_moment(read_first: str) -> None:
    fleet = Fleet()
    for name in "nm":
        fleet.put(kinds.NODE, node(name))
    for on in (read_first, *{"n", "m"} - {read_first}):
        fleet.put(kinds.POD, started(f"p-{on}", on))
    assert scores(fleet) == {}
    assert all(not n.health.evidence for n in fleet.view.nodes.values())


def test_a_pod_that_ended_or_is_gone_counts_for_a_while_and_then_fades(fleet: Fleet) -> None:
    fleet.put(kinds.POD, started("p", state=NEVER_RAN, phase="Failed"))
    fleet.put(kinds.POD, started("q", "m", job="other"))
    assert scores(fleet) == {"n": 0.65, "m": 0.65}
    fleet.inventory.remove(kinds.POD, "ml/q", fleet.now)
    fleet.now += KEEP_S - 1
    assert scores(fleet) == {"n": 0.65, "m": 0.65}
    fleet.now += 1
    assert scores(fleet) == {"n": 0.65, "m": 0.65}  # from now on it fades
    assert not fleet.view.failed_starts
    fleet.now += 3600
    assert scores(fleet) == {"n": pytest.approx(0.825), "m": pytest.approx(0.825)}


def test_a_pod_that_is_being_deleted_fails_no_more_however_long_that_takes(fleet: Fleet) -> None:
    stuck = started("p")
    fleet.put(kinds.POD, stuck)
    assert scores(fleet) == {"n": 0.65}
    stuck["metadata"]["deletionTimestamp"] = rfc3339_at(fleet.now)
    fleet.put(kinds.POD, stuck)
    late = waiting("q", fleet.now - AWAITED_S, on="m", job="other")
    late["metadata"]["deletionTimestamp"] = rfc3339_at(fleet.now)
    fleet.put(kinds.POD, late)
    assert scores(fleet) == {"n": 0.65}
    fleet.now += KEEP_S
    fleet.look()
    fleet.now += 4 * 3600
    assert scores(fleet)["n"] > 0.95


def test_a_pod_without_devices_in_the_place_of_one_that_failed_ends_that(fleet: Fleet) -> None:
    fleet.put(kinds.POD, started("p"))
    fleet.look()
    plain = running("p")
    plain["metadata"]["uid"] = "another"
    plain["spec"]["containers"] = [{"name": "c"}]
    fleet.put(kinds.POD, plain)
    assert not fleet.look().failed_starts


def test_a_pod_that_failed_long_ago_is_read_as_past(fleet: Fleet) -> None:
    at = {"lastTransitionTime": rfc3339_at(fleet.now - KEEP_S)}
    ready = [{"type": "Ready", "status": "False", **at}]
    fleet.put(kinds.POD, started("p", state=NEVER_RAN, phase="Failed", conditions=ready))
    assert scores(fleet) == {}


def test_a_pod_with_claims_that_is_not_ready_to_start_is_looked_at_again_in_time(
    fleet: Fleet,
) -> None:
    fleet.put(kinds.POD, waiting("p", fleet.now))
    fleet.put(kinds.POD, waiting("soon", fleet.now, on="m", job="other"))
    fleet.now += AWAITED_S - 1
    assert scores(fleet) == {}
    fleet.put(kinds.POD, waiting("soon", fleet.now, "True", on="m", job="other"))
    fleet.now += 1
    assert scores(fleet) == {"n": 0.8}
    fleet.put(kinds.POD, waiting("p", fleet.now, "True"))
    fleet.now += AWAITED_S
    assert scores(fleet) == {}


def test_an_event_says_at_once_that_a_driver_prepares_nothing(fleet: Fleet) -> None:
    fleet.put(kinds.POD, waiting("p", fleet.now))
    fleet.put(kinds.EVENT, event("p", GONE))
    fleet.put(kinds.EVENT, event("p", GONE))
    assert scores(fleet) == {"n": 0.65}
    fleet.put(kinds.POD, waiting("p", fleet.now, "True"))
    assert scores(fleet) == {}
    fleet.put(kinds.EVENT, event("p", GONE))  # told again, as when Events are listed anew
    assert scores(fleet) == {}


def test_a_claim_that_is_not_there_is_not_the_nodes_fault_however_long_it_takes(
    fleet: Fleet,
) -> None:
    fleet.put(kinds.POD, waiting("p", fleet.now))
    fleet.put(kinds.EVENT, event("p", "resource claim ml/s1 not created"))
    fleet.now += AWAITED_S
    assert scores(fleet) == {}
    fleet.put(kinds.EVENT, event("p", GONE))
    assert scores(fleet) == {"n": 0.65}


def test_events_may_be_read_before_their_pods_and_concern_no_other_pod_of_the_name(
    fleet: Fleet,
) -> None:
    fleet.put(kinds.EVENT, event("p", GONE))
    fleet.put(kinds.EVENT, event("q", GONE, uid="another"))
    fleet.put(kinds.EVENT, event("r", GONE, reason="FailedMount"))
    for name, on in (("p", "n"), ("q", "m"), ("r", "o")):
        fleet.put(kinds.POD, waiting(name, fleet.now, on=on, job=name))
    assert scores(fleet) == {"n": 0.65}


def test_a_pod_that_another_workload_adopts_speaks_for_that_alone(fleet: Fleet) -> None:
    fleet.put(kinds.POD, started("p", job="train"))
    fleet.put(kinds.POD, started("p", job="other"))
    assert [start.workload.name for start in fleet.look().failed_starts.values()] == ["other"]
    fleet.put(kinds.POD, running("p", job="other"))
    fleet.now += KEEP_S + 1
    fleet.look()
    fleet.now += 1e6
    assert scores(fleet) == {}


def test_pods_that_belong_to_nobody_each_speak_for_themselves(fleet: Fleet) -> None:
    for name, on in (("p", "n"), ("q", "m"), ("r", "m")):
        fleet.put(kinds.POD, started(name, on, job=""))
    assert scores(fleet) == {"n": 0.65, "m": 0.65}
    assert blamed(fleet) == {}


def test_a_pod_that_is_made_again_by_the_same_name_and_starts_nowhere_blames_itself(
    fleet: Fleet,
) -> None:
    fleet.put(kinds.POD, started("p", "n", job=""))
    assert scores(fleet) == {"n": 0.65}
    fleet.inventory.remove(kinds.POD, "ml/p", fleet.now)
    again = started("p", "m", job="")
    again["metadata"]["uid"] = "again"
    fleet.put(kinds.POD, again)
    assert scores(fleet) == {}
    assert set(blamed(fleet)) == {"ml/p"}


def test_a_pod_that_waits_and_then_fails_with_words_weighs_as_they_do(fleet: Fleet) -> None:
    fleet.put(kinds.POD, waiting("p", fleet.now - AWAITED_S))
    assert scores(fleet) == {"n": 0.8}
    fleet.put(kinds.EVENT, event("p", GONE))
    assert scores(fleet) == {"n": 0.65}


def test_the_workload_is_told_of_each_node_as_long_as_it_fails_there() -> None:
    told: list[tuple[str, str, float]] = []
    fleet = Fleet(on_failed_start=lambda workload, on, at: told.append((workload.name, on, at)))
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.POD, started("alone", job=""))
    assert told == [("alone", "n", fleet.now)]
    fleet.inventory.remove(kinds.POD, "ml/alone", fleet.now)
    told.clear()
    fleet.put(kinds.POD, started("p"))
    assert told == [("train", "n", fleet.now)]
    told.clear()
    fleet.now += 3600
    fleet.look()
    assert told == [("train", "n", fleet.now)]
    fleet.put(kinds.POD, running("p"))
    told.clear()
    fleet.now += 60
    fleet.look()
    assert not told


@given(
    st.lists(
        st.tuples(
            st.sampled_from("nmo"),
            st.sampled_from(["a", "b"]),
            st.sampled_from(["x", "y", ""]),
            st.sampled_from(["fails", "runs", "gone", "ended", "waits", "told", "later"]),
        ),
        max_size=30,
    )
)
def test_whatever_a_tenant_does_with_its_pods_it_lowers_a_score_by_no_more_than_its_word(
    deeds: list[tuple[str, str, str, str]],
) -> None:
    """And refuses nobody anything: what is proven stays 1."""
    fleet = Fleet()
    for name in "nmo":
        fleet.put(kinds.NODE, node(name))
    for number, (on, name, job, deed) in enumerate(deeds):
        match deed:
            case "fails":
                fleet.put(kinds.POD, started(name, on, job=job))
            case "ended":
                fleet.put(kinds.POD, started(name, on, NEVER_RAN, job=job, phase="Failed"))
            case "runs":
                fleet.put(kinds.POD, running(name, on, job=job))
            case "waits":
                fleet.put(kinds.POD, waiting(name, fleet.now, on=on, job=job))
            case "told":
                fleet.put(kinds.EVENT, event(name, GONE))
            case "gone":
                fleet.inventory.remove(kinds.POD, f"ml/{name}", fleet.now)
            case "later":
                fleet.now += 300.0
        if number % 2:
            assert all(score >= 0.65 for score in scores(fleet).values())
    assert all(score >= 0.65 for score in scores(fleet).values())
    for name in "ab":
        fleet.inventory.remove(kinds.POD, f"ml/{name}", fleet.now)
    fleet.now += 1e6
    fleet.look()
    fleet.now += 1e6
    assert scores(fleet) == {}
    starts = fleet.inventory._starts
    assert not any((starts._failing, starts._on, starts._failed, starts._awaited, starts._running))


def restarted(fleet: Fleet, *pods: Any, after_s: float = 5.0) -> Fleet:
    """A process that starts some seconds later, with what was stored, and with these pods."""
    fleet.look()
    again = Fleet()
    again.now = fleet.now + after_s
    for name in "nm":
        found = fleet.inventory.recall(name, None, fleet.now)
        if found is not None:
            again.inventory.put(kinds.DEVICE_HEALTH, read(found), again.now)
    for name in "nm":
        again.put(kinds.NODE, uid(node(name), name))
    for pod in pods:
        again.put(kinds.POD, pod)
    return again


@pytest.fixture
def lasting() -> Fleet:
    """Its nodes have UIDs, by which they are known over a restart."""
    fleet = Fleet()
    for name in "nm":
        fleet.put(kinds.NODE, uid(node(name), name))
    return fleet


def test_after_a_restart_pods_that_still_do_not_start_count_as_before(lasting: Fleet) -> None:
    lasting.put(kinds.POD, started("p"))
    lasting.put(kinds.POD, started("q", "m", job="sound"))
    assert scores(lasting) == {"n": 0.65, "m": 0.65}
    again = restarted(lasting, started("p"), running("q", "m", job="sound"))
    assert scores(again) == {"n": 0.65, "m": pytest.approx(0.65, abs=0.01)}  # m fades
    again.now += 4 * 3600
    assert scores(again)["m"] > 0.95
    assert scores(again)["n"] == 0.65


def test_after_a_restart_a_workload_that_is_to_blame_still_is(lasting: Fleet) -> None:
    pods = started("p"), started("q", "m")
    lasting.put(kinds.POD, pods[0])
    assert scores(lasting) == {"n": 0.65}
    assert scores(restarted(lasting, *pods)) == {}  # it was found out in between
    lasting.put(kinds.POD, pods[1])
    assert scores(lasting) == {}
    assert scores(restarted(lasting, *pods)) == {}


def with_claim(name: str, **more: Any) -> Any:
    made = started(name, **more)
    made["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": f"claim-of-{name}"}]
    return made


def of_device(fleet: Fleet, name: str) -> list[str]:
    """What is said of a DRA device itself."""
    (pool,) = fleet.look().nodes["n"].pools
    (health,) = (one.health for one in pool.devices if one.id.device == name)
    assert (health.proven, health.state) == (1.0, State.HEALTHY)
    return [w.evidence.text for w in health.evidence if isinstance(w.evidence.subject, DeviceId)]


def test_starts_that_fail_with_a_device_speak_against_it_as_well(fleet: Fleet) -> None:
    fleet.put(kinds.SLICE, slice_("n"))
    for namespace in ("ml", "web"):
        claimed = claim("claim-of-p", "gpu-0")
        claimed["metadata"]["namespace"] = namespace
        fleet.put(kinds.CLAIM, claimed)
        fleet.put(kinds.POD, with_claim("p", namespace=namespace, job=namespace))
    said = of_device(fleet, "gpu-0")
    assert [text.partition(":")[0] for text in said] == [
        "Job ml/ml does not start",
        "Job web/web does not start",
    ]
    assert of_device(fleet, "gpu-1") == []
    (pool,) = fleet.look().nodes["n"].pools
    assert [one.health.score for one in pool.devices] == [0.4225, 0.4225]  # once, not twice

    made = with_claim("p", namespace="web", job="web", state=RUNS, phase="Running")
    fleet.put(kinds.POD, made)
    assert [text.partition(" does")[0] for text in of_device(fleet, "gpu-0")] == ["Job ml/ml"]


BAD_CLAIM = "prepare dynamic resources: NodePrepareResources failed for ResourceClaim {}: {}"


def unprepared(
    fleet: Fleet, name: str, *devices: str, said: str = "timeout", namespace: str = "ml"
) -> None:
    """A pod waits for these devices, which its driver cannot prepare."""
    claimed = claim(f"claim-of-{name}", devices[0])
    (first,) = claimed["status"]["allocation"]["devices"]["results"]
    results = [{**first, "device": device} for device in devices]
    claimed["status"]["allocation"]["devices"]["results"] = results
    claimed["metadata"]["namespace"] = namespace
    fleet.put(kinds.CLAIM, claimed)
    made = waiting(name, fleet.now, job=name, namespace=namespace)
    made["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": f"claim-of-{name}"}]
    fleet.put(kinds.POD, made)
    told = event(name, BAD_CLAIM.format(claimed["metadata"]["name"], said))
    told["involvedObject"] |= {"namespace": namespace, "uid": made["metadata"]["uid"]}
    told["metadata"]["namespace"] = namespace
    fleet.put(kinds.EVENT, told)


def of_devices(fleet: Fleet) -> list[float]:
    (pool,) = fleet.look().nodes["n"].pools
    return [one.health.score for one in pool.devices]


def test_a_prepare_that_fails_speaks_against_the_claims_devices_and_little_against_the_others(
    fleet: Fleet,
) -> None:
    fleet.put(kinds.SLICE, slice_("n", devices=4))
    unprepared(fleet, "p", "gpu-1")
    assert of_devices(fleet) == [0.9, 0.65, 0.9, 0.9]
    assert scores(fleet) == {"n": 0.9}
    unprepared(fleet, "q", "gpu-1", "gpu-2", namespace="web")
    assert of_devices(fleet) == [0.81, 0.4225, 0.585, 0.81]


def test_of_the_claims_devices_those_count_that_the_driver_names(fleet: Fleet) -> None:
    fleet.put(kinds.SLICE, slice_("n", devices=3))
    unprepared(fleet, "p", "gpu-1", "gpu-2", said="unable to get device spec for gpu-2: Not Found")
    assert of_devices(fleet) == [0.9, 0.9, 0.65]


def test_prepares_that_fail_with_several_devices_speak_against_the_node(fleet: Fleet) -> None:
    fleet.put(kinds.SLICE, slice_("n", devices=3))
    unprepared(fleet, "p", "gpu-0")
    unprepared(fleet, "q", "gpu-1")
    assert of_devices(fleet) == [0.65, 0.65, 0.65]
    fleet.inventory.remove(kinds.POD, "ml/q", fleet.now)
    fleet.now += KEEP_S
    assert of_devices(fleet)[2] < 0.9  # what it said fades


def test_a_driver_that_is_gone_speaks_against_the_node(fleet: Fleet) -> None:
    fleet.put(kinds.SLICE, slice_("n", devices=2))
    unprepared(fleet, "p", "gpu-0", said=GONE)
    assert of_devices(fleet) == [0.65, 0.65]


def test_a_workload_that_is_blamed_itself_holds_nothing_against_devices(fleet: Fleet) -> None:
    fleet.put(kinds.SLICE, slice_("n"))
    claimed = claim("claim-of-p", "gpu-0")
    claimed["metadata"]["namespace"] = "ml"
    fleet.put(kinds.CLAIM, claimed)
    fleet.put(kinds.POD, with_claim("p"))
    assert of_device(fleet, "gpu-0")
    fleet.put(kinds.POD, started("q", on="m"))
    assert not of_device(fleet, "gpu-0")


def test_units_that_the_kubelet_names_are_devices_too(fleet: Fleet) -> None:
    made = started("p")
    (container,) = made["status"]["containerStatuses"]
    unit = {"resourceID": "GPU-1", "health": "Healthy"}
    container["allocatedResourcesStatus"] = [{"name": b.RESOURCE, "resources": [unit]}]
    fleet.put(kinds.POD, made)
    (found,) = fleet.look().nodes["n"].plugins[b.RESOURCE].units
    assert found.unit == "GPU-1"
    assert found.health.score == 0.65


def test_an_event_of_another_namespace_says_nothing_of_a_pod(fleet: Fleet) -> None:
    fleet.put(kinds.POD, waiting("p", fleet.now - 30.0))
    forged = event("p", GONE)
    forged["metadata"]["namespace"] = "theirs"
    fleet.put(kinds.EVENT, forged)
    assert not fleet.look().failed_starts
    fleet.put(kinds.EVENT, event("p", GONE))
    assert fleet.look().failed_starts["ml/p"].message
