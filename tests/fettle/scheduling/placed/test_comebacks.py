"""Which controllers' pods come back for ever, since no kubelet takes them."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from fettle.api import core
from fettle.model.reasons import PodsRefusedEachTime
from fettle.scheduling.placed import Comebacks
from tests.fettle import building as b

NOW = 1_000_000.0
SHAPE = "TopologyAffinityError"
LONG, SHORT = 301.0, 31.0


def pod(name: str, node: str = "a", owner: str = "rs", gpus: int = 1, **status: Any) -> core.Pod:
    raw = b.gpu_pod(gpus, name=name)
    raw["metadata"] |= {
        "uid": f"uid-{name}",
        "creationTimestamp": datetime.fromtimestamp(NOW, UTC).isoformat(),
        "ownerReferences": [
            {"kind": "ReplicaSet", "name": owner, "uid": f"uid-{owner}", "controller": True}
        ],
    }
    raw["spec"]["nodeName"] = node
    return b.pod(raw | {"status": status})


def refused(name: str, node: str = "a", reason: str = SHAPE, **how: Any) -> core.Pod:
    said: dict[str, Any] = {
        "phase": "Failed",
        "reason": reason,
        "message": f"Pod was rejected: {reason}",
    }
    return pod(name, node, **how, **said)


def five(*nodes: str, reason: str = SHAPE) -> list[core.Pod]:
    return [refused(f"p{i}", nodes[i % len(nodes)], reason) for i in range(5)]


def hopeless(
    *pods: core.Pod, after_s: float = LONG, others: tuple[core.Pod, ...] = (), ill: str = ""
) -> list[PodsRefusedEachTime]:
    now = NOW
    comebacks = Comebacks(lambda: now)
    for one in (*pods, *pods):
        comebacks.observe(one)
    now = NOW + after_s
    nodes = [b.node(n, gpus=8, own=b.health(0.0 if n == ill else 1.0)) for n in "ab"]
    view = b.view(*nodes, pods={one.metadata.key: one for one in others})
    return [why for _, why in comebacks.hopeless(view)]


def test_a_shape_that_idle_nodes_refuse_suits_none() -> None:
    (why,) = hopeless(*five("a"), after_s=SHORT)
    assert why == PodsRefusedEachTime(5, ("a",), f"Pod was rejected: {SHAPE}", True)
    assert not hopeless(*five("a"), after_s=SHORT - 2)
    assert not hopeless(*five("a")[1:])


def test_pods_of_another_namespace_count_for_no_controller_here() -> None:
    """Though they name its UID, be they refused or taken."""
    theirs = [
        msgspec.structs.replace(
            one, metadata=msgspec.structs.replace(one.metadata, namespace="tenant")
        )
        for one in (*five("a"), pod("ran", phase="Running"))
    ]
    assert not hopeless(*five("a")[:1], *theirs[:4], after_s=SHORT)
    assert hopeless(*five("a"), theirs[-1], after_s=SHORT)


def test_where_devices_are_in_use_a_shape_may_suit_later() -> None:
    user = pod("user", owner="other", phase="Running")
    assert not hopeless(*five("a"), others=(user,))
    (why,) = hopeless(*five("a", "b"), others=(user,))
    assert not why.certain
    own = pod("next", phase="Pending")
    (why,) = hopeless(*five("a"), after_s=SHORT, others=(own,))
    assert why.certain


@pytest.mark.parametrize(
    ("nodes", "after_s", "found"), [("ab", LONG, 1), ("a", LONG, 0), ("ab", LONG - 2, 0)]
)
def test_other_refusals_have_to_last_on_several_nodes(
    nodes: str, after_s: float, found: int
) -> None:
    pods = five(*nodes, reason="UnexpectedAdmissionError")
    whys = hopeless(*pods, after_s=after_s)
    assert [why.certain for why in whys] == [False] * found


def test_refusals_by_nodes_that_are_ill_are_the_nodes_fault() -> None:
    assert not hopeless(*five("a", "b"), ill="b")


def test_a_controller_that_gave_up_is_not_told() -> None:
    assert not hopeless(*five("a"), after_s=901.0)


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_one_pod_that_a_kubelet_took_and_nothing_is_hopeless(phase: str) -> None:
    assert not hopeless(*five("a"), pod("lucky", phase=phase))
    assert hopeless(*five("a"), pod("lucky", phase=phase, owner="other"))


def test_pods_without_devices_are_not_counted() -> None:
    plain = [refused(f"p{i}", gpus=0) for i in range(5)]
    assert not hopeless(*plain)
