"""How many devices a node should have, and who says so: one function for each source, the best
first. Pure.

An operator's word decides. Of all others the most counts: what a GPU Feature Discovery or a device
plugin counts after a restart has forgotten the GPU that was lost before.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from itertools import chain
from math import inf
from typing import NamedTuple

from fettle.cluster.inventory.unit_counts import FEW_PEERS, GPU, Usual, machine, plain_resource
from fettle.health import (
    GFD_COUNT,
    INSTANCE_COUNTS,
    KARPENTER_MAKER,
    NVSENTINEL_COUNT,
    to_count,
)

GPU_DRIVER = "gpu.nvidia.com"


class Expected(NamedTuple):
    """How many, and who says so, such as `label nvidia.com/gpu.count`."""

    number: int
    source: str


class DeviceCounts(NamedTuple):
    """What is known of one node.

    - `capacities`: units by resource, also those of which it has none now. `devices`: of each
      driver, the hardware that its slices show.
    - `annotation`, `row`: an operator's word. `most`: the most since its boot. `usual`: what most
      of its peers have. Each by resource or driver.
    - `split`: its units are shares of devices, as many as somebody wanted.
    """

    labels: Mapping[str, str] = {}
    capacities: Mapping[str, int] = {}
    devices: Mapping[str, int] = {}
    annotation: Mapping[str, int] = {}
    row: Mapping[str, int] = {}
    most: Mapping[str, int] = {}
    usual: Mapping[str, Usual] = {}
    split: bool = False

    @property
    def all(self) -> Mapping[str, int]:
        return {**self.capacities, **self.devices}


def expected_devices(node: DeviceCounts) -> Mapping[str, Expected]:
    """By resource or driver."""
    found: dict[str, Expected] = {}
    for source in _SOURCES:
        for name, expected in source(node):
            if name not in found or expected.number > found[name].number:
                found[name] = expected
    if _is_given_otherwise(node, found):
        found = {name: one for name, one in found.items() if not is_nvidia_unit(name)}
    if not node.devices.get(GPU_DRIVER) and _has_nvidia_units(node):
        found.pop(GPU_DRIVER, None)  # a device plugin gives them out
    return {**found, **dict(_operators(node))}


def _operators(node: DeviceCounts) -> Iterator[tuple[str, Expected]]:
    """The annotation comes after the row, since it counts more."""
    for name, count in node.row.items():
        yield name, Expected(count, "health.expectedDevices")
    for name, count in node.annotation.items():
        yield name, Expected(count, "annotation fettle.dev/expected-devices")


# --- labels

_MIG_COUNT = re.compile(r"nvidia\.com/mig-\d.*\.count")
_MIG_STRATEGY, _MIG_CONFIG = "nvidia.com/mig.strategy", "nvidia.com/mig.config"
_MIG_OFF = "all-disabled"
_WORKLOAD = "nvidia.com/gpu.workload.config"
_NO_PLUGIN = (
    ("nvidia.com/gpu.deploy.device-plugin", "false"),  # else `true`, or `paused-for-…`
    ("nvidia.com/gpu.deploy.operands", "false"),
    ("nvidia.com/gpu.deploy.sandbox-device-plugin", "true"),  # also if VMs are the default
    (_WORKLOAD, "vm-passthrough"),
    (_WORKLOAD, "vm-vgpu"),
)
"""Labels and values of nodes on which NVIDIA/gpu-operator runs no device plugin that counts GPUs
for containers (controllers/state_manager.go)."""
_PRESENT = (
    ("nvidia.com/gpu.present", "true", GPU),  # NVIDIA/gpu-operator
    ("cloud.google.com/gke-accelerator", "nvidia", GPU),  # GKE
    ("cloud.google.com/gke-tpu-accelerator", "tpu", "google.com/tpu"),  # GKE
    ("k8s.amazonaws.com/accelerator", "nvidia", GPU),  # EKS, for Cluster Autoscaler
    ("kubernetes.azure.com/accelerator", "nvidia", GPU),  # AKS
    (KARPENTER_MAKER, "nvidia", GPU),
    ("feature.node.kubernetes.io/amd-gpu", "true", "amd.com/gpu"),  # ROCm/gpu-operator
    (KARPENTER_MAKER, "amd", "amd.com/gpu"),
)
"""A label, how its value begins, and the resource of which such a node has some."""


def _by_gfd(node: DeviceCounts) -> Iterator[tuple[str, Expected]]:
    yield from _by_label(node, GFD_COUNT)
    for key in filter(_MIG_COUNT.fullmatch, node.labels):
        resource = key.removesuffix(".count")
        if count := to_count(node.labels[key]):
            units = count * _replicas(node.labels, resource)
            yield _name_of(resource, node.capacities), Expected(units, f"label {key}")


def _by_nvsentinel(node: DeviceCounts) -> Iterator[tuple[str, Expected]]:
    yield from _by_label(node, NVSENTINEL_COUNT)


def _by_label(node: DeviceCounts, key: str) -> Iterator[tuple[str, Expected]]:
    """Units and devices by a label that counts as `nvidia.com/gpu.count` does."""
    count, source = to_count(node.labels.get(key, "")), f"label {key}"
    if not count:
        return
    if GPU_DRIVER in node.devices and not _counts_mig_devices(node.labels):
        yield GPU_DRIVER, Expected(count, source)
    if not _is_divided(node):
        units = count * _replicas(node.labels, GPU)
        yield _name_of(GPU, node.capacities), Expected(units, source)


def _by_instance(node: DeviceCounts) -> Iterator[tuple[str, Expected]]:
    """What the type of the instance has: how many, or at least some."""
    labels = node.labels
    for key, maker, value, resource in INSTANCE_COUNTS:
        count, source = to_count(labels.get(key, "")), f"label {key}"
        if not count or maker not in labels or not labels[maker].startswith(value):
            continue
        if resource != GPU:
            if node.capacities.get(resource) or not _is_given_by_others(node, resource):
                yield resource, Expected(count, source)
        elif not _is_divided(node):
            yield _name_of(GPU, node.capacities), Expected(count, source)
            if GPU_DRIVER in node.devices:
                yield GPU_DRIVER, Expected(count, source)
    for key, value, resource in _PRESENT:
        if labels.get(key, "").startswith(value) and not _has_any(node, resource):
            yield _name_of(resource, node.capacities), Expected(1, f"label {key}")


def _is_divided(node: DeviceCounts) -> bool:
    """Whether some GPUs may be in MIG mode, so that not every GPU is a unit of `nvidia.com/gpu`:
    nothing says how many."""
    labels = node.labels
    return (
        any(one.startswith("nvidia.com/mig-") and n for one, n in node.capacities.items())
        or any(_MIG_COUNT.fullmatch(key) for key in labels)
        or (labels.get(_MIG_STRATEGY) == "mixed" and labels.get(_MIG_CONFIG, _MIG_OFF) != _MIG_OFF)
        or (labels.get(_MIG_STRATEGY) == "mixed" and labels.get(f"{GPU}.replicas") == "0")
    )


def _counts_mig_devices(labels: Mapping[str, str]) -> bool:
    return labels.get(_MIG_STRATEGY) == "single" and "-MIG-" in labels.get(f"{GPU}.product", "")


def _replicas(labels: Mapping[str, str], resource: str) -> int:
    """How many units each is, by time slicing or MPS; the label is 0 or 1 where it is one."""
    return max(1, to_count(labels.get(f"{resource}.replicas", "")) or 1)


def _name_of(resource: str, capacities: Mapping[str, int]) -> str:
    """As the node's plugin calls it, which may have renamed what is shared."""
    names = [one for one in capacities if plain_resource(one) == resource]
    return max(names, key=lambda one: (capacities[one], one == resource), default=resource)


