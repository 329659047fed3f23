"""Objects in, views out: driven as the writer drives it."""

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import Bad, kinds
from fettle.api.kinds import Kind
from fettle.model import State, UnknownSignal
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, claim, node, slice_


def test_a_node_shows_its_resources_and_the_devices_of_its_slice(fleet: Fleet) -> None:
    fleet.put(kinds.SLICE, slice_())
    fleet.put(kinds.NODE, node())
    (record,) = fleet.look().nodes.values()
    assert record.plugins[b.RESOURCE].allocatable == 8
    assert [d.id.device for d in record.pools[0].devices] == ["gpu-0", "gpu-1"]


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


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (kinds.CLASS, {"spec": {}}),
        (kinds.CLAIM, {"spec": {}}),
        (kinds.TEMPLATE, {"spec": {"spec": {}}}),
        (kinds.POLICY, {"spec": {"placement": {"minScore": 0.5}}}),
        (kinds.NAMESPACE, {}),
        (kinds.POD, {"spec": b.gpu_pod()["spec"]}),
    ],
    ids=lambda part: getattr(part, "name", ""),
)
def test_what_a_new_list_repeats_makes_no_view(fleet: Fleet, kind: Kind, raw: Any) -> None:
    for version in ("1", "2"):
        before = fleet.view
        fleet.put(kind, {"metadata": {"name": "x", "resourceVersion": version}, **raw})
        assert (fleet.look() is before) is (version == "2")


def test_the_garbage_collector_walks_no_device() -> None:
    """A collection holds everybody up (decision 0015)."""
    fleet, nodes, devices = Fleet(), 10, 100
    for name in map(str, range(nodes)):
        fleet.put(kinds.NODE, node(name))
        attributes = {"model": {"string": f"m{name}"}, "driverVersion": {"version": "570.1.0"}}
        capacity = {"memory": {"value": f"{name}1Gi"}}
        fleet.put(kinds.SLICE, slice_(name, devices, attributes=attributes, capacity=capacity))
    fleet.look()
    gc.collect()
    walked = len(gc.get_objects())
    del fleet
    gc.collect()
    assert walked - len(gc.get_objects()) < nodes * devices / 2


def test_an_unreadable_slice_makes_its_node_unknown_until_it_can_be_read(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.NODE, node("other"))
    fleet.inventory.quarantine(
        Bad(kinds.SLICE, "n-slice", "spec.driver: wrong type", "n"), fleet.now
    )
    fleet.put(kinds.NODE, node("other", gpus=4))
    view = fleet.look()
    assert view.nodes["n"].health.state is State.UNKNOWN
    assert view.nodes["other"].health.state is State.HEALTHY
    assert [bool(view.nodes[name].quarantined) for name in ("n", "other")] == [True, False]
    assert "wrong type" in view.quarantined["ResourceSlice n-slice"]
    fleet.put(kinds.SLICE, slice_())
    view = fleet.look()
    assert view.nodes["n"].health.state is State.HEALTHY
    assert not view.quarantined


def test_a_node_that_could_never_be_read_is_unknown_with_its_devices(fleet: Fleet) -> None:
    fleet.put(kinds.SLICE, slice_())
    fleet.inventory.quarantine(
        Bad(kinds.NODE, "n", "status.conditions: wrong type", "n"), fleet.now
    )
    record = fleet.look().nodes["n"]
    assert record.health.state is State.UNKNOWN
    assert "status.conditions" in record.quarantined[0]
    assert record.unread
    assert [d.id.device for d in record.pools[0].devices] == ["gpu-0", "gpu-1"]
    fleet.put(kinds.SLICE, {"metadata": {"name": "all"}, "spec": everywhere()})
    assert [pool.name for pool in fleet.look().nodes["n"].pools] == ["all", "n"]
    fleet.put(kinds.NODE, node())
    assert fleet.look().nodes["n"].health.state is State.HEALTHY
    fleet.inventory.quarantine(Bad(kinds.NODE, "n", "wrong again", "n"), fleet.now)
    known = fleet.look().nodes["n"]
    assert (known.health.state, known.unread, len(known.plugins)) == (State.UNKNOWN, False, 1)


def everywhere() -> dict[str, Any]:
    spec: dict[str, Any] = slice_()["spec"] | {"allNodes": True}
    spec["pool"] = {"name": "all", "generation": 1, "resourceSliceCount": 1}
    del spec["nodeName"]
    return spec


def test_a_node_that_could_never_be_read_is_gone_once_it_is_deleted(fleet: Fleet) -> None:
    fleet.inventory.quarantine(Bad(kinds.NODE, "n", "wrong", "n"), fleet.now)
    assert "n" in fleet.look().nodes
    fleet.inventory.remove(kinds.NODE, "n", fleet.now)
    assert not fleet.look().nodes


def test_an_unreadable_slice_makes_no_node_of_the_one_it_names(fleet: Fleet) -> None:
    fleet.inventory.quarantine(Bad(kinds.SLICE, "s", "wrong", "n"), fleet.now)
    assert not fleet.look().nodes


def test_what_a_new_list_does_not_name_is_gone(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("a"))
    fleet.put(kinds.NODE, node("b"))
    fleet.look()
    fleet.inventory.begin_list(kinds.NODE)
    fleet.put(kinds.NODE, node("b"))
    fleet.inventory.end_list(kinds.NODE, fleet.now)
    assert list(fleet.look().nodes) == ["b"]


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


