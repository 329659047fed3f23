"""What Pods say: their devices' health, and that a kubelet refused them."""

from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import core, resource
from fettle.health.signals.pods import report_of_pod
from fettle.health.signals.reports import SignalReport
from fettle.health.signals.rule_files import load_rules
from fettle.model import (
    DeviceId,
    EvidenceKind,
    Family,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    Subject,
    UnitId,
)
from tests.fettle.health.signals.objects import (
    GPU_LOST,
    NONE_AVAILABLE,
    NOW,
    UUID,
    claim,
    condition,
    health,
    pod,
    refused_pod,
    stamp,
    waiting_pod,
)

RULES = load_rules()
SOURCE = Source(SourceKind.DEVICE_STATUS)
UNIT = UnitId("gpu-1", "nvidia.com/gpu", UUID)


def said(
    pod: core.Pod, *claims: resource.ResourceClaim, before: core.Pod | None = None
) -> SignalReport:
    known = {c.metadata.key: c for c in claims}
    return report_of_pod(pod, RULES, NOW, known.get, before)


def no_claim(_: str) -> None:
    return None


def says_nothing(pod: core.Pod, *claims: resource.ResourceClaim) -> bool:
    who = ReporterId("Pod", pod.metadata.key)
    return said(pod, *claims) == SignalReport(who, (), uid=pod.metadata.uid)


@pytest.mark.parametrize(
    ("name", "resource_id", "subject"),
    [
        ("nvidia.com/gpu", UUID, UNIT),
        (
            "claim:gpus/req-0",
            "gpu.nvidia.com/gpu-1/gpu-0",
            DeviceId("gpu.nvidia.com", "gpu-1", "gpu-0"),
        ),
        (
            "claim:gpus/req-0",
            "net.example.com/rack-1/shelf-2/nic-0",  # a pool's name may contain slashes
            DeviceId("net.example.com", "rack-1/shelf-2", "nic-0"),
        ),
    ],
)
def test_the_kubelets_word_is_about_the_device_it_names(
    name: str, resource_id: str, subject: Subject
) -> None:
    ill = said(pod(resources=[health(name, resource_id, "Unhealthy", "ECC error")]))
    (evidence,) = ill.evidence
    assert evidence.subject == subject
    assert (evidence.kind, evidence.weight) == (EvidenceKind.LEVEL, 0.75)
    assert "ECC error" in evidence.text
    assert not ill.absent_is_clear

    unclear = said(pod(resources=[health(name, resource_id, "Unknown")]))
    assert [e.kind for e in unclear.evidence] == [EvidenceKind.UNKNOWN]

    fine = said(pod(resources=[health(name, resource_id, "Healthy")]))
    assert fine.evidence == ()
    assert fine.cleared == {(subject, SOURCE)}


def test_a_device_that_any_container_calls_unhealthy_is_not_cleared_by_another() -> None:
    mixed = said(
        pod(
            resources=[
                health("nvidia.com/gpu", UUID, "Healthy"),
                health("nvidia.com/gpu", UUID, "Unhealthy"),
            ]
        )
    )
    assert [e.kind for e in mixed.evidence] == [EvidenceKind.LEVEL]
    assert mixed.cleared == frozenset()


