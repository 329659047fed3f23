"""Objects in, views out: driven as the writer drives it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.evidence import rules
from fettle.health import HealthBook
from fettle.inventory.inventory import Inventory
from fettle.model import State
from fettle.settings import HealthSettings
from fettle.view import EMPTY, View
from fettle.wire import kinds
from fettle.wire.kinds import Kind
from tests.fettle import building as b

RULES = rules.load()


class Fleet:
    """An inventory with a clock, and the view that its last change led to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.inventory = Inventory(HealthBook(HealthSettings(), RULES), RULES)
        self.view: View = EMPTY
        self.changed: frozenset[str] = frozenset()

    def put(self, kind: Kind, raw: dict[str, Any]) -> None:
        self.inventory.put(kind, kind.decode(msgspec.json.encode(raw)), self.now)

    def look(self) -> View:
        self.inventory.age(self.now)
        for _ in self.inventory.refresh(self.now):
            pass
        view = self.inventory.view(self.view, synced=True, served={})
        self.changed = frozenset()
        if view is not None:
            self.view, self.changed = view, self.inventory.settle()
        return self.view


def node(name: str = "n", gpus: int = 8, allocatable: int | None = None, **more: Any) -> Any:
    capacity = {b.RESOURCE: str(gpus)}
    left = {b.RESOURCE: str(gpus if allocatable is None else allocatable)}
    status = {"capacity": capacity, "allocatable": left, **more.pop("status", {})}
    return {"metadata": {"name": name, **more}, "status": status}


def slice_(node: str = "n", devices: int = 2, generation: int = 1, **device: Any) -> Any:
    return {
        "metadata": {"name": f"{node}-slice"},
        "spec": {
            "driver": b.DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{i}", **device} for i in range(devices)],
        },
    }


def claim(name: str, device: str | None, pool: str = "n") -> Any:
    result = {"request": "r", "driver": b.DRIVER, "pool": pool, "device": device}
    status = {"allocation": {"devices": {"results": [result]}}} if device else {}
    return {"metadata": {"name": name, "namespace": "d"}, "spec": {}, "status": status}


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_a_node_shows_its_resources_and_the_devices_of_its_slice(fleet: Fleet) -> None:
    fleet.put(kinds.SLICE, slice_())
    fleet.put(kinds.NODE, node())
    (record,) = fleet.look().nodes.values()
    assert record.plugins[b.RESOURCE].allocatable == 8
    assert [d.id.device for d in record.pools[0].devices] == ["gpu-0", "gpu-1"]


def test_a_newer_generation_replaces_the_older(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, slice_(devices=4))
    fleet.look()
    fleet.put(kinds.SLICE, slice_(devices=1, generation=2))
    assert len(fleet.look().nodes["n"].pools[0].devices) == 1


def test_an_older_generation_says_nothing_about_devices_any_more(fleet: Fleet) -> None:
    taint = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "None"}
    old, new = slice_(devices=1, taints=[taint]), slice_(devices=1, generation=2)
    new["metadata"]["name"] = "n-slice-2"

    def state() -> State:
        return fleet.look().nodes["n"].pools[0].devices[0].health.state

    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, old)
    assert state() is State.UNHEALTHY
    fleet.put(kinds.SLICE, new)
    assert state() is State.HEALTHY
    fleet.inventory.remove(kinds.SLICE, "n-slice-2", fleet.now)
    assert state() is State.UNHEALTHY


def test_an_allocated_device_is_taken_until_its_claim_lets_go(fleet: Fleet) -> None:
    def taken() -> list[bool]:
        return [d.allocated for d in fleet.look().nodes["n"].pools[0].devices]

    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, slice_())
    fleet.put(kinds.CLAIM, claim("c", "gpu-1"))
    assert taken() == [False, True]
    fleet.put(kinds.CLAIM, claim("c", "gpu-0"))
    assert taken() == [True, False]
    fleet.put(kinds.CLAIM, claim("c", None))
    assert taken() == [False, False]
    fleet.put(kinds.CLAIM, claim("c", "gpu-0"))
    fleet.inventory.remove(kinds.CLAIM, "d/c", fleet.now)
    assert taken() == [False, False]


def test_only_what_changed_is_said_to_have_changed(fleet: Fleet) -> None:
    for name in ("a", "b", "c"):
        fleet.put(kinds.NODE, node(name))
    fleet.look()
    assert fleet.changed == {"a", "b", "c"}
    fleet.put(kinds.NODE, node("b", allocatable=7))
    before = fleet.view
    after = fleet.look()
    assert fleet.changed == {"b"}
    assert after.nodes["a"] is before.nodes["a"]


