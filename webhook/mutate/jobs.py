"""What is injected into Jobs and JobSets: how failures by devices and disruptions are counted.

A Job gets a podFailurePolicy and the fields that this needs, all or none. Its rules ignore failures
by disruption and by a failed device, then fail the Job on the policy's exit codes. A JobSet gets
the failurePolicy of its DevicePolicy. All of it is immutable once the object exists. What the
author wrote stays.
"""

from typing import Any

import msgspec

from fettle.api.raw import Raw
from fettle.lint import IN_PLACE_RESTART, Field, in_place_errors, workload_kinds
from fettle.model import DEVICE_FAILED, JOB_EXIT_CODES, Failure
from webhook.mutate.injection import Injection
from webhook.patches import fields_matching

DEFAULT_BACKOFF_LIMIT = 6
"""What a Job has that says nothing."""
REFUSALS_LEFT = 6
"""How many refusals by kubelets an injected backoffLimit leaves room for."""
DEFAULT_REPLACEMENT = "TerminatingOrFailed"
_MAX_INT32 = 2**31 - 1
_IGNORED = ("DisruptionTarget", DEVICE_FAILED)
_ONLY_WITH_NEVER = (
    "podFailurePolicy",
    "podReplacementPolicy",
    "backoffLimitPerIndex",
    "backoffLimit",
)
"""Fields that make sense only with restartPolicy Never."""
_JOBSET_DEFAULTS = {"maxRestarts": 0, "restartStrategy": "Recreate", "rules": []}
"""What the API adds to an empty failurePolicy, which means the same as none."""


# --- Jobs


def inject_job_failure_policy(injection: Injection, failure: Failure) -> None:
    """Into a new Job: a retry limit for each index, and a podFailurePolicy."""
    if not _wanted(failure):
        return
    _remove_if_restarted(injection)
    spec = injection.read("spec")
    if why := _why_not_countable(spec):
        injection.warn(why)
        return
    if why := _what_is_missing(injection, spec, failure):
        injection.warn(why)
    if why := _why_refusals_may_fail_it(spec, failure):
        injection.warn(why)
    _limit_each_index(injection, spec, failure)
    if failure.ignore_disruptions or failure.fail_job_on_exit_codes:
        _inject_failure_policy(injection, failure)


def annotate_exit_codes(injection: Injection, failure: Failure) -> None:
    """List on the pod template the exit codes on which its containers must not restart.

    The rules of the Job's podFailurePolicy act on them, and for that the pod must fail.
    """
    spec = injection.read("spec")
    field = spec.at("template", "metadata", "annotations", JOB_EXIT_CODES)
    codes = _acted_on(spec, failure)
    if codes and not field.exists:
        injection.set(field, ",".join(map(str, codes)))
        injection.warn(_not_restarted(spec, codes))


def warn_of_job_templates(
    injection: Injection, failure: Failure, path: workload_kinds.Path
) -> None:
    """Warn of what the Jobs that are made from these specs would lack."""
    for spec in fields_matching(injection.document, path):
        if codes := _acted_on(spec, failure):
            injection.warn(_not_restarted(spec, codes))
        why = _why_not_countable(spec)
        if why and _wanted(failure):
            injection.warn(f"{spec.path}: {why}")
            continue
        if why := _what_is_missing(injection, spec, failure):
            injection.warn(why)
        # A JobSet's Jobs fail so that it restarts them all; its own maxRestarts counts.
        in_jobset = injection.document.get("kind") == "JobSet"
        if not in_jobset and (why := _why_refusals_may_fail_it(spec, failure)):
            injection.warn(why)


def _remove_if_restarted(injection: Injection) -> None:
    """Remove what an earlier injection added, if the pods may restart by now.

    Another webhook may have changed restartPolicy; the API server would refuse the Job.
    """
    spec = injection.read("spec")
    if spec.text("template", "spec", "restartPolicy") == "Never":
        return
    for field in map(spec.at, _ONLY_WITH_NEVER):
        if field.exists and injection.before.values.get(field.path) == field.value:
            injection.remove(field)


def _wanted(failure: Failure) -> bool:
    return bool(
        failure.ignore_disruptions
        or failure.fail_job_on_exit_codes
        or failure.backoff_limit_per_index is not None
    )


def _why_not_countable(spec: Field) -> str:
    """Why failures by devices cannot be counted apart from others; "" if they can."""
    if spec.at("podFailurePolicy").exists:
        return ""
    restart = spec.text("template", "spec", "restartPolicy")
    if restart == "Never":
        return ""
    return (
        f"restartPolicy is {restart or 'not set'}, so device failures count against backoffLimit; "
        "use Never"
    )