def test_an_unreadable_id_falls_back_to_the_claims_only_device() -> None:
    resources = [health("claim:gpus/req-0", "vendor.com/class=gpu0", "Unhealthy")]
    generated = {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": "c-1"}]}
    named = {"resourceClaims": [{"name": "gpus", "resourceClaimName": "c-1"}]}

    one = claim(("req-0", "d", "p", "x"), ("req-1", "d", "p", "y"))
    for mine in (pod(resources=resources, status=generated), pod(resources=resources, spec=named)):
        assert [e.subject for e in said(mine, one).evidence] == [DeviceId("d", "p", "x")]

    two = claim(("req-0", "d", "p", "x"), ("req-0", "d", "p", "y"))
    assert says_nothing(pod(resources=resources, spec=named), two)
    assert says_nothing(pod(resources=resources, spec=named))


@pytest.mark.parametrize("health_", ["Unhealthy", "Unknown"])
def test_what_the_kubelet_says_of_a_running_pod_is_of_now(health_: str) -> None:
    """And not of when the pod became ready."""
    ready = {"conditions": [condition("Ready", "True", at=NOW - 1800)]}
    resources = [health("nvidia.com/gpu", UUID, health_)]
    (evidence,) = said(pod(resources=resources, created_at=NOW - 3600, status=ready)).evidence
    assert evidence.observed_at == NOW


def test_an_xid_in_the_kubelets_message_counts_as_that_xid() -> None:
    """As NVIDIA's driver gives it (kubernetes-sigs/dra-driver-nvidia-gpu#1243)."""
    resources = [health("nvidia.com/gpu", UUID, "Unhealthy", "XID 79; XID_ERR_31")]
    driver, bus = sorted(said(pod(resources=resources)).evidence, key=lambda e: e.weight)
    assert (bus.family, bus.kind, bus.weight) == (Family.BUS, EvidenceKind.LATCHED, 1.0)
    assert "fallen off the bus" in bus.text
    assert (driver.family, driver.kind, driver.weight) == (Family.DRIVER, EvidenceKind.LEVEL, 0.75)
    fine = [health("nvidia.com/gpu", UUID, "Healthy", "XID 79 is over")]
    assert said(pod(resources=fine)).evidence == ()


def test_a_pod_that_has_ended_leaves_its_last_word_to_fade() -> None:
    resources = [health("nvidia.com/gpu", UUID, "Unhealthy", "XID 48")]
    (evidence,) = said(pod(resources=resources, phase="Failed")).evidence
    assert evidence.kind is EvidenceKind.DECAYING
    assert evidence.cap == evidence.weight  # several last words are not worse than one


def test_an_ended_pod_clears_a_fault_only_if_it_was_seen_to_end() -> None:
    ended = pod(resources=[health("nvidia.com/gpu", UUID, "Healthy")], phase="Succeeded")
    assert said(ended, before=pod()).cleared == {(UNIT, SOURCE)}
    assert says_nothing(ended)
    for other in (ended, pod(uid="another")):
        assert not said(ended, before=other).cleared


def test_a_refusal_is_one_event_about_the_node_at_the_time_it_was_refused() -> None:
    refused = said(refused_pod("train-7", at=NOW - 120))
    (evidence,) = refused.evidence
    assert evidence.subject == NodeId("gpu-1")
    assert (evidence.family, evidence.kind) == (Family.ADMISSION, EvidenceKind.DECAYING)
    assert evidence.observed_at == NOW - 120
    assert "ml/train-7" in evidence.text
    assert evidence.text.startswith("kubelet refused pod ml/train-7: Allocate failed due to")
    assert refused.uid == "uid-train-7"


def refused_at(
    started_at: float, created_at: float = NOW - 20, before: core.Pod | None = None
) -> float:
    refused = pod(
        phase="Failed",
        reason="UnexpectedAdmissionError",
        message=GPU_LOST,
        scheduled_at=None,
        created_at=created_at,
        status={"startTime": stamp(started_at)},
    )
    (evidence,) = said(refused, before=before).evidence
    return evidence.observed_at


@pytest.mark.parametrize("created_at", [NOW - 6 * 3600, NOW - 30])
def test_how_long_a_pod_waited_does_not_make_its_refusal_older(created_at: float) -> None:
    """`startTime` is when the kubelet took the pod up, and refused it."""
    assert refused_at(NOW - 5, created_at=created_at) == NOW - 5


def test_a_clock_that_is_behind_makes_no_refusal_older_than_its_pod() -> None:
    assert refused_at(NOW - 8 * 3600) == NOW - 20


def test_a_clock_that_is_ahead_keeps_no_refusal_fresh() -> None:
    assert refused_at(NOW + 4 * 3600, created_at=NOW - 4 * 3600) == NOW - 4 * 3600


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_a_refusal_is_never_dated_before_its_pod_nor_in_the_future(
    started: float, waited: float
) -> None:
    found = refused_at(NOW + started, NOW - waited)
    assert int(NOW - waited) <= found <= NOW


@pytest.mark.parametrize("clock", [-8 * 3600.0, 0.0, 8 * 3600.0])
def test_a_refusal_that_was_seen_to_happen_needs_no_clock_of_its_node(clock: float) -> None:
    """Not even where the pod had waited long, or had run until the kubelet was restarted."""
    for before in (waiting_pod("train-0"), pod()):
        assert refused_at(NOW + clock, NOW - 6 * 3600, before) == NOW


@pytest.mark.parametrize("clock", [-8 * 3600.0, 0.0, 8 * 3600.0])
def test_the_last_word_of_a_pod_that_was_seen_to_end_needs_no_clock_of_its_node(
    clock: float,
) -> None:
    ended = pod(
        resources=[health("nvidia.com/gpu", UUID, "Unhealthy")],
        phase="Failed",
        created_at=NOW - 6 * 3600,
        status={"conditions": [condition("Ready", "False", at=NOW + clock)]},
    )
    (evidence,) = said(ended, before=pod()).evidence
    assert evidence.observed_at == NOW


def test_without_a_start_a_refusal_dates_from_the_pods_creation() -> None:
    refused = pod(phase="Failed", reason="UnexpectedAdmissionError", scheduled_at=None)
    assert said(refused).evidence[0].observed_at == NOW - 30


@pytest.mark.parametrize(
    "other",
    [
        pod(),
        pod(phase="Failed", reason="Evicted"),
        pod(phase="Failed", reason="TopologyAffinityError"),  # of processors and memory alone
        pod(phase="Failed", reason="OutOfcpu", message="Pod was rejected: Node didn't have enough"),
        pod(phase="Failed", reason="OutOfpods"),
        pod(phase="Failed", reason="OutOfephemeral-storage"),
        pod(phase="Failed", reason="OutOfhugepages-2Mi"),
        pod(phase="Failed", reason="OutOf"),
        pod(phase="Running", reason="OutOfnvidia.com/gpu"),
        pod(phase="Failed", reason="NodeNotReady"),
        pod(phase="Running", reason="UnexpectedAdmissionError"),
        pod(phase="Failed", reason="UnexpectedAdmissionError", node=None),
        pod(resources=[health("nvidia.com/gpu", "", "Unhealthy")]),
        pod(resources=[health("nvidia.com/gpu", UUID, "Unhealthy")], node=None),
        pod(resources=[{"name": "nvidia.com/gpu", "resources": None}]),
    ],
)
def test_other_pods_report_nothing(other: core.Pod) -> None:
    assert says_nothing(other)


def misaligned(name: str = "p", namespace: str = "ml") -> core.Pod:
    asked = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]}
    return pod(
        name,
        namespace=namespace,
        phase="Failed",
        reason="TopologyAffinityError",
        message="Pod was rejected: Resources cannot be allocated with Topology locality",
        scheduled_at=None,
        spec=asked,
    )


