"""What is said of pods that are bound and do not start."""

from typing import Any

import pytest

from fettle.api import core
from fettle.health.signals.rule_files import load_rules
from fettle.health.signals.starts import AWAITED_S, FailedStart, failed_start, start_evidence
from fettle.model import EvidenceKind, NodeId
from tests.fettle.health.signals.objects import NOW, condition, pod

RULES = load_rules()
CLAIMS = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}

HOOK = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
    "create failed: unable to start container process: error during container init: error running "
    "prestart hook #0: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\n"
    "nvidia-container-cli: initialization error: driver rpc error: failed to process request"
)
CDI = (
    "failed to generate container spec: failed to apply OCI options: CDI device injection failed: "
    "unresolvable CDI devices k8s.gpu.nvidia.com/claim=0f3c-gpu-0"
)
NEURON = (
    "OCI runtime create failed: /opt/aws/neuron/bin/oci_neuron_hook_wrapper.sh did not terminate "
    "successfully: exit status 2"
)
AMD = "OCI runtime create failed: fork/exec /usr/bin/amd-container-runtime: input/output error"
HABANA = "error running hook: habana-container-cli: device error: hl-0: unknown device"

NO_RUNTIME = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
    "unable to retrieve OCI runtime error (open /run/containerd/log.json: no such file or "
    'directory): exec: "nvidia-container-runtime": executable file not found in $PATH: unknown'
)
RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
    "create failed: unable to start container process: "
)

OWN = 'exec: "trian.py": executable file not found in $PATH'
MOUNT = 'error mounting "/var/lib/kubelet/pods/x" to rootfs: no such file or directory'
NO_GPU_CHOSEN = (
    "OCI runtime create failed: nvidia-container-cli: device error: no-gpu-has-128MiB-to-run: "
    "unknown device"
)


def with_container(state: dict[str, Any], phase: str = "Pending", **more: Any) -> core.Pod:
    statuses = {"containerStatuses": [{"name": "main", "state": state, **more}]}
    return pod(phase=phase, status=statuses)


def waits(reason: str, message: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def ended(reason: str, message: str) -> dict[str, Any]:
    return {"terminated": {"exitCode": 128, "reason": reason, "message": message}}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (NO_RUNTIME, 'nvidia-container-runtime": executable file not found in $PATH: unknown'),
        (HOOK, "nvidia-container-cli: initialization error: driver rpc error: failed to process"),
        (CDI, "CDI device injection failed: unresolvable CDI devices k8s.gpu.nvidia.com/claim="),
        (NEURON, "oci_neuron_hook_wrapper.sh did not terminate successfully: exit status 2"),
        (AMD, "amd-container-runtime: input/output error"),
        (HABANA, "habana-container-cli: device error: hl-0: unknown device"),
        ("lstat /dev/nvidiactl: no such file or directory", "lstat /dev/nvidiactl: no such file"),
        (
            'error gathering device information while adding custom device "/dev/nvidia3": no such '
            "file or directory",
            'custom device "/dev/nvidia3": no such file or directory',
        ),
        ("lstat /dev/qat_adf_ctl: no such file or directory", "lstat /dev/qat_adf_ctl: no such"),
        ("stat /dev/dri/card1: no such file or directory", "/dev/dri/card1: no such file"),
        ("open /dev/vfio/17: no such device", "/dev/vfio/17: no such device"),
        ('"/dev/infiniband/uverbs0": not a device node', '/dev/infiniband/uverbs0": not a device'),
    ],
)
@pytest.mark.parametrize("reason", ["CreateContainerError", "RunContainerError", "StartError"])
def test_a_container_that_the_device_runtime_cannot_start(
    reason: str, said: str, shown: str
) -> None:
    """What runc says before it is long, and left out."""
    start = failed_start(with_container(waits(reason, said)), RULES, NOW)
    assert start is not None
    assert (start.node, start.namespace, start.is_over) == ("gpu-1", "ml", False)
    assert start.message.startswith(shown)


