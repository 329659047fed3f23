import msgspec
import pytest

from fettle.api import kinds, resource
from fettle.cluster.inventory.gathered_pools import Gathered, PoolId, gather
from fettle.dra import CURRENT, Features, NodeTarget
from fettle.dra.pools import read_slice
from fettle.health import gpu_names


def slice_(
    name: str, generation: int = 1, count: int = 1, devices: str = "a", node: str = "n"
) -> resource.ResourceSlice:
    raw = {
        "metadata": {"name": name},
        "spec": {
            "driver": "d",
            "pool": {"name": "p", "generation": generation, "resourceSliceCount": count},
            **({"nodeName": node} if node else {"allNodes": True}),
            "devices": [{"name": d} for d in devices],
        },
    }
    decoded = kinds.SLICE.decode(msgspec.json.encode(raw))
    assert isinstance(decoded, resource.ResourceSlice)
    return decoded


POOL = PoolId("d", "p")
HERE = NodeTarget("n", {"zone": "a"})


def gather_here(*slices: resource.ResourceSlice, features: Features = CURRENT.features) -> Gathered:
    gathered = gather(POOL, [read_slice(s) for s in slices], HERE, features)
    assert gathered is not None
    return gathered


def names(*slices: resource.ResourceSlice) -> str:
    return "".join(p.device.name for p, _, _ in gather_here(*slices).devices)


def test_only_the_newest_generation_counts() -> None:
    assert names(slice_("old", 1, devices="ab"), slice_("new", 2, devices="c")) == "c"


def test_devices_come_by_slice_name_then_in_slice_order() -> None:
    assert names(slice_("y", count=2, devices="zb"), slice_("x", count=2, devices="qa")) == "qazb"


def test_a_pool_is_incomplete_until_all_its_slices_are_there() -> None:
    assert gather_here(slice_("x", count=2)).incomplete
    assert not gather_here(slice_("x", count=2), slice_("y", count=2, devices="b")).incomplete


def test_slices_for_other_nodes_make_a_pool_whole_and_stay_out_of_it() -> None:
    elsewhere = slice_("y", count=2, devices="b", node="other")
    assert names(slice_("x", count=2), elsewhere) == "a"


def test_while_a_newer_generation_is_on_another_node_the_devices_here_cannot_be_taken() -> None:
    gathered = gather_here(slice_("x", 1, 2), slice_("y", 2, 1, node="other"))
    assert gathered.devices == ()
    assert [p.device.name for p in gathered.withheld] == ["a"]


def test_a_device_name_that_comes_twice_spoils_the_pool() -> None:
    assert (
        "duplicate device name a" in gather_here(slice_("x", count=2), slice_("y", count=2)).invalid
    )


def test_no_slices_no_pool() -> None:
    assert gather(POOL, [], HERE, CURRENT.features) is None


def test_slices_that_contradict_each_other_leave_the_pool_unclear() -> None:
    assert "1, 2" in gather_here(slice_("x", count=1), slice_("y", count=2, devices="b")).unclear


def raw_slice(**spec: object) -> resource.ResourceSlice:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    raw = {"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": pool, **spec}}
    decoded = kinds.SLICE.decode(msgspec.json.encode(raw))
    assert isinstance(decoded, resource.ResourceSlice)
    return decoded


def selector(key: str, operator: str, *values: str) -> dict[str, object]:
    requirement = {"key": key, "operator": operator, "values": list(values)}
    return {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}


@pytest.mark.parametrize(
    ("spec", "is_here"),
    [
        ({"nodeName": "n"}, True),
        ({"nodeName": "other"}, False),
        ({"allNodes": True}, True),
        ({"nodeSelector": selector("zone", "In", "a", "b")}, True),
        ({"nodeSelector": selector("zone", "NotIn", "a")}, False),
        ({"nodeSelector": selector("rack", "Exists")}, False),
        ({}, False),
    ],
    ids=str,
)
def test_a_slice_is_for_the_nodes_that_it_names(spec: dict[str, object], is_here: bool) -> None:
    read = read_slice(raw_slice(devices=[{"name": "a"}], **spec))
    assert (gather(POOL, [read], HERE, CURRENT.features) is not None) is is_here


