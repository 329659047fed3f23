"""What `fettle lint` says beside the rules: what the API server refuses anyway, and what the
webhook warns of when it looks for the policy that applies.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from fettle.errors import BadInput
from fettle.lint import shapes
from fettle.lint.fields import Field
from fettle.lint.findings import Finding, Severity
from fettle.lint.manifests import Manifest, expressions
from fettle.lint.names import nearest
from fettle.lint.surveying import Evaluator
from fettle.policies import Policies, Resolved
from fettle.policy import ANNOTATION, ANNOTATIONS, Policy
from fettle.wire import kinds
from fettle.wire.resource import Device


class Check(NamedTuple):
    """As a rule is described; see `fettle.lint.findings.Rule`."""

    id: str
    name: str
    severity: Severity
    mistake: str
    today: str

    def finding(self, field: Field, message: str, fix: str = "") -> Finding:
        return Finding(
            rule=self.id, severity=self.severity, field=field.path, message=message, fix=fix
        )


IGNORED = Check(
    "FTL101",
    "ignored-policy",
    Severity.WARN,
    "An annotation or label that names no policy, or gives a value that is none.",
    "The pod runs under the next policy that applies; the webhook warns.",
)
INVALID_POLICY = Check(
    "FTL102",
    "invalid-policy",
    Severity.DENY,
    "A DevicePolicy with a value that is not allowed.",
    "The API server refuses it, where the CustomResourceDefinition is up to date.",
)
INVALID_EXPRESSION = Check(
    "FTL103",
    "invalid-expression",
    Severity.DENY,
    "A CEL selector that does not compile.",
    "The API server refuses the object.",
)
CHECKS = (IGNORED, INVALID_POLICY, INVALID_EXPRESSION)

_DOES_NOT_COMPILE = "it does not compile"
_ANY_DEVICE = ("driver.example.com", Device(name="device"))


def check(
    manifest: Manifest,
    policies: Policies,
    installed: Mapping[str, Policy],
    evaluator: Evaluator | None,
) -> Iterator[Finding]:
    """The findings; without an `evaluator`, which knows the expressions, none about these."""
    yield from _ignored(manifest, policies, installed)
    yield from _invalid_policy(manifest)
    if evaluator is None:
        return
    for field in selectors(manifest):
        outcome = evaluator.outcome(field.value, *_ANY_DEVICE)
        if outcome is not None and outcome.reason.startswith(_DOES_NOT_COMPILE):
            yield INVALID_EXPRESSION.finding(field, outcome.reason)


def selectors(manifest: Manifest) -> Iterator[Field]:
    """The CEL expressions of claims and classes."""
    for option in manifest.options:
        yield from option.selectors
    for spec in manifest.device_classes:
        yield from expressions(spec)


async def compile_all(manifests: Iterable[Manifest], evaluator: Evaluator) -> None:
    """Have the evaluator know all their expressions."""
    texts = [field.value for manifest in manifests for field in selectors(manifest)]
    await evaluator.evaluate(texts, [_ANY_DEVICE])


def _ignored(
    manifest: Manifest, policies: Policies, installed: Mapping[str, Policy]
) -> Iterator[Finding]:
    if (manifest.group, manifest.kind) == ("", "Namespace"):
        labels = manifest.root.at("metadata", "labels")
        if (name := labels.strings().get(ANNOTATION)) is not None:
            resolved = policies.resolve(None, {ANNOTATION: name}, installed)
            yield from _told(labels.at(ANNOTATION), resolved, policies.names(installed))
    for annotations in _annotations(manifest):
        given = annotations.strings()
        for key in ANNOTATIONS:
            if key in given:
                resolved = policies.resolve({key: given[key]}, None, installed)
                yield from _told(annotations.at(key), resolved, policies.names(installed))


def _told(field: Field, resolved: Resolved, names: Iterable[str]) -> Iterator[Finding]:
    fix = ""
    for name in resolved.unknown:
        near = nearest(name, names)
        other = "name one that exists, or lint this together with its DevicePolicy"
        fix = f"write {near}" if near else other
    for warning in resolved.warnings:
        yield IGNORED.finding(field, warning.removeprefix("fettle: "), fix)


def _annotations(manifest: Manifest) -> Iterator[Field]:
    """Those of the object, and of what is made from the templates in it."""
    found = {"metadata.annotations": manifest.root.at("metadata", "annotations")}
    for table in (shapes.CLAIM_SPECS, shapes.JOB_SPECS, shapes.POD_SPECS):
        path = table.get((manifest.group, manifest.kind), ())
        if path:
            beside = (*path[:-1], "metadata", "annotations")
            found |= {field.path: field for field in shapes.walk(manifest.root, beside)}
    yield from found.values()


def _invalid_policy(manifest: Manifest) -> Iterator[Finding]:
    if (manifest.api_version, manifest.kind) != (kinds.POLICY.api_version, kinds.POLICY.name):
        return
    try:
        kinds.POLICY.decode(msgspec.json.encode(manifest.object))
    except (BadInput, TypeError, ValueError, OverflowError, RecursionError) as error:
        said = str(error).removeprefix(f"{kinds.POLICY.name}: ")
        yield INVALID_POLICY.finding(manifest.root.at("spec"), said)
