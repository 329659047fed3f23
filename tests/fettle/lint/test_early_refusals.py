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


ASKED = f'device.driver == "{GPU}"'


def hopper(index: int) -> Object:
    made = gpu(index, "H100 80GB HBM3")
    made["attributes"]["architecture"] = {"string": "Hopper"}
    return made


def mig(index: int, profile: str) -> Object:
    made = api.device(f"mig-{index}", {"type": "mig", "profile": profile, "uuid": f"MIG-{index}"})
    return {**made, "capacity": {"memory": {"value": "10Gi"}}}


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
        {"capacity": {"requests": {"shares": "1"}}},
        {"selectors": [device('productName == "B200" || ') + device('model == "x"')]},
        {"selectors": [device("index == 99 || ") + device('driverVersion > "550"')]},
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
        ("Hpoper", "Hopper", True),
        ("asia-southeast1", "asia-northeast1", False),
        ("inbound", "outbound", False),
        ("worker", "workers", False),
        ("tuning", "Turing", False),
    ],
)
def test_a_value_is_misspelt_only_if_it_can_hardly_be_another_one(
    value: str, shown: str, meant: bool
) -> None:
    assert misspelt(value, {shown, "x"}) == (shown if meant else "")


PRODUCTS = """
NVIDIA A100-PCIE-40GB, NVIDIA A100 80GB PCIe, NVIDIA A100-SXM4-40GB, NVIDIA A100-SXM4-80GB, NVIDIA
A100X, NVIDIA A10, NVIDIA A10G, NVIDIA A16, NVIDIA A2, NVIDIA A30, NVIDIA A40, NVIDIA B200, NVIDIA
B300 SXM6 AC, NVIDIA GB200, NVIDIA GB300, NVIDIA GH200 120GB, NVIDIA GH200 480GB, NVIDIA GH200
144G HBM3e, NVIDIA H100 80GB HBM2e, NVIDIA H100 80GB HBM3, NVIDIA H100 NVL, NVIDIA H100 PCIe,
NVIDIA H20, NVIDIA H20-3e, NVIDIA H200, NVIDIA H200 141GB HBM3e, NVIDIA H200 NVL, NVIDIA H800,
NVIDIA L20, NVIDIA L4, NVIDIA L40, NVIDIA L40S, NVIDIA GeForce RTX 3090, NVIDIA GeForce RTX 3090
Ti, NVIDIA GeForce RTX 4080 SUPER, NVIDIA GeForce RTX 4080, NVIDIA RTX 5000 Ada Generation, NVIDIA
RTX 6000 Ada Generation, NVIDIA RTX A5000, NVIDIA RTX A6000, NVIDIA RTX PRO 6000 Blackwell Server
Edition, NVIDIA RTX PRO 6000 Blackwell Workstation Edition, NVIDIA RTX PRO 6000 Blackwell Max-Q
Workstation Edition, Quadro RTX 6000, Tesla T4, Tesla P4, Tesla P40, Tesla P100-PCIE-12GB, Tesla
P100-PCIE-16GB, Tesla P100-SXM2-16GB, Tesla V100-PCIE-16GB, Tesla V100-PCIE-32GB, Tesla
V100-SXM2-16GB, Tesla V100-SXM2-32GB, Tesla V100-SXM3-32GB, GRID A100D-40C, AMD Instinct MI210,
AMD Instinct MI250, AMD Instinct MI250X, AMD Instinct MI300A, AMD Instinct MI300X, AMD Instinct
MI308X, AMD Instinct MI325X, AMD Instinct MI350X, AMD Instinct MI355X, Intel Data Center GPU Flex
140, Intel Data Center GPU Flex 170, Intel Data Center GPU Max 1100, Intel Data Center GPU Max
1550, Intel Arc A770, Intel Arc B580, gaudi, gaudi2, gaudi3
"""
OTHERS = """
Ada Lovelace, Ampere, Blackwell, Hopper, Kepler, Maxwell, Pascal, Turing, Volta, Rubin, CDNA2,
CDNA3, RDNA3, 1g.5gb, 1g.5gb+me, 1g.10gb, 1g.10gb+me, 1g.20gb, 1g.12gb, 2g.10gb, 2g.20gb, 3g.20gb,
3g.40gb, 4g.20gb, 4g.40gb, 7g.40gb, 7g.80gb, 1c.3g.20gb, 1g.24gb+gfx, 1g.24gb+me.all, 1g.24gb-me,
gpu, mig, vfio, vgpu, imex, spx_nps1, cpx_nps1, cpx_nps4, dpx_nps1, qpx_nps1, gfx90a, gfx942,
gfx950, gfx1100, v5e, v5p, v6e, v5litepod, tpu-v5-lite-podslice, tpu-v5-lite-device,
tpu-v5p-slice, tpu-v6e-slice, trn1, trn2, inf2, mlx5_0, mlx5_1, ConnectX-6 Dx, ConnectX-6 Lx,
ConnectX-7, ConnectX-8, BlueField-2, BlueField-3, eth0, eth1, ib0, ens1f0, ens1f1, us-central1-a,
us-central1-b, us-east-1, us-east-2, us-west-1, ap-northeast-1, ap-southeast-1, europe-west4,
asia-northeast1, asia-southeast1, asia-northeast2, southcentralus, northcentralus, eastus, westus,
eastus2, infiniband, ethernet, roce, rdma, primary, secondary, physical, virtual, enabled,
disabled, healthy, unhealthy, compute, computes, graphics, training, draining, inference,
interference, trunk, access, active, inactive
"""