@pytest.mark.parametrize("before", [None, waiting_pod("p"), waiting_pod("p", scheduled=True)])
def test_devices_that_do_not_suit_a_pods_numa_nodes_are_lightly_its_namespaces_word(
    before: core.Pod | None,
) -> None:
    (evidence,) = said(misaligned(), before=before).evidence
    assert evidence.subject == NodeId("gpu-1")
    assert (evidence.reporting_namespace, evidence.domain) == ("ml", "nvidia.com")
    assert (evidence.weight, evidence.cap, evidence.together) == (0.1, 0.2, 0.2)
    assert evidence.text == (
        "kubelet refused pod ml/p: Resources cannot be allocated with Topology locality"
    )


UNBOUND = waiting_pod("p")
BOUND = waiting_pod("p", node="gpu-1", scheduled=True)
CREATED_THERE = waiting_pod("p", node="gpu-1")
ANOTHER = pod("p", uid="another", node=None, phase="Pending", scheduled_at=None)
SHARED = (
    "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = request for "
    "'nvidia.com/gpu: 2' too large: maximum request size for shared resources is 1, which is "
    "unexpected"
)
NO_PROCESSORS = (
    "Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: "
    "requested=8, available=4, which is unexpected"
)


@pytest.mark.parametrize(
    ("message", "before", "word_of"),
    [
        # what only the node can bring about
        (GPU_LOST, None, ""),
        (GPU_LOST, CREATED_THERE, ""),
        # what a pod can bring about, unless a scheduler put it there
        (NONE_AVAILABLE, UNBOUND, ""),
        (NONE_AVAILABLE, BOUND, ""),
        (NONE_AVAILABLE, CREATED_THERE, "ml"),
        (NONE_AVAILABLE, None, "ml"),  # read after a restart of ours
        (NONE_AVAILABLE, ANOTHER, "ml"),
    ],
)
def test_a_refusal_that_a_tenant_could_provoke_is_no_more_than_its_namespaces_word(
    message: str, before: core.Pod | None, word_of: str
) -> None:
    refused = refused_pod("p", NOW, message=message)
    (evidence,) = said(refused, before=before).evidence
    assert evidence.reporting_namespace == word_of
    assert (evidence.cap, evidence.together) == ((0.35, 0.6) if word_of else (0.95, 1.0))


