"""Rules about workloads with replicas that the API server refuses."""

from collections.abc import Iterator, Mapping

from fettle.lint.findings import Finding, Refusal, Severity
from fettle.lint.manifests import Field, Manifest
from fettle.lint.refusals.wording import why_no_label

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
            for expression in manifest.root.each("spec", "selector", "matchExpressions"):
                if not _selects(expression, labels.strings()):
                    message = "does not select the labels of the template"
                    yield self.finding(expression, message)

    def _unlike(self, selector: Field, labels: Field) -> Iterator[Finding]:
        given = labels.raw()
        for key, field in selector.members():
            if given.get(key) != field.value:
                there = f"have {given[key]!r}" if key in given else "do not have it"
                message = f"selects {field.value!r}, and the labels of the template {there}"
                yield self.finding(field, message, f"write the same under {labels.path}")


def _selects(expression: Field, labels: Mapping[str, str]) -> bool:
    """Whether an expression selects labels; one that cannot be read does."""
    there = labels.get(expression.text("key"))
    values = [entry.value for entry in expression.entries("values")]
    match expression.text("operator"):
        case "In":
            return there in values or not values
        case "NotIn":
            return there not in values
        case "Exists":
            return there is not None
        case "DoesNotExist":
            return there is None
    return True


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


class WrongUpdateStrategy(Refusal):
    """A StatefulSet or DaemonSet whose update strategy does not fit its own settings."""

    id = "FTL253"
    name = "wrong-update-strategy"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if manifest.group != "apps" or manifest.kind not in ("StatefulSet", "DaemonSet"):
            return
        strategy = manifest.root.at("spec", "updateStrategy")
        rolling = strategy.at("rollingUpdate")
        if not rolling.exists:
            return
        surge, missing = rolling.at("maxSurge").value, rolling.at("maxUnavailable").value
        if manifest.kind == "StatefulSet":
            if strategy.text("type") in ("OnDelete", "Recreate"):
                message = f"may not be there with type: {strategy.text('type')}"
                yield self.finding(rolling, message, "leave it out")
            elif missing in _NONE:
                yield self.finding(rolling.at("maxUnavailable"), "must not be 0")
        elif strategy.text("type") in ("", "RollingUpdate"):
            adds, takes = surge not in (None, *_NONE), missing not in _NONE
            if adds and takes:
                message = "needs maxUnavailable: 0, which is 1 if it is not set"
                yield self.finding(rolling.at("maxSurge"), message)
            elif not adds and not takes:
                message = "must not be 0 without maxSurge"
                yield self.finding(rolling.at("maxUnavailable"), message)


class WrongDeadline(Refusal):
    """A workload with replicas whose deadline cannot be met, or with one for its pods."""

    id = "FTL254"
    name = "wrong-deadline"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if not _is_restarting(manifest):
            return
        spec = manifest.root.at("spec")
        of_pods = spec.at("template", "spec", "activeDeadlineSeconds")
        if of_pods.exists:
            yield self.finding(of_pods, f"may not be there in a {manifest.kind}", "leave it out")
        deadline = spec.integer("progressDeadlineSeconds")
        ready = spec.integer("minReadySeconds") or 0
        if deadline is None and manifest.kind == "Deployment" and ready >= _DEADLINE:
            message = (
                f"needs progressDeadlineSeconds of more, which is {_DEADLINE} if it is not set"
            )
            yield self.finding(spec.at("minReadySeconds"), message)
        elif deadline is not None and deadline <= ready:
            message = f"must be more than minReadySeconds, {ready}"
            yield self.finding(spec.at("progressDeadlineSeconds"), message)


_DEADLINE = 600


class WrongClaimTemplate(Refusal):
    """A StatefulSet that makes volume claims without what they need."""

    id = "FTL255"
    name = "wrong-volume-claim"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != ("apps", "StatefulSet"):
            return
        for template in manifest.root.each("spec", "volumeClaimTemplates"):
            if not template.at("spec", "accessModes").value:
                yield self.finding(template.at("spec", "accessModes"), "is required")
            name = template.at("metadata", "name")
            if name.text() and (why := why_no_label(name.text())):
                yield self.finding(name, f"{name.text()!r} {why}")
            storage = template.at("spec", "resources", "requests", "storage")
            if not storage.exists:
                yield self.finding(storage, "is required")


