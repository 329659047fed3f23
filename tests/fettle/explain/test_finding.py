"""Which device people mean by a name."""

import msgspec
import pytest

from fettle.api import resource
from fettle.cluster import PluginView, UnitView, View
from fettle.explain import find_device, find_node
from fettle.model import BadInput
from tests.fettle import building as b

UUID, PART = "GPU-1a2b3c4d-0000-1111-2222-333344445555", "MIG-99999999-0000-1111-2222-333344445555"


def attributes(**values: str) -> dict[str, resource.DeviceAttribute]:
    return {name: resource.DeviceAttribute(string=value) for name, value in values.items()}


def fleet() -> View:
    whole = attributes(uuid=UUID, pciBusID="0000:c4:00.0")
    part = attributes(uuid=PART, parentUUID=UUID, type="mig", parentPciAddr="0000:c4:00.0")
    devices = (
        b.device("gpu-0", pool="n1", local="n1", attributes=whole),
        b.device("gpu-0-mig-1", pool="n1", local="n1", attributes=part),
    )
    other = b.device("gpu-0", pool="n2", local="n2")
    units = (
        UnitView("GPU-77777777-aaaa", b.health(0.2), others=("pci:0000:c1:00.0", "index:5")),
        UnitView("index:3", b.health(0.5)),
    )
    plugin = PluginView(b.RESOURCE, 8, 8, units)
    return b.view(
        b.node("n1", pools=(b.pool(*devices, name="n1"),)),
        b.node("n2", pools=(b.pool(other, name="n2"),)),
        b.node("n3", gpus=8),
        msgspec.structs.replace(b.node("n4"), plugins={b.RESOURCE: plugin}),
    )


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (f"{b.DRIVER}/n1/gpu-0", f"{b.DRIVER}/n1/gpu-0"),
        ("n2/gpu-0", f"{b.DRIVER}/n2/gpu-0"),
        ("gpu-0-mig-1", f"{b.DRIVER}/n1/gpu-0-mig-1"),
        (UUID, f"{b.DRIVER}/n1/gpu-0"),
        (PART, f"{b.DRIVER}/n1/gpu-0-mig-1"),
        ("pci:0000:C4:00.0", f"{b.DRIVER}/n1/gpu-0"),
        ("0000:c4:00.0", f"{b.DRIVER}/n1/gpu-0"),
        ("GPU-77777777-aaaa", f"n4/{b.RESOURCE}/GPU-77777777-aaaa"),
        (f"n4/{b.RESOURCE}/3", f"n4/{b.RESOURCE}/index:3"),
        (f"n4/{b.RESOURCE}/5", f"n4/{b.RESOURCE}/GPU-77777777-aaaa"),
        ("pci:0000:c1:00.0", f"n4/{b.RESOURCE}/GPU-77777777-aaaa"),
        ("n4/3", f"n4/{b.RESOURCE}/index:3"),
        (f"{b.RESOURCE} GPU-77777777-aaaa", f"n4/{b.RESOURCE}/GPU-77777777-aaaa"),
        (f"n3/{b.RESOURCE}/3", f"n3/{b.RESOURCE}/index:3"),
        (f"n3/{UUID}", f"n3/{b.RESOURCE}/{UUID}"),
        # in other case
        (UUID.lower(), f"{b.DRIVER}/n1/gpu-0"),
        (PART.upper(), f"{b.DRIVER}/n1/gpu-0-mig-1"),
        ("gpu-77777777-AAAA", f"n4/{b.RESOURCE}/GPU-77777777-aaaa"),
        (f"n4/{b.RESOURCE}/gpu-77777777-AAAA", f"n4/{b.RESOURCE}/GPU-77777777-aaaa"),
        (f"n3/{UUID.upper()}", f"n3/{b.RESOURCE}/{UUID}"),
    ],
)
def test_a_device_is_found_by_any_name_that_only_it_has(given: str, meant: str) -> None:
    assert find_device(fleet(), given).name == meant


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("gpu-0", f"2 devices are called 'gpu-0': write one of {b.DRIVER}/n1/gpu-0, "),
        ("n1/gpu-O", "there is no device 'n1/gpu-O'; near: n1/gpu-0"),
        (f"{b.DRIVER}/n1/gpu-9", f"near: {b.DRIVER}/n1/gpu-0"),
        ("n3/8", f"{b.RESOURCE} has 8 units on n3: index:0 to index:7"),
        ("nothing-like-it", "write DRIVER/POOL/DEVICE, NODE/RESOURCE/UNIT or a UUID"),
        (
            "GPU-00000000-ffff-eeee-dddd-cccccccccccc",
            "nothing names the device 'GPU-00000000-ffff-eeee-dddd-cccccccccccc', so its node is "
            "not known. A device plugin tells Kubernetes only how many devices a node has",
        ),
        ("", "there is no device ''"),
    ],
)
def test_what_is_not_found_or_not_clear_gets_names_that_are_near(given: str, why: str) -> None:
    with pytest.raises(BadInput) as raised:
        find_device(fleet(), given)
    assert why in str(raised.value)


def test_each_near_device_is_listed_once_as_it_can_be_typed() -> None:
    with pytest.raises(BadInput) as raised:
        find_device(fleet(), f"n4/{b.RESOURCE}/GPU-x")
    (listed,) = (
        part.removeprefix(" near: ")
        for part in str(raised.value).split(";")
        if part.startswith(" near: ")
    )
    names = listed.split(", ")
    assert not [name for name in names if " " in name]
    meant = [find_device(fleet(), name).name for name in names]
    assert len(meant) == len(set(meant)) == 3


def test_a_node_that_is_not_there_gets_names_that_are_near() -> None:
    assert find_node(fleet(), "n1").name == "n1"
    with pytest.raises(BadInput, match=r"there is no node 'n11'; near: n1"):
        find_node(fleet(), "n11")