def test_what_changes_nothing_makes_no_view(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    before = fleet.look()
    fleet.put(kinds.NODE, node(resourceVersion="7", annotations={"heartbeat": "1"}))
    assert fleet.look() is before


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


def test_a_taint_rule_taints_what_it_selects_and_no_more_once_it_is_gone(fleet: Fleet) -> None:
    def tainted() -> list[str]:
        devices = fleet.look().nodes["n"].pools[0].devices
        return [d.id.device for d in devices if d.taints]

    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, slice_())
    rule = {
        "metadata": {"name": "r"},
        "spec": {
            "deviceSelector": {"driver": b.DRIVER, "pool": "n", "device": "gpu-1"},
            "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
        },
    }
    fleet.put(kinds.TAINT_RULE, rule)
    assert tainted() == ["gpu-1"]
    assert fleet.view.nodes["n"].pools[0].devices[1].health.state is not State.HEALTHY
    assert fleet.view.nodes["n"].pools[0].devices[0].health.state is State.HEALTHY
    fleet.inventory.remove(kinds.TAINT_RULE, "r", fleet.now)
    assert tainted() == []


def test_a_taint_rule_older_than_the_device_it_selects_still_counts(fleet: Fleet) -> None:
    rule = {
        "metadata": {"name": "r"},
        "spec": {
            "deviceSelector": {"driver": b.DRIVER},
            "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
        },
    }
    fleet.put(kinds.TAINT_RULE, rule)
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, slice_())
    assert all(d.health.evidence for d in fleet.look().nodes["n"].pools[0].devices)


def test_an_unreadable_slice_makes_its_node_unknown_until_it_can_be_read(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.NODE, node("other"))
    fleet.inventory.quarantine(kinds.SLICE, "n-slice", "spec.driver: wrong type", "n", fleet.now)
    view = fleet.look()
    assert view.nodes["n"].health.state is State.UNKNOWN
    assert view.nodes["other"].health.state is State.HEALTHY
    assert "wrong type" in view.quarantined["ResourceSlice n-slice"]
    fleet.put(kinds.SLICE, slice_())
    view = fleet.look()
    assert view.nodes["n"].health.state is State.HEALTHY
    assert not view.quarantined


def test_what_a_new_list_does_not_name_is_gone(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("a"))
    fleet.put(kinds.NODE, node("b"))
    fleet.look()
    fleet.inventory.begin_list(kinds.NODE)
    fleet.put(kinds.NODE, node("b"))
    fleet.inventory.end_list(kinds.NODE, fleet.now)
    assert list(fleet.look().nodes) == ["b"]


def test_devices_of_the_network_are_seen_from_every_node(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("a"))
    shared = slice_("a")
    shared["spec"] |= {"nodeName": None, "allNodes": True}
    fleet.put(kinds.SLICE, shared)
    fleet.put(kinds.NODE, node("b"))
    assert all(n.pools[0].devices for n in fleet.look().nodes.values())


def test_devices_of_a_part_of_the_network_follow_the_labels_of_nodes(fleet: Fleet) -> None:
    near = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1"]}]}
    shared = slice_("a")
    shared["spec"] |= {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": [near]}}
    fleet.put(kinds.SLICE, shared)
    fleet.put(kinds.NODE, node("a", labels={"rack": "1"}))
    fleet.put(kinds.NODE, node("b", labels={"rack": "2"}))
    assert {n.name for n in fleet.look().nodes.values() if n.pools} == {"a"}
    fleet.put(kinds.NODE, node("b", labels={"rack": "1"}))
    assert {n.name for n in fleet.look().nodes.values() if n.pools} == {"a", "b"}


def test_a_selector_that_cannot_be_parsed_is_said_of_every_node(fleet: Fleet) -> None:
    odd = {"matchExpressions": [{"key": "rack", "operator": "Near"}]}
    shared = slice_("x")
    shared["spec"] |= {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": [odd]}}
    for one in (node("a"), node("b")):
        fleet.put(kinds.NODE, one)
    fleet.put(kinds.SLICE, slice_("a"))
    assert not any(n.malformed for n in fleet.look().nodes.values())
    fleet.put(kinds.SLICE, shared)
    assert all("Near" in n.malformed for n in fleet.look().nodes.values())


def test_shares_of_a_device_add_up_until_their_claims_go(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, slice_(allowMultipleAllocations=True, capacity={"m": {"value": "8"}}))
    for number, amount in enumerate(("2", "3")):
        held = claim(f"c{number}", "gpu-0")
        (result,) = held["status"]["allocation"]["devices"]["results"]
        result |= {"shareID": f"share-{number}", "consumedCapacity": {"m": amount}}
        fleet.put(kinds.CLAIM, held)
    device = fleet.look().nodes["n"].pools[0].devices[0]
    assert (device.allocated, device.shared, device.consumed) == (False, True, {"m": 5 * 10**9})
    fleet.inventory.remove(kinds.CLAIM, "d/c0", fleet.now)
    assert fleet.look().nodes["n"].pools[0].devices[0].consumed == {"m": 3 * 10**9}


def test_what_is_left_of_counters_follows_allocations(fleet: Fleet) -> None:
    takes = [{"counterSet": "s", "counters": {"x": {"value": "2"}}}]
    partitions = slice_(consumesCounters=takes)
    partitions["spec"]["pool"]["resourceSliceCount"] = 2
    counters = slice_(devices=0)
    counters["metadata"]["name"] = "counters"
    counters["spec"]["pool"]["resourceSliceCount"] = 2
    counters["spec"]["sharedCounters"] = [{"name": "s", "counters": {"x": {"value": "3"}}}]
    for kind, raw in ((kinds.NODE, node()), (kinds.SLICE, partitions), (kinds.SLICE, counters)):
        fleet.put(kind, raw)
    assert fleet.look().nodes["n"].pools[0].counters == {("s", "x"): 3 * 10**9}
    fleet.put(kinds.CLAIM, claim("c", "gpu-1"))
    assert fleet.look().nodes["n"].pools[0].counters == {("s", "x"): 10**9}


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["node", "slice", "claim", "gone-node", "gone-slice", "gone-claim"]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 3),
    ),
    max_size=25,
)