@pytest.mark.parametrize("kind", [kinds.CLASS, kinds.CLAIM, kinds.TEMPLATE])
def test_an_object_created_anew_under_its_name_is_another_one(fleet: Fleet, kind: Kind) -> None:
    """In a snapshot it need not have a UID; of two classes for a resource the newer one counts."""
    shown = {kinds.CLASS.name: "classes", kinds.CLAIM.name: "claims"}.get(kind.name, "templates")
    years, bases = [], []
    for year in (2020, 2021):
        metadata = {"name": "x", "creationTimestamp": f"{year}-01-01T00:00:00Z"}
        fleet.put(kind, {"metadata": metadata, "spec": {"spec": {}}})
        view = fleet.look()
        years.append(getattr(view, shown)["x"].metadata.creation_timestamp.year)
        bases.append(view.basis)
    assert years == [2020, 2021]
    assert bases[1] > bases[0]


def test_namespaces_show_their_labels_as_they_are_now(fleet: Fleet) -> None:
    for labels in (None, {"fettle.dev/policy": "training"}, {"team": "a"}, None):
        metadata = {"name": "team", **({"labels": labels} if labels else {})}
        fleet.put(kinds.NAMESPACE, {"metadata": metadata})
        assert fleet.look().namespaces == {"team": labels or {}}
    fleet.inventory.remove(kinds.NAMESPACE, "team", fleet.now)
    assert fleet.look().namespaces == {}


def test_conditions_that_no_rule_names_are_there_for_as_long_as_a_node_has_them(
    fleet: Fleet,
) -> None:
    def burn_in(status: str) -> Any:
        return node(status={"conditions": [{"type": "GpuBurnIn", "status": status}]})

    for status in ("False", "True"):
        fleet.put(kinds.NODE, burn_in(status))
        assert fleet.look().nodes["n"].unknown_signals == (UnknownSignal("GpuBurnIn", status),)
    fleet.put(kinds.NODE, node())
    assert fleet.look().nodes["n"].unknown_signals == ()


def made(uid: str, name: str = "c", *, annotated: str = "true", **owner: Any) -> Any:
    key = "resource.kubernetes.io/extended-resource-claim"
    owner = {"kind": "Pod", "name": "p", "uid": uid, "controller": True, **owner}
    metadata = {"name": name, "namespace": "d", "ownerReferences": [owner]}
    return {"metadata": metadata | {"annotations": {key: annotated}}, "spec": {}}


def found(fleet: Fleet) -> dict[str, str]:
    return {pod: claim.metadata.name for pod, claim in fleet.look().extended_claims.items()}


def test_a_claim_is_found_while_it_exists(fleet: Fleet) -> None:
    fleet.put(kinds.CLAIM, made("u"))
    assert found(fleet) == {"d/u": "c"}
    status: Any = {"allocation": {"devices": {}}}
    fleet.put(kinds.CLAIM, {**made("u"), "status": status})
    assert fleet.look().extended_claims["d/u"].status is not None
    fleet.inventory.remove(kinds.CLAIM, "d/c", fleet.now)
    assert found(fleet) == {}


def test_claims_of_other_kinds_are_not(fleet: Fleet) -> None:
    fleet.put(kinds.CLAIM, made("u", annotated="false"))
    fleet.put(kinds.CLAIM, made("v", "other", controller=False))
    assert found(fleet) == {}


def test_a_claim_of_another_namespace_is_not_the_pods(fleet: Fleet) -> None:
    """Whoever creates a claim writes its owner and its annotations."""
    theirs = made("u")
    theirs["metadata"]["namespace"] = "tenant"
    fleet.put(kinds.CLAIM, theirs)
    fleet.put(kinds.CLAIM, made("u", "own"))
    assert found(fleet) == {"tenant/u": "c", "d/u": "own"}


def test_a_claim_that_changes_hands_is_found_by_its_new_owner(fleet: Fleet) -> None:
    fleet.put(kinds.CLAIM, made("u"))
    fleet.look()
    fleet.put(kinds.CLAIM, made("v"))
    assert found(fleet) == {"d/v": "c"}


def test_of_several_claims_for_one_pod_the_first_by_name_is_found(fleet: Fleet) -> None:
    """Whatever came first, so that a restart finds the same."""
    for name in ("b", "a", "c"):
        fleet.put(kinds.CLAIM, made("u", name))
    assert found(fleet) == {"d/u": "a"}
    for gone, left in (("c", "a"), ("a", "b")):
        fleet.inventory.remove(kinds.CLAIM, f"d/{gone}", fleet.now)
        assert found(fleet) == {"d/u": left}
    fleet.inventory.remove(kinds.CLAIM, "d/b", fleet.now)
    assert found(fleet) == {}


def test_other_changes_leave_them_as_they_are(fleet: Fleet) -> None:
    fleet.put(kinds.CLAIM, made("u"))
    before = fleet.look().extended_claims
    fleet.put(kinds.CLAIM, {"metadata": {"name": "x", "namespace": "d"}, "spec": {}})
    assert fleet.look().extended_claims is before
