"""Rules about Jobs and CronJobs that the API server refuses."""

import re
from collections.abc import Iterator
from zoneinfo import available_timezones

from fettle.lint.findings import Finding, Refusal
from fettle.lint.manifests import Field, Manifest
from fettle.lint.names import is_mark, nearest
from fettle.lint.refusals.wording import why_no_label, why_no_schedule
from fettle.lint.rules.jobs import (
    IN_PLACE_RESTART,
    failure_rules,
    in_place_errors,
    job_errors,
)
from fettle.model import shown, why_no_rule_name

_CRON_FIELDS = 5


def _jobs(manifest: Manifest) -> tuple[Field, ...]:
    return manifest.jobs if manifest.group == "batch" else ()


class WrongFailurePolicy(Refusal):
    """A Job whose podFailurePolicy or limits per index do not fit the rest of it."""

    id = "FTL230"
    name = "wrong-failure-policy"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for job in _jobs(manifest):
            restart = job.at("template", "spec", "restartPolicy")
            if job.raw("podFailurePolicy") and restart.value not in (None, "Never", "Always"):
                message = f"is {restart.value}, and a podFailurePolicy needs Never"
                yield self.finding(restart, message, "write restartPolicy: Never")
            for field, message in job_errors(job, by_default="NonIndexed"):
                yield self.finding(field, message)


class UnknownPolicyContainer(Refusal):
    """A rule on exit codes for a container that the pod does not have."""

    id = "FTL231"
    name = "unknown-policy-container"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for job in manifest.jobs:
            pod = job.at("template", "spec")
            names = [c.text("name") for g in _CONTAINERS for c in pod.each(g)]
            for rule in failure_rules(job):
                named = rule.at("onExitCodes", "containerName")
                if isinstance(named.value, str) and named.value and named.value not in names:
                    near = nearest(named.value, names)
                    message = f"the pod has no container {named.value!r}, but {', '.join(names)}"
                    yield self.finding(named, message, f"write {near}" if near else "")


_CONTAINERS = ("containers", "initContainers")


class JobRestartsAlways(Refusal):
    """A Job whose pods restart always, which is the default."""

    id = "FTL232"
    name = "job-restarts-always"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for job in _jobs(manifest):
            restart = job.at("template", "spec", "restartPolicy")
            if job.raw("template", "spec") and restart.value in (None, "", "Always"):
                yield self.finding(restart, _ONCE, _NEVER)
        if manifest.group == _JOB_SET:  # whose webhook makes OnFailure of none
            for job in manifest.jobs:
                restart = job.at("template", "spec", "restartPolicy")
                if restart.value == "Always":
                    yield self.finding(restart, _ONCE, _NEVER)


_JOB_SET = "jobset.x-k8s.io"
_ONCE, _NEVER = "must be OnFailure or Never in a Job", "write restartPolicy: Never"


class WrongIndexes(Refusal):
    """A Job that counts indexes though it is not Indexed, or Indexed without completions."""

    id = "FTL233"
    name = "wrong-indexes"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for job in _jobs(manifest):
            indexed = job.text("completionMode") == "Indexed"
            completions = job.integer("completions")
            if indexed and completions is None:
                yield self.finding(job.at("completions"), "is required in an Indexed Job")
            if job.at("successPolicy").exists and not indexed:
                message = "needs completionMode: Indexed"
                yield self.finding(job.at("successPolicy"), message, f"write {message[6:]}")
            most = job.integer("maxFailedIndexes")
            if completions is not None and most is not None and most > completions:
                yield self.finding(job.at("maxFailedIndexes"), "is more than completions")


class WrongSchedule(Refusal):
    """A CronJob whose schedule has not five fields."""

    id = "FTL234"
    name = "wrong-schedule"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != ("batch", "CronJob"):
            return
        schedule = manifest.root.at("spec", "schedule")
        said = schedule.value
        if not isinstance(said, str) or not said or said.startswith("@") or is_mark(said):
            return
        if "TZ" in said:
            yield self.finding(schedule, "may name no time zone", "write timeZone")
        elif len(said.split()) != _CRON_FIELDS:
            message = f"{said!r} has {len(said.split())} fields, and needs {_CRON_FIELDS}"
            yield self.finding(schedule, message)


