"""Which policy applies to a pod: its annotation, its workload's, the namespace's label, the cluster
default.

Extender, webhook and command line all find it with `Policies.resolve`. Stands between the view,
which carries the installed DevicePolicies, and the verdict.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from fettle.model.annotations import ANNOTATION, MIN_SCORE_ANNOTATION, ON_DEVICE_FAILURE_ANNOTATION
from fettle.model.modes import MODE_LABEL, Mode, ModeOf, labelled_mode, wrong_label
from fettle.model.policy import BUILT_IN, INFERENCE, OnDeviceFailure, Policy


class PolicySource(StrEnum):
    """Where a policy is defined. Where two have one name, the later one in this order counts."""

    BUILT_IN = "built in"
    SETTINGS = "settings"
    INSTALLED = "DevicePolicy"


_LONGEST_SHOWN = 253
"""Characters of what somebody wrote that are repeated. No name of an object is longer."""
_INSTEAD = {
    PolicySource.BUILT_IN: "the built-in policy",
    PolicySource.SETTINGS: "the policy from the settings",
}


class Resolved(msgspec.Struct, frozen=True):
    """The policy that applies to a pod, and how it was found.

    - `origin`: who chose it. `named` is False where nobody did and the cluster default applies.
    - `source`: where the policy is defined.
    - `mode`: how far Fettle may go with the pod, and who says so.
    - `overridden`: by field (`placement.minScore`), the annotation that replaced its value.
    - `warnings`: sentences for the user about what was ignored. `unknown`: names that no policy
      has.
    """

    policy: Policy
    origin: str
    named: bool = False
    warnings: tuple[str, ...] = ()
    source: PolicySource = PolicySource.BUILT_IN
    mode: ModeOf = ModeOf(Mode.ENFORCE, "by default")
    overridden: Mapping[str, str] = {}
    unknown: tuple[str, ...] = ()


class Inherited(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pod inherits from its workload if nothing was stamped on it.

    `owner` is the nearest owner that names a policy (`Job train`), and `annotations` are those of
    its that choose or change one. `unknown`: why it cannot be read; "" if it can.
    """

    owner: str = ""
    annotations: Mapping[str, str] = {}
    unknown: str = ""


NOTHING_INHERITED = Inherited()


class Policies(msgspec.Struct, frozen=True):
    """The built-in policies, those of the settings, the name of the default, and the mode where
    neither a namespace nor a policy sets one, and who says so. `tells_names`: warnings of an
    unknown name list the known ones."""

    by_name: Mapping[str, Policy] = msgspec.field(default_factory=lambda: BUILT_IN)
    default: str = INFERENCE.name
    mode: Mode = Mode.ENFORCE
    mode_origin: str = "setting mode"
    tells_names: bool = True

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
        return Resolved(policy, origin, source=source, mode=self.mode_of(policy))

    def names(self, installed: Mapping[str, Policy]) -> list[str]:
        return sorted({*self.by_name, *installed})

    def mode_of(
        self, policy: Policy | None, namespace_labels: Mapping[str, str] | None = None
    ) -> ModeOf:
        """The mode for objects of this policy, if any, in a namespace with these labels."""
        if (mode := labelled_mode(namespace_labels)) is not None:
            return ModeOf(mode, f"namespace label {MODE_LABEL}")
        if policy is not None and policy.mode is not None:
            return ModeOf(policy.mode, f"policy {policy.name}")
        return ModeOf(self.mode, self.mode_origin)

    def resolve(
        self,
        annotations: Mapping[str, str] | None,
        namespace_labels: Mapping[str, str] | None,
        installed: Mapping[str, Policy],
        quarantined: Mapping[str, str] = {},
        inherited: Inherited = NOTHING_INHERITED,
    ) -> Resolved:
        """The pod's annotation, then its workload's, the namespace's label, the cluster default;
        then single fields that annotations override. The mode is that of `mode_of`.

        An unknown name never keeps a pod from running: the next policy applies, with a warning.
        `quarantined` are the view's sentences about unreadable objects.
        """
        annotations, namespace_labels = annotations or {}, namespace_labels or {}
        warnings: list[str] = []
        of = ""
        if ANNOTATION not in annotations:
            if inherited.annotations:
                annotations = {**inherited.annotations, **annotations}
                of = f" of {inherited.owner}"
            if inherited.unknown:
                warnings.append(
                    f"fettle: whether {inherited.owner} names a policy for its pods is not known: "
                    f"{inherited.unknown}"
                )
        unknown: list[str] = []
        origin, named = "cluster default", False
        policy, source = self.find(self.default, installed)
        assert policy is not None  # the settings checked it
        for given, where in (
            (annotations, f"annotation {ANNOTATION}{of}"),
            (namespace_labels, f"namespace label {ANNOTATION}"),
        ):
            if (name := given.get(ANNOTATION)) is None:
                continue
            found, found_in = self.find(name, installed)
            name = name[:_LONGEST_SHOWN]
            if why := why_unreadable(name, quarantined):
                used = "the next policy that applies" if found is None else _INSTEAD[found_in]
                warnings.append(
                    f"fettle: {where} names {name!r}, which cannot be read ({why}); {used} is used"
                )
            if found is not None:
                policy, source, origin, named = found, found_in, where, True
                break
            unknown.append(name)
            if not why:
                known = f" (known: {', '.join(self.names(installed))})" if self.tells_names else ""
                warnings.append(
                    f"fettle: {where}: there is no policy {name!r}{known}; the next policy that "
                    "applies is used"
                )
        policy, overridden = _overridden(policy, annotations, warnings)
        if wrong := wrong_label(namespace_labels):
            warnings.append(f"fettle: {wrong}")
        mode = self.mode_of(policy, namespace_labels)
        return Resolved(
            policy, origin, named, tuple(warnings), source, mode, overridden, tuple(unknown)
        )


def why_unreadable(name: str, quarantined: Mapping[str, str]) -> str:
    """Why the DevicePolicy of this name cannot be read, as a sentence; "" if it can, or does not
    exist."""
    return quarantined.get(f"{PolicySource.INSTALLED} {name}", "")


_NUMBER = re.compile(r"\s*+[+-]?([0-9]++\.?[0-9]*+|\.[0-9]++)([eE][+-]?[0-9]++)?\s*+", re.ASCII)


def _with_min_score(policy: Policy, text: str) -> Policy:
    score = float(text) if _NUMBER.fullmatch(text) else -1.0  # `float` reads more than YAML does
    if not 0 <= score <= 1:
        raise ValueError(text)
    placement = msgspec.structs.replace(policy.placement, min_score=score)
    return msgspec.structs.replace(policy, placement=placement)


def _with_failure(policy: Policy, text: str) -> Policy:
    failure = msgspec.structs.replace(policy.failure, on_device_failure=OnDeviceFailure(text))
    return msgspec.structs.replace(policy, failure=failure)


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
"""Annotation, the field it overrides, the function that does it, and how to describe a bad
value."""


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
        except ValueError:
            warnings.append(
                f"fettle: annotation {annotation}: {text[:_LONGEST_SHOWN]!r} is {wrong}; ignored"
            )
    return policy, overridden
