"""What a workload accepts, and what should happen when a device fails under it.

The sections of a DevicePolicy as structs, with the built-in policies. Field by field these are the
`spec` of the custom resource in `deploy/crds`, which refuses more than is checked here. Pure words:
which policy applies to a pod is found in `fettle/model/policies.py`.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from fettle.model import field_checks

ANNOTATION = "fettle.dev/policy"
"""Names a policy: an annotation on a pod or workload, a label on a namespace."""
MIN_SCORE_ANNOTATION = "fettle.dev/min-score"
ON_DEVICE_FAILURE_ANNOTATION = "fettle.dev/on-device-failure"
ANNOTATIONS = (ANNOTATION, MIN_SCORE_ANNOTATION, ON_DEVICE_FAILURE_ANNOTATION)
"""All that a pod can say about its policy."""
INJECTED = "fettle.dev/injected"
"""The annotation that names what a policy put into an object, by its place."""
DEVICE_FAILED = "fettle.dev/DeviceFailed"
"""The condition by which a Job can tell that a pod failed by its device, if it is set before."""
DEGRADED_TAINT = "fettle.dev/degraded"
"""The taint of degraded devices: only claims that tolerate it get them."""

MAX_EXPRESSION = 4096
"""Characters of a requirement."""


class Degraded(StrEnum):
    REFUSE = "Refuse"
    ALLOW = "Allow"
    PREFER = "Prefer"


class Unknown(StrEnum):
    ALLOW = "Allow"
    REFUSE = "Refuse"


class Aggregate(StrEnum):
    """What several devices together are worth: the slowest one's score, or the mean."""

    MIN = "Min"
    MEAN = "Mean"


class OnDeviceFailure(StrEnum):
    MARK = "Mark"
    EVICT = "Evict"
    NONE = "None"


class JobSetAction(StrEnum):
    FAIL = "FailJobSet"
    RESTART = "RestartJobSet"
    RESTART_AND_IGNORE_MAX_RESTARTS = "RestartJobSetAndIgnoreMaxRestarts"


class JobSetRestartStrategy(StrEnum):
    RECREATE = "Recreate"
    BLOCKING_RECREATE = "BlockingRecreate"


class JobFailureReason(StrEnum):
    """Why a Job failed, as its condition `Failed` says it."""

    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    FAILED_INDEXES = "FailedIndexes"
    MAX_FAILED_INDEXES_EXCEEDED = "MaxFailedIndexesExceeded"
    POD_FAILURE_POLICY = "PodFailurePolicy"


class RuleSeverity(StrEnum):
    """What follows where a lint rule finds something."""

    DENY = "Deny"
    WARN = "Warn"
    OFF = "Off"


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel", cache_hash=True):
    """Part of a policy. Fields of newer versions are ignored, as in all API objects."""


class Requirement(Section, frozen=True, kw_only=True):
    """What each device (`device`, as in DRA's selectors) or the node (`node.labels`) must be.

    `expression` is CEL and comes to a bool; `message` says in words what is required.
    """

    expression: str
    message: str | None = None

    def __post_init__(self) -> None:
        if not 0 < len(self.expression) <= MAX_EXPRESSION:
            raise ValueError(f"expression must have 1 to {MAX_EXPRESSION} characters")

    @property
    def description(self) -> str:
        """What is required, for people."""
        return self.message or self.expression