def _has_any(node: DeviceCounts, resource: str) -> bool:
    """Whether there is anything of the vendor, such as a GPU that is passed through to VMs."""
    vendor = resource.partition("/")[0]
    return any(n and vendor in one.partition("/")[0] for one, n in node.all.items())


def _is_given_by_others(node: DeviceCounts, resource: str) -> bool:
    """Whether another resource or driver has them, such as `aws.amazon.com/neuroncore` and
    `neuron.aws.com`."""
    what = resource.partition("/")[2]
    return any(n and what in one for one, n in node.all.items())


def is_nvidia_unit(name: str) -> bool:
    return plain_resource(name) == GPU or name.startswith("nvidia.com/mig-")


def _has_nvidia_units(node: DeviceCounts) -> bool:
    return any(n and is_nvidia_unit(one) for one, n in node.capacities.items())


_OTHER_PLUGIN = re.compile(r"gpu|cuda", re.IGNORECASE)
"""Occurs in resources such as `volcano.sh/vgpu-number`, `aliyun.com/gpu-mem`."""


def _is_given_otherwise(node: DeviceCounts, found: Collection[str]) -> bool:
    """Whether its NVIDIA GPUs are given out by a DRA driver, by another plugin, or by design not at
    all."""
    if _has_nvidia_units(node):
        return False
    there = [one for one, n in node.capacities.items() if n]
    return (
        GPU_DRIVER in node.devices
        or GPU_DRIVER in found
        or any(map(_OTHER_PLUGIN.search, there))
        or any(node.labels.get(key) == value for key, value in _NO_PLUGIN)
    )


