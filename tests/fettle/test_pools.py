import msgspec

from fettle import pools
from fettle.pools import PoolId
from fettle.wire import kinds, resource


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


def names(*slices: resource.ResourceSlice) -> str:
    pool = pools.assemble(POOL, slices)
    assert pool is not None
    return "".join(d.name for _, d in pool.devices)


def test_only_the_newest_generation_counts() -> None:
    assert names(slice_("old", 1, devices="ab"), slice_("new", 2, devices="c")) == "c"


def test_devices_come_by_slice_name_then_in_slice_order() -> None:
    assert names(slice_("y", count=2, devices="zb"), slice_("x", count=2, devices="qa")) == "qazb"


def test_a_pool_is_incomplete_until_all_its_slices_are_there() -> None:
    half = pools.assemble(POOL, [slice_("x", count=2)])
    whole = pools.assemble(POOL, [slice_("x", count=2), slice_("y", count=2, devices="b")])
    assert half is not None
    assert whole is not None
    assert (half.complete, whole.complete) == (False, True)


def test_a_device_name_that_comes_twice_spoils_the_pool() -> None:
    pool = pools.assemble(POOL, [slice_("x", count=2), slice_("y", count=2)])
    assert pool is not None
    assert not pool.complete


def test_no_slices_no_pool() -> None:
    assert pools.assemble(POOL, []) is None


def test_devices_of_all_nodes_are_of_the_network_and_not_modelled() -> None:
    shared = slice_("x", node="")
    pool = pools.assemble(POOL, [shared])
    assert pool is not None
    assert pool.network
    assert pools.unsupported(shared, (shared.spec.devices or ())[0])


def test_monitors_may_name_a_device_by_uuid_or_address() -> None:
    device = resource.Device(
        name="gpu-0",
        attributes={
            "uuid": resource.DeviceAttribute(string="GPU-1"),
            "resource.kubernetes.io/pciBusID": resource.DeviceAttribute(string="0000:c4:00.0"),
            "index": resource.DeviceAttribute(int_=4),
        },
    )
    assert set(pools.aliases(device)) == {"GPU-1", "pci:0000:c4:00.0", "index:4"}
