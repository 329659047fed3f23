"""A slice, a pod's status and a claim's status speak for devices of their own node only, whatever
pool they name."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.api.kinds import Kind
from fettle.cluster import NodeView, View
from fettle.explain import explain_device, explain_node
from fettle.explain.devices import list_network_devices, plain_node
from fettle.explain.users import Users
from fettle.model import DeviceId, Health, State, Subject
from fettle.scheduling.plans import taint_plans
from fettle.steward import holding
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, claim, node, slice_

XID = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoExecute"}
HELD = {"fettle.dev/hold": "maintenance"}
HOLDS_ANOTHERS = {"fettle.dev/hold": f'{{"device": "{b.DRIVER}/n1/gpu-0"}}'}


def published(
    name: str, by: str, pool: str, *, created: str = "2026-11-01T00:00:00Z", **spec: Any
) -> dict[str, Any]:
    """A slice; `spec` may have its generation, count, devices and annotations."""
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": created,
            "annotations": spec.get("annotations"),
        },
        "spec": {
            "driver": b.DRIVER,
            **({"nodeName": by} if by else {"allNodes": True}),
            "pool": {
                "name": pool,
                "generation": spec.get("generation", 1),
                "resourceSliceCount": spec.get("count", 1),
            },
            "devices": spec.get("devices", [{"name": "gpu-0"}, {"name": "gpu-1"}]),
        },
    }


def honest() -> list[tuple[Kind, dict[str, Any]]]:
    """Two nodes, one of which has a pool that is not named after it, and a network pool."""
    bad = [{"name": "gpu-0", "taints": [XID]}, {"name": "gpu-1"}]
    return [
        (kinds.NODE, node("n1")),
        (kinds.NODE, node("n2")),
        (kinds.NODE, node("evil")),
        (kinds.SLICE, published("n1-a", "n1", "n1", devices=bad)),
        (kinds.SLICE, published("n2-a", "n2", "rack", annotations=HELD)),
        (kinds.SLICE, published("far", "", "fabric")),
    ]


def on_evil(device: str, pool: str) -> dict[str, Any]:
    """A claim that the scheduler allocated on the rogue node, for a device that its slice names."""
    made: dict[str, Any] = claim("c", device, pool)
    field = {"key": "metadata.name", "operator": "In", "values": ["evil"]}
    made["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    ready = {"type": "Ready", "status": "False", "reason": "Dead"}
    made["status"]["devices"] = [
        {"driver": b.DRIVER, "pool": pool, "device": device, "conditions": [ready]}
    ]
    return made


def pod_on_evil(resource_id: str) -> dict[str, Any]:
    ill = {"resourceID": resource_id, "health": "Unhealthy"}
    status = {"name": "claim:c/r", "resources": [ill]}
    return {
        "metadata": {"name": "p", "namespace": "d", "uid": "p"},
        "spec": {
            "nodeName": "evil",
            "containers": [{"name": "c", "resources": {"claims": [{"name": "c"}]}}],
            "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "c", "allocatedResourcesStatus": [status]}],
        },
    }


POOLS = ("n1", "n2", "rack", "fabric", "evil")
NAMES = ("gpu-0", "gpu-1", "gpu-9")
UUID = {"uuid": {"string": "GPU-d100f3a2-51c8-4b67-9e02-10c4d8e7a610"}}


@st.composite
def rogue_slices(draw: st.DrawFn) -> tuple[Kind, dict[str, Any]]:
    devices = draw(
        st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(NAMES)},
                optional={"taints": st.just([XID]), "attributes": st.just(UUID)},
            ),
            unique_by=lambda device: str(device["name"]),
        )
    )
    made = published(
        draw(st.sampled_from(("0", "z"))),  # before and after the others' names
        "evil",
        draw(st.sampled_from(POOLS)),
        created=draw(st.sampled_from(("2020-01-01T00:00:00Z", "2026-11-28T00:00:00Z"))),
        generation=draw(st.sampled_from((0, 1, 99))),
        count=draw(st.sampled_from((1, 2, 5))),
        devices=devices,
        annotations=draw(st.sampled_from((None, HELD))),
    )
    return kinds.SLICE, made


ROGUE = st.one_of(
    rogue_slices(),
    st.builds(
        lambda device, pool: (kinds.CLAIM, on_evil(device, pool)),
        st.sampled_from(NAMES),
        st.sampled_from(("n1", "rack", "evil")),
    ),
    st.builds(
        lambda pool, name: (kinds.POD, pod_on_evil(f"{b.DRIVER}/{pool}/{name}")),
        st.sampled_from(("n1", "rack", "evil")),
        st.sampled_from(NAMES),
    ),
    st.builds(lambda name: (kinds.POD, pod_on_evil(name)), st.sampled_from(NAMES)),
    st.just((kinds.NODE, node("evil", annotations=HOLDS_ANOTHERS))),
    st.builds(lambda name: (kinds.SLICE, name), st.sampled_from(("0", "z"))),
)
"""What one rogue node, and who runs pods on it, may write; a name stands for its deletion."""


def by_names(subject: Subject) -> Subject:
    """A device without the node that it is known with."""
    if isinstance(subject, DeviceId):
        return msgspec.structs.replace(subject, node="")
    return subject


def told(health: Health) -> tuple[Any, ...]:
    evidence = [
        (one.weight, msgspec.structs.replace(one.evidence, subject=by_names(one.evidence.subject)))
        for one in health.evidence
    ]
    return msgspec.structs.replace(health, evidence=()), evidence


def seen(record: NodeView) -> tuple[Any, ...]:
    """What Fettle says of a node. Whether a device is allocated goes by the names alone, as in
    kube-scheduler's allocator."""
    devices = [
        (d.id, told(d.health), d.taints, d.part_of)
        for pool in record.pools
        for d in (*pool.devices, *pool.withheld)
    ]
    flaws = [(p.ref, p.unclear, p.flaw) for p in record.pools]
    return record.health, record.plugins, record.quarantined, record.malformed, devices, flaws