def test_a_container_that_ended_before_it_ran() -> None:
    """As with `restartPolicy: Never`, and while it is restarted."""
    once = failed_start(with_container(ended("StartError", HOOK), phase="Failed"), RULES, NOW)
    assert once is not None
    assert once.is_over
    crashing = waits("CrashLoopBackOff", "back-off 40s restarting failed container=main")
    again = with_container(crashing, lastState=ended("StartError", HOOK))
    assert failed_start(again, RULES, NOW) is not None
    back = with_container({"running": {}}, phase="Running", lastState=ended("StartError", HOOK))
    assert failed_start(back, RULES, NOW) is None


@pytest.mark.parametrize(
    "state",
    [
        waits("CreateContainerError", OWN),
        waits("RunContainerError", MOUNT),
        # what the container itself is to run, and where, called like a device runtime or device
        waits("RunContainerError", f'{RUNC}exec: "nvidia-ctk": executable file not found in $PATH'),
        waits("RunContainerError", f'{RUNC}exec: "/dev/nvidia0": no such file or directory'),
        ended("StartError", f'{RUNC}error during container init: exec: "nvidia-cdi-hook": '
              "permission denied: unknown"),
        waits("RunContainerError", f'{RUNC}chdir to cwd ("/dev/neuron0") set in config.json '
              "failed: no such file or directory: unknown"),
        waits("CreateContainerError", "executable file `nvidia-container-cli` not found in $PATH"),
        waits("CreateContainerError", "failed to reserve container name "
              '"nvidia-container-runtime_a_ml_1_0": name "x" is reserved for "y"'),
        waits("RunContainerError", 'error mounting "/dev/fuse": stat /dev/fuse: no such file'),
        waits("RunContainerError", NO_GPU_CHOSEN),
        waits("CreateContainerConfigError", "couldn't find key nvidia-container-cli in ConfigMap"),
        waits("ImagePullBackOff", 'Back-off pulling image "nvidia-container-cli"'),
        ended("StartError", OWN),
        ended("Error", HOOK),  # what a container itself wrote as it ended
        ended("Completed", HOOK),
        {},
    ],
)  # fmt: skip
def test_what_is_not_said_by_a_device_runtime_says_nothing(state: dict[str, Any]) -> None:
    assert failed_start(with_container(state), RULES, NOW) is None


def awaited(since: float, ready: str = "False", phase: str = "Pending", **spec: Any) -> core.Pod:
    """Bound, with a claim; its kubelet says whether its containers may start."""
    conditions = [
        condition("PodScheduled", "True", at=since),
        condition("PodReadyToStartContainers", ready, at=since),
    ]
    return pod(phase=phase, status={"conditions": conditions}, spec={**CLAIMS, **spec})


@pytest.mark.parametrize(
    "said",
    [
        "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources: rpc "
        "error: code = DeadlineExceeded desc = context deadline exceeded",
        "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources "
        "failed for ResourceClaim c: error preparing devices: failed to create CDI spec",
        "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources "
        "skipped 1 ResourceClaims",
        "Failed to prepare dynamic resources: prepare dynamic resources: DRA driver gpu.nvidia.com "
        "is not registered",
    ],
)
def test_a_driver_that_prepares_nothing_fails_the_start_at_once(said: str) -> None:
    start = failed_start(awaited(NOW - 5), RULES, NOW, said)
    assert start is not None
    said = said.removeprefix("Failed to prepare dynamic resources: prepare dynamic resources: ")
    assert (start.message, start.at) == (said, NOW - 5)
    for over in (awaited(NOW - 5, ready="True"), awaited(NOW - 5, phase="Running")):
        assert failed_start(over, RULES, NOW, said) is None


@pytest.mark.parametrize(
    "said",
    [
        "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources "
        "failed for ResourceClaim c: error preparing devices: current node not ready in "
        "ComputeDomain",
        "Failed to prepare dynamic resources: prepare dynamic resources: pod p (u) is not allowed "
        "to use ResourceClaim c (v)",
        "Failed to prepare dynamic resources: prepare dynamic resources: ResourceClaim c is being "
        "unprepared",
    ],
)
def test_other_reasons_to_prepare_nothing_yet_say_nothing(said: str) -> None:
    assert failed_start(awaited(NOW - 5), RULES, NOW, said) is None


