"""Where the pods ran that others come back for."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from fettle.api import core
from fettle.api.annotations import COMPLETION_INDEX
from fettle.scheduling.former_nodes import KEEP_S, MOST_NODES, FormerNodes
from tests.fettle import building as b

NOW = 1_767_225_600.0
"""2026-01-01T00:00:00Z"""
FAILED = {"phase": "Failed"}
CRASHING = {
    "phase": "Running",
    "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
}
JOBSET = {"jobset.sigs.k8s.io/jobset-name": "js"}


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def pod(
    name: str,
    node: str | None = None,
    *,
    kind: str = "Job",
    owner: str = "o",
    uid: str = "",
    status: dict[str, Any] | None = None,
    index: str | None = None,
    generated: bool = True,
    labels: dict[str, str] | None = None,
) -> core.Pod:
    raw = b.gpu_pod(name=name)
    raw["metadata"] |= {
        "uid": f"u-{name}",
        "labels": labels,
        "ownerReferences": [{"kind": kind, "name": owner, "uid": uid or owner, "controller": True}],
    }
    if generated:
        raw["metadata"]["generateName"] = "x-"
    if index is not None:
        raw["metadata"]["annotations"] = {COMPLETION_INDEX: index}
    raw["spec"]["nodeName"] = node
    raw["status"] = status or {"phase": "Running"}
    return b.pod(raw)


@pytest.fixture
def former() -> FormerNodes:
    return FormerNodes(Clock())


def nodes(former: FormerNodes, pod: core.Pod, *there: core.Pod) -> dict[str, bool]:
    """Where the pod's like ran, and whether it failed there, while these pods are there."""
    view = b.view(pods={one.metadata.key: one for one in there})
    return {node: stay.failed for node, stay in former.of(pod, view).items()}


@pytest.mark.parametrize(
    ("before", "after", "other"),
    [
        ({"index": "1"}, {"index": "1"}, {"index": "2"}),
        ({"kind": "StatefulSet"}, {"kind": "StatefulSet"}, {"kind": "StatefulSet", "name": "b"}),
        (
            {"kind": "PyTorchJob", "generated": False},
            {"kind": "PyTorchJob", "generated": False},
            {"kind": "PyTorchJob", "generated": False, "name": "b"},
        ),
        (
            {"index": "1", "owner": "js-w-0", "uid": "1", "labels": JOBSET},
            {"index": "1", "owner": "js-w-0", "uid": "2", "labels": JOBSET},
            {"index": "1", "owner": "js-w-1", "uid": "3", "labels": JOBSET},
        ),
    ],
)
def test_a_pod_comes_back_for_the_one_of_its_owner_and_its_index_or_lasting_name(
    former: FormerNodes, before: dict[str, Any], after: dict[str, Any], other: dict[str, Any]
) -> None:
    former.observe(pod("a", "n1", **before))
    assert nodes(former, pod(**{"name": "a", **after})) == {"n1": False}
    assert nodes(former, pod(**{"name": "a", **other})) == {}


def test_a_pod_without_an_index_comes_back_for_any_that_has_left(former: FormerNodes) -> None:
    here, leaving = pod("here", "n1", kind="ReplicaSet"), pod("left", "n2", kind="ReplicaSet")
    former.observe(here)
    former.observe(leaving)
    new = pod("new", kind="ReplicaSet")
    assert nodes(former, new, here, leaving) == {}
    assert nodes(former, new, here) == {"n2": False}
    came = pod("came", "n2", kind="ReplicaSet")
    former.observe(came)
    assert nodes(former, new, here, came) == {}
    assert nodes(former, pod("new", kind="ReplicaSet", owner="other"), here) == {}


@pytest.mark.parametrize(
    ("status", "failed"),
    [
        (FAILED, True),
        ({"phase": "Running"}, False),
        (CRASHING, True),
        (FAILED | {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}, False),
    ],
)
def test_a_pod_failed_on_a_node_unless_it_was_disrupted(
    former: FormerNodes, status: dict[str, Any], failed: bool
) -> None:
    former.observe(pod("a", "n1", index="0", status=status))
    assert nodes(former, pod("b", index="0")) == {"n1": failed}


@pytest.mark.parametrize("status", [{"phase": "Running"}, FAILED])
def test_a_pod_that_was_told_of_its_device_failed_there_however_it_ends(
    former: FormerNodes, status: dict[str, Any]
) -> None:
    """An eviction is a disruption, too."""
    mark = {"type": "fettle.dev/DeviceFailed", "status": "True"}
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    marked = pod("a", "n1", index="0", status=status | {"conditions": [mark, disrupted]})
    former.observe(deleted(marked))
    assert nodes(former, pod("b", index="0")) == {"n1": True}


def test_how_a_pod_ends_that_was_deleted_says_nothing_of_its_node(former: FormerNodes) -> None:
    for before, failed in (({"phase": "Running"}, False), (CRASHING, True)):
        former.observe(pod("a", "n1", index="0", status=before))
        former.observe(deleted(pod("a", "n1", index="0", status=FAILED)))
        assert nodes(former, pod("b", index="0")) == {"n1": failed}


def deleted(pod: core.Pod) -> core.Pod:
    at = datetime.fromtimestamp(NOW, UTC)
    metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=at)
    return msgspec.structs.replace(pod, metadata=metadata)


def test_a_pod_of_the_same_name_proves_that_the_one_before_has_left(former: FormerNodes) -> None:
    first = pod("web-0", "n1", kind="StatefulSet")
    former.observe(first)
    second = msgspec.structs.replace(
        first, metadata=msgspec.structs.replace(first.metadata, uid="later")
    )
    assert nodes(former, second, first) == {"n1": False}  # the view is a moment old


def test_a_pod_of_the_same_index_proves_that_the_one_before_is_leaving(
    former: FormerNodes,
) -> None:
    before = pod("a", "n1", index="1")
    former.observe(before)
    assert nodes(former, pod("b", index="1"), before) == {"n1": False}
    assert nodes(former, before, before) == {}


def test_what_a_kubelet_refused_never_ran(former: FormerNodes) -> None:
    refused = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    former.observe(pod("a", "n1", index="0", status=refused))
    assert nodes(former, pod("b", index="0")) == {}


def test_after_a_restart_a_failure_is_as_old_as_the_api_says(former: FormerNodes) -> None:
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2025-12-31T23:55:00Z"}
    former.observe(pod("a", "n1", index="0", status=FAILED | {"conditions": [ready]}))
    (stay,) = former.of(pod("b", index="0"), b.view()).values()
    assert stay.at == NOW - 300


def test_a_node_is_forgotten_after_a_day_and_many_nodes_are_forgotten_early() -> None:
    clock = Clock()
    former = FormerNodes(clock)
    for number in range(MOST_NODES + 1):
        former.observe(pod(f"p{number}", f"n{number}"))
    assert [*nodes(former, pod("new"))] == [f"n{number}" for number in range(1, MOST_NODES + 1)]
    clock.now += KEEP_S + 1
    assert nodes(former, pod("new")) == {}
