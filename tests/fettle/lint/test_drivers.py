"""Opaque configurations: what the drivers accept passes, what they refuse is found."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fettle.lint import drivers
from fettle.lint.drivers import Drivers, read_driver, shipped
from fettle.lint.findings import Severity
from fettle.lint.manifests import Field
from fettle.lint.schemas import Schema
from fettle.model import SettingsError
from tests.fettle.lint.clusters import lint
from tests.fettle.lint.tables.case import FLEET, claim, exactly, opaque

GPU, DOMAIN = "gpu.nvidia.com", "compute-domain.nvidia.com"
EXAMPLE, NET = "gpu.example.com", "net.example.com"
ALL_ON = {GPU: {"TimeSlicingSettings": True, "MPSSupport": True, "PassthroughSupport": True}}
VERSIONS = {name: driver.api_versions[0] for name, driver in shipped().items()}


def sharing(strategy: str, **more: Any) -> dict[str, Any]:
    return {"sharing": {"strategy": strategy, **more}}


def slicing(interval: str) -> dict[str, Any]:
    return sharing("TimeSlicing", timeSlicingConfig={"interval": interval})


def mps(**config: Any) -> dict[str, Any]:
    return sharing("MPS", mpsConfig=config)


VALID: list[tuple[str, str, dict[str, Any]]] = [
    (GPU, "GpuConfig", {}),
    (GPU, "GpuConfig", sharing("TimeSlicing")),
    *((GPU, "GpuConfig", slicing(i)) for i in ("Default", "Short", "Medium", "Long")),
    (GPU, "GpuConfig", sharing("MPS")),
    (GPU, "GpuConfig", mps()),
    (GPU, "GpuConfig", mps(defaultActiveThreadPercentage=0)),
    (GPU, "GpuConfig", mps(multiUser=True)),
    (GPU, "GpuConfig", mps(defaultActiveThreadPercentage=100)),
    (GPU, "GpuConfig", mps(defaultPinnedDeviceMemoryLimit="1Mi")),
    (GPU, "GpuConfig", mps(defaultPinnedDeviceMemoryLimit="10Gi")),
    (GPU, "GpuConfig", mps(defaultPinnedDeviceMemoryLimit=2**30)),
    (GPU, "GpuConfig", mps(defaultPerDevicePinnedMemoryLimit={"0": "10Gi", "7": "1.5Gi"})),
    (
        GPU,
        "GpuConfig",
        mps(
            defaultPerDevicePinnedMemoryLimit={
                "GPU-18a3e86f-4c0e-cd9f-59c3-55488c4b0c24": "10Gi",
                "MIG-e6818e31-4a3b-5b5a-9f0f-e8b6a5a3f6b0": "5G",
            }
        ),
    ),
    (GPU, "GpuConfig", {"sharing": None}),
    (GPU, "MigDeviceConfig", {}),
    (GPU, "MigDeviceConfig", sharing("TimeSlicing")),
    (GPU, "MigDeviceConfig", mps(defaultActiveThreadPercentage=50)),
    (GPU, "VfioDeviceConfig", {}),
    (GPU, "VfioDeviceConfig", {"iommu": {}}),
    (GPU, "VfioDeviceConfig", {"iommu": {"backendPolicy": "LegacyOnly"}}),
    (
        GPU,
        "VfioDeviceConfig",
        {"iommu": {"backendPolicy": "PreferIommuFD", "enableAPIDevice": True}},
    ),
    (DOMAIN, "ComputeDomainChannelConfig", {"domainID": "8d5f5e9c-7f4b-4b0e-a1b2-3c4d5e6f7a8b"}),
    (DOMAIN, "ComputeDomainChannelConfig", {"domainID": "d", "allocationMode": "All"}),
    (DOMAIN, "ComputeDomainChannelConfig", {"domainID": "d", "allocationMode": "Single"}),
    (DOMAIN, "ComputeDomainDaemonConfig", {"domainID": "d"}),
    (EXAMPLE, "GpuConfig", slicing("Default")),
    (EXAMPLE, "GpuConfig", sharing("TimeSlicing")),
    (EXAMPLE, "GpuConfig", sharing("SpacePartitioning")),
    (
        EXAMPLE,
        "GpuConfig",
        sharing("SpacePartitioning", spacePartitioningConfig={"partitionCount": 10}),
    ),
    (EXAMPLE, "GpuConfig", {"mode": "passthrough"}),
    (NET, "NetConfig", {}),
    (NET, "NetConfig", {"bwBurst": {"ingressBurst": 0, "egressBurst": 10**9}}),
]
INVALID: list[tuple[str, str, dict[str, Any], str]] = [
    (GPU, "GpuConfg", {}, "does not know"),
    (GPU, "", {}, "must have kind: gpu.nvidia.com knows"),
    (GPU, "GpuConfig", {"sharin": {}}, "unknown field"),
    (GPU, "GpuConfig", {"sharing": {}}, "strategy: is required"),
    (GPU, "GpuConfig", {"sharing": []}, "must be of type object"),
    (GPU, "GpuConfig", sharing("Fabric"), "must be one of TimeSlicing, MPS"),
    (GPU, "GpuConfig", sharing("timeslicing"), "must be one of"),
    (GPU, "GpuConfig", slicing("Longest"), "must be one of Default"),
    (GPU, "GpuConfig", sharing("TimeSlicing", timeSlicingConfig={}), "interval: is required"),
    (GPU, "GpuConfig", sharing("TimeSlicing", mpsConfig={}), "cannot be used with strategy"),
    (GPU, "GpuConfig", sharing("MPS", timeSlicingConfig={"interval": "Long"}), "cannot be used"),
    (GPU, "GpuConfig", mps(multiUser="yes"), "must be of type boolean"),
    (GPU, "GpuConfig", mps(defaultActiveThreadPercentage=101), "at most 100"),
    (GPU, "GpuConfig", mps(defaultActiveThreadPercentage=-1), "at least 0"),
    (GPU, "GpuConfig", mps(defaultActiveThreadPercentage="50"), "must be of type integer"),
    (GPU, "GpuConfig", mps(defaultPinnedDeviceMemoryLimit="1Ki"), "less than 1Mi"),
    (GPU, "GpuConfig", mps(defaultPinnedDeviceMemoryLimit="lots"), "is not a quantity"),
    (GPU, "GpuConfig", mps(defaultPerDevicePinnedMemoryLimit={"first": "1Gi"}), "neither an index"),
    (GPU, "MigDeviceConfig", slicing("Long"), "unknown field"),
    (GPU, "VfioDeviceConfig", {"iommu": {"backendPolicy": "Always"}}, "must be one of"),
    (DOMAIN, "ComputeDomainChannelConfig", {}, "domainID: is required"),
    (DOMAIN, "ComputeDomainChannelConfig", {"domainID": ""}, "does not match"),
    (DOMAIN, "ComputeDomainDaemonConfig", {"domainID": "../up"}, "does not match"),
    (EXAMPLE, "GpuConfig", {}, "sharing: is required"),
    (EXAMPLE, "GpuConfig", sharing("MPS"), "must be one of TimeSlicing, SpacePartitioning"),
    (
        EXAMPLE,
        "GpuConfig",
        sharing("SpacePartitioning", spacePartitioningConfig={"partitionCount": -1}),
        "at least 0",
    ),
    (NET, "NetConfig", {"bwBurst": {"ingressBurst": 2**35}}, "at most"),
]


def problems(driver: str, kind: str, config: dict[str, Any]) -> list[str]:
    parameters = Field("p", {"apiVersion": VERSIONS[driver], "kind": kind, **config})
    known = shipped()[driver]
    judged = Drivers(features=ALL_ON).validate(known, parameters)
    assert judged.missing == ()
    return [f"{problem.field.path}: {problem.message}" for problem in judged.problems]


@pytest.mark.parametrize(("driver", "kind", "config"), VALID)
def test_what_the_driver_accepts_passes(driver: str, kind: str, config: dict[str, Any]) -> None:
    assert problems(driver, kind, config) == []


@pytest.mark.parametrize(("driver", "kind", "config", "says"), INVALID)
def test_what_the_driver_refuses_is_found(
    driver: str, kind: str, config: dict[str, Any], says: str
) -> None:
    found = problems(driver, kind, config)
    assert any(says in problem for problem in found), found


@pytest.mark.parametrize(
    ("api_version", "kind", "denies"),
    [
        ("resource.nvidia.com/v1", "GpuConfig", False),
        ("resource.nvidia.com/v1beta1", "FabricConfig", False),
        ("resource.nvidia.com/v1beta1", "GpuConfg", True),
        ("resource.nvidia.co/v1beta1", "GpuConfig", True),
        ("resource.nvidia.com/v1beta1", "", True),
    ],
)
def test_a_version_or_kind_that_a_newer_driver_may_have_is_not_denied(
    api_version: str, kind: str, denies: bool
) -> None:
    parameters = Field("p", {"apiVersion": api_version, "kind": kind})
    (problem,) = Drivers().validate(shipped()[GPU], parameters).problems
    assert problem.denies is denies


def test_a_field_that_a_newer_driver_may_have_does_not_hide_a_wrong_value() -> None:
    config = mps(multiUsers=True, defaultPinnedDeviceMemoryLimit="lots")
    parameters = Field("p", {"apiVersion": VERSIONS[GPU], "kind": "GpuConfig", **config})
    found = Drivers().validate(shipped()[GPU], parameters).problems
    assert [(problem.denies, problem.message) for problem in found] == [
        (
            False,
            "unknown field (known: defaultActiveThreadPercentage, defaultPinnedDeviceMemoryLimit, "
            "defaultPerDevicePinnedMemoryLimit, multiUser): only a driver newer than this schema "
            "accepts it; did you mean multiUser?",
        ),
        (True, "'lots' is not a quantity"),
    ]


def test_an_operator_adds_drivers_and_replaces_shipped_ones() -> None:
    content = b"""{"driver": "tpu.example.com", "apiVersions": ["tpu.example.com/v1"],
        "kinds": [{"kind": "TpuConfig", "schema": {"type": "object", "required": ["mesh"],
            "properties": {"mesh": {"type": "array", "items": {"type": "integer"}}},
            "additionalProperties": false}}]}"""
    given = Drivers({"tpu.example.com": read_driver(content, "tpu.json")})
    known = given.get("tpu.example.com")
    assert known is not None
    for mesh, wrong in (([2, 2], []), ([2, "2"], ["p.mesh[1]"])):
        parameters = Field(
            "p", {"apiVersion": "tpu.example.com/v1", "kind": "TpuConfig", "mesh": mesh}
        )
        found = given.validate(known, parameters).problems
        assert [problem.field.path for problem in found] == wrong


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "driver schema x.json"),
        (b'{"driver": "d"}', "apiVersions"),
        (b'{"driver": "d", "apiVersions": [], "kinds": [], "exec": "rm"}', "exec"),
        (
            b'{"driver": "d", "apiVersions": [], "kinds": '
            b'[{"kind": "K", "schema": {"oneOf": []}}]}',
            "oneOf, which is not supported",
        ),
        (
            b'{"driver": "d", "apiVersions": [], "kinds": [{"kind": "K", "schema": '
            b'{"type": "string", "pattern": "("}}]}',
            "not a valid regular expression",
        ),
    ],
)
def test_a_wrong_driver_file_is_refused_with_its_name_and_reason(content: bytes, says: str) -> None:
    with pytest.raises(SettingsError, match=r"driver schema x\.json") as refusal:
        read_driver(content, "x.json")
    assert says in str(refusal.value)


def test_a_schema_never_takes_a_truth_value_for_a_number() -> None:
    schema = Schema({"type": "integer", "minimum": 0})
    assert [p.message for p in schema.problems(Field("x", True))] == [
        "must be of type integer, not True"
    ]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with checks of its own for two drivers, one of which cannot be imported."""
    information = tmp_path / "acme-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[fettle.drivers]\nnet.example.com = acme_checks:check\n"
        "gpu.example.com = acme_checks:nosuch\n"
    )
    (tmp_path / "acme_checks.py").write_text(
        "from fettle.lint.schemas import Problem\n"
        "def check(kind, parameters):\n"
        "    if parameters.raw('bwBurst').get('egressBurst') == 13:\n"
        "        raise ZeroDivisionError\n"
        "    if parameters.raw('bwBurst'):\n"
        "        yield Problem(parameters.at('bwBurst'), 'not on Fridays')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    drivers.validators.cache_clear()
    yield
    drivers.validators.cache_clear()


@pytest.mark.usefixtures("installed")
def test_an_installed_package_checks_what_a_schema_cannot() -> None:
    assert problems(NET, "NetConfig", {}) == []
    burst = {"bwBurst": {"ingressBurst": 1}}
    assert problems(NET, "NetConfig", burst) == ["p.bwBurst: not on Fridays"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("driver", "kind", "config"),
    [
        (NET, "NetConfig", {"bwBurst": {"egressBurst": 13}}),
        (EXAMPLE, "GpuConfig", sharing("TimeSlicing")),
    ],
    ids=["a check that fails", "a check that cannot be imported"],
)
async def test_a_validator_that_fails_leaves_the_configuration_undecided(
    driver: str, kind: str, config: dict[str, Any]
) -> None:
    parameters = {"apiVersion": VERSIONS[driver], "kind": kind, **config}
    found = await lint(claim(exactly(), config=[opaque(driver, parameters)]), FLEET)
    assert ("FTL019", Severity.UNDECIDED) in [(f.rule, f.severity) for f in found]
