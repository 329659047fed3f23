"""Findings hold for the view they were found in; settings that name nothing known are refused."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from fettle.config import Settings, load_settings
from fettle.lint.checks import remarks_on_policies
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.linter import Linter, check_settings
from fettle.lint.manifests import Manifest
from fettle.model import SettingsError, Validation
from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.clusters import lint, view_of
from tests.fettle.lint.fleets import GPU, fleet
from tests.fettle.lint.tables.case import FLEET, claim, device, exactly, first, option


class Thorough(Rule):
    """Finds a class that is missing, and takes its time to say so."""

    id = "FTL999"
    name = "thorough"
    severity = Severity.WARN
    today = "It is missing."

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.is_done = False

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding | None]:
        if cluster.device_class(GPU) is None:
            self.began.set()
            while not self.is_done:
                yield None
            yield self.finding(manifest.root, "the class is missing")


async def test_findings_about_an_older_view_are_not_cached_for_a_newer_one() -> None:
    rule = Thorough()
    linter = Linter([rule])
    without, with_class = view_of([api.node("n")]), view_of([api.device_class(GPU)])
    asking, asking_for_two = Manifest(claim(exactly())), Manifest(claim(exactly(count=2)))
    slow = asyncio.create_task(linter.lint(asking, without))
    await rule.began.wait()
    assert await linter.lint(asking_for_two, with_class) == []
    rule.is_done = True
    assert len(await slow) == 1
    assert await linter.lint(asking, with_class) == []


async def test_a_class_that_cannot_be_read_is_not_called_absent() -> None:
    linter, asking = Linter(), Manifest(claim(exactly()))
    without = view_of([api.node("n")])
    unread = replace(without, quarantined={f"DeviceClass {GPU}": "it cannot be read"})
    assert [f.rule for f in await linter.lint(asking, without)] == ["FTL001"]
    assert await linter.lint(asking, unread) == []


NONE = device('productName == "B200"')
WAITING = api.resource_slice("gpu-c", 1, driver=GPU, slices=2)


async def undecided(object: Object, known: Sequence[Object]) -> list[str]:
    found = await lint(object, known)
    return [f"{f.rule} {f.message}" for f in found if f.severity is Severity.UNDECIDED]


async def test_the_reason_why_a_match_is_undecided_is_reported() -> None:
    known = (*FLEET, api.node("gpu-c"), WAITING)
    why = f"FTL004 pool {GPU}/gpu-c is incomplete: 1 of 2 slices"
    assert await undecided(claim(exactly(selectors=[NONE])), known) == [why]
    assert await undecided(claim(first("gpu", option("a", selectors=[NONE]))), known) == [why]
    of_class = api.device_class("b200", driver=GPU, selectors=["device.driver == 'gone'", NONE])
    assert await undecided(of_class, known) == []
    of_class = api.device_class("b200", selectors=[f"device.driver == '{GPU}'", NONE])
    assert await undecided(of_class, known) == [why.replace("004", "003")]


async def test_an_incomplete_pool_of_another_driver_leaves_nothing_undecided() -> None:
    known = (*FLEET, api.resource_slice("gpu-a", 1, driver="net.example.com", slices=2))
    found = await lint(claim(exactly(selectors=[NONE])), known)
    assert [(f.rule, f.severity) for f in found] == [("FTL004", Severity.WARN)]


async def test_nothing_is_undecided_if_something_matches() -> None:
    known = (*FLEET, api.node("gpu-c"), WAITING)
    assert await undecided(claim(exactly()), known) == []
    either = first("gpu", option("a", selectors=[NONE]), option("b"))
    assert await undecided(claim(either), known) == []


async def test_three_of_many_reasons_are_reported() -> None:
    many = [
        each
        for n in range(5)
        for each in (api.node(f"c{n}"), api.resource_slice(f"c{n}", 1, driver=GPU, slices=2))
    ]
    (why,) = await undecided(claim(exactly(selectors=[NONE])), [*fleet(), *many])
    assert why.endswith("; and 2 more like these")
    assert why.count("is incomplete: 1 of 2 slices") == 3


async def test_a_device_that_fails_every_claim_is_reported_and_denies_none() -> None:
    empty = {"name": "gpu-0", "attributes": {"model": {}}}
    broken = api.resource_slice("gpu-c", [empty], driver="nic.example.com")
    known = (*FLEET, api.node("gpu-c"), broken)
    found = await lint(claim(exactly()), known, levels=Validation(strict=True))
    assert [(f.rule, f.severity) for f in found] == [("FTL005", Severity.WARN)]
    assert "1 of 8 devices fail whatever is asked of them" in found[0].message
    assert "nic.example.com/gpu-c/gpu-0: attribute model has no value" in found[0].message
    guarded = api.device_class("other", selectors=["device.driver == 'nic.example.com'"])
    assert not [f for f in await lint(guarded, known) if f.rule == "FTL008"]


async def test_only_a_class_selector_that_does_not_compile_is_reported() -> None:
    """The API server takes neither; one of a class may be there from a time when it compiled."""
    of_class = (*FLEET, api.device_class("broken", selectors=["device.nosuch"]))
    (found,) = await lint(claim(exactly(device_class="broken")), of_class)
    assert (found.rule, found.fix) == ("FTL005", "correct the selector of the class")
    assert "it does not compile" in found.message
    assert await lint(claim(exactly(selectors=["device.nosuch"])), FLEET) == []


OWN = """{"driver": "own.example.com", "apiVersions": ["own.example.com/v1"],
 "features": {"Turbo": false}, "kinds": []}"""


def settings(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    return load_settings(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lint: {rules: {FTL999: Deny}}", "lint.rules: unknown rule 'FTL999'"),
        (
            "policies: [{name: a}, {name: b, validation: {rules: {FTL999: Deny}}}]",
            "policies[1].validation.rules: unknown rule 'FTL999'",
        ),
        (
            "lint: {driverFeatures: {gpu.nvidia.com: {TimeSlicingSetings: true}}}",
            "lint.driverFeatures.gpu.nvidia.com: nothing in its configurations needs the feature "
            "'TimeSlicingSetings'; known: DynamicMIG, MPSSupport, PassthroughSupport, "
            "TimeSlicingSettings",
        ),
        ("lint: {driverFeatures: {gpu.nvidia.con: {}}}", "the driver 'gpu.nvidia.con'"),
        (
            "lint: {disabledFeatures: [Nonsense]}",
            "'Nonsense'; known: DRAPrioritizedList, DRADeviceTaints",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_its_field(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError) as error:
        check_settings(settings(tmp_path, text))
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", ""),
        ("policies: [{name: a, placement: {minScore: 0.79, degraded: Prefer}}]", ""),
        ("policies: [{name: a, placement: {minScore: 0.95, degraded: Allow}}]", ""),
        (
            "policies: [{name: a, placement: {minScore: 0.95, degraded: Prefer}}]",
            "policy a: placement.minScore: 0.95 refuses every device that becomes Degraded",
        ),
        (
            "health: {unhealthyBelow: 0.1, unhealthyUntil: 0.2, degradedBelow: 0.3}",
            "policy scavenger",
        ),
        ("policies: [{name: a, failure: {onDeviceFailure: Evict}}]", "(FTL107)"),
        (
            "policies: [{name: a, failure: {ignoreDisruptions: true, startDeadline: 0s}}]",
            "(FTL118)",
        ),
        ("policies: [{name: a, failure: {restartAction: RestartAllContainers}}]", "(FTL111)"),
        ("policies: [{name: a, placement: {affinity: Required}}]", "set nodeMarks.label"),
        (
            "policies: [{name: a, placement: {affinity: Required}}]\nnodeMarks: {label: true}",
            "",
        ),
    ],
)
def test_what_a_policy_of_the_settings_says_in_vain_is_remarked(
    tmp_path: Path, text: str, says: str
) -> None:
    remarks = remarks_on_policies(settings(tmp_path, text))
    assert len(remarks) == bool(says)
    assert all(says in remark for remark in remarks)


def test_known_names_pass(tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "own.json").write_text(OWN)
    check_settings(
        settings(
            tmp_path,
            "lint:\n"
            "  rules: {FTL010: Warn}\n"
            f"  driverSchemas: {schemas}\n"
            "  driverFeatures:\n"
            "    gpu.nvidia.com: {MPSSupport: true}\n"
            "    own.example.com: {Turbo: true}\n"
            "  disabledFeatures: [DRADeviceTaints]\n",
        )
    )
    check_settings(Settings())