# --- what was seen

_ACCELERATORS = (
    r"[^/]+/gpu",  # NVIDIA/k8s-device-plugin, ROCm/k8s-device-plugin and others: each is a device
    r"nvidia\.com/(gpu\.shared|mig-.+)",  # NVIDIA/k8s-device-plugin
    r"nvidia\.com/(pgpu|[A-Z].+)",  # NVIDIA/kubevirt-gpu-device-plugin, by the name of the model
    r"amd\.com/[a-z]px_nps\d",  # ROCm/k8s-device-plugin, the strategy `mixed`
    r"gpu\.intel\.com/(i915|xe)",  # intel/intel-device-plugins-for-kubernetes
    r"habana\.ai/gaudi",  # HabanaAI/docs
    r"google\.com/tpu",  # GKE
    r"aws\.amazon\.com/neuron(core|device)?",  # aws-neuron/aws-neuron-sdk
    r"huawei\.com/Ascend[0-9A-Za-z]+",  # Project-HAMi/ascend-device-plugin, after Ascend's own
)
_ACCELERATOR = re.compile("|".join(_ACCELERATORS))
"""Units of these are hardware. The number of others, such as `devices.kubevirt.io/kvm`, RDMA's
shared devices or HAMi's `nvidia.com/gpumem`, is what somebody has configured, or what is free."""
_NO_HARDWARE = ("dra.net", "dra.cpu")
"""DRA drivers of which nothing is missing by what was seen: kubernetes-sigs/dranet publishes each
network interface of the host, virtual ones too, and in a pod it is none of them (its issue 99);
kubernetes-sigs/dra-driver-cpu groups processors as it is told to."""


_HAMI_MEMORY = "nvidia.com/gpumem"
"""Project-HAMi/mock-device-plugin offers it."""


def is_split(annotations: Mapping[str, str]) -> bool:
    """Whether HAMi gives out its devices, each of which it offers many times, as it is told to:
    `hami.io/node-nvidia-register`, `hami.io/node-register-Ascend910B`."""
    return any(key.startswith("hami.io/node-") and "register" in key for key in annotations)


def is_hardware(name: str) -> bool:
    """Whether so many units of a resource, or devices of a driver, mean so much hardware."""
    if "/" not in name:
        return name not in _NO_HARDWARE
    return _ACCELERATOR.fullmatch(name) is not None


def _is_counted(node: DeviceCounts, name: str) -> bool:
    """Whether fewer than were seen means that hardware is gone."""
    is_split_node = node.split or _HAMI_MEMORY in node.capacities
    return is_hardware(name) and not (is_split_node and "/" in name)


def _by_memory(node: DeviceCounts) -> Iterator[tuple[str, Expected]]:
    """If most peers have what it has now, it was changed, as they were."""
    for name, count in node.most.items():
        usual = node.usual.get(name, Usual(0, 0))
        is_fleets = usual.nodes >= FEW_PEERS and usual.number == node.all.get(name, 0)
        if _is_counted(node, name) and not is_fleets:
            yield name, Expected(count, MEMORY)


MEMORY, PEERS = "the most since its boot", "what most nodes of its type and pool have"


def _by_peers(node: DeviceCounts) -> Iterator[tuple[str, Expected]]:
    count = to_count(node.labels.get(GFD_COUNT, ""))
    most = count if count and not _is_in_pool(node.labels) else inf
    for name, usual in node.usual.items():
        if usual.number > most and (name == GPU_DRIVER or is_nvidia_unit(name)):
            continue  # machines of one name may be built differently
        is_usual = _is_counted(node, name) and (usual.common or node.all.get(name))
        if is_usual and not (is_nvidia_unit(name) and _is_divided_otherwise(node, usual.nodes)):
            yield name, Expected(usual.number, PEERS)