def _apply(fleet: Fleet, operation: str, name: str, number: int) -> None:
    match operation:
        case "node":
            fleet.put(kinds.NODE, node(name, allocatable=number))
        case "slice":
            fleet.put(kinds.SLICE, slice_(name, devices=number, generation=number))
        case "claim":
            fleet.put(kinds.CLAIM, claim(name, f"gpu-{number}", pool=name))
        case "gone-node":
            fleet.inventory.remove(kinds.NODE, name, fleet.now)
        case "gone-slice":
            fleet.inventory.remove(kinds.SLICE, f"{name}-slice", fleet.now)
        case "gone-claim":
            fleet.inventory.remove(kinds.CLAIM, f"d/{name}", fleet.now)


@given(OPERATIONS)
def test_looking_after_each_change_or_once_at_the_end_shows_the_same(
    operations: list[tuple[str, str, int]],
) -> None:
    stepwise, at_once = Fleet(), Fleet()
    for operation in operations:
        _apply(stepwise, *operation)
        stepwise.look()
        _apply(at_once, *operation)
    assert stepwise.look().nodes == at_once.look().nodes


def test_a_policy_shows_in_the_view_and_verdicts_rest_on_it(fleet: Fleet) -> None:
    fleet.put(kinds.POLICY, {"metadata": {"name": "own"}, "spec": {"placement": {"minScore": 1}}})
    first = fleet.look()
    assert first.policies["own"].placement.min_score == 1
    fleet.put(kinds.POLICY, {"metadata": {"name": "own"}, "spec": {"placement": {"minScore": 0}}})
    second = fleet.look()
    assert second.policies["own"].placement.min_score == 0
    assert second.basis == first.basis + 1
    fleet.put(kinds.NODE, node())
    assert fleet.look().policies is second.policies
    fleet.inventory.begin_list(kinds.POLICY)
    fleet.inventory.end_list(kinds.POLICY, fleet.now)
    assert fleet.look().policies == {}


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


def test_what_a_claim_says_of_its_device_shows_on_the_device_and_fades_with_the_claim(
    fleet: Fleet,
) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, slice_())
    said = claim("c", "gpu-1")
    ill = {"type": "Ready", "status": "False", "reason": "Broken", "message": "no link"}
    at = {"driver": b.DRIVER, "pool": "n", "device": "gpu-1"}

    def scores() -> list[float]:
        return [d.health.score for d in fleet.look().nodes["n"].pools[0].devices]

    fleet.put(kinds.CLAIM, said)
    assert scores() == [1.0, 1.0]
    said["status"]["devices"] = [{**at, "conditions": [ill]}]
    fleet.put(kinds.CLAIM, said)
    assert scores() == [1.0, 0.65]
    said["status"]["devices"] = []
    fleet.put(kinds.CLAIM, said)
    fleet.now += 3600
    assert scores() == [1.0, pytest.approx(0.825, abs=0.01)]
    said["status"]["devices"] = [{**at, "conditions": [{**ill, "status": "True"}]}]
    fleet.put(kinds.CLAIM, said)
    assert scores() == [1.0, pytest.approx(0.91, abs=0.01)]  # a light trace