def test_a_refusal_says_that_no_scheduler_was_seen_to_place_the_pod() -> None:
    (evidence,) = said(refused_pod("p", NOW, message=NONE_AVAILABLE)).evidence
    assert evidence.text == (
        "kubelet refused pod ml/p, which no scheduler was seen to place: Allocate failed due to "
        "requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: 0, "
        "which is unexpected"
    )


@given(st.text(), st.text(), st.sampled_from(["Healthy", "Unhealthy", "Unknown", "", "Odd"]))
def test_any_name_and_id_are_read_without_an_error(name: str, resource_id: str, value: str) -> None:
    found = said(pod(resources=[health(name, resource_id, value)]))
    if value != "Unhealthy":
        assert all(e.kind is EvidenceKind.UNKNOWN for e in found.evidence)


def test_times_in_objects_are_utc() -> None:
    assert stamp(0.0) == "1970-01-01T00:00:00Z"


def asking(message: str, *resources: str, **spec: object) -> str:
    limits = {"limits": dict.fromkeys(resources, "1")}
    containers = {"containers": [{"name": "main", "resources": limits}], **spec}
    refused = refused_pod("p", NOW, message=message)
    made = pod("p", spec=containers, phase="Failed", reason="UnexpectedAdmissionError")
    (evidence,) = said(msgspec.structs.replace(refused, spec=made.spec)).evidence
    return f"{evidence.domain}|{evidence.source}"


def test_a_refusal_is_about_the_device_plugin_of_what_the_pod_asks_for() -> None:
    fuse = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices {}"
    claims = [{"name": "c", "resourceClaimName": "c"}]
    of_fuse = "smarter-devices|kubelet refusals for smarter-devices"
    gpu, unknown = "nvidia.com|kubelet refusals for nvidia.com", "|kubelet refusals"
    assert asking(GPU_LOST, "nvidia.com/gpu") == gpu
    assert asking(GPU_LOST, "nvidia.com/gpu", "nvidia.com/hostdev") == gpu
    assert asking(GPU_LOST, "nvidia.com/gpu", "rdma/hca") == unknown
    named = fuse.format("smarter-devices/fuse") + ", which is unexpected"
    assert asking(named, "nvidia.com/gpu", "smarter-devices/fuse") == of_fuse
    longer = fuse.format("smarter-devices/fuse.two")
    assert asking(longer, "nvidia.com/gpu", "smarter-devices/fuse") == unknown
    assert asking(named, "smarter-devices/fuse", resourceClaims=claims) == unknown
    assert asking(GPU_LOST) == unknown