def _what_is_missing(injection: Injection, spec: Field, failure: Failure) -> str:
    """What the author's podFailurePolicy lacks; "" if there is none, or it lacks nothing."""
    own = spec.at("podFailurePolicy")
    if not own.exists or own.path in injection.before.values:
        return ""
    rules = [*own.each("rules")]
    ignored = {
        condition.text("type")
        for rule in rules
        if rule.text("action") == "Ignore"
        for condition in rule.each("onPodConditions")
    }
    lacking = [c for c in _IGNORED if failure.ignore_disruptions and c not in ignored]
    failed = {
        code
        for rule in rules
        if rule.text("action") == "FailJob" and rule.text("onExitCodes", "operator") == "In"
        for code in _codes(rule.at("onExitCodes", "values"))
    }
    missed = sorted({*failure.fail_job_on_exit_codes} - failed)
    said = [f"does not ignore {' and '.join(lacking)}"] if lacking else []
    said += [f"does not fail the Job on {', '.join(map(str, missed))}"] if missed else []
    if not said:
        return ""
    return f"{own.path} is left as written, and {', '.join(said)}"


def _why_refusals_may_fail_it(spec: Field, failure: Failure) -> str:
    """How refusals by kubelets can fail the Job by the limit that its author wrote; "" if a few
    cannot.

    No podFailurePolicy matches such a pod: it has no exit code and no condition.
    """
    written, at_once = spec.at("backoffLimit"), _pods_at_once(spec)
    limit = spec.integer("backoffLimit")
    if limit is None or not failure.ignore_disruptions:
        return ""
    raised = not spec.at("podFailurePolicy").exists and _backoff_limit(spec) is not None
    if raised or limit >= max(DEFAULT_BACKOFF_LIMIT, at_once):
        return ""
    pods = "one pod that its kubelet refuses" if limit == 0 else f"{limit + 1} such pods"
    gang = f", and {at_once} run at once" if at_once > max(limit, 1) else ""
    counts = "a pod that its kubelet refuses counts against it, whatever podFailurePolicy says"
    return f"{written.path} is {limit}: {counts}, so {pods} can fail the Job{gang}"


def _acted_on(spec: Field, failure: Failure) -> list[int]:
    """The exit codes to restart on that a rule of the podFailurePolicy acts on too."""
    restarted: set[int] = {*failure.restart_container_on_exit_codes}
    found: set[int] = set()
    for rule in spec.each("podFailurePolicy", "rules"):
        on = rule.at("onExitCodes")
        named = restarted & _codes(on.at("values"))
        found |= {"In": named, "NotIn": restarted - named}.get(on.text("operator"), set())
    return sorted(found)


def _not_restarted(spec: Field, codes: list[int]) -> str:
    listed = ", ".join(map(str, codes))
    return (
        f"{spec.at('podFailurePolicy').path} acts on exit codes that the policy restarts "
        f"containers on, so they are not restarted on {listed}"
    )


def _codes(values: Field) -> set[int]:
    return {code.value for code in values.entries() if isinstance(code.value, int)}


def _inject_failure_policy(injection: Injection, failure: Failure) -> None:
    spec = injection.read("spec")
    if spec.at("podFailurePolicy").exists:
        return
    injection.set(spec.at("podFailurePolicy"), {"rules": _rules(failure)})
    # A podFailurePolicy is valid only with `Failed`; the API's default counts as not written.
    if (replacement := spec.at("podReplacementPolicy")).value in (None, DEFAULT_REPLACEMENT):
        injection.set(replacement, "Failed")
    if failure.ignore_disruptions and (limit := _backoff_limit(spec)) is not None:
        injection.set(spec.at("backoffLimit"), limit)


def _rules(failure: Failure) -> list[Raw]:
    # The first rule that matches counts, and an evicted pod has an exit code too: so the rules for
    # conditions come first.
    rules = [_ignore(condition) for condition in _IGNORED if failure.ignore_disruptions]
    if failure.fail_job_on_exit_codes:
        values = sorted(failure.fail_job_on_exit_codes)
        rules.append({"action": "FailJob", "onExitCodes": {"operator": "In", "values": values}})
    return rules


def _ignore(condition: str) -> Raw:
    return {"action": "Ignore", "onPodConditions": [{"type": condition, "status": "True"}]}


def _limit_each_index(injection: Injection, spec: Field, failure: Failure) -> None:
    """A limit for each index needs a limit for the whole Job that is never reached first."""
    if failure.backoff_limit_per_index is None or spec.text("completionMode") != "Indexed":
        return
    per_index, whole = spec.at("backoffLimitPerIndex"), spec.at("backoffLimit")
    if per_index.exists or spec.text("template", "spec", "restartPolicy") != "Never":
        return
    injection.set(per_index, failure.backoff_limit_per_index)
    if whole.value in (None, DEFAULT_BACKOFF_LIMIT):
        injection.set(whole, _MAX_INT32)


