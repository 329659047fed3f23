"""What is refused at once: what the devices of a driver contradict, and nothing that more of such
devices, other drivers or unknown devices could satisfy (decision 0041)."""

from typing import Any

import pytest

from fettle.lint.findings import Severity
from fettle.lint.names import misspelt
from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.clusters import lint
from tests.fettle.lint.fleets import GPU, MIG, gpu
from tests.fettle.lint.tables.case import FLEET, claim, device, exactly

CONTRADICTED: dict[str, dict[str, Any]] = {
    "a domain that no device has": {"selectors": ['device.attributes["gpu.amd.com"].index == 1']},
    "an attribute that no device has": {"selectors": [device('model == "H100"')]},
    "an attribute that is misspelt": {"selectors": [device('productname == "NVIDIA H100"')]},
    "a value of another type": {"selectors": [device('index == "3"')]},
    "an order of another type": {"selectors": [device('driverVersion > "550"')]},
    "a capacity that no device has": {"capacity": {"requests": {f"{GPU}/memory": "1Gi"}}},
    "a value that is misspelt": {"selectors": [device('productName == "nvidia h100"')]},
}


async def denied(object: Object, known: Any = FLEET) -> set[str]:
    found = await lint(object, known)
    return {finding.rule for finding in found if finding.severity is Severity.DENY}


async def warned(object: Object, known: Any = FLEET) -> set[str]:
    found = await lint(object, known)
    return {finding.rule for finding in found if finding.severity is Severity.WARN}


@pytest.mark.parametrize("asked", CONTRADICTED.values(), ids=CONTRADICTED)
async def test_what_all_devices_of_the_driver_contradict_is_denied(asked: Any) -> None:
    assert await denied(claim(exactly(**dict(asked))))


@pytest.mark.parametrize("asked", CONTRADICTED.values(), ids=CONTRADICTED)
async def test_it_is_not_denied_while_a_pool_of_the_driver_waits_for_slices(asked: Any) -> None:
    waiting = api.resource_slice("gpu-c", [gpu(0)], driver=GPU, name="gpu-c-1")
    waiting["spec"]["pool"]["resourceSliceCount"] = 2
    assert (
        await denied(claim(exactly(**dict(asked))), (*FLEET, api.node("gpu-c"), waiting)) == set()
    )


@pytest.mark.parametrize("asked", CONTRADICTED.values(), ids=CONTRADICTED)
async def test_it_is_not_denied_where_no_selector_names_the_driver(asked: Any) -> None:
    """Devices of a driver that is not there yet may be what is asked for."""
    any_driver = api.device_class("any", selectors=["true"])
    wanted = claim(exactly(device_class="any", **dict(asked)))
    assert await denied(wanted, (*FLEET, any_driver)) == set()


@pytest.mark.parametrize("asked", CONTRADICTED.values(), ids=CONTRADICTED)
async def test_it_is_not_denied_before_the_driver_publishes_devices(asked: Any) -> None:
    none_yet = [known for known in FLEET if known["kind"] != "ResourceSlice"]
    assert await denied(claim(exactly(**dict(asked))), none_yet) == set()


@pytest.mark.parametrize("asked", CONTRADICTED.values(), ids=CONTRADICTED)
async def test_it_is_not_denied_while_the_class_has_no_device(asked: Any) -> None:
    """Devices of another kind may have other attributes: here, GPUs say nothing of MIG devices."""
    wanted = claim(exactly(device_class=MIG, **dict(asked)))
    assert await denied(wanted) == set()
    assert await warned(wanted)


@pytest.mark.parametrize(
    "asked",
    [
        {"selectors": [device('productName == "NVIDIA H200"')]},
        {"selectors": [device('productName == "AMD MI300X"')]},
        {"selectors": [device('type == "vgpu"')]},
        {"selectors": [device("index == 99")]},
        {"selectors": [f'device.capacity["{GPU}"].memory.compareTo(quantity("1Ti")) >= 0']},
        {"selectors": [f'has({device("fabric")}) && {device("fabric")} == "x"']},
        {"selectors": [device('productName == "B200" && ') + device('productName != "x"')]},
        {"count": 16},
        {"device_class": "later.example.com"},
        {"device_class": "gpu.nvidia.co"},
        {"device_class": MIG},
    ],
    ids=str,
)
async def test_what_more_devices_could_satisfy_is_only_warned_of(asked: Any) -> None:
    wanted = claim(exactly(**dict(asked)))
    assert await denied(wanted) == set()
    assert await warned(wanted)


async def test_what_identifies_one_device_is_no_enumeration() -> None:
    """The devices with such a serial number may come."""
    serials = [gpu(i) for i in range(4)]
    for index, one in enumerate(serials):
        one["attributes"]["serial"] = {"string": f"chassis-{index}-Hopper"}
    known = [
        api.node("n"),
        api.resource_slice("n", serials, driver=GPU),
        api.device_class(GPU, driver=GPU),
    ]
    wanted = claim(exactly(selectors=[device('serial == "chassis-1-hoper"')]))
    assert await denied(wanted, known) == set()


@pytest.mark.parametrize(
    ("value", "shown", "meant"),
    [
        ("nvidia h100", "NVIDIA H100", True),
        ("NVIDIA-H100", "NVIDIA H100", True),
        ("NVIDA H100", "NVIDIA H100", True),
        ("Hoper", "Hopper", True),
        ("NVIDIA H200", "NVIDIA H100", False),
        ("NVIDIA A100", "NVIDIA H100", False),
        ("NVIDIA H100 NVL", "NVIDIA H100 PCIe", False),
        ("L40S", "L40", False),
        ("GH200", "GB200", False),
        ("1g.10gb", "1g.5gb", False),
        ("12.1", "1.21", False),
        ("vgpu", "gpu", False),
        ("east", "west", False),
        ("1g.5gb+me", "1g.5gb", False),
        ("A100+", "A100", False),
        ("NVIDIA H100", "NVIDIA H100", False),
    ],
)
def test_a_value_is_misspelt_only_if_it_can_hardly_be_another_one(
    value: str, shown: str, meant: bool
) -> None:
    assert misspelt(value, {shown, "x"} - {value}) == (shown if meant else "")
