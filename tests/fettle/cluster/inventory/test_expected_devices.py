"""How many devices a node should have, by labels and words in the form that their writers use."""

from typing import Any

import pytest

from fettle.cluster.inventory.expected_devices import DeviceCounts, changes, expected_devices
from fettle.cluster.inventory.unit_counts import Usual

GPU, SHARED, SMALL = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"
DRIVER = "gpu.nvidia.com"
GFD = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.strategy": "single",
    "nvidia.com/mig.config": "all-disabled",
    "nvidia.com/mig.config.state": "success",
}
BY_FOUR = GFD | {
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}
SINGLE = GFD | {
    "nvidia.com/gpu.count": "56",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
    "nvidia.com/mig.config": "all-1g.10gb",
}
INVALID = GFD | {
    "nvidia.com/gpu.count": "0",
    "nvidia.com/gpu.replicas": "0",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-INVALID",
}
MIXED = GFD | {
    "nvidia.com/gpu.replicas": "0",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig.config": "all-1g.10gb",
    f"{SMALL}.count": "56",
    f"{SMALL}.replicas": "1",
}
MIXED_OFF = GFD | {"nvidia.com/mig.strategy": "mixed"}
SENTINEL = {
    "nvsentinel.dgxc.nvidia.com/gpu.count.current": "7",
    "nvsentinel.dgxc.nvidia.com/gpu.count.expected": "8",
}
KARPENTER = {
    "karpenter.k8s.aws/instance-gpu-count": "8",
    "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
}
EKS = {
    "eks.amazonaws.com/instance-gpu-count": "8",
    "eks.amazonaws.com/instance-gpu-manufacturer": "nvidia",
}
AZURE = {
    "karpenter.azure.com/sku-gpu-count": "8",
    "karpenter.azure.com/sku-gpu-manufacturer": "nvidia",
}
COREWEAVE = {"gpu.nvidia.com/count": "8", "gpu.nvidia.com/class": "H100_NVLINK_80GB"}
NEURON = {
    "karpenter.k8s.aws/instance-accelerator-count": "16",
    "karpenter.k8s.aws/instance-accelerator-manufacturer": "aws",
}
BY_NEURON = (16, f"label {next(iter(NEURON))}")
NO_OPERANDS = {"nvidia.com/gpu.deploy.operands": "false"}
GKE = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
TPU = {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"}
LABEL, MEMORY = "label nvidia.com/gpu.count", "the most since its boot"
PEERS = "what most nodes of its type and pool have"


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, {}),
        # GPU Feature Discovery
        ({"labels": GFD, "capacities": {GPU: 8}}, {GPU: (8, LABEL)}),
        ({"labels": GFD, "capacities": {GPU: 0}}, {GPU: (8, LABEL)}),
        ({"labels": GFD}, {GPU: (8, LABEL)}),
        ({"labels": BY_FOUR, "capacities": {GPU: 28}}, {GPU: (32, LABEL)}),
        ({"labels": BY_FOUR, "capacities": {GPU: 0, SHARED: 28}}, {SHARED: (32, LABEL)}),
        ({"labels": SINGLE, "capacities": {GPU: 49}}, {GPU: (56, LABEL)}),
        (
            {"labels": MIXED, "capacities": {GPU: 0, SMALL: 49}},
            {SMALL: (56, f"label {SMALL}.count")},
        ),
        ({"labels": MIXED_OFF, "capacities": {GPU: 7}}, {GPU: (8, LABEL)}),
        # of GPUs in MIG mode nothing tells how many are no `nvidia.com/gpu`
        ({"labels": INVALID, "capacities": {GPU: 4}}, {}),
        ({"labels": MIXED_OFF, "capacities": {GPU: 4, SMALL: 28}}, {}),
        (
            {"labels": MIXED_OFF | {"nvidia.com/mig.config": "custom"}, "capacities": {GPU: 4}},
            {},
        ),
        # what no count is
        ({"labels": GFD | {"nvidia.com/gpu.count": "eight"}, "capacities": {GPU: 7}}, {}),
        ({"labels": GFD | {"nvidia.com/gpu.count": "1" + 30 * "0"}, "capacities": {GPU: 7}}, {}),
        ({"labels": GFD | {"nvidia.com/gpu.count": "-8"}, "capacities": {GPU: 7}}, {}),
        ({"labels": GFD | {"nvidia.com/gpu.count": "٨"}, "capacities": {GPU: 7}}, {}),
        # NVSentinel, and whichever says more
        (
            {"labels": SENTINEL, "capacities": {GPU: 7}},
            {GPU: (8, "label nvsentinel.dgxc.nvidia.com/gpu.count.expected")},
        ),
        ({"labels": GFD | SENTINEL, "capacities": {GPU: 7}}, {GPU: (8, LABEL)}),
        (
            {"labels": GFD | SENTINEL | {"nvidia.com/gpu.count": "7"}, "capacities": {GPU: 7}},
            {GPU: (8, "label nvsentinel.dgxc.nvidia.com/gpu.count.expected")},
        ),
        # the type of the instance
        (
            {"labels": KARPENTER, "capacities": {GPU: 7}},
            {GPU: (8, "label karpenter.k8s.aws/instance-gpu-count")},
        ),
        ({"labels": KARPENTER, "capacities": {GPU: 0, SMALL: 56}}, {}),
        *(
            ({"labels": labels, "capacities": {GPU: units}}, {GPU: (8, f"label {key}")})
            for labels in (EKS, AZURE, COREWEAVE)
            for key in [next(iter(labels))]
            for units in (0, 7)
        ),
        ({"labels": EKS, "devices": {DRIVER: 7}}, {DRIVER: (8, f"label {next(iter(EKS))}")}),
        ({"labels": {**EKS, "eks.amazonaws.com/instance-gpu-manufacturer": "amd"}}, {}),
        ({"labels": {"gpu.nvidia.com/count": "8"}}, {}),
        ({"labels": {**AZURE, "karpenter.azure.com/sku-gpu-count": "0"}}, {}),
        ({"labels": NEURON}, {"aws.amazon.com/neuron": BY_NEURON}),
        (
            {"labels": NEURON, "capacities": {"aws.amazon.com/neuron": 15}},
            {"aws.amazon.com/neuron": BY_NEURON},
        ),
        ({"labels": NEURON, "capacities": {"aws.amazon.com/neuroncore": 32}}, {}),
        ({"labels": NEURON, "devices": {"neuron.aws.com": 16}}, {}),
        (
            {"labels": {**GKE, "cloud.google.com/gke-accelerator-count": "8"}},
            {GPU: (8, "label cloud.google.com/gke-accelerator-count")},
        ),
        ({"labels": GKE}, {GPU: (1, "label cloud.google.com/gke-accelerator")}),
        ({"labels": GKE, "capacities": {GPU: 1}}, {}),
        ({"labels": {"nvidia.com/gpu.present": "false"}}, {}),
        ({"labels": TPU}, {"google.com/tpu": (1, f"label {next(iter(TPU))}")}),
        ({"labels": TPU, "capacities": {"google.com/tpu": 4}}, {}),
        ({"labels": TPU, "devices": {"tpu.google.com": 4}}, {}),
        # GPUs that somebody else gives out
        ({"labels": GKE, "capacities": {"nvidia.com/GA102GL_A10": 2}}, {}),
        ({"labels": GFD, "capacities": {"volcano.sh/vgpu-number": 80}}, {}),
        ({"labels": GFD | {"nvidia.com/gpu.deploy.device-plugin": "false"}}, {}),
        # GPUs that the GPU Operator is told to leave alone, or gives to VMs; what there is counts
        ({"labels": {"nvidia.com/gpu.present": "true"} | NO_OPERANDS}, {}),
        ({"labels": GFD | NO_OPERANDS}, {}),
        ({"labels": GFD | NO_OPERANDS, "capacities": {GPU: 7}}, {GPU: (8, LABEL)}),
        ({"labels": GFD | {"nvidia.com/gpu.deploy.operands": "true"}}, {GPU: (8, LABEL)}),
        ({"labels": GFD | {"nvidia.com/gpu.workload.config": "vm-passthrough"}}, {}),
        ({"labels": GFD | {"nvidia.com/gpu.workload.config": "vm-vgpu"}}, {}),
        ({"labels": GFD | {"nvidia.com/gpu.workload.config": "container"}}, {GPU: (8, LABEL)}),
        ({"labels": GFD | {"nvidia.com/gpu.deploy.sandbox-device-plugin": "true"}}, {}),
        ({"labels": GFD, "devices": {DRIVER: 7}}, {DRIVER: (8, LABEL)}),
        ({"labels": GFD, "devices": {DRIVER: 0}, "capacities": {GPU: 0}}, {DRIVER: (8, LABEL)}),
        ({"labels": SINGLE, "devices": {DRIVER: 8}}, {}),
        # what it had, and what its peers have
        ({"capacities": {GPU: 7}, "most": {GPU: 8}}, {GPU: (8, MEMORY)}),
        ({"capacities": {GPU: 7}, "most": {GPU: 8}, "labels": {**GFD, "nvidia.com/gpu.count": "7"}},
         {GPU: (8, MEMORY)}),
        ({"devices": {DRIVER: 7}, "most": {DRIVER: 8}}, {DRIVER: (8, MEMORY)}),
        ({"capacities": {GPU: 7}, "usual": {GPU: Usual(8, 5)}}, {GPU: (8, PEERS)}),
        ({"usual": {DRIVER: Usual(8, 5)}, "labels": GFD}, {DRIVER: (8, PEERS)}),
        # the fleet was changed, and this node with it; two nodes are no fleet
        (
            {"devices": {DRIVER: 7}, "most": {DRIVER: 8}, "usual": {DRIVER: Usual(7, 3)}},
            {DRIVER: (7, PEERS)},
        ),
        (
            {"devices": {DRIVER: 7}, "most": {DRIVER: 8}, "usual": {DRIVER: Usual(7, 2)}},
            {DRIVER: (8, MEMORY)},
        ),
        # an operator's word decides, also for less
        (
            {"labels": GFD, "annotation": {GPU: 6}, "row": {GPU: 7}, "most": {GPU: 8}},
            {GPU: (6, "annotation fettle.dev/expected-devices")},
        ),
        ({"labels": GFD, "row": {GPU: 0}}, {GPU: (0, "health.expectedDevices")}),
        ({"labels": GFD, "row": {DRIVER: 8}, "capacities": {GPU: 8}},
         {GPU: (8, LABEL), DRIVER: (8, "health.expectedDevices")}),
    ],
)  # fmt: skip
def test_each_source_says_how_many(
    known: dict[str, Any], expected: dict[str, tuple[int, str]]
) -> None:
    assert {k: tuple(v) for k, v in expected_devices(DeviceCounts(**known)).items()} == expected


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({}, None),
        (GFD, None),
        (MIXED, None),
        (MIXED | {"nvidia.com/mig.config.state": "pending"}, "pending"),
        (MIXED | {"nvidia.com/mig.config.state": "rebooting"}, "rebooting"),
        (MIXED | {"nvidia.com/mig.config.state": "failed"}, "failed"),
        ({"nvidia.com/mig.config": "all-1g.10gb"}, ""),
        ({"nvidia.com/mig.config": "all-disabled"}, None),
    ],
)
def test_while_devices_are_divided_labels_say_so(labels: dict[str, str], said: str | None) -> None:
    assert changes(labels).get("nvidia.com/mig.config.state") == said