@pytest.mark.parametrize("values", [PRODUCTS, OTHERS], ids=["products", "others"])
def test_no_value_of_a_real_device_is_taken_for_a_misspelling_of_another(values: str) -> None:
    real = [value.strip() for value in values.replace("\n", " ").split(",")]
    taken = [(one, near) for one in real if (near := misspelt(one, {*real} - {one}))]
    assert taken == []


async def test_a_value_that_a_device_shows_is_no_misspelling() -> None:
    """Here `Hopper` is shown, and a product that may come is not."""
    known = [
        api.node("n"),
        api.resource_slice("n", [hopper(i) for i in range(8)], driver=GPU),
        api.device_class(GPU, driver=GPU),
        api.device_class("a100", selectors=[ASKED, device('productName == "NVIDIA A100"')]),
    ]
    wanted = [
        f"{device('architecture')} == 'Hopper'",
        f"{device('productName')} == 'NVIDIA H200 141GB HBM3e'",
    ]
    for selectors in (wanted, [" && ".join(wanted)]):
        assert await denied(claim(exactly(selectors=selectors)), known) == set()
        assert await warned(claim(exactly(selectors=selectors)), known) == {"FTL004"}
        assert await denied(of_driver(*selectors), known) == set()


async def test_a_value_that_only_devices_of_another_class_show_is_no_misspelling() -> None:
    large = [gpu(i) for i in range(4)]
    for index, one in enumerate(large):
        one["attributes"]["fabric"] = {"string": "Clos-east" if index < 2 else "Clos East"}
        one["attributes"]["type"] = {"string": "gpu" if index < 2 else "mig"}
    known = [
        api.node("n"),
        api.resource_slice("n", large, driver=GPU),
        api.device_class("whole", selectors=[ASKED, device('type == "gpu"')]),
    ]
    wanted = claim(exactly(device_class="whole", selectors=[device('fabric == "Clos East"')]))
    assert await denied(wanted, known) == set()


async def test_a_misspelt_value_beside_one_that_no_device_shows_is_only_warned_of() -> None:
    """Devices of such another kind may spell their product as they like."""
    wanted = [device('productName == "nvidia h100"'), device('type == "vgpu"')]
    assert await denied(claim(exactly(selectors=wanted))) == set()
    assert await denied(claim(exactly(selectors=wanted[:1])))


NICS = "nic.example.com"


async def test_of_a_driver_whose_attributes_are_not_known_any_may_come_but_a_misspelling() -> None:
    """Drivers of network cards publish what an administrator names, and what a cloud knows."""
    nic = api.device("eth0", {f"{NICS}/rdma": True, f"{NICS}/linkSpeed": 400})
    known = [
        api.node("n"),
        api.resource_slice("n", [nic], driver=NICS),
        api.device_class(NICS, driver=NICS),
    ]

    def asking(place: str) -> Object:
        expression = f"device.attributes{place} == 'x'"
        return claim(exactly(device_class=NICS, selectors=[expression]))

    for place in (f'["{NICS}"].network', '["cni.example.org"].resource', f'["gce.{NICS}"].block'):
        assert await denied(asking(place), known) == set()
        assert await warned(asking(place), known)
    for place in (f'["{NICS}"].linkspeed', f'["{NICS}/rdma"].bool', '["nic.example.co"].rdma'):
        assert await denied(asking(place), known) == {"FTL005", "FTL007"}
    together = [{"matchAttribute": f"{NICS}/network"}]
    wanted = claim(exactly(device_class=NICS, count=2), constraints=together)
    assert await denied(wanted, known) == set()
    assert "FTL013" in await warned(wanted, known)


@pytest.mark.parametrize("cut", ["", "1g.10gb", "1g.5gb"])
async def test_a_class_for_a_mig_profile_that_is_not_cut_yet_is_only_warned_of(cut: str) -> None:
    """As NVIDIA's documentation and examples write it."""
    devices = [gpu(0), gpu(1), *([mig(i, cut) for i in range(4)] if cut else [])]
    known = [api.node("n"), api.resource_slice("n", devices, driver=GPU)]
    profile = device('profile == "1g.20gb"')
    for selectors in (
        [f"{ASKED} && {device('type')} == 'mig' && {profile}"],
        [ASKED, device('type == "mig"'), profile],
    ):
        assert await denied(api.device_class("small", selectors=selectors), known) == set()
        assert await warned(api.device_class("small", selectors=selectors), known) == {"FTL003"}


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
