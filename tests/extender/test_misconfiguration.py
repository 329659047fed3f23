"""How an operator sees that schedulers do not ask Fettle: at all, by name, or about a resource."""

from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.misconfiguration import LATELY_S, MOST, UnaskedPods
from fettle.api import core
from fettle.dra import MARKER
from tests.extender.conftest import Extender
from tests.fettle import building as b

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
NAMES = ("default-scheduler", "second")


class Cluster:
    """Pods as the watch tells of them, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.unasked = UnaskedPods(NAMES, lambda: self.now)

    def asked(self, name: str, **asks: Any) -> None:
        self.unasked.note_request(pod(name, **asks))

    def placed(self, name: str, **asks: Any) -> None:
        """It is seen to wait, and to have a node then."""
        self.unasked.observe(pod(name, **asks))
        self.unasked.observe(pod(name, node="n1", **asks))

    @property
    def notes(self) -> list[str]:
        return self.unasked.notes()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def pod(
    name: str,
    *resources: str,
    by: str = GPU,
    count: str = "1",
    node: str = "",
    scheduler: str = "default-scheduler",
    claims: bool = False,
    namespace: str = "ml",
) -> core.Pod:
    limits = dict.fromkeys(resources or ([by] if by else []), count)
    spec: dict[str, Any] = {
        "schedulerName": scheduler,
        "containers": [{"name": "main", "resources": {"limits": limits}}],
    }
    if node:
        spec["nodeName"] = node
    if claims:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    created = datetime.now(UTC).isoformat()
    metadata = {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": created}
    return b.pod({"metadata": metadata, "spec": spec})


def test_a_resource_that_is_never_asked_about_is_reported_with_a_pod_and_what_to_do(
    cluster: Cluster,
) -> None:
    cluster.asked("asked")
    cluster.placed("asked")
    with capture_logs() as logs:
        cluster.placed("mig-a", by=MIG)
        cluster.placed("mig-b", by=MIG)
    (log,) = logs
    assert (log["log_level"], log["resource"], log["pod"]) == ("warning", MIG, "ml/mig-a")
    assert "managedResources" in log["event"]
    (note,) = cluster.notes
    assert note.startswith("extender: ")
    for said in (MIG, "ml/mig-a", "managedResources", "kube-scheduler-config.yaml"):
        assert said in note


def test_no_more_resources_are_reported_than_the_limit(cluster: Cluster) -> None:
    cluster.asked("asked")
    with capture_logs() as logs:
        for number in range(MOST + 5):
            cluster.placed(f"pod-{number}", by=f"example.com/gpu-{number}")
    assert len(logs) == len(cluster.notes) == MOST


def test_the_note_is_withdrawn_once_a_scheduler_asks(cluster: Cluster) -> None:
    cluster.asked("asked")
    cluster.placed("mig-a", by=MIG)
    assert cluster.notes
    cluster.asked("mig-b", by=MIG)
    assert cluster.notes == []
    cluster.placed("mig-b", by=MIG)
    assert cluster.notes == []


@pytest.mark.parametrize("silent_s", [None, LATELY_S + 1])
def test_a_replica_that_was_not_asked_lately_reports_nothing(
    cluster: Cluster, silent_s: float | None
) -> None:
    """A Service keeps a scheduler's connection on one of them."""
    if silent_s is not None:
        cluster.asked("asked")
        cluster.now += silent_s
    with capture_logs() as logs:
        cluster.placed("mig-a", by=MIG)
    assert (cluster.notes, logs) == ([], [])


def test_a_pod_bound_while_nobody_asked_is_not_reported_later(cluster: Cluster) -> None:
    cluster.asked("asked")
    cluster.unasked.observe(pod("mig-a", by=MIG))
    cluster.now += LATELY_S + 1
    cluster.unasked.observe(pod("mig-a", by=MIG, node="n1"))
    cluster.asked("asked")
    cluster.unasked.observe(pod("mig-a", by=MIG, node="n1"))
    assert cluster.notes == []


def test_a_pod_that_had_its_node_when_it_was_first_seen_is_not_reported(cluster: Cluster) -> None:
    """Static pods, and those that somebody else placed or that are older than this process."""
    cluster.asked("asked")
    cluster.unasked.observe(pod("mig-a", by=MIG, node="n1"))
    assert cluster.notes == []


def test_a_pod_that_waited_before_anybody_asked_is_not_reported(cluster: Cluster) -> None:
    """The process before this one may have been asked about it."""
    cluster.unasked.observe(pod("mig-a", by=MIG))
    cluster.asked("asked")
    cluster.unasked.observe(pod("mig-a", by=MIG, node="n1"))
    assert cluster.notes == []


def test_each_scheduler_is_judged_by_its_own_requests(cluster: Cluster) -> None:
    """Another one may ask another replica, or have another configuration."""
    cluster.asked("asked")
    cluster.placed("a", by=MIG, scheduler="second")
    assert cluster.notes == []
    cluster.asked("b", by=MIG, scheduler="second")
    cluster.placed("c", by=MIG)
    (note,) = cluster.notes
    assert "default-scheduler" in note


def test_pods_of_schedulers_that_should_not_ask_are_not_reported(cluster: Cluster) -> None:
    cluster.asked("a", scheduler="third")
    cluster.placed("b", by=MIG, scheduler="third")
    assert cluster.notes == []


