"""Rules about extended resources: those of device plugins, and of classes that stand for them.

What a node offers is what its device plugins report, so nodes of a pool that an autoscaler has not
made yet offer nothing here: these rules only warn.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import msgspec

from fettle.api import core
from fettle.api.core import Taint
from fettle.api.meta import ObjectMeta
from fettle.api.resource import DeviceToleration
from fettle.cluster import NodeView
from fettle.dra import IMPLICIT_CLASS_PREFIX, device_units, domain_of, is_device_resource
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Field, Manifest, ManifestPod
from fettle.lint.names import listed, nearest
from fettle.lint.rules.placement import (
    NodeRestrictions,
    prefers,
    tolerated_by,
    tolerations_of,
    unmet,
)
from fettle.pacing import pause

KNOWN = (
    "nvidia.com/gpu",  # NVIDIA/k8s-device-plugin, api/config/v1/resources.go
    "nvidia.com/gpu.shared",  # the same, docs of `renameByDefault`
    "nvidia.com/vgpu",  # what people rename to; HAMi's older charts
    "nvidia.com/pgpu",  # NVIDIA/kubevirt-gpu-device-plugin
    "amd.com/gpu",  # ROCm/k8s-device-plugin, cmd/k8s-device-plugin/main.go
    "gpu.intel.com/i915",  # intel/intel-device-plugins-for-kubernetes, cmd/gpu_plugin/README.md
    "gpu.intel.com/xe",
    "habana.ai/gaudi",  # HabanaAI/docs, "Intel Gaudi Device Plugin for Kubernetes"
    "google.com/tpu",  # GKE's documentation of TPUs
    "aws.amazon.com/neuron",  # aws-neuron/aws-neuron-sdk, k8s device plugin
    "aws.amazon.com/neuroncore",
    "aws.amazon.com/neurondevice",
    "vpc.amazonaws.com/efa",  # aws/eks-charts, aws-efa-k8s-device-plugin
)
"""What the device plugins of vendors call their resources."""


class UnknownResource(Rule):
    """A pod asks for an extended resource that no node offers, or whose name is almost a known one.

    What a scheduler's extender counts by itself no node offers, such as HAMi's `nvidia.com/gpumem`:
    nothing is said of it beside a resource of the same domain that nodes do offer.
    """

    id = "FTL059"
    reproduced = True
    name = "unknown-resource"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = "Any name with a domain is accepted; the pod stays Pending: `Insufficient …`."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for pod in manifest.pods:
            wanted = {name for name, _ in _units(pod)}
            for name in sorted(wanted):
                field = pod.resources[name]
                if (there := _offered(cluster)) is None:
                    if meant := _meant(name, KNOWN):
                        message = f"no known device plugin has {name!r}"
                        yield self.finding(field, message, f"did you mean {meant}?", possible=True)
                elif name not in there:
                    yield from self._judge(field, name, wanted, there)

    def _judge(
        self, field: Field, name: str, wanted: Collection[str], there: Collection[str]
    ) -> Iterator[Finding]:
        meant = _meant(name, there) or _meant(name, KNOWN)
        beside = {other for other in wanted if domain_of(other) == domain_of(name)}
        if not meant and not beside.isdisjoint(there):
            return
        named = [other for other in there if not other.startswith(IMPLICIT_CLASS_PREFIX)]
        alike = [other for other in named if domain_of(other) == domain_of(name)] or named
        has = f"they offer {listed(alike)}" if named else "they offer none at all"
        yield self.finding(
            field,
            f"no node offers {name!r} ({has})",
            f"did you mean {meant}?"
            if meant
            else "ask for what nodes offer, or have its device plugin installed first",
        )


def _offered(cluster: Cluster) -> Collection[str] | None:
    """The resources that nodes offer, or classes stand for; None if that is not known."""
    if (offered := cluster.offered) is None or not cluster.knows("DeviceClass"):
        return None
    return {*offered, *_of_classes(cluster)}


def _of_classes(cluster: Cluster) -> Iterator[str]:
    for name, found in cluster.view.classes.items():
        yield f"{IMPLICIT_CLASS_PREFIX}{name}"
        if found.extended_resource_name:
            yield found.extended_resource_name


def _meant(name: str, candidates: Collection[str]) -> str:
    """Which of these resources was probably meant; "" if none was. `nvidia/gpu` is one without the
    end of its domain."""
    if name in KNOWN or name in candidates:
        return ""
    if near := nearest(name, candidates):
        return near
    short = {_short(other): other for other in candidates}
    return short.get(nearest(_short(name), short), "") or short.get(_short(name), "")


def _short(name: str) -> str:
    """`nvidia/gpu` of `nvidia.com/gpu`."""
    domain, _, bare = name.partition("/")
    return f"{domain.partition('.')[0]}/{bare}"


class TooManyUnits(Rule):
    """A pod asks for more units of an extended resource than any node has."""

    id = "FTL060"
    reproduced = True
    name = "units-above-node"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = "The pod stays Pending until a larger node joins: `Insufficient …`."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for pod in manifest.pods:
            for name, count in _units_of_plugins(pod, cluster):
                most = (cluster.offered or {}).get(name, 0)
                if 0 < most < count:
                    yield self.finding(
                        pod.resources[name],
                        f"the pod needs {count} units of {name}, but no node has more than {most}",
                        f"ask for at most {most} in all containers together, or use several pods",
                    )


class ResourceNodesExcluded(Rule):
    """nodeSelector, affinity or taints exclude every node with the extended resources of a pod."""

    id = "FTL061"
    reproduced = True
    name = "resource-nodes-excluded"
    severity = Severity.WARN
    strict = True
    inventory = True
    today = "The pod stays Pending: `didn't match Pod's node affinity/selector`, or a taint."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding | None]:
        for pod in manifest.pods:
            units = dict(_units_of_plugins(pod, cluster))
            if not units:
                continue
            restrictions = NodeRestrictions(pod)
            suited: list[NodeView] = []
            for node in cluster.nodes.values():
                pause()
                if all(_has(node, name, count) for name, count in units.items()):
                    judged = _as_it_will_be(node, units)
                    if not restrictions.excludes(judged):
                        break
                    suited.append(judged)
            else:
                found = unmet(pod, suited, restrictions, " and ".join(units)) if suited else ()
                for field, message, fix in found:
                    yield self.finding(field, message, fix)


def _has(node: NodeView, resource: str, count: int) -> bool:
    found = node.plugins.get(resource)
    return found is not None and max(found.capacity, found.allocatable) >= count


_GKE = "cloud.google.com/gke-"


def _as_it_will_be(node: NodeView, units: Collection[str]) -> NodeView:
    """GKE has pods tolerate the taint that is called as the resource they request (the admission
    plugin ExtendedResourceToleration, off by default elsewhere)."""
    if not any(label.startswith(_GKE) for label in node.labels):
        return node
    kept = tuple(taint for taint in node.taints if taint.key not in units)
    return msgspec.structs.replace(node, taints=kept)


def _units(pod: ManifestPod) -> Iterator[tuple[str, int]]:
    """(extended resource, units) of a pod; nothing if its containers cannot be read."""
    if not any(map(is_device_resource, pod.resources)):
        return
    raw = pod.field.raw()
    parts = {key: raw[key] for key in ("containers", "initContainers") if key in raw}
    try:
        spec = msgspec.convert(parts, core.PodSpec)
    except msgspec.ValidationError:
        return  # the API server refuses it
    yield from device_units(core.Pod(metadata=ObjectMeta(), spec=spec))


def _units_of_plugins(pod: ManifestPod, cluster: Cluster) -> Iterator[tuple[str, int]]:
    """Those of resources that device plugins alone offer, as far as is known."""
    if (offered := _offered(cluster)) is None:
        return
    of_classes = set(_of_classes(cluster))
    for name, count in _units(pod):
        if name in offered and name not in of_classes:
            yield name, count


class PinnedWithoutDevices(Rule):
    """A pod without devices that may only go where they are, or tolerates what keeps others off.

    A DaemonSet belongs on each node, and a pod may reach devices without asking for them: by its
    runtime class, as privileged, or by paths of the host. Of a pod that goes anywhere nothing is
    said where no taint keeps pods off devices: that would be said of nearly all.
    """

    id = "FTL063"
    reproduced = True
    name = "pinned-without-devices"
    severity = Severity.WARN
    inventory = True
    today = (
        "It takes CPU and memory of nodes that are there for their devices. Where no taint keeps "
        "pods off these, a pod that may go anywhere passes; so does one that prefers other nodes "
        "by its node affinity, and a DaemonSet."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding | None]:
        if cluster.offered is None or _is_on_each_node(manifest):
            return
        for pod in manifest.pods:
            if _may_reach_devices(pod):
                continue
            tolerations = tolerations_of(pod, cluster.node_taints)
            if pod.field.raw("nodeSelector") or tolerations:
                yield from self._judge(pod, cluster, tolerations)

    def _judge(
        self,
        pod: ManifestPod,
        cluster: Cluster,
        tolerations: Sequence[tuple[Field, DeviceToleration]],
    ) -> Iterator[Finding]:
        restrictions = NodeRestrictions(pod)
        suited: list[NodeView] = []
        all_with: list[NodeView] = []
        without: list[NodeView] = []
        leaves_a_choice = False
        for node in cluster.nodes.values():
            pause()
            has_devices = bool(node.pools) or any(p.capacity for p in node.plugins.values())
            (all_with if has_devices else without).append(node)
            if restrictions.excludes(node):
                continue
            if has_devices:
                suited.append(node)
            elif tolerations:
                leaves_a_choice = True
            else:
                return
        if not suited or not without:
            return
        if pod.field.raw("nodeSelector") and not leaves_a_choice:
            yield self.finding(
                pod.field.at("nodeSelector"),
                f"the pod asks for no device, and all {len(suited)} nodes that match have some; "
                f"{len(without)} others have none",
                "leave it out, or select nodes without devices",
            )
            return
        keeping = _keeping_off(all_with, without, cluster.offered or ())
        reserved = [node for node in suited if not keeping.isdisjoint(node.taints)]
        taints = [t for node in reserved for t in node.taints if t in keeping]
        found = tolerated_by(tolerations, dict.fromkeys(taints))
        if found is not None and not prefers(pod, without, reserved):
            field, taint = found
            yield self.finding(
                field,
                f"the pod asks for no device and tolerates {taint.key}, which keeps pods off "
                f"{len(reserved)} nodes with devices; {len(without)} others have none",
                "leave it out, or prefer nodes without devices by a node affinity",
            )


def _keeping_off(
    nodes: Sequence[NodeView], others: Sequence[NodeView], offered: Collection[str]
) -> set[Taint]:
    """The taints that keep pods off nodes with devices as such: named as a resource, or on all of
    several of these and on no others."""
    of_others = {taint for node in others for taint in node.taints}
    counts = Counter(taint for node in nodes for taint in node.taints)
    return {
        taint
        for taint, count in counts.items()
        if taint.effect in ("NoSchedule", "NoExecute")
        and (
            taint.key in KNOWN
            or taint.key in offered
            or (1 < count == len(nodes) and taint not in of_others)
        )
    }


def _is_on_each_node(manifest: Manifest) -> bool:
    owners = manifest.root.each("metadata", "ownerReferences")
    return manifest.kind == "DaemonSet" or any(o.text("kind") in _ON_EACH for o in owners)


_ON_EACH = ("DaemonSet", "Node")  # the latter owns the mirror of a static pod


def _may_reach_devices(pod: ManifestPod) -> bool:
    by_request = any(map(is_device_resource, pod.resources)) or any(True for _ in pod.claims)
    by_host = any(volume.raw("hostPath") for volume in pod.field.each("volumes"))
    by_runtime = bool(pod.field.text("runtimeClassName") or pod.field.at("hostPID").value)
    privileged = any(c.at("securityContext", "privileged").value for c in pod.containers)
    return by_request or by_host or by_runtime or privileged
