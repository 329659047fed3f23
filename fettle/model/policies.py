"""The policies of a cluster, and how the one that applies to a pod is found.

The same function answers extender, webhook and command line: an annotation of the pod, then a
label of its namespace, then the cluster's default; then single values that annotations override.
Pure; stands between the view, which carries the installed DevicePolicies, and verdicts.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from fettle.model.policy import (
    ANNOTATION,
    BUILT_IN,
    INFERENCE,
    MIN_SCORE_ANNOTATION,
    ON_DEVICE_FAILURE_ANNOTATION,
    Degraded,
    OnDeviceFailure,
    Placement,
    Policy,
)


class PolicySource(StrEnum):
    """Where a policy is defined; of two with one name, the latter in this order counts."""

    BUILT_IN = "built in"
    SETTINGS = "settings"
    INSTALLED = "DevicePolicy"


_INSTEAD = {
    PolicySource.BUILT_IN: "the built-in policy",
    PolicySource.SETTINGS: "the policy from the settings",
}


class Resolved(msgspec.Struct, frozen=True):
    """The policy that applies, where it came from, and what in the request was ignored.

    `origin` says who chose it, `source` where it is defined; `named` is false where nothing named
    a policy and the cluster default applies. `overridden` maps a field (`placement.minScore`) to
    the annotation that gave it. `warnings` are sentences for the user, `unknown` the names that no
    policy has.
    """

    policy: Policy
    origin: str
    named: bool = False
    warnings: tuple[str, ...] = ()
    source: PolicySource = PolicySource.BUILT_IN
    overridden: Mapping[str, str] = {}
    unknown: tuple[str, ...] = ()


class Policies(msgspec.Struct, frozen=True):
    """The built-in policies with those of the settings, and the name of the default."""

    by_name: Mapping[str, Policy] = msgspec.field(default_factory=lambda: BUILT_IN)
    default: str = INFERENCE.name

    def find(
        self, name: str, installed: Mapping[str, Policy]
    ) -> tuple[Policy | None, PolicySource]:
        """The policy of that name; `installed` are the cluster's DevicePolicies."""
        if (policy := installed.get(name)) is not None:
            return policy, PolicySource.INSTALLED
        policy = self.by_name.get(name)
        return policy, PolicySource.BUILT_IN if policy is BUILT_IN.get(
            name
        ) else PolicySource.SETTINGS

    def named(self, name: str, installed: Mapping[str, Policy]) -> Resolved | None:
        """The policy of that name as it stands, without any pod's overrides."""
        policy, source = self.find(name, installed)
        if policy is None:
            return None
        origin = "cluster default" if name == self.default else ""
        return Resolved(policy, origin, source=source)

    def names(self, installed: Mapping[str, Policy]) -> list[str]:
        return sorted({*self.by_name, *installed})

    def resolve(
        self,
        annotations: Mapping[str, str] | None,
        namespace_labels: Mapping[str, str] | None,
        installed: Mapping[str, Policy],
        quarantined: Mapping[str, str] = {},
    ) -> Resolved:
        """Pod annotation, then namespace label, then cluster default; then single overrides.

        An unknown name never keeps a pod from running: the next one applies, with a warning.
        `quarantined` are the view's sentences about objects that cannot be read.
        """
        annotations, namespace_labels = annotations or {}, namespace_labels or {}
        warnings: list[str] = []
        unknown: list[str] = []
        origin, named = "cluster default", False
        policy, source = self.find(self.default, installed)
        assert policy is not None  # the settings checked it
        for given, where in (
            (annotations, f"annotation {ANNOTATION}"),
            (namespace_labels, f"namespace label {ANNOTATION}"),
        ):
            if (name := given.get(ANNOTATION)) is None:
                continue
            found, found_in = self.find(name, installed)
            if why := unreadable(name, quarantined):
                used = "the next policy that applies" if found is None else _INSTEAD[found_in]
                warnings.append(
                    f"fettle: {where} names {name!r}, which cannot be read ({why}); {used} is used"
                )
            if found is not None:
                policy, source, origin, named = found, found_in, where, True
                break
            unknown.append(name)
            if not why:
                warnings.append(
                    f"fettle: {where}: there is no policy {name!r} (known: "
                    f"{', '.join(self.names(installed))}); the next policy that applies is used"
                )
        policy, overridden = _overridden(policy, annotations, warnings)
        return Resolved(policy, origin, named, tuple(warnings), source, overridden, tuple(unknown))


def unreadable(name: str, quarantined: Mapping[str, str]) -> str:
    """Which DevicePolicy of that name cannot be read, and why; "" if there is none."""
    return quarantined.get(f"{PolicySource.INSTALLED} {name}", "")


_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)


def _with_min_score(policy: Policy, text: str) -> Policy:
    score = float(text) if _NUMBER.fullmatch(text) else -1.0  # `float` reads more than YAML does
    if not 0 <= score <= 1:
        raise ValueError(text)
    placement = msgspec.structs.replace(policy.placement, min_score=score)
    return msgspec.structs.replace(policy, placement=placement)


def _with_failure(policy: Policy, text: str) -> Policy:
    failure = msgspec.structs.replace(policy.failure, on_device_failure=OnDeviceFailure(text))
    return msgspec.structs.replace(policy, failure=failure)


def prefers_in_vain(placement: Placement, degraded_below: float) -> str:
    """What the minimum score does to devices that are preferred for being degraded, which begins
    below `degraded_below`; "" if some of them are left."""
    if placement.degraded is not Degraded.PREFER or placement.min_score < degraded_below:
        return ""
    return (
        f"{placement.min_score:g} refuses every device that becomes Degraded (score below "
        f"{degraded_below:g}), so degraded: Prefer finds none to prefer"
    )


NO_EFFECT_YET = "has no effect yet: Fettle neither marks nor evicts running pods"
_OVERRIDES: tuple[tuple[str, str, Callable[[Policy, str], Policy], str], ...] = (
    (
        MIN_SCORE_ANNOTATION,
        "placement.minScore",
        _with_min_score,
        "not a number between 0 and 1",
    ),
    (
        ON_DEVICE_FAILURE_ANNOTATION,
        "failure.onDeviceFailure",
        _with_failure,
        f"not one of {', '.join(OnDeviceFailure)}",
    ),
)
"""Annotation, the field it overrides, how, and what a wrong value is not."""


def _overridden(
    policy: Policy, annotations: Mapping[str, str], warnings: list[str]
) -> tuple[Policy, dict[str, str]]:
    overridden: dict[str, str] = {}
    for annotation, field, change, wrong in _OVERRIDES:
        if (text := annotations.get(annotation)) is None:
            continue
        try:
            policy = change(policy, text)
            overridden[field] = annotation
            if annotation == ON_DEVICE_FAILURE_ANNOTATION and text != OnDeviceFailure.NONE:
                warnings.append(f"fettle: annotation {annotation}: {text} {NO_EFFECT_YET}")
        except ValueError:
            warnings.append(f"fettle: annotation {annotation}: {text!r} is {wrong}; ignored")
    return policy, overridden
