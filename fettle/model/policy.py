"""Policies: what a workload accepts, and what happens when a device fails.

The sections are the `spec` of the custom resource DevicePolicy in `deploy/crds`, field by field;
the CRD refuses more than is checked here.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from fettle.model import field_checks
from fettle.model.modes import Mode

DEVICE_FAILED = "fettle.dev/DeviceFailed"
"""The pod condition that tells a Job that its pod failed because of a device, if it is set in
time."""
DEGRADED_TAINT = "fettle.dev/degraded"
"""The taint of Degraded devices. Only claims that tolerate it get such a device."""
UNHEALTHY_TAINT = "fettle.dev/unhealthy"
"""The taint of Unhealthy devices."""
ASSESSED = "assessed"
"""The value of these taints if Fettle sets them by what it knows of a device's health. Taints of
another value are somebody else's."""

MAX_EXPRESSION = 4096
"""Maximum length of a requirement's expression, in characters."""
STRICT_RISK = 0.1
"""The risk that a policy accepts which refuses Degraded devices, unless it says otherwise."""
LATE_RISK = 0.5
"""The risk that a pod takes whose patience is over: no bad unit is likelier than a good one."""


class Degraded(StrEnum):
    REFUSE = "Refuse"
    ALLOW = "Allow"
    PREFER = "Prefer"


class Unknown(StrEnum):
    ALLOW = "Allow"
    REFUSE = "Refuse"


class GangDegraded(StrEnum):
    """What else holds of Degraded devices for a pod of a gang."""

    REFUSE = "Refuse"


class PreviousNode(StrEnum):
    """What a pod that comes back makes of the node where it ran before."""

    ALLOW = "Allow"
    PREFER = "Prefer"


class NewDriverPlacement(StrEnum):
    """What a pod makes of nodes on probation, since the version of their driver is new."""

    ALLOW = "Allow"
    AVOID = "Avoid"
    PREFER = "Prefer"


class PolicyAffinity(StrEnum):
    """Whether pods and pod templates get node affinity for nodes whose devices are acceptable."""

    REQUIRED = "Required"
    PREFERRED = "Preferred"
    NONE = "None"


class Aggregate(StrEnum):
    """What several devices together are worth: the lowest score, or the mean."""

    MIN = "Min"
    MEAN = "Mean"


class OnDeviceFailure(StrEnum):
    MARK = "Mark"
    EVICT = "Evict"
    NONE = "None"


class OnLostNode(StrEnum):
    """What becomes of a pod that does not end because its node is lost."""

    FORCE_DELETE = "ForceDelete"
    NONE = "None"


class RestartAction(StrEnum):
    """What starts anew in a pod after an exit code, as in a container's restartPolicyRules."""

    RESTART = "Restart"
    RESTART_ALL_CONTAINERS = "RestartAllContainers"


class JobSetAction(StrEnum):
    FAIL = "FailJobSet"
    RESTART = "RestartJobSet"
    RESTART_AND_IGNORE_MAX_RESTARTS = "RestartJobSetAndIgnoreMaxRestarts"
    RESTART_JOB = "RestartJob"  # JobSet 0.12 with its feature gate
    RESTART_JOB_AND_IGNORE_MAX_RESTARTS = "RestartJobAndIgnoreMaxRestarts"


class JobSetRestartStrategy(StrEnum):
    RECREATE = "Recreate"
    BLOCKING_RECREATE = "BlockingRecreate"
    IN_PLACE_RESTART = "InPlaceRestart"  # JobSet 0.11 with its feature gate and its agent


class JobFailureReason(StrEnum):
    """Why a Job failed, as in its condition `Failed`."""

    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    FAILED_INDEXES = "FailedIndexes"
    MAX_FAILED_INDEXES_EXCEEDED = "MaxFailedIndexesExceeded"
    POD_FAILURE_POLICY = "PodFailurePolicy"


class RuleSeverity(StrEnum):
    """What happens when a lint rule finds something."""

    DENY = "Deny"
    WARN = "Warn"
    OFF = "Off"


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel", cache_hash=True):
    """Base of a policy's sections. Unknown fields are ignored, as in all API objects: a newer CRD
    may have more."""


