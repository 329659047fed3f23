"""Rules about Jobs and CronJobs that the API server refuses."""

from collections.abc import Iterator

from fettle.lint.findings import Finding, Refusal
from fettle.lint.manifests import Field, Manifest
from fettle.lint.names import is_mark, nearest
from fettle.lint.rules.jobs import failure_rules, job_errors

_CRON_FIELDS = 5
_RESTARTS = ("OnFailure", "Never")


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
                message = "must be OnFailure or Never in a Job"
                yield self.finding(restart, message, "write restartPolicy: Never")


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


class WrongJobSetTarget(Refusal):
    """A JobSet with two replicated jobs of one name, or a policy for one that it does not have."""

    id = "FTL235"
    name = "wrong-replicated-job"
    today = "JobSet's webhook refuses it."

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != ("jobset.x-k8s.io", "JobSet"):
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


def _targets(spec: Field, jobs: list[Field]) -> Iterator[Field]:
    yield from spec.entries("successPolicy", "targetReplicatedJobs")
    yield spec.at("coordinator", "replicatedJob")
    for rule in spec.each("failurePolicy", "rules"):
        yield from rule.entries("targetReplicatedJobs")
    for job in jobs:
        yield from (entry.at("name") for entry in job.each("dependsOn"))