def due(view: View) -> set[DeviceId]:
    """The devices for whose holds and health DeviceTaintRules are to be written."""
    served = msgspec.structs.replace(view, served={"DeviceTaintRule": True})
    return {*holding.due_writes(served).devices, *(d.id for d in taint_plans.unsound(view))}


def users(view: View) -> list[tuple[str, Any, Any]]:
    """Who is said to use the devices of the honest nodes, and those of the network."""
    listed = [
        *(
            one
            for name in ("n1", "n2")
            for one in plain_node(view.nodes[name], Users(view))["devices"]
        ),
        *list_network_devices(view),
    ]
    return [(one["device"].partition(" of node ")[0], one["usedBy"], one["use"]) for one in listed]


def theirs(subjects: Iterable[Subject]) -> set[DeviceId]:
    """Those among them that have names of devices of the other nodes, or of the network."""
    pools, names = ("n1", "rack", "fabric"), ("gpu-0", "gpu-1")
    return {
        one
        for one in subjects
        if isinstance(one, DeviceId) and one.pool in pools and one.device in names
    }


def put(fleet: Fleet, kind: Kind, raw: Any) -> None:
    if isinstance(raw, str):
        fleet.inventory.remove(kind, raw, fleet.now)
    else:
        fleet.put(kind, raw)


AT_FIRST = published("0", "evil", "rack", devices=[{"name": "gpu-0", "taints": [XID]}])