class WrongSuccessPolicy(Refusal):
    """A successPolicy that counts what the Job does not have."""

    id = "FTL236"
    name = "wrong-success-policy"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for job in _jobs(manifest):
            policy, completions = job.at("successPolicy"), job.integer("completions")
            if not policy.exists or job.text("completionMode") != "Indexed":
                continue
            if not policy.at("rules").value:
                yield self.finding(policy.at("rules"), "needs at least one rule")
            for rule in policy.each("rules"):
                yield from self._rule(rule, completions)

    def _rule(self, rule: Field, completions: int | None) -> Iterator[Finding]:
        indexes, count = rule.at("succeededIndexes"), rule.integer("succeededCount")
        most = completions
        if count is None and indexes.value is None:
            yield self.finding(rule, "needs one of succeededCount and succeededIndexes")
        if indexes.text() and completions is not None and not is_mark(indexes.text()):
            found = _indexes(indexes.text(), completions)
            if found is None:
                message = f"must be indexes below {completions} in order, such as 0,2-4"
                yield self.finding(indexes, message)
            most = found
        if count is not None and most is not None and count > most:
            yield self.finding(rule.at("succeededCount"), f"is more than there are, {most}")


def _indexes(said: str, completions: int) -> int | None:
    """How many indexes `0,2-4` means; None if it is wrong."""
    last, total = -1, 0
    for part in said.split(","):
        first, dash, end = part.partition("-")
        if not _NUMBER.fullmatch(first) or (dash and not _NUMBER.fullmatch(end)):
            return None
        low, high = int(first), int(end or first)
        if not last < low <= high < completions or (dash and low == high):
            return None
        last, total = high, total + high - low + 1
    return total


_NUMBER = re.compile(r"[0-9]{1,9}")


class WrongTime(Refusal):
    """A CronJob whose schedule or time zone is none."""

    id = "FTL237"
    name = "wrong-time"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != ("batch", "CronJob"):
            return
        schedule, zone = manifest.root.at("spec", "schedule"), manifest.root.at("spec", "timeZone")
        said = schedule.value if isinstance(schedule.value, str) else ""
        is_put_in = is_mark(said.lstrip("@")) or said.endswith("@")
        if said and not is_put_in and (why := why_no_schedule(said)):
            yield self.finding(schedule, why)
        named = isinstance(zone.value, str) and not is_mark(zone.value)
        if named and not _is_zone(zone.text()):
            message = f"{zone.text()[:80]!r} is no time zone"
            yield self.finding(zone, message, "write one such as Etc/UTC")


def _is_zone(name: str) -> bool:
    """Whether it is the name of a time zone; a machine that knows none says so of all that look
    like one."""
    if not name or name.lower() == "local" or not _ZONE.fullmatch(name):
        return False
    return name == "UTC" or not (known := available_timezones()) or name in known


_ZONE = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+][A-Za-z0-9_+-]*)*")


class WrongJobLimits(Refusal):
    """A Job with its own selector, with a name that its pods cannot have, or with more indexes than
    may be."""

    id = "FTL238"
    name = "wrong-job-limits"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for job in _jobs(manifest):
            selector, own = job.at("selector"), job.at("manualSelector")
            is_own = own.value is True
            if manifest.kind == "Job" and is_own and not selector.exists:
                yield self.finding(selector, "is required with manualSelector: true")
            elif manifest.kind == "Job" and selector.exists and not is_own:
                yield self.finding(selector, "is made by the API server", "leave it out")
            elif manifest.kind == "CronJob" and (is_own or selector.exists):
                yield self.finding(own if is_own else selector, "may not be set in a CronJob")
            for field, message in _limits(job):
                yield self.finding(field, message)
            if manifest.kind == "Job":
                yield from self._name(manifest, job)

    def _name(self, manifest: Manifest, job: Field) -> Iterator[Finding]:
        name, labels = (
            manifest.root.at("metadata", "name"),
            job.at("template", "metadata", "labels"),
        )
        for key in ("batch.kubernetes.io/job-name", "job-name"):
            said = labels.strings().get(key)
            if name.text() and said is not None and said != name.text():
                yield self.finding(labels.at(key), f"must be the name of the Job, {name.text()}")
        if len(name.text()) > _LONGEST_JOB:
            message = f"is longer than {_LONGEST_JOB} characters, which labels of its pods may have"
            yield self.finding(name, message)
        last = (job.integer("completions") or 0) - 1
        indexed = job.text("completionMode") == "Indexed" and last >= 0 and name.text()
        if indexed and (why := why_no_label(f"{name.text()}-{last}")):
            yield self.finding(name, f"with -{last} behind it {why}")


