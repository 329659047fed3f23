"""Rules about pods that cannot get to the nodes with their devices."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from fettle.api.core import NodeSelector, Taint
from fettle.api.resource import DeviceTaint, DeviceToleration
from fettle.cluster import NodeView
from fettle.dra import Malformed, NodeTarget, Selector, tolerates
from fettle.lint.cluster import Cluster
from fettle.lint.fields import Field
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest, ManifestPod
from fettle.lint.names import nearest
from fettle.lint.rules.counts import nodes_for

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


class BypassedScheduler(Rule):
    """nodeName is set on a pod with claims that are not allocated yet."""

    id = "FTL044"
    seen = True
    name = "bypassed-scheduler"
    severity = Severity.WARN
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
    seen = True
    severity = Severity.WARN
    inventory = True
    today = "The pod stays Pending."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding | None]:
        for pod in manifest.pods:
            wanted = _Wanted(pod)
            for claim in cluster.claims_of(pod, manifest.namespace):
                for request in claim.requests:
                    excluded: Counter[str] = Counter()
                    names = nodes_for(request, cluster)
                    for node in filter(None, map(cluster.nodes.get, names)):
                        if not (path := wanted.excludes(node)):
                            break
                        excluded[path] += 1
                        yield None
                    else:
                        if excluded:
                            yield self._finding(pod, request.name, excluded)

    def _finding(self, pod: ManifestPod, request: str, excluded: Counter[str]) -> Finding:
        (path, _), *_ = excluded.most_common(1)
        count = excluded.total()
        if path != _TAINTS:
            nodes = f"all {count} nodes" if count > 1 else "the only node"
            message = f"excludes {nodes} with devices for request {request!r}"
            fix = "leave the choice of node to the claim, or widen the selector"
        else:
            nodes = f"any of the {count} nodes" if count > 1 else "the only node"
            message = f"does not tolerate the taints of {nodes} with devices"
            fix = "tolerate the taint that keeps other pods off these nodes"
        return self.finding(pod.field.at(*path.split(".")), message, fix)


_TAINTS = "tolerations"


class _Wanted:
    """The nodes a pod restricts itself to; what cannot be read excludes nothing."""

    def __init__(self, pod: ManifestPod) -> None:
        required = pod.field.at(*_AFFINITY.split("."))
        self._labels = pod.field.strings("nodeSelector")
        self._tolerated: dict[Taint, bool] = {}
        self._selector: Selector | None = None
        self._tolerations = [
            read for field in pod.field.each("tolerations") if (read := _toleration(field))
        ]
        if required.raw():
            try:
                self._selector = Selector(msgspec.convert(required.value, NodeSelector))
            except (msgspec.ValidationError, Malformed):
                self._selector = None

    def excludes(self, node: NodeView) -> str:
        """The path of what excludes a node; "" if nothing does."""
        if any(node.labels.get(key) != value for key, value in self._labels.items()):
            return "nodeSelector"
        place = NodeTarget(node.name, node.labels)
        if self._selector is not None and not self._selector.matches(place):
            return _AFFINITY
        return "" if all(map(self._tolerates, node.taints)) else _TAINTS

    def _tolerates(self, taint: Taint) -> bool:
        """Taints of Kubernetes' own come and go with the state of the node."""
        if taint.effect not in ("NoSchedule", "NoExecute"):
            return True
        if taint.key.startswith("node.kubernetes.io/"):
            return True
        if (known := self._tolerated.get(taint)) is not None:
            return known
        alike = DeviceTaint(key=taint.key, value=taint.value, effect=taint.effect)
        tolerated = any(tolerates(toleration, alike) for toleration in self._tolerations)
        self._tolerated[taint] = tolerated
        return tolerated


_AFFINITY = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def _toleration(field: Field) -> DeviceToleration | None:
    """A node toleration; they match as those of devices do."""
    try:
        return msgspec.convert(field.value, DeviceToleration)
    except msgspec.ValidationError:
        return None


class UnknownNodeTaint(Rule):
    """A pod's toleration has a key that is almost that of a node's taint, or a well-known one."""

    id = "FTL054"
    name = "unknown-node-taint"
    seen = True
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