def test_a_pod_with_one_resource_that_is_asked_about_is_not_reported(cluster: Cluster) -> None:
    cluster.asked("asked")
    cluster.unasked.observe(pod("both", GPU, "rdma/hca"))
    cluster.unasked.observe(pod("both", GPU, "rdma/hca", node="n1"))
    assert cluster.notes == []


@pytest.mark.parametrize(("by", "count"), [("", "1"), ("cpu", "1"), (MIG, "0")])
def test_pods_without_devices_are_not_reported(cluster: Cluster, by: str, count: str) -> None:
    cluster.asked("asked")
    cluster.placed("plain", by=by, count=count)
    assert cluster.notes == []


def test_a_pod_with_claims_that_is_never_asked_about_is_reported_to_lack_the_marker(
    cluster: Cluster,
) -> None:
    cluster.asked("asked")
    with capture_logs() as logs:
        cluster.placed("claiming", by="", claims=True)
    (log,) = logs
    (note,) = cluster.notes
    for said in (note, log["event"]):
        assert MARKER in said
        assert "deploy/webhook" in said
    assert "ml/claiming" in note
    cluster.asked("marked", by=MARKER, claims=True)
    assert cluster.notes == []


@pytest.mark.parametrize("namespace", ["kube-system", "fettle-system"])
def test_claims_in_namespaces_that_the_webhook_leaves_alone_are_not_reported(
    cluster: Cluster, namespace: str
) -> None:
    cluster.asked("asked")
    cluster.placed("driver", by="", claims=True, namespace=namespace)
    assert cluster.notes == []
    cluster.placed("mig-a", by=MIG, namespace=namespace)
    assert len(cluster.notes) == 1


def test_a_resource_named_by_a_device_class_is_reported_to_lack_the_marker(
    cluster: Cluster,
) -> None:
    cluster.asked("asked")
    cluster.placed("by-class", by="deviceclass.resource.kubernetes.io/gpu.example.com")
    (note,) = cluster.notes
    assert MARKER in note


@pytest.mark.parametrize("ready", [True, False])
async def test_a_resource_asked_about_while_fettle_is_not_ready_is_not_reported(
    extender: Extender, ready: bool
) -> None:
    extender.show(b.node("n1", gpus=8))
    extender.problem = "" if ready else "the first view is being built"
    raw = b.gpu_pod()
    await extender.filter(raw, "n1")
    unasked = extender.misconfiguration.unasked
    for name, by in (("gpu", b.RESOURCE), ("mig", MIG)):
        unasked.observe(pod(name, by=by))
        unasked.observe(pod(name, by=by, node="n1"))
    (note,) = unasked.notes()
    assert MIG in note


# -- what is asked in vain, and by whom

IN_VAIN = {"verb": "unknown", "result": "not_found"}


async def test_a_path_that_is_not_served_is_logged_once_and_always_counted(
    extender: Extender,
) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            status, reply = await extender.post("/filter", {})
            assert (status, reply["error"]) == (
                404,
                "path //filter not found: /filter, /prioritize and /preempt are served",
            )
        await extender.post("bind", {})
    assert [(log["log_level"], log["path"]) for log in logs] == [
        ("warning", "//filter"),
        ("warning", "/bind"),
    ]
    for log in logs:
        assert "/filter, /prioritize and /preempt" in log["event"]
        for setting in ("urlPrefix", "filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb"):
            assert setting in log["event"]
    assert extender.count("fettle_extender_decisions_total", **IN_VAIN) == 4
    (note,) = extender.misconfiguration.notes()
    assert note == "extender: since its start asked in vain for //filter, /bind"


async def test_no_more_unserved_paths_are_logged_than_the_limit(extender: Extender) -> None:
    with capture_logs() as logs:
        for number in range(MOST + 5):
            await extender.post(f"verb-{number}", {})
    assert len(logs) == MOST
    assert extender.count("fettle_extender_decisions_total", **IN_VAIN) == MOST + 5
    assert f"/verb-{MOST}" not in extender.misconfiguration.notes()[0]


async def test_a_get_of_an_unserved_path_is_not_counted(extender: Extender) -> None:
    """kube-scheduler only POSTs."""
    with capture_logs() as logs:
        async with extender.client.get(f"http://127.0.0.1:{extender.port}/healthz") as reply:
            assert reply.status == 404
            assert "ask the one of --browse-listen" in (await reply.json())["error"]
    assert logs == []
    assert extender.count("fettle_extender_decisions_total", **IN_VAIN) == 0


async def test_readyz_says_when_each_verb_was_last_asked(extender: Extender) -> None:
    last = extender.misconfiguration.last
    assert last.note() == "extender: no scheduler has asked this process yet"
    extender.show(b.node("n1"))
    await extender.prioritize(b.gpu_pod(), "n1")
    assert last.note() == "extender: last asked: filter never, prioritize 0 s ago, preempt never"


async def test_a_scheduler_that_asks_and_is_missing_from_the_settings_is_logged_once(
    extender: Extender,
) -> None:
    """The webhook takes it for one that does not ask."""
    extender.show(b.node("n1"))
    with capture_logs() as logs:
        for name in ("p", "q"):
            pod = b.gpu_pod(name=name)
            await extender.filter({**pod, "spec": {**pod["spec"], "schedulerName": "second"}}, "n1")
            await extender.filter(pod, "n1")
    (log,) = (log for log in logs if log["log_level"] != "debug")
    assert (log["log_level"], log["scheduler"]) == ("warning", "second")
    assert "scheduler.names" in log["event"]
