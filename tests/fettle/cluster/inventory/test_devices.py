"""Slices, claims and rules in; what nodes show of their devices out."""

from typing import Any

import pytest

from fettle.api import kinds
from fettle.cluster.inventory import devices
from fettle.cluster.inventory.quarantine import MOST_TOLD
from fettle.model import State
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, claim, node, slice_
from tests.fettle.cluster.inventory.saying import rule


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


def of_both(name: str, generation: int, device: str) -> dict[str, Any]:
    """A node's slice of a pool that two nodes have by one name, each whole by itself."""
    made: dict[str, Any] = slice_(name, devices=1, generation=generation)
    made["spec"]["pool"]["name"] = "both"
    made["spec"]["devices"][0]["name"] = device
    return made


def test_devices_that_a_node_has_count_though_their_pool_is_newer_elsewhere(fleet: Fleet) -> None:
    """The allocator takes them there: it looks for newer slices among those of the node."""
    newer = of_both("newer", 2, "gpu-0")
    older = of_both("older", 1, "gpu-1")
    older["metadata"]["annotations"] = {"fettle.dev/hold": "why"}
    for name in ("newer", "older"):
        fleet.put(kinds.NODE, node(name))
    for kind, raw in ((kinds.SLICE, newer), (kinds.SLICE, older), (kinds.TAINT_RULE, rule())):
        fleet.put(kind, raw)
    (device,) = fleet.look().nodes["older"].pools[0].devices
    said = {str(w.evidence.source) for w in device.health.evidence}
    assert (device.health.held, said >= {"taint gaudi.intel.com/unhealthy"}) == (True, True)


@pytest.mark.parametrize("moved", [{"pool": "elsewhere"}, {"driver": "other.example.com"}])
def test_an_older_generation_speaks_again_once_the_newer_is_of_another_pool(
    fleet: Fleet, moved: dict[str, str]
) -> None:
    held, newer = slice_(devices=1), slice_(devices=1, generation=2)
    held["metadata"] = {"name": "held", "annotations": {"fettle.dev/hold": "why"}}

    def is_held() -> list[bool]:
        pools = fleet.look().nodes["n"].pools
        return [d.health.held for pool in pools if pool.name == "n" for d in pool.devices]

    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, held)
    assert is_held() == [True]
    fleet.put(kinds.SLICE, newer)
    assert is_held() == [False]
    newer["spec"]["driver"] = moved.get("driver", b.DRIVER)
    newer["spec"]["pool"] = newer["spec"]["pool"] | {"name": moved.get("pool", "n")}
    fleet.put(kinds.SLICE, newer)
    assert True in is_held()


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


def test_a_taint_rule_taints_what_it_selects_and_no_more_once_it_is_gone(fleet: Fleet) -> None:
    def tainted() -> list[str]:
        devices = fleet.look().nodes["n"].pools[0].devices
        return [d.id.device for d in devices if d.taints]

    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, slice_())
    tainting = {
        "metadata": {"name": "r"},
        "spec": {
            "deviceSelector": {"driver": b.DRIVER, "pool": "n", "device": "gpu-1"},
            "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
        },
    }
    fleet.put(kinds.TAINT_RULE, tainting)
    assert tainted() == ["gpu-1"]
    assert fleet.view.nodes["n"].pools[0].devices[1].health.state is not State.HEALTHY
    assert fleet.view.nodes["n"].pools[0].devices[0].health.state is State.HEALTHY
    fleet.inventory.remove(kinds.TAINT_RULE, "r", fleet.now)
    assert tainted() == []


def test_a_taint_rule_older_than_the_device_it_selects_still_counts(fleet: Fleet) -> None:
    tainting = {
        "metadata": {"name": "r"},
        "spec": {
            "deviceSelector": {"driver": b.DRIVER},
            "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
        },
    }
    fleet.put(kinds.TAINT_RULE, tainting)
    fleet.put(kinds.NODE, node())
    fleet.look()
    fleet.put(kinds.SLICE, slice_())
    assert all(d.health.evidence for d in fleet.look().nodes["n"].pools[0].devices)


def test_devices_of_the_network_are_seen_from_every_node(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("a"))
    shared = slice_("a")
    shared["spec"] |= {"nodeName": None, "allNodes": True}
    fleet.put(kinds.SLICE, shared)
    fleet.put(kinds.NODE, node("b"))
    assert all(n.pools[0].devices for n in fleet.look().nodes.values())


def test_health_of_a_network_device_shows_on_every_node(fleet: Fleet) -> None:
    for name in ("a", "b"):
        fleet.put(kinds.NODE, node(name))
    shared = slice_("a", devices=1)
    shared["spec"] |= {"nodeName": None, "allNodes": True}
    fleet.put(kinds.SLICE, shared)
    fleet.look()
    fleet.put(kinds.CLAIM, claim("c", "gpu-0", pool="a"))
    seen = [n.pools[0].devices[0].allocated for n in fleet.look().nodes.values()]
    assert seen == [True, True]
    assert fleet.changed == {"a", "b"}


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


def test_a_selector_that_cannot_be_parsed_makes_every_node_malformed(fleet: Fleet) -> None:
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
    assert (device.allocated, device.shares, device.consumed) == (False, 2, {"m": 5 * 10**9})
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


def test_a_node_that_publishes_without_end_delays_no_other(fleet: Fleet) -> None:
    for name in ("n", "evil"):
        fleet.put(kinds.NODE, node(name))
    fleet.put(kinds.SLICE, slice_("n"))
    for number in range(devices.MOST_SLICES + 50):
        raw = slice_("evil", devices=20)
        raw["metadata"]["name"] = f"evil-{number:03}"
        raw["spec"]["pool"] |= {"name": f"evil-{number:03}"}
        fleet.put(kinds.SLICE, raw)
    nodes = fleet.look().nodes
    read = sum(len(pool.devices) for pool in nodes["evil"].pools)
    assert devices.MOST_DEVICES - 20 < read <= devices.MOST_DEVICES
    assert nodes["evil"].health.state is State.UNKNOWN
    (weighed,) = nodes["evil"].health.evidence
    assert "more than 256 slices or 4096 devices of node evil" in weighed.evidence.text
    assert "and 101 more of this node" in weighed.evidence.text
    assert len(nodes["evil"].quarantined) == MOST_TOLD + 1
    assert (nodes["n"].health.state, nodes["n"].quarantined) == (State.HEALTHY, ())


def test_a_slice_is_read_once_others_of_its_node_are_gone(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("n"))
    for number in range(devices.MOST_DEVICES // 128 + 1):
        raw = slice_("n", devices=128)
        raw["metadata"]["name"] = f"n-{number:03}"
        fleet.put(kinds.SLICE, raw)
    assert fleet.look().nodes["n"].quarantined != ()
    fleet.inventory.remove(kinds.SLICE, "n-000", fleet.now)
    fleet.put(kinds.SLICE, raw)
    node_ = fleet.look().nodes["n"]
    assert (node_.quarantined, node_.health.state) == ((), State.HEALTHY)
