"""What has no effect in DevicePolicies, and in objects that refer to policies."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from fettle.api import DevicePolicy, kinds
from fettle.config import HealthSettings
from fettle.lint import shapes
from fettle.lint.checks import (
    IDS,
    IGNORED,
    IGNORED_REQUIREMENT,
    INVALID_POLICY,
    NO_EFFECT,
    PREFERS_IN_VAIN,
    UNKNOWN_ANNOTATION,
    UNKNOWN_RULE,
)
from fettle.lint.fields import Field
from fettle.lint.findings import Finding
from fettle.lint.manifests import Manifest
from fettle.lint.names import nearest
from fettle.model import (
    ANNOTATION,
    ANNOTATIONS,
    HOLD,
    NO_EFFECT_YET,
    BadInput,
    OnDeviceFailure,
    Policies,
    Policy,
    Requirement,
    Resolved,
    is_unknown,
    prefers_in_vain,
)

if TYPE_CHECKING:
    from fettle.scheduling import Engines


_THRESHOLDS = HealthSettings()


# --- DevicePolicies


def requirements(manifest: Manifest) -> tuple[Requirement, ...]:
    """What a DevicePolicy requires; nothing of another object, or one that cannot be read."""
    policy, _ = _read(manifest)
    return policy.placement.requires if policy is not None else ()


def invalid(manifest: Manifest) -> Iterator[Finding]:
    """What the API server refuses in a DevicePolicy."""
    _, reason = _read(manifest)
    if reason:
        yield INVALID_POLICY.finding(manifest.root.at("spec"), reason)


def in_vain(
    manifest: Manifest, engines: "Engines | None", thresholds: HealthSettings = _THRESHOLDS
) -> Iterator[Finding]:
    """What has no effect in a DevicePolicy and the API server cannot check.

    `engines` have compiled its requirements; without them, these are not judged. `thresholds` say
    from which score on a device is degraded.
    """
    policy, _ = _read(manifest)
    if policy is None:
        return
    rules = manifest.root.at("spec", "validation", "rules")
    for name in unknown_rules(policy):
        near = nearest(name, IDS)
        fix = f"write {near} if that is meant; " if near else ""
        yield UNKNOWN_RULE.finding(
            rules.at(name), f"unknown rule {name}", f"{fix}docs/rules.md lists them"
        )
    if policy.failure.on_device_failure is OnDeviceFailure.EVICT:
        failure = manifest.root.at("spec", "failure", "onDeviceFailure")
        yield NO_EFFECT.finding(failure, f"Evict {NO_EFFECT_YET}")
    below = thresholds.degraded_below
    if vain := prefers_in_vain(policy.placement, below):
        minimum = manifest.root.at("spec", "placement", "minScore")
        yield PREFERS_IN_VAIN.finding(
            minimum, vain, f"write less than {below:g}, or degraded: Allow"
        )
    if engines is None:
        return
    stand = manifest.root.entries("spec", "placement", "requires")
    for field, requirement in zip(stand, policy.placement.requires, strict=True):
        if why := engines.refusal(requirement):
            yield IGNORED_REQUIREMENT.finding(field.at("expression"), why)


def unknown_rules(policy: Policy) -> list[str]:
    """Ids that no rule has."""
    return sorted(policy.validation.rules.keys() - IDS)


def _read(manifest: Manifest) -> tuple[Policy | None, str]:
    """The policy, or why it cannot be read; neither if it is not a DevicePolicy."""
    if (manifest.api_version, manifest.kind) != (kinds.POLICY.api_version, kinds.POLICY.name):
        return None, ""
    try:
        decoded = kinds.POLICY.decode(msgspec.json.encode(manifest.object))
    except (BadInput, TypeError, ValueError, OverflowError, RecursionError) as error:
        return None, str(error)
    assert isinstance(decoded, DevicePolicy)
    return decoded.policy(), ""


# --- what names a policy


def ignored(
    manifest: Manifest, policies: Policies, installed: Mapping[str, Policy]
) -> Iterator[Finding]:
    """Annotations and labels that name no existing policy, have an invalid value, or are where
    the other is read."""
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
    yield from _misplaced(manifest)


UNKNOWN = "Fettle has no such annotation, so it is ignored"


def unknown(manifest: Manifest) -> Iterator[Finding]:
    """Annotations that look like Fettle's and are none."""
    for annotations in _annotations(manifest):
        for key in filter(is_unknown, annotations.strings()):
            yield UNKNOWN_ANNOTATION.finding(annotations.at(key), UNKNOWN, correction(key))


def correction(key: str) -> str:
    """What to write instead of an annotation that there is not."""
    if near := nearest(key, ANNOTATIONS):
        return f"write {near} if that is meant"
    *others, last = ANNOTATIONS
    return f"for this, Fettle reads {', '.join(others)} and {last}"


def _told(field: Field, resolved: Resolved, names: Iterable[str]) -> Iterator[Finding]:
    fix = ""
    for name in resolved.unknown:
        near = nearest(name, names)
        other = "name one that exists, or lint this together with its DevicePolicy"
        fix = f"write {near}" if near else other
    for warning in resolved.warnings:
        yield IGNORED.finding(field, warning.removeprefix("fettle: "), fix)


def _misplaced(manifest: Manifest) -> Iterator[Finding]:
    """Labels where annotations count, and the other way round."""
    of_namespace = (manifest.group, manifest.kind) == ("", "Namespace")
    for metadata in _metadata(manifest):
        labels, annotations = metadata.at("labels"), metadata.at("annotations")
        if of_namespace:
            if ANNOTATION in annotations.strings() and ANNOTATION not in labels.strings():
                why = "a namespace names its policy by a label, so this is ignored"
                fix = f"write it under {labels.path}"
                yield IGNORED.finding(annotations.at(ANNOTATION), why, fix)
            continue
        for key in (*ANNOTATIONS, HOLD):
            if key in labels.strings() and key not in annotations.strings():
                why = "Fettle reads no such label, so it is ignored"
                yield IGNORED.finding(labels.at(key), why, f"write it under {annotations.path}")


def _annotations(manifest: Manifest) -> Iterator[Field]:
    """Those of the object, and of what is made from the templates in it."""
    return (metadata.at("annotations") for metadata in _metadata(manifest))


def _metadata(manifest: Manifest) -> Iterator[Field]:
    found = {"metadata": manifest.root.at("metadata")}
    specs = (*manifest.paths(shapes.CLAIM_SPECS), *manifest.paths(shapes.JOB_SPECS))
    for path in (*specs, *manifest.pod_specs):
        beside = (*path[:-1], "metadata")
        found |= {field.path: field for field in shapes.walk(manifest.root, beside)}
    yield from found.values()