def out_of(resource: str, used: int, capacity: int) -> core.Pod:
    """As a kubelet's own check leaves a pod, while its device plugin is away."""
    asked = {"limits": {resource: "1"}}
    return pod(
        "p",
        phase="Failed",
        reason=f"OutOf{resource}",
        message=f"Pod was rejected: Node didn't have enough resource: {resource}, requested: 1, "
        f"used: {used}, capacity: {capacity}",
        scheduled_at=None,
        spec={"containers": [{"name": "main", "resources": asked}]},
    )


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu", "vendor.example/fpga-2"])
def test_a_node_that_is_out_of_an_extended_resource_has_refused_the_pod(resource: str) -> None:
    domain = resource.partition("/")[0]
    (told,) = said(out_of(resource, 0, 0)).evidence
    assert (str(told.source), told.domain) == (f"kubelet refusals for {domain}", domain)
    assert (told.reporting_namespace, told.weight) == ("ml", 0.35)
    (seen,) = said(out_of(resource, 0, 0), before=waiting_pod("p")).evidence
    assert (seen.reporting_namespace, seen.weight) == ("", 0.4)


def test_a_refusal_says_nothing_where_the_kubelet_counts_that_others_have_the_units() -> None:
    assert not said(out_of("nvidia.com/gpu", 8, 8), before=waiting_pod("p")).evidence


def test_a_refusal_says_nothing_while_live_pods_hold_all_units() -> None:
    """A scheduler placed it that did not know of the others."""
    refused = refused_pod("p", NOW, message=NONE_AVAILABLE)
    asking = msgspec.structs.replace(refused, spec=out_of("nvidia.com/gpu", 8, 8).spec)
    assert said(asking, before=waiting_pod("p")).evidence
    full = partial(report_of_pod, asking, RULES, NOW, no_claim, waiting_pod("p"))
    assert not full(lambda _, resource: resource == "nvidia.com/gpu").evidence
    assert full(lambda _, resource: resource == "example.com/fuse").evidence


@pytest.mark.parametrize("message", [SHARED, NO_PROCESSORS])
def test_what_a_pod_brings_about_wherever_it_is_put_says_nothing_of_the_node(message: str) -> None:
    assert not said(refused_pod("p", NOW, message=message), before=BOUND).evidence


def test_that_all_units_are_held_excuses_no_lost_gpu() -> None:
    refused = msgspec.structs.replace(
        refused_pod("p", NOW, message=GPU_LOST), spec=out_of("nvidia.com/gpu", 8, 8).spec
    )
    assert report_of_pod(refused, RULES, NOW, no_claim, is_full=lambda *_: True).evidence


@pytest.mark.parametrize(
    "words",
    [
        "device number not matched",
        "device number not matched: annotation has 0, request has 1",
        "no binding pod found on node gpu-1",
        "empty id from pod annotation",
        "device request not found",
        "failed to find gpu id",
    ],
)
def test_a_gpu_sharing_scheduler_that_placed_nothing_says_nothing_of_devices(words: str) -> None:
    message = f"Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = {words}, "
    refused = refused_pod("p", NOW, message=f"{message}which is unexpected")
    assert not said(refused, before=waiting_pod("p")).evidence


@pytest.mark.parametrize(
    "cause",
    [
        "no healthy devices present; cannot allocate unhealthy devices vendor.example/npu",
        "cannot allocate unregistered device habana.ai/gaudi",
        "endpoint not found in cache for a registered resource: google.com/tpu",
        "rpc error: code = Unavailable desc = connection error: desc = transport is closing",
    ],
)
def test_every_device_plugins_refusal_is_heard(cause: str) -> None:
    """The words of the kubelet's device manager."""
    message = f"Pod was rejected: Allocate failed due to {cause}, which is unexpected"
    refused = refused_pod("p", NOW, message=message)
    (evidence,) = said(refused, before=waiting_pod("p")).evidence
    assert (evidence.weight, evidence.reporting_namespace) == (0.4, "")