class Requirement(Section, frozen=True, kw_only=True):
    """A condition on each device (`device`, as in DRA selectors) or on the node (`node.labels`).

    `expression` is CEL and yields a bool. `message` says in words what is required.
    """

    expression: str
    message: str | None = None

    def __post_init__(self) -> None:
        if not 0 < len(self.expression) <= MAX_EXPRESSION:
            raise ValueError(f"expression must have 1 to {MAX_EXPRESSION} characters")

    @property
    def description(self) -> str:
        """What is required, in words for people."""
        return self.message or self.expression


class Placement(Section, frozen=True, kw_only=True):
    """Which devices are acceptable.

    `min_score` (0..1) applies to each device and to their aggregate. The devices that a pod would
    get, and its node, must meet all of `requires`. `max_risk` (0..1): how likely a device plugin
    may give the pod a unit that is not acceptable (None: see `risk_bound`).

    `patience` is how long a pod waits that refuses Degraded devices or a risk, `gang_patience` the
    same for a pod of a gang (None: as `patience`). After that it takes Degraded ones, whatever
    their score, and a risk of `LATE_RISK`, where nothing better is left. None: it waits without
    end. Both are durations such as `90s`, `30m` or `1h30m`.

    `gang_degraded` (None: as `degraded`): Degraded devices are refused to a pod of a gang as long
    as no other member is on one. `previous_node`: whether a pod that comes back prefers the node
    where it ran, and avoids the one where it failed. `expected_runtime` is how long a pod runs, a
    duration as `patience` (None: nobody says): nodes whose planned maintenance begins before that
    are its last choice, and what begins later counts for nothing. `new_driver`: whether nodes whose
    driver is new are its last choice, or preferred. `affinity`: what is written into
    pods and pod templates for those who ask no extender. `scheduler`: who places the pods that
    would go by the default scheduler (None: nobody else).
    """

    min_score: float = 0.3
    degraded: Degraded = Degraded.ALLOW
    unknown: Unknown = Unknown.ALLOW
    aggregate: Aggregate = Aggregate.MEAN
    requires: tuple[Requirement, ...] = ()
    max_risk: float | None = None
    patience: str | None = None
    gang_patience: str | None = None
    gang_degraded: GangDegraded | None = None
    previous_node: PreviousNode = PreviousNode.ALLOW
    expected_runtime: str | None = None
    new_driver: NewDriverPlacement = NewDriverPlacement.ALLOW
    affinity: PolicyAffinity = PolicyAffinity.NONE
    scheduler: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.min_score <= 1:
            raise ValueError(f"minScore must be between 0 and 1, not {self.min_score}")
        if self.max_risk is not None and not 0 <= self.max_risk <= 1:
            raise ValueError(f"maxRisk must be between 0 and 1, not {self.max_risk}")
        if self.gang_degraded is not None and self.degraded is Degraded.PREFER:
            raise ValueError("gangDegraded: Refuse contradicts degraded: Prefer")
        if self.expected_runtime is not None:
            field_checks.seconds("expectedRuntime", self.expected_runtime)
        if self.scheduler is not None:
            field_checks.scheduler_name(self.scheduler)
        for field, value in (("patience", self.patience), ("gangPatience", self.gang_patience)):
            if value is not None:
                field_checks.seconds(field, value)
                if not self._refuses_some:
                    raise ValueError(
                        f"{field} needs degraded: Refuse, not {self.degraded}, or gangDegraded: "
                        "Refuse, or a maxRisk below 1: a pod that may have Degraded devices at "
                        "any risk waits for no others"
                    )

    @property
    def _refuses_some(self) -> bool:
        """Whether it refuses anything that it would take after enough patience."""
        refuses = self.degraded is Degraded.REFUSE or self.gang_degraded is not None
        return refuses or self.risk_bound < 1

    @property
    def risk_bound(self) -> float:
        """The highest risk that is accepted: what the policy says, else any, but where it refuses
        Degraded devices: then the risk of `training`."""
        if self.max_risk is not None:
            return self.max_risk
        return STRICT_RISK if self.degraded is Degraded.REFUSE else 1.0

    @property
    def runs_s(self) -> int | None:
        """For how many seconds a pod is expected to run; None if nobody says."""
        given = self.expected_runtime
        return None if given is None else field_checks.seconds("expectedRuntime", given)

    @property
    def ends(self) -> bool:
        """Whether the wait for devices that are not Degraded ends some time."""
        return self.patience is not None or self.gang_patience is not None

    def patience_s(self, *, in_gang: bool) -> int | None:
        """How many seconds a pod waits before it takes Degraded devices; None: without end."""
        given = self.patience
        if in_gang and self.gang_patience is not None:
            given = self.gang_patience
        return None if given is None else field_checks.seconds("patience", given)

    def in_gang(self, *, others_sound: bool) -> "Placement":
        """What is acceptable for a pod of a gang: its slowest device is everybody's speed.

        `others_sound`: no other member is on a Degraded device.
        """
        refuses = others_sound and self.gang_degraded is not None
        return msgspec.structs.replace(
            self,
            aggregate=Aggregate.MIN,
            degraded=Degraded.REFUSE if refuses else self.degraded,
        )

    def after_patience(self) -> "Placement":
        """What is acceptable after so long a wait: Degraded devices too, never Unhealthy ones, and
        a higher risk of those."""
        return msgspec.structs.replace(
            self,
            min_score=0.0,
            degraded=Degraded.ALLOW,
            max_risk=max(self.risk_bound, LATE_RISK),
            patience=None,
            gang_patience=None,
            gang_degraded=None,
        )


