"""Which pods run together, and which of them has the worst device."""

from typing import Any

import msgspec
import pytest

from fettle.api import core
from fettle.api.annotations import COMPLETION_INDEX, GROUP_KEYS
from fettle.cluster import View
from fettle.scheduling.gangs import ANSWERED_S, Gangs
from tests.fettle import building as b


def member(name: str, node: str | None = None, **metadata: Any) -> core.Pod:
    raw = b.gpu_pod(name=name, count=8)
    owner = {"kind": "PyTorchJob", "name": "j", "uid": "j", "controller": True}
    raw["metadata"] |= {"uid": f"u-{name}", "ownerReferences": [owner], **metadata}
    raw["spec"]["nodeName"] = node
    raw["status"] = {"phase": "Running" if node else "Pending"}
    return b.pod(raw)


class Seen:
    """Gangs as views show them one after another."""

    def __init__(self, view: View) -> None:
        self.gangs, self.view = Gangs(), b.view()
        self.show(view)

    def show(self, view: View) -> None:
        self.gangs.observe_view(self.view, view)
        self.view = view

    def pods(self, *pods: core.Pod) -> None:
        by_key = {pod.metadata.key: pod for pod in pods}
        self.show(msgspec.structs.replace(self.view, pods=by_key))

    def slowest(self, pod: core.Pod) -> tuple[str, float] | None:
        found = self.gangs.slowest(pod, self.view)
        return None if found is None else (found.node, found.health.score)


@pytest.fixture
def seen() -> Seen:
    nodes = [b.node(f"n{tenths}", gpus=8, own=b.health(tenths / 10)) for tenths in (4, 7, 10)]
    return Seen(b.view(*nodes))


def test_a_gang_is_as_slow_as_its_slowest_member_that_is_placed(seen: Seen) -> None:
    waits = member("waits")
    seen.pods(waits, member("other"))
    assert seen.slowest(waits) is None
    seen.pods(waits, member("a", "n10"))
    assert seen.slowest(waits) == ("n10", 1.0)
    seen.pods(waits, member("a", "n10"), member("b", "n4"), member("c", "n7"))
    assert seen.slowest(waits) == ("n4", 0.4)
    seen.pods(waits, member("a", "n10"), member("c", "n7"))
    assert seen.slowest(waits) == ("n7", 0.7)


def test_a_node_that_gets_worse_slows_the_gang_that_is_on_it(seen: Seen) -> None:
    waits = member("waits")
    seen.pods(waits, member("a", "n10"))
    assert seen.slowest(waits) == ("n10", 1.0)
    worse = {**seen.view.nodes, "n10": b.node("n10", gpus=8, own=b.health(0.5))}
    seen.show(msgspec.structs.replace(seen.view, nodes=worse))
    assert seen.slowest(waits) == ("n10", 0.5)
    del worse["n10"]
    seen.show(msgspec.structs.replace(seen.view, nodes=dict(worse)))
    assert seen.slowest(waits) is None


def test_what_was_said_of_a_view_before_its_pods_were_taken_in_is_forgotten(seen: Seen) -> None:
    waits, bound = member("waits"), member("a", "n4")
    seen.pods(waits)
    before = seen.view
    pods = {pod.metadata.key: pod for pod in (waits, bound)}
    seen.view = msgspec.structs.replace(before, pods=pods)
    assert seen.slowest(waits) is None
    seen.gangs.observe_view(before, seen.view)
    assert seen.slowest(waits) == ("n4", 0.4)


def test_a_pod_is_no_member_that_it_waits_for_itself(seen: Seen) -> None:
    pod = member("a", "n4")
    seen.pods(pod)
    assert seen.slowest(pod) is None
    assert not seen.gangs.is_member(pod)


@pytest.mark.parametrize(
    "metadata",
    [{"labels": {key: "g"}} for key in GROUP_KEYS]
    + [{"annotations": {key: "g"}} for key in (*GROUP_KEYS, COMPLETION_INDEX)],
)
def test_pods_of_one_group_are_a_gang(seen: Seen, metadata: dict[str, Any]) -> None:
    waits = member("waits", **metadata)
    seen.pods(waits, member("a", "n4", **metadata))
    assert seen.gangs.is_member(waits)
    assert seen.slowest(waits) == ("n4", 0.4)


def test_nothing_is_kept_of_gangs_that_have_ended(seen: Seen) -> None:
    waits = member("waits")
    seen.pods(waits, member("a", "n4"))
    seen.slowest(waits)
    seen.pods()
    assert not seen.gangs._members
    assert not seen.gangs._judged


def test_members_that_were_just_answered_need_no_node_any_more(seen: Seen) -> None:
    pods = [member(name) for name in "abcd"]
    a, b_, c, _ = pods
    seen.pods(*pods)
    gangs = seen.gangs
    assert gangs.unplaced(a, now=0.0) == 4
    gangs.note_attempt(a)
    gangs.note_nodes_given(a, now=0.0)
    assert gangs.unplaced(a, now=0.0) == 4, "as long as it is asked about"
    gangs.note_attempt(b_)
    assert gangs.unplaced(b_, now=0.0) == 3
    gangs.note_nodes_given(b_, now=0.0)
    assert gangs.unplaced(c, now=0.0) == 2
    assert gangs.unplaced(c, now=ANSWERED_S + 0.1) == 4, "they were not placed"
    gangs.note_attempt(a)  # again: all came to nothing
    assert gangs.unplaced(a, now=0.0) == 4
    assert gangs.unplaced(c, now=0.0) == 4
    seen.pods(a, member("b", "n10"), c)
    assert gangs.unplaced(c, now=0.0) == 2