def _limits(job: Field) -> Iterator[tuple[Field, str]]:
    if job.text("completionMode") != "Indexed":
        return
    parallel, failed = job.integer("parallelism") or 0, job.integer("maxFailedIndexes")
    many = (job.integer("completions") or 0) > _MANY and job.at("backoffLimitPerIndex").exists
    most = _MOST_OF_MANY if many else _MANY
    if parallel > most:
        yield job.at("parallelism"), f"must be at most {most} in such a Job"
    if many and failed is None:
        yield job.at("maxFailedIndexes"), f"is required with more than {_MANY} completions"
    elif failed is not None and failed > most:
        yield job.at("maxFailedIndexes"), f"must be at most {most} in such a Job"


_MANY, _MOST_OF_MANY, _LONGEST_JOB = 100_000, 10_000, 63


class WrongJobSetTarget(Refusal):
    """A JobSet with two replicated jobs of one name, or a policy for one that it does not have."""

    id = "FTL235"
    name = "wrong-replicated-job"
    today = "JobSet's webhook refuses it."

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != (_JOB_SET, "JobSet"):
            return
        spec = manifest.root.at("spec")
        entries = list(spec.each("replicatedJobs"))
        names = [entry.text("name") for entry in entries]
        for index, (entry, name) in enumerate(zip(entries, names, strict=True)):
            if name and name in names[:index]:
                yield self.finding(entry.at("name"), f"{name} is the name of another one already")
        for field in _targets(spec, entries):
            if isinstance(field.value, str) and field.value not in names:
                near = nearest(field.value, names)
                message = f"the JobSet has no replicated job {field.value!r}"
                yield self.finding(field, message, f"write {near}" if near else "")


class InPlaceRestartUnmet(Refusal):
    """A JobSet that restarts in place, whose Jobs do not meet what JobSet requires of them then."""

    id = "FTL245"
    name = "no-restart-in-place"
    today = "JobSet's webhook refuses it."

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != ("jobset.x-k8s.io", "JobSet"):
            return
        strategy = manifest.root.at("spec", "failurePolicy", "restartStrategy")
        if strategy.value != IN_PLACE_RESTART:
            return
        for job in manifest.jobs:
            for field, said, hint in in_place_errors(job):
                message = f"{said}, which restartStrategy: {IN_PLACE_RESTART} does not allow"
                yield self.finding(field, message, hint)


class WrongFailureRule(Refusal):
    """A JobSet with a rule in its failurePolicy whose name is wrong or another's, or that restarts
    alone one of more than 1024 replicas."""

    id = "FTL246"
    name = "wrong-failure-rule"
    today = "JobSet's webhook refuses it."

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != (_JOB_SET, "JobSet"):
            return
        spec = manifest.root.at("spec")
        rules = list(spec.each("failurePolicy", "rules"))
        first: dict[str, int] = {}
        for index, rule in enumerate(rules):
            name = rule.text("name") or f"failurePolicyRule{index}"  # as the webhook calls it
            if (before := first.setdefault(name, index)) != index:
                message = f"{shown(name)} is the name of rules {before} and {index}"
                yield self.finding(rule.at("name"), message, "give each its own name")
            elif not is_mark(name) and (why := why_no_rule_name(name)):
                yield self.finding(rule.at("name"), f"{shown(name)} {why}")
        alone = [(index, r) for index, r in enumerate(rules) if r.text("action") in _ALONE]
        for job in spec.each("replicatedJobs") if alone else ():
            if (job.integer("replicas") or 0) > _MOST_ALONE:
                index, rule = alone[0]
                action, named = rule.text("action"), rule.text("name") or f"{index}"
                message = f"is {job.integer('replicas')}, and rule {shown(named)} has action: "
                yield self.finding(
                    job.at("replicas"), f"{message}{action}, which allows {_MOST_ALONE}"
                )


_ALONE, _MOST_ALONE = ("RestartJob", "RestartJobAndIgnoreMaxRestarts"), 1024


def _targets(spec: Field, jobs: list[Field]) -> Iterator[Field]:
    yield from spec.entries("successPolicy", "targetReplicatedJobs")
    yield spec.at("coordinator", "replicatedJob")
    for rule in spec.each("failurePolicy", "rules"):
        yield from rule.entries("targetReplicatedJobs")
    for job in jobs:
        yield from (entry.at("name") for entry in job.each("dependsOn"))
