"""Equal values of a slice's devices are one object, and read as if they were not."""

from typing import Any

import msgspec

from fettle.api import kinds
from fettle.api.resource import Device, ResourceSlice
from fettle.dra.slices import read_slice


def devices(*of: dict[str, Any]) -> tuple[Device, ...]:
    return read(*of).spec.devices or ()


def read(*of: dict[str, Any]) -> ResourceSlice:
    spec = {"driver": "d", "nodeName": "n", "pool": {"name": "n"}, "devices": of}
    raw = msgspec.json.encode({"metadata": {"name": "s"}, "spec": spec})
    found = kinds.SLICE.decode(raw)
    assert isinstance(found, ResourceSlice)
    return found


def partition(name: str, model: str = "H100", memory: object = "10Gi") -> dict[str, Any]:
    return {
        "name": name,
        "attributes": {"model": {"string": model}},
        "capacity": {"memory": {"value": memory}},
        "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": memory}}}],
    }


def test_devices_that_say_alike_share_what_they_say() -> None:
    one, other = devices(partition("a"), partition("b"))
    assert (one.attributes or {})["model"] is (other.attributes or {})["model"]
    assert (one.capacity or {})["memory"] is (other.capacity or {})["memory"]
    first, second = read_slice(read(partition("a"), partition("b"))).devices
    assert first.consumes[0] is second.consumes[0]
    assert first.capacities["memory"] is second.capacities["memory"]


def test_devices_that_differ_keep_what_they_say() -> None:
    one, other = devices(partition("a"), partition("b", model="A100", memory="5Gi"))
    assert one == msgspec.convert(partition("a"), Device)
    assert other == msgspec.convert(partition("b", model="A100", memory="5Gi"), Device)


def test_numbers_that_are_equal_are_still_read_as_each_is_written() -> None:
    whole, fraction = read_slice(read(partition("a", memory=1), partition("b", memory=1.0))).devices
    assert not whole.unclear
    assert "1.0 is written as a fraction" in fraction.unclear