@pytest.mark.parametrize("beside", [False, True], ids=["before", "beside"])
@pytest.mark.parametrize(
    "later",
    [
        published("0", "evil", "n1", devices=[]),
        published("0", "evil", "evil"),
        published("0", "evil", "rack", devices=[]),
        published("0", "evil", "rack", devices=[{"name": "gpu-9"}]),
        "0",
    ],
    ids=["another's", "its own", "empty", "another device", "gone"],
)
def test_a_device_inherits_no_fault_of_a_slice_that_had_its_name(
    later: dict[str, Any] | str, beside: bool
) -> None:
    without, fleet = Fleet(), Fleet()
    for kind, raw in honest():
        without.put(kind, raw)
    without.look()
    first, last = (kinds.SLICE, AT_FIRST), (kinds.SLICE, later)
    for kind, one in [first, *honest(), last] if beside else [first, last, *honest()]:
        put(fleet, kind, one)
    fleet.look()
    for name in ("n1", "n2"):
        assert seen(fleet.view.nodes[name]) == seen(without.view.nodes[name])


@given(st.data(), st.lists(ROGUE, max_size=6))
def test_nothing_that_one_node_writes_changes_anything_of_another(
    data: st.DataObject, rogue: list[tuple[Kind, Any]]
) -> None:
    without, fleet = Fleet(), Fleet()
    for kind, raw in honest():
        without.put(kind, raw)
    without.look()
    first = data.draw(st.integers(0, len(rogue)), label="rogue objects that come first")
    for kind, raw in (*rogue[:first], *honest(), *rogue[first:]):
        put(fleet, kind, raw)
        if first == 0 and data.draw(st.booleans(), label="looked at"):
            fleet.look()
    fleet.look()
    for name in ("n1", "n2"):
        assert seen(fleet.view.nodes[name]) == seen(without.view.nodes[name])
    held = {by_names(one) for one in theirs(fleet.view.holds) if one.node != "evil"}
    assert held >= theirs(without.view.holds)
    assert theirs(due(fleet.view)) <= theirs(due(without.view))
    assert users(fleet.view) == users(without.view)


def disputed() -> Fleet:
    fleet = Fleet()
    for kind, raw in honest():
        fleet.put(kind, raw)
    fleet.put(
        kinds.SLICE,
        published("r", "evil", "n1", generation=99, devices=[{"name": "gpu-1", "taints": [XID]}]),
    )
    fleet.look()
    return fleet


def test_a_slice_that_names_another_nodes_pool_counts_for_its_own_node() -> None:
    (evil,) = [d for pool in disputed().view.nodes["evil"].pools[1:] for d in pool.devices]
    assert evil.health.state is State.UNHEALTHY
    assert str(evil.subject) == f"{b.DRIVER}/n1/gpu-1 of node evil"


def test_a_pool_that_two_nodes_claim_is_said_to_be_disputed_on_both() -> None:
    fleet = disputed()
    for name in ("n1", "evil"):
        (told,) = explain_node(name, fleet.view, fleet.inventory, fleet.now)["disputed"]
        assert told["text"] == (
            f"pool {b.DRIVER}/n1 is disputed: slices of evil, n1 each count for their own node only"
        )
    assert explain_node("n2", fleet.view, fleet.inventory, fleet.now)["disputed"] == []


def test_the_names_alone_mean_the_device_of_the_node_that_the_pool_is_named_after() -> None:
    fleet = disputed()
    found = explain_device(f"{b.DRIVER}/n1/gpu-1", fleet.view, fleet.inventory, fleet.now)
    assert (found["node"], found["state"]) == ("n1", "Healthy")


def test_a_pool_that_is_spread_over_nodes_is_not_disputed() -> None:
    fleet = Fleet()
    for name in ("n1", "n2"):
        fleet.put(kinds.NODE, node(name))
        devices = [{"name": f"{name}-gpu", "taints": [XID]}]
        fleet.put(kinds.SLICE, published(name, name, "spread", count=2, devices=devices))
    for name, record in fleet.look().nodes.items():
        (pool,) = record.pools
        assert pool.rivals == ()
        assert [str(d.subject) for d in pool.devices] == [f"{b.DRIVER}/spread/{name}-gpu"]
        assert [d.health.state for d in pool.devices] == [State.UNHEALTHY]