class PolicyToleration(Section, frozen=True, kw_only=True):
    """A device taint that claims tolerate, with any effect: any value of the key, or just `value`.

    `seconds`: how long a pod stays on a device whose taint evicts; None: forever.
    """

    key: str
    value: str | None = None
    seconds: int | None = None

    def __post_init__(self) -> None:
        field_checks.taint_key(self.key)
        field_checks.taint_value(self.value or "")
        field_checks.between("seconds", self.seconds, 0, field_checks.MAX_SECONDS)


class Tolerations(Section, frozen=True, kw_only=True):
    """How long a pod stays on a node that is not ready or unreachable, and which device taints its
    claims tolerate.

    Seconds that are None are not injected. With `degraded_as_fallback`, a claim takes a device that
    Fettle tainted as degraded only where no sound one is left: each of its requests becomes a list
    of alternatives.
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
    """A rule of a JobSet's failurePolicy, with that API's field names."""

    name: str
    action: JobSetAction
    on_job_failure_reasons: tuple[JobFailureReason, ...] = ()
    on_job_failure_message_patterns: tuple[str, ...] = ()
    target_replicated_jobs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        field_checks.rule_name(self.name)
        field_checks.each_once("onJobFailureReasons", self.on_job_failure_reasons, 5)
        patterns = self.on_job_failure_message_patterns
        field_checks.each_once("onJobFailureMessagePatterns", patterns, 20)
        field_checks.expressions("onJobFailureMessagePatterns", patterns)
        field_checks.each_once("targetReplicatedJobs", self.target_replicated_jobs, 20)
        field_checks.replicated_jobs(self.target_replicated_jobs)


class JobSetFailure(Section, frozen=True, kw_only=True):
    """A JobSet's failurePolicy, with that API's field names. Other fields are not supported."""

    max_restarts: int = 0
    restart_strategy: JobSetRestartStrategy | None = None
    rules: tuple[JobSetRule, ...] = ()

    def __post_init__(self) -> None:
        field_checks.between("maxRestarts", self.max_restarts, 0, field_checks.MAX_INT32)
        field_checks.each_once("rules", [rule.name for rule in self.rules], 20)


class Failure(Section, frozen=True, kw_only=True):
    """How a workload reacts to a failing device.

    - `ignore_disruptions`: a Job does not count pods that were evicted or lost their device.
    - `fail_job_on_exit_codes`: a Job fails at once, since a retry would end the same way.
    - `restart_container_on_exit_codes`: the container restarts in its pod, on the same devices.
      `restart_action`: only that container, or all of the pod, init containers first.
    - `backoff_limit_per_index`: for Jobs whose completions are Indexed.
    - `on_device_failure`: what the steward does about a pod whose device has failed, as far as the
      setting `deviceFailures` allows it.
    - `start_deadline`: how long a pod may have failed to start on its node, by what is said of its
      devices there, before it is evicted, as far as `deviceFailures` allows it; a duration such as
      `10m`. None: it stays there.
    - `on_lost_node`: what the steward does about a pod that ends for ever on a node that is lost
      since the setting `deviceFailures.forceDeleteSeconds`.
    - `suspend_hopeless_jobs`: a Job is suspended if no node or device will ever suit its pods.
    """

    ignore_disruptions: bool = False
    fail_job_on_exit_codes: tuple[int, ...] = ()
    backoff_limit_per_index: int | None = None
    restart_container_on_exit_codes: tuple[int, ...] = ()
    restart_action: RestartAction = RestartAction.RESTART
    job_set: JobSetFailure | None = None
    on_device_failure: OnDeviceFailure = OnDeviceFailure.MARK
    start_deadline: str | None = None
    on_lost_node: OnLostNode = OnLostNode.NONE
    suspend_hopeless_jobs: bool = False

    def __post_init__(self) -> None:
        if self.start_deadline is not None:
            field_checks.seconds("startDeadline", self.start_deadline)
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

    @property
    def start_deadline_s(self) -> int | None:
        """The same in seconds."""
        given = self.start_deadline
        return None if given is None else field_checks.seconds("startDeadline", given)


class Validation(Section, frozen=True, kw_only=True):
    """`rules`: the severity of lint rules, by rule id (`FTL010`). `strict` also denies what
    only growth could satisfy, such as a larger node or a class that is not there yet."""

    strict: bool = False
    rules: Mapping[str, RuleSeverity] = {}

    def __hash__(self) -> int:
        return hash((self.strict, frozenset(self.rules.items())))


class Sections(Section, frozen=True, kw_only=True):
    """The `spec` of a DevicePolicy. `mode` None: that of the settings applies."""

    mode: Mode | None = None
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
    placement=Placement(
        min_score=0.8,
        degraded=Degraded.REFUSE,
        aggregate=Aggregate.MIN,
        max_risk=STRICT_RISK,
        patience="2h",
        gang_patience="4h",
        previous_node=PreviousNode.PREFER,
    ),
    tolerations=Tolerations(not_ready_seconds=60, unreachable_seconds=60),
    failure=Failure(ignore_disruptions=True, on_device_failure=OnDeviceFailure.MARK),
)
INFERENCE = Policy(
    name="inference",
    placement=Placement(
        min_score=0.3,
        degraded=Degraded.ALLOW,
        aggregate=Aggregate.MEAN,
        max_risk=0.25,
        patience="30m",
        previous_node=PreviousNode.PREFER,
    ),
    tolerations=Tolerations(not_ready_seconds=30, unreachable_seconds=30),
)
SCAVENGER = Policy(
    name="scavenger",
    placement=Placement(min_score=0.3, degraded=Degraded.PREFER, aggregate=Aggregate.MEAN),
    tolerations=Tolerations(not_ready_seconds=10, unreachable_seconds=10),
)
BUILT_IN: Mapping[str, Policy] = {p.name: p for p in (TRAINING, INFERENCE, SCAVENGER)}


def prefers_in_vain(placement: Placement, degraded_below: float) -> str:
    """Why a policy that prefers degraded devices refuses all of them by its minimum score; "" if it
    leaves some. Devices are Degraded below `degraded_below`.

    >>> prefers_in_vain(Placement(min_score=0.9, degraded=Degraded.PREFER), 0.8)[:53]
    '0.9 refuses every device that becomes Degraded (score'
    """
    if placement.degraded is not Degraded.PREFER or placement.min_score < degraded_below:
        return ""
    return (
        f"{placement.min_score:g} refuses every device that becomes Degraded (score below "
        f"{degraded_below:g}), so degraded: Prefer finds none to prefer"
    )
