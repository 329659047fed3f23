"""What is refused at once: what the devices of a driver contradict, and nothing that more of such
devices, other drivers or unknown devices could satisfy (decision 0041)."""

from collections.abc import Iterable
from typing import Any

import pytest

from fettle.api.resource import Device
from fettle.lint import Linter
from fettle.lint.findings import Finding, Severity
from fettle.lint.manifests import Manifest
from fettle.lint.names import misspelt
from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.clusters import InProcess, lint, view_of
from tests.fettle.lint.fleets import GPU, MIG, gpu
from tests.fettle.lint.tables.case import FLEET, claim, device, exactly

CONTRADICTED: dict[str, dict[str, Any]] = {
    "a domain that no device has": {"selectors": ['device.attributes["gpu.amd.com"].index == 1']},
    "an attribute that no device has": {"selectors": [device('model == "H100"')]},
    "an attribute that is misspelt": {"selectors": [device('productname == "NVIDIA H100"')]},
    "a value of another type": {"selectors": [device('index == "3"')]},
    "an order of another type": {"selectors": [device('driverVersion > "550"')]},
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


# --- the selectors of a DeviceClass


def of_driver(*selectors: str) -> Object:
    return api.device_class("c", selectors=[f'device.driver == "{GPU}"', *selectors])


EXPRESSIONS = [
    *(one["selectors"][0] for one in CONTRADICTED.values() if "selectors" in one),
    device("productName in [100, 200]"),
    '"550.54.15" == ' + device("driverVersion"),
    device('index == "3" || ') + device('productName == "B200"'),
    device('driverVersion.compareTo(semver("550.1.2")) >= 0'),
    f"has({device('fabric')}) && {device('fabric')} == 'x'",
    device("index == 1"),
    device("index == 99"),
    'device.attributes["gpu.nvidia.co"].index == 1',
    '"gpu.amd.com" in device.attributes ? device.attributes["gpu.amd.com"].index == 1 : true',
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
async def test_an_expression_has_the_same_findings_in_a_class_and_in_a_claim(
    expression: str,
) -> None:
    def told(found: list[Finding]) -> set[tuple[str, Severity, str, str, bool]]:
        judged = ("FTL005", "FTL006", "FTL007")
        return {
            (f.rule, f.severity, f.message, f.fix, f.possible) for f in found if f.rule in judged
        }

    in_claim = await lint(claim(exactly(selectors=[expression])), FLEET)
    in_class = await lint(of_driver(expression), FLEET)
    assert told(in_class) == told(in_claim)
    in_one = await lint(
        api.device_class("c", selectors=[f'device.driver == "{GPU}" && ({expression})']), FLEET
    )
    assert {f.rule for f in in_one if f.severity is Severity.DENY} == {
        f.rule for f in in_class if f.severity is Severity.DENY
    }


class AsInTheWorker(InProcess):
    """Knows which driver an expression asks for once it was evaluated."""

    def __init__(self) -> None:
        self._evaluated: set[str] = set()

    def driver(self, expression: str) -> str | None:
        return super().driver(expression) if expression in self._evaluated else None

    async def evaluate(
        self, expressions: Iterable[str], devices: Iterable[tuple[str, Device]]
    ) -> None:
        self._evaluated.update(expressions)


async def test_a_new_class_is_judged_at_once_though_its_driver_is_known_only_afterwards() -> None:
    linter = Linter(evaluator=AsInTheWorker(), survey_wait_s=10)
    written = Manifest(of_driver(device('model == "x"')), "default")
    (found,) = await linter.lint(written, view_of(FLEET))
    assert (found.rule, found.severity) == ("FTL005", Severity.DENY)


async def test_a_class_with_a_misspelt_value_is_denied_and_a_claim_that_names_it_is_not() -> None:
    """The class is another one's to correct."""
    misspelt_class = of_driver(device('productName == "nvidia h100"'))
    assert await denied(misspelt_class) == {"FTL003"}
    assert await denied(claim(exactly(device_class="c")), (*FLEET, misspelt_class)) == set()


async def test_a_class_for_a_kind_of_devices_that_may_come_is_only_warned_of() -> None:
    """As a claim of a class without devices is."""
    mig = device('type == "mig"')
    for expression in (device('index == "3"'), device('productname == "x"')):
        assert await denied(of_driver(expression))
        assert await denied(of_driver(f"{mig} && {expression}")) == set()
        assert await warned(of_driver(f"{mig} && {expression}"))


async def test_a_class_is_not_judged_before_its_driver_publishes_devices() -> None:
    later = [
        api.device_class("c", driver="later.example.com"),
        api.device_class(
            "c",
            selectors=[
                'device.driver == "later.example.com" && '
                'device.attributes["later.example.com"].model == "x"'
            ],
        ),
    ]
    for one in later:
        assert await denied(one) == set()
        assert await warned(one) == {"FTL003"}


async def test_a_class_that_fails_on_its_own_driver_is_not_told_to_ask_for_it() -> None:
    assert await denied(of_driver(device('model == "x"'))) == {"FTL005"}
    assert await warned(of_driver(device('model == "x"'))) == set()
    unguarded = api.device_class("c", selectors=[device('productName == "NVIDIA H100"')])
    assert await warned(unguarded) == {"FTL008"}
