"""Rules about containers that restart in their pod."""

import re
from collections.abc import Iterator

from fettle.api.raw import integer
from fettle.lint.cluster import Cluster
from fettle.lint.fields import Field
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest
from fettle.lint.names import listed

_VERSION = re.compile(r"v(\d{1,3})\.(\d{1,3})")


class DeadExitCode(Rule):
    """A rule on an exit code after which the container is restarted in its pod."""

    id = "FTL052"
    name = "dead-exit-code"
    on_node = True
    severity = Severity.WARN
    today = "The pod does not fail, so the Job's rule never sees the code."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for job in manifest.jobs:
            restarted = _restarted(job)
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
    match = _VERSION.match(version)
    return match is not None and (int(match[1]), int(match[2])) < (1, 36)


def _restarted(job: Field) -> dict[tuple[str | None, int | None], str]:
    """(container, exit code) → path of the rule that restarts the container on it; for None, any
    container."""
    found: dict[tuple[str | None, int | None], str] = {}
    for container in job.each("template", "spec", "containers"):
        for rule in container.each("restartPolicyRules"):
            if rule.text("action") == "Restart" and rule.text("exitCodes", "operator") == "In":
                for entry in rule.entries("exitCodes", "values"):
                    for name in (container.text("name"), None):
                        found.setdefault((name, integer(entry.value)), rule.path)
    return found