class Placement(Section, frozen=True, kw_only=True):
    """What devices are acceptable. `min_score` 0..1 holds for a device and for their aggregate.

    `requires` must all be met by the devices a pod would get, and by the node.
    """

    min_score: float = 0.3
    degraded: Degraded = Degraded.ALLOW
    unknown: Unknown = Unknown.ALLOW
    aggregate: Aggregate = Aggregate.MEAN
    requires: tuple[Requirement, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.min_score <= 1:
            raise ValueError(f"minScore must be between 0 and 1, not {self.min_score}")


class PolicyToleration(Section, frozen=True, kw_only=True):
    """A taint that claims tolerate, with either effect: any value of the key, or just `value`.

    `seconds`: how long a pod stays on a device whose taint evicts; None: for good.
    """

    key: str
    value: str | None = None
    seconds: int | None = None

    def __post_init__(self) -> None:
        field_checks.taint_key(self.key)
        field_checks.taint_value(self.value or "")
        field_checks.between("seconds", self.seconds, 0, field_checks.MAX_SECONDS)


class Tolerations(Section, frozen=True, kw_only=True):
    """Seconds that a pod stays on a node which is not ready or unreachable (None: not injected),
    and the device taints its claims tolerate.

    `degraded_as_fallback`: a claim takes a device that Fettle tainted as degraded only where there
    is no sound one; each request becomes a list of alternatives for that.
    """

    not_ready_seconds: int | None = None
    unreachable_seconds: int | None = None
    devices: tuple[PolicyToleration, ...] = ()
    degraded_as_fallback: bool = False

    def __post_init__(self) -> None:
        field_checks.between("notReadySeconds", self.not_ready_seconds, 0, field_checks.MAX_SECONDS)
        field_checks.between(
            "unreachableSeconds", self.unreachable_seconds, 0, field_checks.MAX_SECONDS
        )
        field_checks.each_once("devices", [(d.key, d.value) for d in self.devices], 8)
        tolerated = any(device.key == DEGRADED_TAINT for device in self.devices)
        if self.degraded_as_fallback and tolerated:
            raise ValueError(
                f"devices must not name {DEGRADED_TAINT} together with degradedAsFallback: what is "
                "tolerated is not a fallback"
            )


class JobSetRule(Section, frozen=True, kw_only=True):
    """A rule of a JobSet's failurePolicy, in that API's words."""

    name: str
    action: JobSetAction
    on_job_failure_reasons: tuple[JobFailureReason, ...] = ()
    target_replicated_jobs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        field_checks.rule_name(self.name)
        field_checks.each_once("onJobFailureReasons", self.on_job_failure_reasons, 5)
        field_checks.each_once("targetReplicatedJobs", self.target_replicated_jobs, 20)
        field_checks.replicated_jobs(self.target_replicated_jobs)


class JobSetFailure(Section, frozen=True, kw_only=True):
    """A JobSet's failurePolicy, in that API's words; its fields and no others."""

    max_restarts: int = 0
    restart_strategy: JobSetRestartStrategy | None = None
    rules: tuple[JobSetRule, ...] = ()

    def __post_init__(self) -> None:
        field_checks.between("maxRestarts", self.max_restarts, 0, field_checks.MAX_INT32)
        field_checks.each_once("rules", [rule.name for rule in self.rules], 20)


class Failure(Section, frozen=True, kw_only=True):
    """How a workload treats a failing device.

    `ignore_disruptions`: a Job does not count pods that were evicted or lost their device.
    `fail_job_on_exit_codes`: a Job fails at once, since another try would end the same way.
    `restart_container_on_exit_codes`: the container starts again in its pod, on its devices.
    `backoff_limit_per_index` is for Jobs whose completions are Indexed. `on_device_failure` is
    reserved: it is read and shown, but has no effect yet.
    """

    ignore_disruptions: bool = False
    fail_job_on_exit_codes: tuple[int, ...] = ()
    backoff_limit_per_index: int | None = None
    restart_container_on_exit_codes: tuple[int, ...] = ()
    job_set: JobSetFailure | None = None
    on_device_failure: OnDeviceFailure = OnDeviceFailure.MARK

    def __post_init__(self) -> None:
        field_checks.between(
            "backoffLimitPerIndex", self.backoff_limit_per_index, 0, field_checks.MAX_INT32
        )
        field_checks.exit_codes("failJobOnExitCodes", self.fail_job_on_exit_codes)
        field_checks.exit_codes("restartContainerOnExitCodes", self.restart_container_on_exit_codes)
        both = {*self.fail_job_on_exit_codes} & {*self.restart_container_on_exit_codes}
        if both:
            raise ValueError(
                f"exit code {min(both)} is in failJobOnExitCodes and in "
                "restartContainerOnExitCodes: a restarted container does not fail its pod"
            )


class Validation(Section, frozen=True, kw_only=True):
    """`rules`: what to do about findings, by rule id (`FTL010`); `strict` also denies what only the
    current inventory rules out.
    """

    strict: bool = False
    rules: Mapping[str, RuleSeverity] = {}

    def __hash__(self) -> int:
        return hash((self.strict, frozenset(self.rules.items())))


class Sections(Section, frozen=True, kw_only=True):
    """The `spec` of a DevicePolicy."""

    placement: Placement = Placement()
    tolerations: Tolerations = Tolerations()
    failure: Failure = Failure()
    validation: Validation = Validation()

    def __post_init__(self) -> None:
        steered = self.tolerations.degraded_as_fallback
        if steered and self.placement.degraded is not Degraded.ALLOW:
            raise ValueError(
                "tolerations.degradedAsFallback needs placement.degraded: Allow, not "
                f"{self.placement.degraded}: a fallback is taken only after the sound devices"
            )


class Policy(Sections, frozen=True, kw_only=True):
    name: str


TRAINING = Policy(
    name="training",
    placement=Placement(min_score=0.8, degraded=Degraded.REFUSE, aggregate=Aggregate.MIN),
    tolerations=Tolerations(not_ready_seconds=60, unreachable_seconds=60),
    failure=Failure(ignore_disruptions=True, on_device_failure=OnDeviceFailure.MARK),
)
INFERENCE = Policy(
    name="inference",
    placement=Placement(min_score=0.3, degraded=Degraded.ALLOW, aggregate=Aggregate.MEAN),
    tolerations=Tolerations(not_ready_seconds=30, unreachable_seconds=30),
)
SCAVENGER = Policy(
    name="scavenger",
    placement=Placement(min_score=0.3, degraded=Degraded.PREFER, aggregate=Aggregate.MEAN),
    tolerations=Tolerations(not_ready_seconds=10, unreachable_seconds=10),
)
BUILT_IN: Mapping[str, Policy] = {p.name: p for p in (TRAINING, INFERENCE, SCAVENGER)}


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
                warnings.append(
                    f"fettle: {where}: there is no policy {name!r} (known: "
                    f"{', '.join(self.names(installed))}); the next policy that applies is used"
                )
        policy, overridden = _overridden(policy, annotations, warnings)
        return Resolved(policy, origin, named, tuple(warnings), source, overridden, tuple(unknown))


def why_unreadable(name: str, quarantined: Mapping[str, str]) -> str:
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
