"""Rules about failing pods: how Jobs count them, and which containers restart instead.

The API server refuses some mistakes in a Job (`job_errors`, a port of batch/validation), but not
inside a JobSet, whose child Jobs then cannot be created.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from fettle.api.raw import integer
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Field, Manifest
from fettle.lint.names import listed, nearest
from fettle.model import DEVICE_FAILED

EVICTED = 143
"""The exit code of a container that SIGTERM ends, as an eviction does."""
_CONDITIONS = (
    "DisruptionTarget",
    DEVICE_FAILED,
    "AllContainersRestarting",
    "ConfigIssue",
    "ContainersReady",
    "Initialized",
    "PodHasNetwork",
    "PodReadyToStartContainers",
    "PodResizeInProgress",
    "PodResizePending",
    "PodScheduled",
    "Ready",
)
_KUBELET_VERSION = re.compile(r"v(\d{1,3})\.(\d{1,3})")


class FailurePolicyNeedsNever(Rule):
    """A JobSet's Job with a podFailurePolicy whose restartPolicy is not Never."""

    id = "FTL046"
    reproduced = True
    name = "failure-policy-needs-never"
    severity = Severity.DENY
    today = (
        "The JobSet is accepted (its own webhook defaults restartPolicy to OnFailure), and its "
        "child Jobs are refused; as a Job it is refused at once."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for job in _jobs_of_job_set(manifest):
            restart = job.at("template", "spec", "restartPolicy")
            if job.raw("podFailurePolicy") and restart.value != "Never":
                yield self.finding(
                    restart,
                    f"is {restart.value or 'not set (OnFailure in a JobSet)'}, and a Job with a "
                    "podFailurePolicy needs Never",
                    "write restartPolicy: Never",
                )


class InvalidFailurePolicy(Rule):
    """A JobSet's Job with a podFailurePolicy that the API refuses in a Job."""

    id = "FTL047"
    reproduced = True
    name = "invalid-failure-policy"
    severity = Severity.DENY
    today = (
        "The JobSet is accepted, and its child Jobs are refused; as a Job it is refused at once."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for job in _jobs_of_job_set(manifest):
            for field, message in (*job_errors(job), *_union_errors(job)):
                yield self.finding(field, message)


def _jobs_of_job_set(manifest: Manifest) -> tuple[Field, ...]:
    return manifest.jobs if manifest.kind == "JobSet" else ()


def job_errors(job: Field, *, by_default: str = "Indexed") -> Iterator[tuple[Field, str]]:
    """What the API refuses in a Job's limits and podFailurePolicy, `by_default` of this mode:
    JobSet's webhook writes Indexed."""
    indexed = (job.text("completionMode") or by_default) == "Indexed"
    per_index = job.at("backoffLimitPerIndex")
    if per_index.exists and not indexed:
        yield per_index, "needs completionMode: Indexed"
    if job.at("maxFailedIndexes").exists and not per_index.exists:
        yield job.at("maxFailedIndexes"), "needs backoffLimitPerIndex"
    replacement = job.at("podReplacementPolicy")
    if job.raw("podFailurePolicy") and replacement.value not in (None, "Failed"):
        yield replacement, "must be Failed with a podFailurePolicy"
    for rule in failure_rules(job):
        if rule.text("action") == "FailIndex" and not per_index.exists:
            yield rule.at("action"), "FailIndex needs backoffLimitPerIndex"
        if rule.raw("onExitCodes") and not rule.at("onPodConditions").value:
            yield from _exit_code_errors(rule.at("onExitCodes"))


IN_PLACE_RESTART = "InPlaceRestart"
MAX_INT32 = 2**31 - 1


def in_place_errors(job: Field) -> Iterator[tuple[Field, str, str]]:
    """Why JobSet's webhook refuses a Job of a JobSet with restartStrategy: InPlaceRestart, and what
    to write: kubernetes-sigs/jobset, pkg/webhooks/jobset_webhook.go."""
    limit, replacement = job.at("backoffLimit"), job.at("podReplacementPolicy")
    if limit.value != MAX_INT32:
        said = "is not set" if limit.value is None else f"is {limit.value}"
        yield limit, said, f"write backoffLimit: {MAX_INT32}"
    if replacement.value != "Failed":
        said = "is not set" if replacement.value is None else f"is {replacement.value}"
        yield replacement, said, "write podReplacementPolicy: Failed"
    completions, parallelism = job.at("completions"), job.at("parallelism")
    if completions.value is None or completions.value != parallelism.value:
        counts = completions.value, parallelism.value
        shown = ["not set" if count is None else str(count) for count in counts]
        yield (
            completions,
            f"is {shown[0]}, parallelism {shown[1]}",
            "write the same number for both",
        )


def _union_errors(job: Field) -> Iterator[tuple[Field, str]]:
    for rule in failure_rules(job):
        if bool(rule.at("onExitCodes").value) == bool(rule.at("onPodConditions").value):
            yield rule, "needs exactly one of onExitCodes and onPodConditions"


def _exit_code_errors(codes: Field) -> Iterator[tuple[Field, str]]:
    field = codes.at("values")
    values = [n for entry in field.entries() if (n := integer(entry.value)) is not None]
    if not 1 <= len(values) <= 255:
        yield field, f"needs 1 to 255 values, not {len(values)}"
    if values != sorted(set(values)):
        yield field, "must be ascending, without duplicates"
    if codes.text("operator") == "In" and 0 in values:
        yield field, "cannot contain 0 with operator In: 0 is not a failure"


class ExitCodeBeforeDisruption(Rule):
    """A rule on exit codes fails the Job before any rule that ignores disruptions is reached."""

    id = "FTL048"
    reproduced = True
    name = "exit-code-before-disruption"
    severity = Severity.WARN
    today = "The first rule that matches wins: an evicted pod, which ends with 143, fails the Job."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for job in manifest.jobs:
            rules = failure_rules(job)
            if (failing := _fails_evicted(rules)) is None:
                continue
            evicted = f"matches exit code {EVICTED} of evicted pods"
            if (ignoring := next(filter(_ignores_disruption, rules), None)) is not None:
                message = f"{evicted} before {ignoring.path} could ignore them"
                yield self.finding(failing, message, "put the rule on DisruptionTarget first")
            else:
                message = f"{evicted}, and no rule ignores disruptions"
                fix = "put a rule before it with action: Ignore on the condition DisruptionTarget"
                yield self.finding(failing, message, fix)


class UnknownPodCondition(Rule):
    """A rule on a pod condition whose type is almost, but not quite, one that exists."""

    id = "FTL050"
    reproduced = True
    name = "unknown-condition"
    severity = Severity.WARN
    today = "Any qualified name is accepted; the rule never matches."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for job in manifest.jobs:
            for rule in failure_rules(job):
                for condition in rule.each("onPodConditions"):
                    name = condition.text("type")
                    if name not in _CONDITIONS and (near := nearest(name, _CONDITIONS)):
                        message = f"pods have no condition {name!r}, but there is {near!r}"
                        yield self.finding(condition.at("type"), message, f"write {near}")


class ImpossibleExitCode(Rule):
    """An exit code above 255."""

    id = "FTL051"
    name = "impossible-exit-code"
    reproduced = True
    severity = Severity.WARN
    today = "Accepted, but never matches: an exit code has eight bits."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for job in manifest.jobs:
            for rule in failure_rules(job):
                for entry in rule.entries("onExitCodes", "values"):
                    code = integer(entry.value)
                    if code is not None and code > 255:
                        yield self.finding(
                            entry,
                            f"{code} is not an exit code: they range from 0 to 255",
                            "write the code that the container exits with, or leave it out",
                        )


class _ExitCodes(NamedTuple):
    operator: str
    values: tuple[int, ...]

    def matches(self, code: int) -> bool:
        if self.operator == "In":
            return code in self.values
        return self.operator == "NotIn" and code not in self.values


def _exit_codes(rule: Field) -> _ExitCodes:
    values = (integer(entry.value) for entry in rule.entries("onExitCodes", "values"))
    return _ExitCodes(
        rule.text("onExitCodes", "operator"), tuple(n for n in values if n is not None)
    )


def failure_rules(job: Field) -> list[Field]:
    return list(job.each("podFailurePolicy", "rules"))


def _fails_evicted(rules: list[Field]) -> Field | None:
    """The rule on exit codes that fails the Job for an evicted pod, whose containers all end with
    143. The first rule that matches decides: it may also be one on disruptions."""
    for rule in rules:
        if _is_about_disruption(rule):
            return None
        if _exit_codes(rule).matches(EVICTED):
            return rule if rule.text("action") == "FailJob" else None
    return None


def _is_about_disruption(rule: Field) -> bool:
    conditions = (condition.text("type") for condition in rule.each("onPodConditions"))
    return "DisruptionTarget" in conditions


def _ignores_disruption(rule: Field) -> bool:
    return rule.text("action") == "Ignore" and _is_about_disruption(rule)


class DeadExitCode(Rule):
    """A rule on an exit code after which the container is restarted in its pod."""

    id = "FTL052"
    name = "dead-exit-code"
    on_node = True
    severity = Severity.WARN
    today = "The pod does not fail, so the Job's rule never sees the code."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for job in manifest.jobs:
            restarted = _restarting_rules(job)
            for rule in job.each("podFailurePolicy", "rules"):
                for entry in rule.entries("onExitCodes", "values"):
                    if (code := integer(entry.value)) is None:
                        continue
                    container = rule.text("onExitCodes", "containerName")
                    by = restarted.get((container or None, code))
                    if by is not None and rule.text("onExitCodes", "operator") == "In":
                        yield self.finding(
                            entry,
                            f"{by} restarts the container on {code}, so the pod does not fail",
                            "keep the code in one of the two",
                        )


class UnknownRestart(Rule):
    """RestartAllContainers, where some kubelets are too old for it."""

    id = "FTL053"
    name = "restart-not-supported"
    on_node = True
    severity = Severity.WARN
    inventory = True
    today = "Kubelets before 1.36 ignore the rule, and the pod fails as it does without it."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        old = {version: n for version, n in cluster.kubelets.items() if _before_1_36(version)}
        if not old:
            return
        for pod in manifest.pods:
            for container in pod.containers:
                for rule in container.each("restartPolicyRules"):
                    if rule.text("action") == "RestartAllContainers":
                        yield self.finding(
                            rule.at("action"),
                            f"{sum(old.values())} of {sum(cluster.kubelets.values())} nodes run a "
                            f"kubelet that ignores it ({listed(old)})",
                            "update these nodes, or keep the pods off them",
                        )


def _before_1_36(version: str) -> bool:
    match = _KUBELET_VERSION.match(version)
    return match is not None and (int(match[1]), int(match[2])) < (1, 36)


def _restarting_rules(job: Field) -> dict[tuple[str | None, int | None], str]:
    """(container, exit code) → path of the rule that restarts the container on it.

    The container None stands for any container.
    """
    found: dict[tuple[str | None, int | None], str] = {}
    for container in job.each("template", "spec", "containers"):
        for rule in container.each("restartPolicyRules"):
            if rule.text("action") == "Restart" and rule.text("exitCodes", "operator") == "In":
                for entry in rule.entries("exitCodes", "values"):
                    for name in (container.text("name"), None):
                        found.setdefault((name, integer(entry.value)), rule.path)
    return found