def test_what_an_older_slice_said_first_leaves_no_trace_on_a_device_of_the_network() -> None:
    fleet = Fleet()
    devices = [{"name": "gpu-0", "taints": [XID]}]
    fleet.put(kinds.SLICE, published("0", "evil", "fabric", generation=0, devices=devices))
    for kind, raw in honest():
        fleet.put(kind, raw)
    (far,) = [pool for pool in fleet.look().nodes["n1"].pools if pool.name == "fabric"]
    assert [device.health.evidence for device in far.devices] == [(), ()]


@pytest.mark.parametrize("leaves", ["r", "n1-a"])
def test_when_one_of_two_slices_goes_the_other_keeps_its_own_health(leaves: str) -> None:
    fleet = disputed()
    fleet.inventory.remove(kinds.SLICE, leaves, fleet.now)
    fleet.look()
    left = fleet.view.nodes["evil" if leaves == "n1-a" else "n1"]
    by_name = {d.id.device: d.health.state for pool in left.pools for d in pool.devices}
    assert by_name["gpu-1"] is (State.UNHEALTHY if leaves == "n1-a" else State.HEALTHY)


@pytest.mark.parametrize("created", ["2020-01-01T00:00:00Z", "2026-11-28T00:00:00Z"])
def test_no_rule_is_written_by_names_of_which_nothing_tells_whose_they_are(created: str) -> None:
    fleet = Fleet()
    for kind, raw in honest():
        fleet.put(kind, raw)
    ill = {"name": "gpu-0", "taints": [XID]}
    fleet.put(kinds.SLICE, published("r", "evil", "rack", created=created, devices=[ill]))
    fleet.look()
    assert DeviceId(b.DRIVER, "rack", "gpu-0") not in due(fleet.view)
    assert DeviceId(b.DRIVER, "rack", "gpu-1") in due(fleet.view)


def test_where_no_pool_is_named_after_a_node_the_older_slices_are_meant() -> None:
    fleet = Fleet()
    for kind, raw in honest():
        fleet.put(kind, raw)
    newer = published("r", "evil", "rack", created="2026-11-28T00:00:00Z", generation=7)
    fleet.put(kinds.SLICE, newer)
    fleet.look()
    subjects = {
        name: {d.subject.node for pool in record.pools for d in pool.devices}
        for name, record in fleet.view.nodes.items()
    }
    assert subjects == {"n1": {""}, "n2": {""}, "evil": {"", "evil"}}


def test_nothing_is_remembered_under_another_nodes_names() -> None:
    fleet = disputed()
    stored = fleet.inventory.recall("evil", None, fleet.now)
    assert stored is not None
    assert [one.device for one in stored.status.subjects if one.device is not None] == []


def test_a_taint_rule_is_never_written_by_names_that_mean_another_node() -> None:
    fleet = disputed()
    fleet.put(
        kinds.SLICE,
        published("r", "evil", "n1", generation=99, devices=[{"name": "gpu-1"}], annotations=HELD),
    )
    fleet.look()
    names = {str(one) for one in fleet.view.holds}
    assert f"{b.DRIVER}/n1/gpu-1 of node evil" in names
    assert DeviceId(b.DRIVER, "n1", "gpu-1") not in due(fleet.view)


def test_a_pods_status_says_nothing_of_a_device_of_another_node() -> None:
    fleet = disputed()
    before = seen(fleet.view.nodes["n1"])
    for device in ("gpu-0", "gpu-1"):
        fleet.put(kinds.POD, pod_on_evil(f"{b.DRIVER}/n1/{device}"))
        assert seen(fleet.look().nodes["n1"]) == before


def test_a_device_whose_names_mean_another_nodes_gets_no_taint_by_health() -> None:
    fleet = disputed()
    tainted = {device.subject for device in taint_plans.unsound(fleet.view)}
    assert DeviceId(b.DRIVER, "n1", "gpu-0") in tainted
    assert not any(one.node for one in tainted)


def test_an_ordinary_slice_is_known_by_its_names(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, slice_())
    (pool,) = fleet.look().nodes["n"].pools
    assert [d.alias for d in pool.devices] == [None, None]
