"""Rules about what keeps pods from devices: taints, nodeName, nodeSelector and affinity."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from fettle.api.core import NodeSelector, NodeSelectorTerm, Taint
from fettle.api.resource import DeviceTaint, DeviceToleration
from fettle.cluster import NodeView
from fettle.dra import MalformedNodeSelector, NodeTarget, ParsedNodeSelector, tolerates
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Field, Manifest, ManifestOption, ManifestPod
from fettle.lint.names import listed, nearest
from fettle.lint.rules.amounts import nodes_for
from fettle.lint.survey.totals import Survey
from fettle.model import is_health_label
from fettle.pacing import pause

MAX_TOLERATIONS = 16
_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")
WELL_KNOWN_TAINTS = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/out-of-service",
    "node-role.kubernetes.io/control-plane",
    "node.cloudprovider.kubernetes.io/uninitialized",
)
_TOLERATIONS_PATH = "tolerations"
_AFFINITY_PATH = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


class UnknownTaint(Rule):
    """A toleration's key is almost, but not quite, that of a taint in use."""

    id = "FTL025"
    reproduced = True
    name = "unknown-taint"
    severity = Severity.WARN
    inventory = True
    today = (
        "The toleration is accepted and tolerates nothing: the pod stays Pending, or is evicted."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        if (catalogue := cluster.catalogue) is None:
            return
        keys = {taint.key for taint in catalogue.taints}
        for option in manifest.options:
            for toleration in option.tolerations:
                key = toleration.text("key")
                if key and key not in keys and (near := nearest(key, keys)):
                    message = f"no device has a taint {key!r}, but there is {near!r}"
                    yield self.finding(toleration.at("key"), message, f"write {near}")


class TolerationWithoutKey(Rule):
    """An empty key with operator Equal, the default, in a device toleration.

    The documentation of the API says that such a toleration matches every taint. But the allocator
    compares the value, so `{}` tolerates only taints without a value. That may be what is meant.
    """

    id = "FTL026"
    reproduced = True
    name = "toleration-without-key"
    severity = Severity.WARN
    today = (
        "It tolerates taints of any key with an equal value; `{}` tolerates those without a value."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            for toleration in option.tolerations:
                if _is_keyless(toleration):
                    value = toleration.text("value")
                    with_value = f"with the value {value!r}, whatever its key"
                    yield self.finding(
                        toleration,
                        "an empty key with operator Equal (the default) tolerates only taints "
                        f"{with_value if value else 'without a value'}, not every taint",
                        "name the taint's key, or write operator: Exists to tolerate every taint",
                    )


def _is_keyless(toleration: Field) -> bool:
    """False for a key or operator of a wrong type, which the API server refuses."""
    key, operator = toleration.at("key").value, toleration.at("operator").value
    return (key or "") == "" and (operator or "") in ("", "Equal")


class SecondsIgnored(Rule):
    """tolerationSeconds with an effect other than NoExecute."""

    id = "FTL027"
    name = "toleration-seconds-ignored"
    reproduced = True
    severity = Severity.WARN
    today = "The seconds are accepted and ignored."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            for toleration in option.tolerations:
                effect = toleration.text("effect")
                seconds = toleration.at("tolerationSeconds")
                if seconds.exists and effect and effect != "NoExecute":
                    message = f"tolerationSeconds is ignored with effect {effect}"
                    fix = "write effect: NoExecute, or leave tolerationSeconds out"
                    yield self.finding(seconds, message, fix)


class TolerationWithoutEffect(Rule):
    """A device toleration without an effect."""

    id = "FTL028"
    reproduced = True
    name = "toleration-without-effect"
    severity = Severity.WARN
    today = (
        "The pod is scheduled onto devices with NoExecute taints and evicted again, since eviction "
        "counts only tolerations that name NoExecute; a Job goes round in circles."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            for toleration in option.tolerations:
                if not toleration.at("effect").value:
                    yield self.finding(
                        toleration,
                        "without an effect it lets the pod onto devices with a NoExecute taint, "
                        "but does not keep it from being evicted there",
                        "write two entries, one with effect: NoSchedule and one with "
                        "effect: NoExecute",
                    )


class HalfTolerated(Rule):
    """One effect of a device's taint is tolerated and the other is not."""

    id = "FTL029"
    reproduced = True
    name = "half-tolerated"
    severity = Severity.WARN
    inventory = True
    today = "The device is not allocated; tolerating NoExecute does not include NoSchedule."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            survey = cluster.survey(option)
            if survey is None:
                continue
            tolerations = list(_tolerations_of(option))
            for taint, count in _half_tolerated(tolerations, survey):
                yield self.finding(
                    option.field.at("tolerations"),
                    f"{count} matching devices have the taint {taint.key} with effect "
                    f"{taint.effect} too, which is not tolerated",
                    f"add a toleration of {taint.key} with effect: {taint.effect}",
                )
                break


def _half_tolerated(
    tolerations: list[DeviceToleration], survey: Survey
) -> Iterator[tuple[DeviceTaint, int]]:
    for taints, count in survey.taints.items():
        kept = {t.key for t in taints if any(tolerates(one, t) for one in tolerations)}
        for taint in taints:
            blocking = taint.effect in _BLOCKING_EFFECTS and taint.key in kept
            if blocking and not any(tolerates(one, taint) for one in tolerations):
                yield taint, count


class AllTainted(Rule):
    """Every device that matches has a taint that is not tolerated."""

    id = "FTL030"
    reproduced = True
    name = "all-tainted"
    severity = Severity.WARN
    inventory = True
    today = "The pod stays Pending until a taint is removed."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            for request in claim.requests:
                blocked = [_blocking_keys(option, cluster) for option in request.options]
                if blocked and all(blocked):
                    keys = sorted({key for found in blocked for key in found})
                    yield self.finding(
                        request.options[0].field,
                        f"all matching devices have taints that are not tolerated: "
                        f"{', '.join(keys)}",
                        "tolerate one of them if such devices are acceptable",
                    )


def _blocking_keys(option: ManifestOption, cluster: Cluster) -> set[str]:
    """Keys of the taints that block all matches of an option; empty if some are not blocked."""
    survey = cluster.survey(option)
    if survey is None or not survey.decided or not survey.matched:
        return set()
    tolerations = list(_tolerations_of(option))
    keys: set[str] = set()
    for taints in survey.taints:
        untolerated = {
            taint.key
            for taint in taints
            if taint.effect in _BLOCKING_EFFECTS
            and not any(tolerates(t, taint) for t in tolerations)
        }
        if not untolerated:
            return set()
        keys |= untolerated
    return keys


def _tolerations_of(option: ManifestOption) -> Iterator[DeviceToleration]:
    for toleration in option.tolerations:
        try:
            yield msgspec.convert(toleration.value, DeviceToleration)
        except msgspec.ValidationError:
            continue  # the API server refuses it


class TooManyTolerations(Rule):
    """More than 16 tolerations in one request."""

    id = "FTL031"
    name = "too-many-tolerations"
    reproduced = True
    severity = Severity.WARN
    today = "Documented as the limit, but accepted."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            count = sum(1 for _ in option.tolerations)
            if count > MAX_TOLERATIONS:
                yield self.finding(
                    option.field.at("tolerations"),
                    f"{count} tolerations, and the API documents at most {MAX_TOLERATIONS}",
                    "tolerate a key with operator: Exists instead of each of its values",
                )


class NotEvicted(Rule):
    """A DeviceTaintRule with NoExecute where pods use devices as extended resources."""

    id = "FTL043"
    reproduced = True
    name = "extended-resources-not-evicted"
    severity = Severity.WARN
    inventory = True
    today = "Pods that got the device as an extended resource stay; only others are evicted."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != ("resource.k8s.io", "DeviceTaintRule"):
            return
        effect = manifest.root.at("spec", "taint", "effect")
        classes = cluster.view.classes.values()
        names = sorted(filter(None, (found.extended_resource_name for found in classes)))
        if effect.value == "NoExecute" and names:
            yield self.finding(
                effect,
                f"pods that use the device as {', '.join(names)} are not evicted",
                "delete such pods yourself",
            )


class SweepingTaint(Rule):
    """A DeviceTaintRule for all devices there are, one that evicts from all of a driver's, or one
    for none.

    With an empty selector a rule is for every device of every driver, without one for none at all.
    """

    id = "FTL113"
    reproduced = True
    name = "sweeping-taint"
    severity = Severity.WARN
    today = (
        "At once, every pod that uses such a device is evicted (NoExecute), or no pod gets one any "
        "more (NoSchedule)."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != ("resource.k8s.io", "DeviceTaintRule"):
            return
        selector = manifest.root.at("spec", "deviceSelector")
        effect = manifest.root.text("spec", "taint", "effect")
        if not selector.exists:
            message = "without a deviceSelector the rule is for no device, so it does nothing"
            yield self.finding(selector, message, f"name driver, pool and device{_OR_EMPTY}")
            return
        chosen = {key for key, value in selector.raw().items() if value is not None}
        happens = _SWEEPS.get(effect)
        if not isinstance(selector.value, dict) or happens is None:
            return
        if not chosen:
            message = f"an empty selector is for every device of every driver: {happens}"
            yield self.finding(selector, message, "name driver, pool and device")
        elif chosen == {"driver"} and effect == "NoExecute":
            driver = selector.text("driver")
            message = f"it is for every device of {driver}: {happens}"
            yield self.finding(
                selector, message, "name pool and device, or write effect: None first to see whom"
            )


_OR_EMPTY = ", or {} for all devices"
_SWEEPS = {
    "NoExecute": "every pod that uses one is evicted at once",
    "NoSchedule": "no pod gets one any more",
}


class BypassedScheduler(Rule):
    """nodeName is set on a pod with claims that are not allocated yet."""

    id = "FTL044"
    reproduced = True
    name = "bypassed-scheduler"
    severity = Severity.WARN
    denies_if = "the claim is made from a template"
    strict = True
    today = "The scheduler, which allocates claims, never sees the pod; the kubelet refuses it."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for pod in manifest.pods:
            node = pod.field.text("nodeName")
            for entry in pod.claims:
                if node and self._unallocated(entry, manifest.namespace, cluster):
                    yield self.finding(
                        pod.field.at("nodeName"),
                        f"the claim {entry.text('name')!r} is not allocated, and with nodeName "
                        "it never will be",
                        f"use nodeSelector: {{kubernetes.io/hostname: {node}}} instead",
                        Severity.DENY if entry.text("resourceClaimTemplateName") else None,
                    )
                    break

    def _unallocated(self, entry: Field, namespace: str, cluster: Cluster) -> bool:
        if entry.text("resourceClaimTemplateName"):
            return True
        claim = cluster.claim(namespace, entry.text("resourceClaimName"))
        return claim is not None and claim.allocation is None


class ExcludedNodes(Rule):
    """nodeSelector, affinity or taints exclude every node with devices for the pod's claims."""

    id = "FTL045"
    name = "excluded-nodes"
    reproduced = True
    severity = Severity.WARN
    strict = True
    inventory = True
    today = "The pod stays Pending."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding | None]:
        for pod in manifest.pods:
            restrictions = NodeRestrictions(pod)
            for claim in cluster.claims_of(pod, manifest.namespace):
                for request in claim.requests:
                    excluded: list[tuple[str, NodeView]] = []
                    names = nodes_for(request, cluster)
                    for node in filter(None, map(cluster.nodes.get, names)):
                        if not (path := restrictions.excludes(node)):
                            break
                        excluded.append((path, node))
                        yield None
                    else:
                        if excluded:
                            yield self._finding(pod, request.name, excluded)

    def _finding(
        self, pod: ManifestPod, request: str, excluded: Sequence[tuple[str, NodeView]]
    ) -> Finding:
        (path, _), *_ = Counter(path for path, _ in excluded).most_common(1)
        count = len(excluded)
        if path != _TOLERATIONS_PATH:
            nodes = f"all {count} nodes" if count > 1 else "the only node"
            message = f"excludes {nodes} with devices for request {request!r}"
            fix = "leave the choice of node to the claim, or widen the selector"
            if (named := _label_that_none_has(pod, [node for _, node in excluded])) is not None:
                label, said, fix = named
                return self.finding(label, f"{message}: {said}", fix)
        else:
            nodes = f"any of the {count} nodes" if count > 1 else "the only node"
            message = f"does not tolerate the taints of {nodes} with devices"
            fix = "tolerate the taint that keeps other pods off these nodes"
        return self.finding(pod.field.at(*path.split(".")), message, fix)


class NodeRestrictions:
    """What a pod restricts its nodes to; a field that cannot be read excludes no node, nor do
    Fettle's own labels: they come and go, and `placement.affinity` writes them into pods."""

    def __init__(self, pod: ManifestPod) -> None:
        required = pod.field.at(*_AFFINITY_PATH.split("."))
        wanted = pod.field.strings("nodeSelector")
        self._labels = {key: wanted[key] for key in wanted if not is_health_label(key)}
        self._tolerated: dict[Taint, bool] = {}
        self._selector: ParsedNodeSelector | None = None
        self._tolerations = [
            read for field in pod.field.each("tolerations") if (read := _node_toleration(field))
        ]
        if required.raw():
            try:
                selector = msgspec.convert(required.value, NodeSelector)
                self._selector = ParsedNodeSelector(selector, disregarded=is_health_label)
            except (msgspec.ValidationError, MalformedNodeSelector):
                self._selector = None

    def excludes(self, node: NodeView) -> str:
        """The path of the field that excludes a node; "" if none does."""
        if any(node.labels.get(key) != value for key, value in self._labels.items()):
            return "nodeSelector"
        target = NodeTarget(node.name, node.labels)
        if self._selector is not None and not self._selector.matches(target):
            return _AFFINITY_PATH
        return "" if all(map(self.tolerates, node.taints)) else _TOLERATIONS_PATH

    def tolerates(self, taint: Taint) -> bool:
        # Kubernetes' own taints come and go with the state of the node.
        if taint.effect not in _BLOCKING_EFFECTS:
            return True
        if taint.key.startswith(_OWN_TAINTS):
            return True
        if (known := self._tolerated.get(taint)) is not None:
            return known
        tolerated = any(_tolerates(toleration, taint) for toleration in self._tolerations)
        self._tolerated[taint] = tolerated
        return tolerated


def _tolerates(toleration: DeviceToleration, taint: Taint) -> bool:
    as_device_taint = DeviceTaint(key=taint.key, value=taint.value, effect=taint.effect)
    return tolerates(toleration, as_device_taint)


def tolerations_of(pod: ManifestPod, keys: Collection[str]) -> list[tuple[Field, DeviceToleration]]:
    """Those that may tolerate taints with these keys, but for Kubernetes' own."""
    return [
        (field, read)
        for field in pod.field.each("tolerations")
        if (read := _node_toleration(field))
        and (not read.key or (read.key in keys and not read.key.startswith(_OWN_TAINTS)))
    ]


def tolerated_by(
    tolerations: Iterable[tuple[Field, DeviceToleration]], taints: Iterable[Taint]
) -> tuple[Field, Taint] | None:
    """The first that tolerates one of these taints, and which."""
    taints = list(taints)
    for field, toleration in tolerations:
        for taint in taints:
            if _tolerates(toleration, taint):
                return field, taint
    return None


def prefers(pod: ManifestPod, these: Iterable[NodeView], others: Iterable[NodeView]) -> bool:
    """Whether it prefers one of these nodes to all others, by its node affinity."""
    terms = []
    for entry in pod.field.each("affinity", "nodeAffinity", _PREFERRED):
        try:
            term = msgspec.convert(entry.at("preference").value, NodeSelectorTerm)
            selector = ParsedNodeSelector(NodeSelector(node_selector_terms=(term,)))
        except (msgspec.ValidationError, MalformedNodeSelector):
            continue
        terms.append((selector, entry.integer("weight") or 0))

    def most(nodes: Iterable[NodeView]) -> int:
        targets = (NodeTarget(node.name, node.labels) for node in nodes)
        return max((sum(w for s, w in terms if s.matches(at)) for at in targets), default=0)

    return bool(terms) and most(these) > most(others)


_OWN_TAINTS = "node.kubernetes.io/"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def unmet(
    pod: ManifestPod, nodes: Sequence[NodeView], restrictions: NodeRestrictions, what: str
) -> Iterator[tuple[Field, str, str]]:
    """Where a pod wants of nodes what none of these has, each with a message and a fix; if each
    has some of it, the field that excludes the most of them. All these nodes have `what`."""
    found = [
        one
        for field, key, values in _wanted_labels(pod)
        if (one := _unlabelled(field, key, values, nodes, what)) is not None
    ]
    if found:
        yield from found
        return
    excluded = Counter(restrictions.excludes(node) for node in nodes)
    (path, _), *_ = excluded.most_common(1)
    field = pod.field.at(*path.split("."))
    if path != _TOLERATIONS_PATH:
        fix = "widen it, or leave the choice of node to the resource"
        yield field, f"no node with {what} matches", fix
        return
    keys = listed({t.key for node in nodes for t in node.taints if not restrictions.tolerates(t)})
    message = f"every node with {what} has a taint that the pod does not tolerate: {keys}"
    yield field, message, f"tolerate {keys}"


def _label_that_none_has(
    pod: ManifestPod, nodes: Sequence[NodeView]
) -> tuple[Field, str, str] | None:
    """Of what the pod wants of nodes the first label that none of these has."""
    found = (
        _unlabelled(field, key, values, nodes, "such devices")
        for field, key, values in _wanted_labels(pod)
    )
    return next(filter(None, found), None)


def _wanted_labels(pod: ManifestPod) -> Iterator[tuple[Field, str, tuple[str, ...]]]:
    """The labels that a node must have: where it is said, the key, and the values of which it must
    have one. Of affinity only if there is one term, since of several one is enough."""
    for key, field in pod.field.members("nodeSelector"):
        if isinstance(field.value, str):
            yield field, key, (field.value,)
    terms = list(pod.field.at(*_AFFINITY_PATH.split(".")).each("nodeSelectorTerms"))
    for expression in terms[0].each("matchExpressions") if len(terms) == 1 else ():
        values = [entry.value for entry in expression.entries("values")]
        if expression.text("operator") == "In" and all(isinstance(v, str) for v in values):
            yield expression, expression.text("key"), tuple(values)


def _unlabelled(
    field: Field, key: str, values: tuple[str, ...], nodes: Sequence[NodeView], what: str
) -> tuple[Field, str, str] | None:
    """What is wrong if no node has one of these values; None if one has."""
    if is_health_label(key):
        return None
    shown: set[str] = set()
    keys: set[str] = set()
    for node in nodes:
        pause()
        keys.update(node.labels)
        if (value := node.labels.get(key)) is not None:
            shown.add(value)
    if not shown.isdisjoint(values):
        return None
    if not shown:
        near = nearest(key, keys)
        return (
            field,
            f"no node with {what} has a label {key!r}",
            f"did you mean {near}?" if near else "",
        )
    near = next(filter(None, (nearest(value, shown) for value in values)), "")
    wanted = " or ".join(values)
    message = f"no node with {what} has {key}: {wanted}; they have {listed(shown)}"
    return field, message, f"did you mean {near}?" if near else ""


def _node_toleration(field: Field) -> DeviceToleration | None:
    """A node toleration; it matches taints as a device toleration does."""
    try:
        return msgspec.convert(field.value, DeviceToleration)
    except msgspec.ValidationError:
        return None


class UnknownNodeTaint(Rule):
    """A pod's toleration has a key that is almost that of a node's taint, or a well-known one."""

    id = "FTL054"
    name = "unknown-node-taint"
    inventory = True
    reproduced = True
    severity = Severity.WARN
    today = (
        "The toleration is accepted and tolerates nothing: the pod stays Pending, or is evicted."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for pod in manifest.pods:
            keys = {t.text("key"): t for t in pod.field.each("tolerations") if t.text("key")}
            if not keys:
                continue
            known = {*WELL_KNOWN_TAINTS, *cluster.node_taints}
            for key, toleration in keys.items():
                if key not in known and (near := nearest(key, known)):
                    message = f"there is no taint {key!r}, but there is {near!r}"
                    yield self.finding(toleration.at("key"), message, f"write {near}")