def test_devices_may_say_themselves_which_nodes_they_are_for() -> None:
    devices = [{"name": "a", "nodeName": "other"}, {"name": "b", "nodeName": "n"}]
    found = gather_here(raw_slice(perDeviceNodeSelection=True, devices=devices))
    assert [(p.device.name, here) for p, here, _ in found.devices] == [("a", False), ("b", True)]


def test_a_node_selector_that_cannot_be_parsed_fails_the_node() -> None:
    assert "Near" in gather_here(raw_slice(nodeSelector=selector("zone", "Near", "a"))).malformed


def test_a_counter_that_does_not_exist_spoils_the_pool() -> None:
    takes = [{"counterSet": "memory", "counters": {"slices": {"value": "1"}}}]
    devices = [{"name": "a", "consumesCounters": takes}]
    found = gather_here(raw_slice(nodeName="n", devices=devices))
    assert "counter set memory not found" in found.invalid


def test_monitors_may_name_a_device_by_uuid_or_address() -> None:
    device = resource.Device(
        name="gpu-0",
        attributes={
            "uuid": resource.DeviceAttribute(string="GPU-1"),
            "resource.kubernetes.io/pciBusID": resource.DeviceAttribute(string="0000:c4:00.0"),
            "index": resource.DeviceAttribute(int_=4),
        },
    )
    assert set(gpu_names.published(device)) == {"GPU-1", "pci:0000:c4:00.0", "index:4"}


def withheld(*slices: resource.ResourceSlice) -> str:
    return "".join(p.device.name for p in gather_here(*slices).withheld)


@pytest.mark.parametrize(
    ("slices", "devices"),
    [
        ([slice_("x", devices="ab")], ""),
        ([slice_("x", count=2, devices="ab")], "ab"),
        ([slice_("x", devices="aba")], "ab"),
        ([slice_("old", 1, devices="ab"), slice_("new", 2, devices="c")], ""),
        ([slice_("old", 1, 2, "ab"), slice_("new", 2, 2, "ca")], "cab"),
        ([slice_("x", 1, 2, "a"), slice_("y", 2, 2, "b", node="other")], "a"),
        ([slice_("x", 2, 2, "a"), slice_("y", 1, 2, "b", node="other")], "a"),
        ([slice_("x", count=1, devices="a"), slice_("y", count=2, devices="b")], ""),
        ([slice_("old"), slice_("x", 2, 1, "b"), slice_("y", 2, 3, "c")], "a"),
    ],
    ids=[
        "whole",
        "slices are missing",
        "a name comes twice",
        "replaced",
        "being replaced",
        "being replaced, elsewhere first",
        "being replaced, here first",
        "contradictory",
        "being replaced by a contradictory one",
    ],
)
def test_devices_that_cannot_be_taken_now_are_published_all_the_same(
    slices: list[resource.ResourceSlice], devices: str
) -> None:
    assert withheld(*slices) == devices


def test_devices_of_a_pool_that_lacks_counters_are_published_all_the_same() -> None:
    consumes = [{"counterSet": "s", "counters": {"m": {"value": "1"}}}]
    devices = [{"name": "a"}, {"name": "b", "consumesCounters": consumes}]
    found = gather_here(raw_slice(nodeName="n", devices=devices))
    assert found.invalid
    assert [p.device.name for p in found.withheld] == ["a", "b"]


def test_a_device_is_published_by_the_slices_whose_node_selectors_can_be_parsed() -> None:
    odd = raw_slice(nodeSelector=selector("zone", "Near", "a"), devices=[{"name": "b"}])
    found = gather_here(slice_("x"), odd)
    assert "Near" in found.malformed
    assert (found.devices, [p.device.name for p in found.withheld]) == ((), ["a"])


def test_a_device_for_other_nodes_is_not_published_for_this_one() -> None:
    devices = [{"name": "a", "nodeName": "other"}, {"name": "b", "nodeName": "n"}]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    found = gather_here(raw_slice(perDeviceNodeSelection=True, devices=devices, pool=pool))
    assert [p.device.name for p in found.withheld] == ["b"]