def _backoff_limit(spec: Field) -> int | None:
    """The backoffLimit to set: six incidents, though each fails all pods that run at once, and
    some refusals by kubelets. None: leave it as it is.

    A device that crashes a gang fails all its pods before anybody can mark them as failed by the
    device. No rule can tell a pod that its kubelet refused (decision 0006).
    """
    # With a limit for each index, the API's default is no longer 6.
    if spec.at("backoffLimitPerIndex").exists:
        return None
    if spec.at("backoffLimit").exists and spec.integer("backoffLimit") != DEFAULT_BACKOFF_LIMIT:
        return None
    at_once = max(_pods_at_once(spec), 1)
    return min(DEFAULT_BACKOFF_LIMIT * at_once + REFUSALS_LEFT, _MAX_INT32)


def _pods_at_once(spec: Field) -> int:
    """How many of a Job's pods run at once, and so may be bound before a kubelet refuses one."""
    parallelism = spec.integer("parallelism")
    parallelism = 1 if parallelism is None else parallelism
    completions = spec.integer("completions")
    return parallelism if completions is None else min(parallelism, completions)


# --- JobSets


def inject_jobset_failure_policy(
    injection: Injection, failure: Failure, *, in_place_served: bool
) -> None:
    """Into a new JobSet, unless its author wrote a failurePolicy that has any effect.

    `in_place_served`: whether the cluster's JobSets may restart in place.
    """
    spec = injection.read("spec")
    own = spec.at("failurePolicy")
    if _has_effect(own.value) or failure.job_set is None:
        return
    there = {job.text("name") for job in spec.each("replicatedJobs")}
    wanted: Raw = msgspec.to_builtins(failure.job_set)
    rules = [_narrowed(injection, rule, there) for rule in wanted["rules"]]
    if wanted["restartStrategy"] == IN_PLACE_RESTART:
        whys = _why_not_in_place(injection) if in_place_served else [_NOT_SERVED]
        if whys:
            wanted = {**wanted, "restartStrategy": None}
            left_out = f"restartStrategy: {IN_PLACE_RESTART} is left out"
            injection.warn(f"{left_out}: {'; '.join(whys[:_MOST_WHYS])}")
    wanted = _compact({**wanted, "rules": [rule for rule in rules if rule is not None]})
    if _has_effect(wanted):
        injection.set(own, wanted)


_NOT_SERVED = "the JobSet that this cluster serves does not have it, or this is not known yet"
_MOST_WHYS = 4
_AGENT = frozenset(("JOBSET_NAME", "POD_NAME"))
"""What the in-place-restart-agent must be told: kubernetes-sigs/jobset, cmd/in-place-restart-agent.
Nobody restarts the other pods of a JobSet without it."""
_NO_AGENT = "jobset.sigs.k8s.io/disable-in-place-restart"


def _why_not_in_place(injection: Injection) -> list[str]:
    """Why JobSet would refuse a JobSet that restarts in place, or nothing would restart it."""
    found = []
    if _NO_AGENT in injection.read("metadata").strings("annotations"):
        found.append(f"it has the annotation {_NO_AGENT}")
    for entry in injection.read("spec").each("replicatedJobs"):
        job = entry.at("template", "spec")
        found += [f"{field.path} {why}: {hint}" for field, why, hint in in_place_errors(job)]
        pod = job.at("template", "spec")
        containers = (c for group in ("initContainers", "containers") for c in pod.each(group))
        if not any({v.text("name") for v in c.each("env")} >= _AGENT for c in containers):
            found.append(f"{pod.path} has no container of JobSet's in-place-restart-agent")
    return found


def _narrowed(injection: Injection, rule: Raw, there: set[str]) -> Raw | None:
    """The rule for the replicated Jobs that exist; None if none of its own do.

    JobSet refuses a rule that names others, and a rule for no Jobs would apply to all.
    """
    targets = rule["targetReplicatedJobs"]
    kept = [name for name in targets if name in there]
    if len(kept) == len(targets):
        return rule
    absent = ", ".join(name for name in targets if name not in there)
    outcome = f"is only for {', '.join(kept)}" if kept else "is left out"
    injection.warn(f"there is no replicated Job {absent}, so its rule {rule['name']} {outcome}")
    return {**rule, "targetReplicatedJobs": kept} if kept else None


def _has_effect(written: Any) -> bool:
    if not isinstance(written, dict):
        return written is not None
    return any(value not in (None, _JOBSET_DEFAULTS.get(key)) for key, value in written.items())


def _compact(value: Any) -> Any:
    """Without null fields, which the API's schema does not allow."""
    if isinstance(value, dict):
        return {key: _compact(entry) for key, entry in value.items() if entry not in (None, [], ())}
    return [_compact(entry) for entry in value] if isinstance(value, list | tuple) else value
