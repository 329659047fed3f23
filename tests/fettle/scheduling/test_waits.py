"""How long pods have waited, and when their patience ends."""

from typing import Any

import msgspec
import pytest

from fettle.api import core
from fettle.api.annotations import COMPLETION_INDEX, GROUP_KEYS
from fettle.config import BreakerSettings
from fettle.model import Degraded, Placement
from fettle.scheduling.gangs import Gangs
from fettle.scheduling.waits import PodWaits
from tests.fettle import building as b

CREATED = "2026-01-01T00:00:00Z"
CREATED_S = 1767225600.0
PLACEMENT = Placement(degraded=Degraded.REFUSE, patience="1m", gang_patience="1h")
Raw = dict[str, Any]


class Waiting:
    """Pods as views show them one after another."""

    def __init__(self) -> None:
        self.now = CREATED_S
        self.gangs = Gangs()
        self.waits = PodWaits(lambda: self.now, self.gangs, BreakerSettings())
        self.view = b.view()

    def see(self, *pods: core.Pod) -> None:
        before = self.view
        self.view = msgspec.structs.replace(before, pods={p.metadata.key: p for p in pods})
        self.gangs.observe_view(before, self.view)
        self.waits.observe_view(self.view)

    def ends_after_s(self, pod: core.Pod, placement: Placement = PLACEMENT) -> float | None:
        at = self.waits.ends_at(pod, placement)
        return None if at is None else at - CREATED_S


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def pod(name: str = "p", owner: tuple[str, str] | None = None, **how: Any) -> core.Pod:
    raw = b.gpu_pod(name=name)
    raw["metadata"] |= {"uid": f"u-{name}", "creationTimestamp": CREATED}
    raw["metadata"] |= how.pop("metadata", {})
    if owner is not None:
        kind, uid = owner
        made = {"kind": kind, "name": uid, "uid": uid, "controller": True}
        raw["metadata"]["ownerReferences"] = [made]
    raw["spec"] |= how
    return b.pod(raw)


def test_a_pod_waits_from_its_creation(waiting: Waiting) -> None:
    assert waiting.ends_after_s(pod()) == 60
    waiting.now += 59.9
    assert not waiting.waits.is_over(pod(), PLACEMENT)
    waiting.now += 0.2
    assert waiting.waits.is_over(pod(), PLACEMENT)


@pytest.mark.parametrize(
    ("patience", "gang_patience", "alone", "together"),
    [
        (None, None, None, None),
        ("0s", None, 0, 0),
        ("90s", "2h", 90, 7200),
        (None, "1h30m", None, 5400),
        ("1h2m3s", None, 3723, 3723),
    ],
)
def test_without_a_patience_of_its_own_a_gang_waits_like_a_single_pod(
    patience: str | None, gang_patience: str | None, alone: int | None, together: int | None
) -> None:
    placement = Placement(degraded=Degraded.REFUSE, patience=patience, gang_patience=gang_patience)
    assert placement.patience_s(in_gang=False) == alone
    assert placement.patience_s(in_gang=True) == together


def test_the_wait_begins_when_the_scheduling_gates_are_gone(waiting: Waiting) -> None:
    gated = pod(schedulingGates=[{"name": "quota"}])
    waiting.see(gated)
    waiting.now += 1000
    assert waiting.ends_after_s(gated) is None
    assert not waiting.waits.is_over(gated, PLACEMENT)
    waiting.see(pod())
    assert waiting.ends_after_s(pod()) == 1060


def test_without_having_seen_the_gates_the_creation_counts(waiting: Waiting) -> None:
    waiting.now += 1000
    waiting.see(pod())
    assert waiting.waits.is_over(pod(), PLACEMENT)


def test_a_pod_that_was_bound_waited_until_then(waiting: Waiting) -> None:
    waiting.now += 10_000

    def bound(at: str) -> core.Pod:
        said = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
        raw = msgspec.to_builtins(pod(nodeName="n"))
        return b.pod({**raw, "status": {"conditions": [said]}})

    assert not waiting.waits.is_over(bound("2026-01-01T00:00:59Z"), PLACEMENT)
    assert waiting.waits.is_over(bound("2026-01-01T00:01:00Z"), PLACEMENT)


INDEX = {"annotations": {COMPLETION_INDEX: "0"}}


@pytest.mark.parametrize(
    ("how", "gang"),
    [
        ({}, False),
        ({"owner": ("Job", "j")}, False),  # they take work from a queue
        ({"owner": ("Job", "j"), "metadata": INDEX}, True),
        ({"owner": ("PyTorchJob", "t")}, True),
        ({"owner": ("ReplicaSet", "r")}, False),
        ({"schedulingGroup": {"podGroupName": "g"}}, True),
        *(({"metadata": {"labels": {label: "g"}}}, True) for label in GROUP_KEYS),
    ],
)
def test_pods_that_run_together_are_known_by_their_group_or_controller(
    waiting: Waiting, how: Raw, gang: bool
) -> None:
    first, second = pod("a", **how), pod("b", **how)
    waiting.see(first)
    assert waiting.ends_after_s(first) == 60, "alone, it is no gang"
    waiting.see(first, second)
    assert waiting.ends_after_s(first) == (3600 if gang else 60)
    waiting.see(second)
    assert waiting.ends_after_s(second) == 60


def test_pods_of_other_namespaces_and_controllers_are_other_gangs(waiting: Waiting) -> None:
    first = pod("a", schedulingGroup={"podGroupName": "g"})
    other = pod("b", schedulingGroup={"podGroupName": "g"}, metadata={"namespace": "other"})
    waiting.see(first, other, pod("c", owner=("PyTorchJob", "t")), pod("d", owner=("X", "u")))
    assert waiting.ends_after_s(first) == 60
