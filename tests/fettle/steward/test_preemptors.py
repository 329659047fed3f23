"""For which nodes a pod is woken that `preempt` let preempt nobody, and the write that wakes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fettle.api import core
from fettle.cel import SelectorEngine
from fettle.client import Session
from fettle.cluster import EMPTY, NodeView
from fettle.config import Settings
from fettle.model import ClusterError, Mode
from fettle.scheduling import Answers
from fettle.steward import LET_PREEMPT_NOBODY, PreemptibleNodes, PreemptorNudge
from fettle.steward.waking import is_waiting
from tests.fettle import building as b
from tests.fettle.client.fake_api import fake_api
from tests.fettle.others import WatchedPublisher
from tests.fettle.steward.failing import REFUSED
from tests.fettle.steward.failing import pod as pod_saying

STRICT = {"fettle.dev/policy": "training"}


def gpu_pod(name: str, *, priority: int, node: str = "", gpus: int = 1) -> core.Pod:
    raw: dict[str, Any] = b.gpu_pod(gpus, annotations=STRICT, name=name)
    raw["metadata"]["uid"] = name
    raw["spec"] |= {"priority": priority, "nodeName": node}
    return b.pod(raw)


LOW = gpu_pod("low", priority=0, node="n")
HIGH = gpu_pod("high", priority=10)


async def nodes_for(
    pod: core.Pod, *nodes: NodeView, pods: tuple[core.Pod, ...], mode: Mode = Mode.ENFORCE
) -> set[str]:
    publisher = WatchedPublisher()
    view = b.view(*nodes, pods={one.metadata.key: one for one in pods})
    publisher.publish(view, frozenset(view.nodes))
    answers = Answers(publisher, SelectorEngine(), Settings(mode=mode))
    return set(await PreemptibleNodes(answers).find(pod, view))


def test_a_pod_waits_that_extenders_left_no_candidate() -> None:
    preempting = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: "
    assert is_waiting(pod_saying(preempting + LET_PREEMPT_NOBODY), LET_PREEMPT_NOBODY)
    assert not is_waiting(pod_saying(preempting + LET_PREEMPT_NOBODY))
    assert not is_waiting(pod_saying(REFUSED), LET_PREEMPT_NOBODY)


async def test_a_node_whose_unit_recovers_is_gained_though_a_pod_of_lower_priority_has_it() -> None:
    def node(score: float) -> NodeView:
        return b.node("n", gpus=1, units={"0": score}, busy=frozenset({"0"}))

    ill = await nodes_for(HIGH, node(0.1), pods=(LOW,))
    sound = await nodes_for(HIGH, node(1.0), pods=(LOW,))
    assert "emptied n" in sound - ill


async def test_nothing_is_gained_where_no_pod_may_be_preempted() -> None:
    node = b.node("n", gpus=1)
    assert await nodes_for(HIGH, node, pods=(gpu_pod("low", priority=10, node="n"),)) == set()


async def test_a_node_that_is_allowed_as_it_is_counts_too() -> None:
    """The victims may have no devices at all: what they hold is processors."""
    ill = b.node("n", gpus=1, own=b.health(0.0))
    assert await nodes_for(HIGH, ill, pods=()) == set()
    assert await nodes_for(HIGH, b.node("n", gpus=1), pods=()) == {"n"}


@pytest.mark.parametrize(("mode", "nodes"), [(Mode.OBSERVE, set()), (Mode.STEER, {"n"})])
async def test_where_nothing_is_refused_no_node_is_judged_without_victims(
    mode: Mode, nodes: set[str]
) -> None:
    ill = b.node("n", gpus=1, own=b.health(0.0))
    assert await nodes_for(HIGH, ill, pods=(LOW,), mode=mode) == nodes


async def test_the_scheduler_sees_a_nominated_node_set_and_cleared(tmp_path: Path) -> None:
    async with fake_api() as api:
        made = {"metadata": {"name": "wake", "namespace": "fettle-system"}, "status": {}}
        api.put("pods", made)
        async with await Session.open(api.kubeconfig(tmp_path)) as session:
            await PreemptorNudge(session, "fettle-system", "wake").wake(EMPTY, 0.0)
        asked = [one for one in api.asked if one.target.plural == "pods"]
        assert [(one.verb, one.target.name) for one in asked] == [("patch", "wake")] * 2
        assert not api.objects["pods"]["fettle-system/wake"]["status"].get("nominatedNodeName")


@pytest.mark.parametrize("missing", ["pod", "right"])
async def test_what_is_missing_names_the_file_that_has_it(tmp_path: Path, missing: str) -> None:
    async with fake_api() as api:
        if missing == "right":
            api.forbidden = {("patch", "pods")}
        async with await Session.open(api.kubeconfig(tmp_path)) as session:
            nudge = PreemptorNudge(session, "fettle-system", "wake")
            with pytest.raises(ClusterError, match=r"deploy/rbac/optional/wake-preemptors\.yaml"):
                await nudge.wake(EMPTY, 0.0)
