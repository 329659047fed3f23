"""Valid configurations, samples and workloads are never denied."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fettle.api import objects_of_yaml
from fettle.lint.drivers import Drivers
from fettle.lint.findings import Finding, Severity
from fettle.lint.manifests import Manifest
from fettle.lint.structure import mistakes_in_structure
from fettle.model import Validation
from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.clusters import lint
from tests.fettle.lint.tables.case import FLEET, claim, exactly, opaque, template
from tests.fettle.lint.test_drivers import ALL_ON, VALID, VERSIONS
from tests.webhook.mutants import SOUND

SAMPLES = sorted((Path(__file__).parents[3] / "deploy" / "samples").glob("*.yaml"))


def corpus() -> Iterator[Object]:
    """Claims, templates and classes with each valid configuration; the samples; workloads, which
    have only what the webhook reads, and fields of the future."""
    for driver, kind, parameters in VALID:
        config = {"apiVersion": VERSIONS[driver], "kind": kind, **parameters}
        yield claim(exactly(), config=[opaque(driver, config)])
        yield template(exactly(), config=[opaque(driver, config)])
        yield {**api.device_class("c"), "spec": {"config": [opaque(driver, config)]}}
    for sample in SAMPLES:
        yield from (found.value for found in objects_of_yaml(sample.read_bytes()))
    yield from SOUND


async def denials(object: Object, levels: Validation) -> list[Finding]:
    found = await lint(object, FLEET, levels=levels, drivers=Drivers(features=ALL_ON))
    found += [] if object in SOUND else mistakes_in_structure(Manifest(object))
    return [finding for finding in found if finding.severity is Severity.DENY]


async def test_no_valid_object_is_denied(capsys: pytest.CaptureFixture[str]) -> None:
    checked, denied = 0, []
    for object in corpus():
        checked += 1
        denied += await denials(object, Validation())
    assert denied == []
    assert checked > 100
    with capsys.disabled():
        print(f"\nlint: {len(denied)} false denials of {checked} objects")


async def test_in_strict_mode_only_the_inventory_denies() -> None:
    """The fleet of these tests has no device for most of them."""
    strict = Validation(strict=True)
    found = [finding for object in corpus() for finding in await denials(object, strict)]
    assert {finding.rule for finding in found} <= {"FTL001", "FTL002", "FTL004", "FTL059"}
