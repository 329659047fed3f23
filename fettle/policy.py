"""What a workload accepts, and what should happen when a device fails under it.

Built-in policies, the annotations that name and override them, and how the one that applies to a
pod is found: the same function for extender, webhook and command line. Pure.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

ANNOTATION = "fettle.dev/policy"
"""Names a policy: an annotation on a pod or workload, a label on a namespace."""
MIN_SCORE_ANNOTATION = "fettle.dev/min-score"
ON_DEVICE_FAILURE_ANNOTATION = "fettle.dev/on-device-failure"
DEVICE_FAILED = "fettle.dev/DeviceFailed"
"""The pod condition type set before Fettle evicts a pod whose device failed."""


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


class _Section(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    pass


class Placement(_Section, frozen=True, kw_only=True):
    """What devices are acceptable. `min_score` 0..1 holds for a device and for their aggregate."""

    min_score: float = 0.3
    degraded: Degraded = Degraded.ALLOW
    unknown: Unknown = Unknown.ALLOW
    aggregate: Aggregate = Aggregate.MEAN

    def __post_init__(self) -> None:
        if not 0 <= self.min_score <= 1:
            raise ValueError(f"minScore must be between 0 and 1, not {self.min_score}")


class Tolerations(_Section, frozen=True, kw_only=True):
    """Seconds that a pod stays on a node which is not ready or unreachable; None: not injected."""

    not_ready_seconds: int | None = None
    unreachable_seconds: int | None = None


class Failure(_Section, frozen=True, kw_only=True):
    """How a workload treats a failing device: a Job's podFailurePolicy, and what Fettle does."""

    ignore_disruptions: bool = False
    on_device_failure: OnDeviceFailure = OnDeviceFailure.MARK


class Policy(_Section, frozen=True, kw_only=True):
    name: str
    placement: Placement = Placement()
    tolerations: Tolerations = Tolerations()
    failure: Failure = Failure()


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


class Resolved(msgspec.Struct, frozen=True):
    """The policy that applies, where it came from, and what in the request was ignored.

    `named` is false where nothing named a policy and the cluster default applies. `warnings` are
    sentences for the user, such as an unknown policy name.
    """

    policy: Policy
    origin: str
    named: bool = False
    warnings: tuple[str, ...] = ()


class Policies(msgspec.Struct, frozen=True):
    """The policies of a cluster and the name of its default."""

    by_name: Mapping[str, Policy]
    default: str = INFERENCE.name

    def resolve(
        self,
        annotations: Mapping[str, str] | None,
        namespace_labels: Mapping[str, str] | None,
    ) -> Resolved:
        """Pod annotation, then namespace label, then cluster default; then single overrides.

        An unknown name never keeps a pod from running: the default applies, with a warning.
        """
        annotations, namespace_labels = annotations or {}, namespace_labels or {}
        warnings: list[str] = []
        policy, origin, named = self.by_name[self.default], "cluster default", False
        for source, where in (
            (annotations, f"annotation {ANNOTATION}"),
            (namespace_labels, f"namespace label {ANNOTATION}"),
        ):
            if (name := source.get(ANNOTATION)) is None:
                continue
            if (found := self.by_name.get(name)) is not None:
                policy, origin, named = found, where, True
                break
            known = ", ".join(sorted(self.by_name))
            warnings.append(
                f"fettle: {where} names no policy {name!r} (there are: {known}); "
                f"the next one that applies is used"
            )
        policy = _overridden(policy, annotations, warnings)
        return Resolved(policy, origin, named, tuple(warnings))


def _overridden(policy: Policy, annotations: Mapping[str, str], warnings: list[str]) -> Policy:
    if (text := annotations.get(MIN_SCORE_ANNOTATION)) is not None:
        try:
            placement = msgspec.structs.replace(policy.placement, min_score=_score(text))
            policy = msgspec.structs.replace(policy, placement=placement)
        except ValueError:
            warnings.append(
                f"fettle: annotation {MIN_SCORE_ANNOTATION}: {text!r} is no number "
                f"between 0 and 1; ignored"
            )
    if (text := annotations.get(ON_DEVICE_FAILURE_ANNOTATION)) is not None:
        try:
            failure = msgspec.structs.replace(
                policy.failure, on_device_failure=OnDeviceFailure(text)
            )
            policy = msgspec.structs.replace(policy, failure=failure)
        except ValueError:
            warnings.append(
                f"fettle: annotation {ON_DEVICE_FAILURE_ANNOTATION}: {text!r} is none of "
                f"{', '.join(OnDeviceFailure)}; ignored"
            )
    return policy


def _score(text: str) -> float:
    score = float(text)
    if not 0 <= score <= 1:  # also refuses NaN
        raise ValueError(text)
    return score