class LongSetName(Refusal):
    """A StatefulSet whose name is too long for itself, or for the labels of its pods."""

    id = "FTL239"
    name = "long-set-name"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != ("apps", "StatefulSet"):
            return
        name = manifest.root.at("metadata", "name")
        if (length := len(name.text())) > _LONGEST_LABEL:
            message = f"has {length} characters; at most {_LONGEST_LABEL} may be"
            yield self.finding(name, message, f"use at most {_LONGEST_SET}")
        elif length > _LONGEST_SET:
            yield self.finding(
                name,
                f"has {length} characters: with the hash that is put behind it, it is too long for "
                "the label controller-revision-hash, and no pod is made",
                f"use at most {_LONGEST_SET}",
                Severity.WARN,  # the API server accepts it, and the hash may be short
            )


class WrongGroups(Refusal):
    """A LeaderWorkerSet whose groups, subgroups or rollout cannot be."""

    id = "FTL248"
    name = "wrong-groups"
    today = "LeaderWorkerSet's webhook refuses it."

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != (_LEADER_WORKERS, "LeaderWorkerSet"):
            return
        spec = manifest.root.at("spec")
        template = spec.at("leaderWorkerTemplate")
        size = _number(template, "size")
        if size is not None and size < 1:
            yield self.finding(template.at("size"), "must be at least 1, the leader")
        policy = template.at("subGroupPolicy")
        if policy.exists:
            yield from self._subgroups(policy, size or 1)
        elif (by := manifest.root.at("metadata", "annotations", _BY_SUBGROUP)).exists:
            yield self.finding(by, "needs subGroupPolicy, with subGroupSize")
        yield from self._rollout(spec)

    def _subgroups(self, policy: Field, size: int) -> Iterator[Finding]:
        field, wanted = policy.at("subGroupSize"), _number(policy, "subGroupSize")
        if wanted is None or size < 1:
            return
        if not 1 <= wanted <= size:
            yield self.finding(field, f"must be at least 1 and at most size, {size}")
        elif policy.text("subGroupPolicyType") == "LeaderExcluded":
            if (size - 1) % wanted:
                yield self.finding(
                    field, f"must divide {size - 1}, the size without its leader, which is excluded"
                )
        elif size % wanted and (size - 1) % wanted:
            yield self.finding(field, f"must divide size, {size}, or {size - 1}")

    def _rollout(self, spec: Field) -> Iterator[Finding]:
        rolling = spec.at("rolloutStrategy", "rollingUpdateConfiguration")
        adds, takes = rolling.at("maxSurge").value, rolling.at("maxUnavailable").value
        if adds in (None, *_NONE) and takes in _NONE and spec.at("replicas").value != 0:
            message = "must not be 0 without maxSurge"
            yield self.finding(rolling.at("maxUnavailable"), message)


class WrongReplicasOfRay(Refusal):
    """A RayCluster or RayJob with a group of workers that has more at least than at most."""

    id = "FTL249"
    name = "wrong-worker-group"
    severity = Severity.WARN
    today = "KubeRay's operator refuses it: no pod is made."

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        path = _RAY.get((manifest.group, manifest.kind))
        for group in manifest.root.each(*path, "workerGroupSpecs") if path else ():
            least, most = _number(group, "minReplicas"), _number(group, "maxReplicas")
            if least is not None and most is not None and least > most:
                yield self.finding(group.at("minReplicas"), f"is more than maxReplicas, {most}")


_RAY: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("ray.io", "RayCluster"): ("spec",),
    ("ray.io", "RayJob"): ("spec", "rayClusterSpec"),
}
"""Where the cluster is: kuberay, ray-operator/controllers/ray/utils/validation.go."""


def _number(field: Field, name: str) -> int | None:
    """A whole number, also a negative one."""
    value = field.at(name).value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_LEADER_WORKERS = "leaderworkerset.x-k8s.io"
_BY_SUBGROUP = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
_LONGEST_LABEL = 63
_LONGEST_SET = _LONGEST_LABEL - 11
"""A dash and ten characters, as most hashes have, are put behind it."""
_NONE = (0, "0", "0%")
