"""Labels and annotations of Nodes that no rule names, and whose keys tell of health."""

from pathlib import Path

import pytest

from fettle.health import load_rules
from fettle.health.signals.conditions import MOST_UNKNOWN_SIGNALS
from fettle.health.signals.nodes import report_of_node
from tests.fettle.health.signals.objects import NOW, node

RULES = load_rules()


def listed(
    labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None
) -> list[str]:
    said = report_of_node(node(labels=labels, annotations=annotations), RULES, NOW)
    assert said.evidence == ()
    return [f"{one.type}={one.status}" for one in said.unknown_signals]


@pytest.mark.parametrize(
    "key",
    [
        "example.com/gpu-health",
        "notnvidia.com/health",
        "gpu-health.example.com/3",
        "healthcheck",
        "node.kubernetes.io/gpu-fault",
        "ops.example.com/isDegraded",
        "ops.example.com/under_maintenance",
        "ops.example.com/node-anomaly",
        "npd.example.com/problem",
        "huawei.com/Ascend910-Fault",
        "autoscaling.cast.ai/draining",
        "mthreads.com/node-need-reboot",
        "remediation.medik8s.io/exclude-from-remediation",
        "ops.example.com/badGPU",
        "ops.example.com/gpuXid",
        "ops.example.com/RMATicket",
        "ops.example.com/gpuLost",
        "ops.example.com/gpu-defect",
        "ops.example.com/link-impaired",
        "ops.example.com/gpu-unresponsive",
        "ops.example.com/retired-pages",
        "ops.example.com/uncorrectable-ecc",
        "ops.example.com/planned-outage",
        "ops.example.com/gpu-offline",
        "ops.example.com/gpu-isolated",
        "ops.example.com/unusable",
        "ops.example.com/gpu.hung",
        "ops.example.com/gpu_stuck",
        "ops.example.com/gpu-dead",
        "ops.example.com/out-of-service",
        "ops.example.com/overheated",
        "ops.example.com/gpu-throttled",
        "ops.example.com/nvlink-down",
        "ops.example.com/ib-down-ports",
        "ops.example.com/gpu-fallen-off-bus",
        "ops.example.com/gpus-missing",
        "ops.example.com/driver-crashed",
        "ops.example.com/link-flapping",
        "ops.example.com/nic-unstable",
        "ops.example.com/gpu-ecc",
        "ops.example.com/last-xids",
        "aws-node-termination-handler/action",
        "os.modelarts.node/lock.action",
    ],
)
def test_whoever_wrote_it_a_key_that_tells_of_health_is_listed(key: str) -> None:
    assert listed(labels={key: "odd"}) == [f"label {key}=odd"]
    assert listed(annotations={key: "odd"}) == [f"annotation {key}=set"]


@pytest.mark.parametrize(
    "key",
    [
        # Kubernetes, its add-ons and operators: no statements about health
        "failure-domain.beta.kubernetes.io/zone",
        "example.com/badge",
        "example.com/almostFull",
        "example.com/formation",
        "oci.oraclecloud.com/fault-domain",
        "topology.example.com/fault_domain",
        "node.longhorn.io/create-default-disk",
        "node.alpha.kubernetes.io/ttl",
        "node.kubernetes.io/exclude-from-external-load-balancers",
        "volumes.kubernetes.io/controller-managed-attach-detach",
        "cluster-autoscaler.kubernetes.io/scale-down-disabled",
        "feature.node.kubernetes.io/cpu-cpuid.MCAOVERFLOW",
        "cpu-feature.node.kubevirt.io/xsaveerptr",
        "karpenter.sh/do-not-disrupt",
        "cluster.x-k8s.io/machine",
        "projectcalico.org/IPv4Address",
        "example.com/healthcare-tenant",
        "example.com/mirror",
        # written to every node by who runs them
        "machineconfiguration.openshift.io/desiredDrain",
        "machineconfiguration.openshift.io/lastAppliedDrain",
        "machine.openshift.io/machine",
        "is-reboot-capable.self-node-remediation.medik8s.io",
        "self-node-remediation.medik8s.io/watchdog-timeout",
        # beside what a row reads
        "weave.works/kured-most-recent-reboot-needed",
        "flatcar-linux-update.v1.flatcar-linux.net/reboot-ok",
        "flatcar-linux-update.v1.flatcar-linux.net/version",
        "quarantineHealthEventAppliedTaints",
        "latestFaultRemediationState",
        "aws-node-termination-handler/action-time",
        "aws-node-termination-handler/event-id",
        # words that have another meaning there
        "cluster-autoscaler.kubernetes.io/scale-down-unneeded",
        "example.com/scaledown",
        "example.com/cooldown",
        "example.com/isolated-cpus",
        "example.com/crashkernel",
        "example.com/deadline",
        "example.com/downstream",
        "example.com/download-speed",
        "network.cilium.io/ipv4-health-ip",
        "network.cilium.io/ipv6-health-ip",
        "io.cilium.network.ipv4-health-ip",
        "network.cilium.io/ipv4-pod-cidr",
        # our own
        "fettle.dev/health",
        "fettle.dev/drain",
    ],
)
def test_a_key_that_says_nothing_of_health_is_not_listed(key: str) -> None:
    assert listed(labels={key: "x"}, annotations={key: "x"}) == []


def test_of_many_such_labels_only_some_are_kept() -> None:
    many = {f"example.com/health-{number:03}": "x" for number in range(200)}
    assert len(listed(many)) == MOST_UNKNOWN_SIGNALS
    assert len(listed(annotations=many)) == MOST_UNKNOWN_SIGNALS
    assert len(listed({f"nvidia.com/odd-{n:03}": "x" for n in range(200)})) == MOST_UNKNOWN_SIGNALS


def test_long_keys_and_values_are_cut_and_control_no_terminal() -> None:
    found = listed({"example.com/health\x1b[31m\n" + "x" * 100_000: "y" * 100_000})
    assert len(found) == 1
    assert len(found[0]) < 1000
    assert found[0].isprintable()


def test_what_tells_of_health_behind_the_longest_key_that_a_node_may_have_is_not_looked_at() -> (
    None
):
    assert listed({"x" * 400 + "health": "bad"}) == []


def test_a_row_of_ones_own_says_what_it_means_or_that_it_only_describes(tmp_path: Path) -> None:
    own = tmp_path / "rules.yaml"
    own.write_text(
        """
vendors:
  - name: example.com
    describes: ["example.com/*", example.com/drain-window]
    source: ours
labels:
  - name: gpu-health
    key: example\\.com/gpu-health
    value: bad
    weight: 0.5
    source: ours
"""
    )
    rules = load_rules(own)
    labels = {
        "example.com/rack": "4",
        "example.com/drain-window": "sunday",
        "example.com/gpu-health": "bad",
        "example.com/nic-health": "bad",
    }
    said = report_of_node(node(labels=labels), rules, NOW)
    assert [one.weight for one in said.evidence] == [0.5]
    assert [one.type for one in said.unknown_signals] == ["label example.com/nic-health"]