def _is_divided_otherwise(node: DeviceCounts, peers: int) -> bool:
    """Whether somebody has divided or shared its GPUs as so many peers' are not: it had more of
    something than they. Then it has fewer of what they have by that."""
    for name, count in chain(node.most.items(), node.capacities.items()):
        usual = node.usual.get(name, Usual(0, 0))
        if is_nvidia_unit(name) and count > (usual.number if usual.nodes >= peers else 0):
            return True
    return False


_SOURCES: tuple[Callable[[DeviceCounts], Iterator[tuple[str, Expected]]], ...] = (
    _by_gfd,
    _by_nvsentinel,
    _by_instance,
    _by_memory,
    _by_peers,
)

# --- when labels tell that the number of devices is about to change

_MIG_STATE = "nvidia.com/mig.config.state"
_VGPU_STATE = "nvidia.com/vgpu.config.state"
"""NVIDIA/vgpu-device-manager writes it as the MIG manager does."""
_DCM_STATE, _DCM_PROFILE = "dcm.amd.com/gpu-config-profile-state", "dcm.amd.com/gpu-config-profile"
"""ROCm/device-config-manager: `success` or `failure`, as it ended; that of the profile before stays
while GPUs are partitioned anew."""
_STATES, _DONE = (_MIG_STATE, _VGPU_STATE, _DCM_STATE), "success"


def changes(labels: Mapping[str, str]) -> Mapping[str, str]:
    """What labels say of MIG devices, vGPUs or partitions of AMD's GPUs that are being made, or
    could not be: then others are to be expected than before. Nothing if none are."""
    wanted = labels.get(_MIG_CONFIG, _MIG_OFF) != _MIG_OFF
    said = {key: labels[key] for key in _STATES if key in labels}
    if wanted:
        said.setdefault(_MIG_STATE, "")
    if _DCM_PROFILE in labels:
        said.setdefault(_DCM_STATE, "")
    return {key: state for key, state in said.items() if state != _DONE}


_PAUSED = ("paused-for-mig-change", "paused-for-vgpu-change")
"""NVIDIA/mig-parted and NVIDIA/vgpu-device-manager: of labels `nvidia.com/gpu.deploy.…`."""


def labels_of_changes(labels: Mapping[str, str]) -> Mapping[str, str]:
    """All that labels say of such a change while it goes on: also what it stops meanwhile."""
    if not changes(labels):
        return {}
    return {k: v for k, v in labels.items() if k in _STATES or v in _PAUSED}


def is_change(told: Mapping[str, str]) -> bool:
    """Whether these labels were remembered during such a change."""
    return any(key in told for key in _STATES)


_LAYOUT = (
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.sharing-strategy",
    _MIG_STRATEGY,
    _MIG_CONFIG,
    "nvidia.com/vgpu.config",
    "nvidia.com/device-plugin.config",
    _WORKLOAD,
    _DCM_PROFILE,
    "cloud.google.com/gke-max-shared-clients-per-gpu",  # GKE
    "cloud.google.com/gke-gpu-partition-size",  # GKE
    "amd.com/compute-memory-partition",  # ROCm/k8s-device-plugin, node labeller: such as cpx_nps4
)
"""Labels that say how GPUs are shared, divided or passed through."""
_POOLS = (
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "nebius.com/node-group-id",  # nebius/nebius-solutions-library, soperator
    "oke.oraclecloud.com/pool.name",  # oracle-terraform-modules/terraform-oci-oke
)
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def _is_in_pool(labels: Mapping[str, str]) -> bool:
    return any(key in labels for key in _POOLS)


def layout(labels: Mapping[str, str]) -> Mapping[str, str]:
    """How its devices are shared and divided, as far as labels say so."""
    return {key: labels[key] for key in _LAYOUT if key in labels}


def type_and_pool(labels: Mapping[str, str]) -> Hashable | None:
    """What nodes that should have the same devices have in common; None: nothing is known."""
    type_ = machine(labels)
    if type_ is None:
        return None
    return (type_, _CONTROL_PLANE in labels, *(labels.get(key) for key in (*_POOLS, *_LAYOUT)))