@pytest.mark.parametrize(
    "said",
    [
        "resource claim a/s1 not created",
        'pod "ml/p": pod claim "gpu": ResourceClaim not created yet',
        'fetch ResourceClaim s1: resourceclaims.resource.k8s.io "s1" not found',
        "ResourceClaim s1 was not created for Pod ml/p",
        "ResourceClaim s1: claim not yet allocated",
        "resource claim a/s1 is not reserved for this pod",
        "pod p (u) is not allowed to use ResourceClaim c (v)",
        "old ResourceClaim with same name c and different UID u still exists (previous pod "
        "force-deleted?!)",
    ],
)
def test_a_claim_that_is_not_there_is_no_devices_fault_however_long_it_takes(said: str) -> None:
    said = f"Failed to prepare dynamic resources: prepare dynamic resources: {said}"
    assert failed_start(awaited(NOW - AWAITED_S), RULES, NOW, said) is None


def test_a_pod_with_claims_that_waits_for_long_has_failed_to_start() -> None:
    assert failed_start(awaited(NOW - AWAITED_S + 1), RULES, NOW) is None
    start = failed_start(awaited(NOW - AWAITED_S), RULES, NOW)
    assert start is not None
    assert (start.message, start.at) == ("", NOW - AWAITED_S)


@pytest.mark.parametrize(
    "other",
    [
        awaited(NOW - 9999, resourceClaims=None),  # mounts and networks have nothing to do with us
        awaited(NOW - 9999, nodeName=None),
        awaited(NOW - 9999, ready="True"),  # pulls an image, say
        awaited(NOW - 9999, phase="Running"),
        awaited(NOW + 9999),
        pod(phase="Pending", spec=CLAIMS, scheduled_at=NOW - 9999),  # no kubelet has taken it
    ],
)
def test_other_pods_that_wait_say_nothing(other: core.Pod) -> None:
    assert failed_start(other, RULES, NOW) is None


def failed(pod: core.Pod, message: str = HOOK) -> FailedStart:
    start = failed_start(with_container(waits("RunContainerError", message)), RULES, NOW)
    assert start is not None
    return start


def test_what_it_says_of_the_node_is_the_word_of_its_namespace() -> None:
    start = failed(pod())
    one = start_evidence([start], RULES, NodeId("gpu-1"), "Job ml/train")
    assert (one.subject, one.kind, one.reporting_namespace) == (
        NodeId("gpu-1"),
        EvidenceKind.LEVEL,
        "ml",
    )
    assert (one.weight, one.cap, one.together) == (0.35, 0.35, 0.6)
    assert one.text.startswith("Job ml/train does not start: nvidia-container-cli: init")
    two = start_evidence([start, start], RULES, NodeId("gpu-1"), "Job ml/train")
    assert two.text.startswith("2 pods of Job ml/train do not start: ")
    silent = failed_start(awaited(NOW - AWAITED_S), RULES, NOW)
    assert silent is not None
    light = start_evidence([silent], RULES, NodeId("gpu-1"), "Job ml/train")
    assert (light.weight, light.cap, light.reporting_namespace) == (0.2, 0.2, "ml")


def test_only_the_words_of_a_runtime_are_kept_and_not_all_of_them() -> None:
    """What containers write can be large, and a fleet has many of them."""
    for state, kept in (
        (waits("RunContainerError", "x" * 9999), 2048),
        (waits("ImagePullBackOff", "x" * 9999), 0),
        (ended("StartError", "x" * 9999), 2048),
        (ended("Error", "x" * 9999), 0),
    ):
        (container,) = with_container(state).container_statuses()
        assert container.state is not None
        one = container.state.waiting or container.state.terminated
        assert one is not None
        assert len(one.message) == kept
