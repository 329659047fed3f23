"""What `fettle lint` reports besides the rules (`fettle.lint.checks`), for one object."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from fettle.api.resource import Device
from fettle.config import HealthSettings
from fettle.lint import (
    INVALID_EXPRESSION,
    Field,
    Finding,
    Manifest,
    Severity,
    expressions,
    mismatches,
    policies,
)
from fettle.model import Policies, Policy, RuleSeverity, Validation

if TYPE_CHECKING:
    from fettle.scheduling import Engines

_DOES_NOT_COMPILE = "it does not compile"
_ANY_DEVICE = ("driver.example.com", Device(name="device"))


def check(
    manifest: Manifest,
    known: Policies,
    installed: Mapping[str, Policy],
    engines: "Engines | None",
    levels: Validation,
    thresholds: HealthSettings,
) -> Iterator[Finding]:
    """The findings, as severe as `levels` say; without `engines`, which know the expressions, none
    about these."""
    for finding in _found(manifest, known, installed, engines, thresholds):
        level = levels.rules.get(finding.rule)
        if level is None:
            yield finding
        elif level is not RuleSeverity.OFF:
            yield msgspec.structs.replace(finding, severity=Severity(level.value))


def _found(
    manifest: Manifest,
    known: Policies,
    installed: Mapping[str, Policy],
    engines: "Engines | None",
    thresholds: HealthSettings,
) -> Iterator[Finding]:
    yield from mismatches(manifest)
    yield from policies.ignored(manifest, known, installed)
    yield from policies.unknown(manifest)
    yield from policies.invalid(manifest)
    yield from policies.in_vain(manifest, engines, thresholds)
    if engines is None:
        return
    for field in selectors(manifest):
        outcome = engines.devices.outcome(field.value, *_ANY_DEVICE)
        if outcome is not None and outcome.reason.startswith(_DOES_NOT_COMPILE):
            yield INVALID_EXPRESSION.finding(field, outcome.reason)


def selectors(manifest: Manifest) -> Iterator[Field]:
    """The CEL expressions of claims and classes."""
    for option in manifest.options:
        yield from option.selectors
    for spec in manifest.device_classes:
        yield from expressions(spec)


def has_expressions(manifest: Manifest) -> bool:
    return any(True for _ in selectors(manifest)) or bool(policies.requirements(manifest))


async def compile_all(manifests: Iterable[Manifest], engines: "Engines") -> None:
    """Have the engines know all their expressions."""
    manifests = tuple(manifests)
    texts = [field.value for manifest in manifests for field in selectors(manifest)]
    await engines.devices.evaluate(texts, [_ANY_DEVICE])
    for manifest in manifests:
        await engines.evaluate(policies.requirements(manifest))
