"""The types of fields that rules read raw, of pods and of what makes them."""

from fettle.api import core
from fettle.api.meta import Wire


class RestartRule(Wire, frozen=True, kw_only=True):
    action: str | None = None
    exit_codes: "OnExitCodes | None" = None


class LintContainer(core.Container, frozen=True, kw_only=True):
    restart_policy_rules: tuple[RestartRule, ...] | None = None


class Toleration(Wire, frozen=True, kw_only=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class LintPodSpec(core.PodSpec, frozen=True, kw_only=True):
    containers: tuple[LintContainer, ...] | None = None
    init_containers: tuple[LintContainer, ...] | None = None
    node_selector: dict[str, str] | None = None
    priority: int | None = None
    scheduler_name: str | None = None
    restart_policy: str | None = None
    tolerations: tuple[Toleration, ...] | None = None


class Replicated(Wire, frozen=True, kw_only=True):
    replicas: int | None = None


class OnExitCodes(Wire, frozen=True, kw_only=True):
    container_name: str | None = None
    operator: str | None = None
    values: tuple[int, ...] | None = None


class OnPodCondition(Wire, frozen=True, kw_only=True):
    type: str | None = None
    status: str | None = None


class FailureRule(Wire, frozen=True, kw_only=True):
    action: str | None = None
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: tuple[OnPodCondition, ...] | None = None


class FailurePolicy(Wire, frozen=True, kw_only=True):
    rules: tuple[FailureRule, ...] | None = None


class JobSpec(Wire, frozen=True, kw_only=True):
    parallelism: int | None = None
    completions: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    completion_mode: str | None = None
    pod_replacement_policy: str | None = None
    suspend: bool | None = None
    pod_failure_policy: FailurePolicy | None = None
