"""Rules about workloads with replicas that the API server refuses."""

from collections.abc import Iterator

from fettle.lint.findings import Finding, Refusal
from fettle.lint.manifests import Field, Manifest

_RESTARTING = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController")


def _is_restarting(manifest: Manifest) -> bool:
    return manifest.group in ("", "apps") and manifest.kind in _RESTARTING


class SelectorMismatch(Refusal):
    """A selector that selects nothing, or not the pods of its own template."""

    id = "FTL250"
    name = "selector-mismatch"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if not _is_restarting(manifest):
            return
        selector = manifest.root.at("spec", "selector")
        if not isinstance(selector.value, dict):
            return
        if manifest.kind != "ReplicationController":
            if not selector.raw("matchLabels") and not selector.at("matchExpressions").value:
                yield self.finding(selector, "must select something", "write matchLabels")
            selector = selector.at("matchLabels")
        labels = manifest.root.at("spec", "template", "metadata", "labels")
        if manifest.root.raw("spec", "template"):
            yield from self._unlike(selector, labels)

    def _unlike(self, selector: Field, labels: Field) -> Iterator[Finding]:
        given = labels.raw()
        for key, field in selector.members():
            if given.get(key) != field.value:
                there = f"have {given[key]!r}" if key in given else "do not have it"
                message = f"selects {field.value!r}, and the labels of the template {there}"
                yield self.finding(field, message, f"write the same under {labels.path}")


class WrongRestartPolicy(Refusal):
    """A workload with replicas whose pods do not restart always."""

    id = "FTL251"
    name = "wrong-restart-policy"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if not _is_restarting(manifest):
            return
        restart = manifest.root.at("spec", "template", "spec", "restartPolicy")
        if restart.value in ("Never", "OnFailure"):
            message = f"must be Always in a {manifest.kind}"
            yield self.finding(restart, message, "leave it out, or make it a Job")


class WrongStrategy(Refusal):
    """A Deployment whose strategy is Recreate and has settings for RollingUpdate, or that may
    neither add nor take away a pod."""

    id = "FTL252"
    name = "wrong-strategy"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != ("apps", "Deployment"):
            return
        strategy = manifest.root.at("spec", "strategy")
        rolling = strategy.at("rollingUpdate")
        if strategy.text("type") == "Recreate" and rolling.exists:
            yield self.finding(rolling, "may not be there with type: Recreate", "leave it out")
        elif rolling.at("maxSurge").value in _NONE and rolling.at("maxUnavailable").value in _NONE:
            yield self.finding(rolling, "maxSurge and maxUnavailable may not both be 0")


_NONE = (0, "0", "0%")
