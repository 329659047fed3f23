"""Which pods on failed devices are marked and evicted, and which are not. What becomes of them is
tested on the control plane."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from fettle.api import core
from fettle.cluster import NodeView
from fettle.model import (
    Evidence,
    EvidenceKind,
    Family,
    Health,
    Kept,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    State,
    Weighed,
)
from fettle.steward.paced_writes import FIRST_PAUSE_S
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import kept
from tests.fettle.scheduling.placed.builders import BOUND_S
from tests.fettle.steward.failing import (
    BAD,
    FREE,
    Fleet,
    Raw,
    condition,
    having,
    on,
)
from tests.waiting import until


async def test_a_pod_is_marked_at_once_and_evicted_when_the_failure_is_confirmed(
    fleet: Fleet,
) -> None:
    fleet.now = BOUND_S + 59.0
    await fleet.look(BAD, FREE, pods=(on(),))
    assert (fleet.marks(), fleet.evicted()) == ({"p": "DeviceUnhealthy"}, [])
    fleet.now = BOUND_S + 60.0
    await fleet.look(BAD, FREE, looks=3)
    assert fleet.evicted() == ["p"]
    (eviction,) = fleet.api.objects["evictions"].values()
    assert eviction["deleteOptions"] == {"preconditions": {"uid": "uid-p"}}
    assert sorted(fleet.recorded()) == [
        ("default/p", "DeviceFailed", "wrote"),
        ("default/p", "EvictedFromFailedDevice", "wrote"),
    ]


async def test_a_pod_that_crashes_again_and_again_on_a_failed_device_is_evicted(
    fleet: Fleet,
) -> None:
    pod = on()
    ended = {"exitCode": 139, "reason": "Error", "finishedAt": "2026-01-01T00:00:50Z"}
    loops = {"waiting": {"reason": "CrashLoopBackOff"}}
    container = {"name": "main", "state": loops, "lastState": {"terminated": ended}}
    pod["status"]["containerStatuses"] = [container]
    await fleet.look(BAD, FREE, pods=(pod,), looks=3)
    assert fleet.evicted() == ["p"]


async def test_a_pod_that_cannot_be_marked_is_not_evicted(fleet: Fleet) -> None:
    fleet.api.forbidden.add(("patch", "pods"))
    await fleet.look(BAD, FREE, pods=(on(),), looks=3)
    assert (fleet.marks(), fleet.evicted()) == ({}, [])
    (said,) = fleet.steward.notes()
    assert said.startswith("failed devices: pods cannot be marked, and so not evicted: ")
    assert "(deploy/rbac/optional/pod-conditions.yaml grants the rights)" in said


async def test_what_the_leader_before_said_of_a_pod_stands_until_its_eviction_is_tried(
    fleet: Fleet,
) -> None:
    waits = condition(reason="EvictionAwaitsDisruptionBudget")
    pods = (having(on("evicted"), waits), having(on("only-marked", wish="Mark"), waits))
    fleet.led(confirm_seconds=1e6)
    await fleet.look(b.node(gpus=2, own=b.health(0.1)), FREE, pods=pods)
    assert fleet.marks() == {
        "evicted": "EvictionAwaitsDisruptionBudget",
        "only-marked": "DeviceUnhealthy",
    }


async def test_a_mark_goes_when_the_failure_ends_and_stays_on_a_pod_that_is_ending(
    fleet: Fleet,
) -> None:
    ending = on("ending", deletionTimestamp="2026-01-01T00:01:00Z")
    pods = (having(on(), condition()), having(ending, condition()))
    await fleet.look(b.node(gpus=2), pods=pods)
    assert fleet.marks() == {"ending": "DeviceUnhealthy"}


def said_only(family: Family, score: float) -> Health:
    said = Evidence(
        subject=NodeId("n"),
        family=family,
        kind=EvidenceKind.LATCHED,
        weight=1 - score,
        source=Source(SourceKind.ANNOTATION, "said"),
        reporter=ReporterId("Node", "n"),
        said="what somebody says",
        observed_at=0.0,
    )
    return Health(score, State.UNHEALTHY, 0.0, (Weighed(said, 1 - score),))


def lost(node: NodeView) -> NodeView:
    taint = core.Taint(key="node.kubernetes.io/unreachable", effect="NoExecute")
    return msgspec.structs.replace(node, taints=(taint,))


@pytest.mark.parametrize(
    ("node", "pod"),
    [
        pytest.param(BAD, on(wish="None"), id="its policy wants nothing"),
        pytest.param(b.node(gpus=1, units={"gpu": 0.5}), on(), id="only Degraded"),
        pytest.param(b.node(gpus=8, units={"gpu": 0.1}), on(), id="it may have another unit"),
        pytest.param(b.node(gpus=1, own=said_only(Family.OPERATOR, 0.0)), on(), id="a hold"),
        pytest.param(b.node(gpus=1, own=said_only(Family.MAINTENANCE, 0.0)), on(), id="planned"),
        pytest.param(lost(BAD), on(), id="Kubernetes itself evicts from there"),
    ],
)
async def test_what_is_no_failure_of_what_the_pod_has_is_left_alone(
    fleet: Fleet, node: NodeView, pod: Raw
) -> None:
    await fleet.look(node, FREE, pods=(pod,), looks=3)
    assert (fleet.marks(), fleet.evicted(), fleet.recorded()) == ({}, [], [])


async def test_by_a_cause_that_the_breaker_sets_aside_a_pod_is_marked_and_not_evicted(
    fleet: Fleet,
) -> None:
    nodes = [b.node(f"n{i}", gpus=1, own=b.health(0.1)) for i in range(12)]
    await fleet.look(*nodes, FREE, pods=(on(node="n0"),), looks=3)
    assert (fleet.marks(), fleet.evicted()) == ({"p": "DeviceUnhealthy"}, [])


async def test_a_state_that_only_hysteresis_keeps_evicts_nobody(fleet: Fleet) -> None:
    kept = msgspec.structs.replace(b.health(0.1), kept=Kept(State.DEGRADED, until=BOUND_S + 600))
    await fleet.look(b.node(gpus=1, own=kept), FREE, pods=(on(),), looks=3)
    assert (fleet.marks(), fleet.evicted()) == ({"p": "DeviceUnhealthy"}, [])


async def test_one_pod_of_a_small_pool_ends_at_a_time(fleet: Fleet) -> None:
    bad = [msgspec.structs.replace(BAD, name=name) for name in ("a", "b")]
    free = [msgspec.structs.replace(FREE, name=name) for name in ("c", "d")]
    await fleet.look(*bad, *free, pods=(on("on-a", "a"), on("on-b", "b")), looks=4)
    (first,) = fleet.evicted()
    assert "evicted later, by deviceFailures.maxShare: 1 pod" in str(fleet.steward.notes())
    fleet.api.remove("pods", f"default/{first}")
    await fleet.look_until(lambda: len(fleet.evicted()) == 2)


@pytest.mark.parametrize(("ends_at", "evicted"), [("00:01:30Z", []), ("00:00:00Z", ["p"])])
async def test_a_pod_that_is_stuck_as_it_ends_holds_up_no_other(
    fleet: Fleet, ends_at: str, evicted: list[str]
) -> None:
    fleet.now = BOUND_S + 310.0
    ending = on("ending", "m", deletionTimestamp=f"2026-01-01T{ends_at}")
    bad = msgspec.structs.replace(BAD, name="m")
    await fleet.look(BAD, bad, FREE, pods=(on(), having(ending, condition())), looks=3)
    assert fleet.evicted() == evicted


async def test_so_many_pods_a_second_are_evicted(fleet: Fleet) -> None:
    fleet.led(evictions_per_second=0.001)
    bad = [b.node(name, gpus=1, own=b.health(0.0)) for name in ("a", "b")]
    await fleet.look(*bad, pods=(on("on-a", "a"), on("on-b", "b")), looks=3)
    (first,) = fleet.evicted()
    fleet.api.remove("pods", f"default/{first}")
    await fleet.look(*bad, looks=3)
    assert fleet.evicted() == [first]


async def test_what_others_say_by_that_condition_is_left_as_it_is(fleet: Fleet) -> None:
    theirs = condition("replaced by hand", "ByHand")
    await fleet.look(BAD, FREE, pods=(having(on(wish="Mark"), theirs),))
    await fleet.look(b.node(gpus=1), FREE)
    assert fleet.marks() == {"p": "ByHand"}


WRITES = 6  # one mark taken back, two set, three pods evicted


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("dies_after", range(WRITES + 1))
async def test_a_leader_that_dies_between_any_two_writes_leaves_the_rest_to_the_next_one(
    fleet: Fleet, dies_after: int, *, answered: bool
) -> None:
    """Whether it still learned that its last write was done, or not."""
    api = fleet.api
    bad = [b.node(name, gpus=1, own=b.health(0.1)) for name in ("a", "b", "c")]
    sound = [b.node(f"n{i}", gpus=1) for i in range(12)]  # enough to go by a share
    pods = (
        on("new-a", "a"),
        on("new-b", "b"),
        having(on("old", "c"), condition()),
        having(on("healed", "n0"), condition()),
    )
    for pod in pods:
        api.put("pods", pod)

    async def lead() -> None:
        fleet.led(max_share=1.0)
        while True:
            await fleet.look(*bad, *sound)
            await asyncio.sleep(0.01)

    api.dies_after, api.loses_last = dies_after, not answered
    async with kept(lead()):
        await until(lambda: api.written == dies_after)
        await asyncio.sleep(0.05)
    assert api.written == dies_after
    begun = fleet.evicted()
    tried = len(api.verbs("evictions"))

    api.dies_after = None
    async with kept(lead()):
        await until(lambda: api.written == WRITES)
        await asyncio.sleep(0.05)
    assert api.written == WRITES
    assert sorted(fleet.evicted()) == ["new-a", "new-b", "old"]
    assert len(api.verbs("evictions")) - tried == 3 - len(begun)
    assert fleet.marks() == dict.fromkeys(("new-a", "new-b", "old"), "DeviceUnhealthy")


async def test_while_the_api_server_is_away_nothing_is_lost_and_then_each_write_is_made_once(
    fleet: Fleet,
) -> None:
    fleet.each_look_s = FIRST_PAUSE_S
    fleet.led()
    healed = having(on("healed", "free-2"), condition())
    nodes = (BAD, FREE, msgspec.structs.replace(FREE, name="free-2"))
    for pod in (on(), healed):
        fleet.api.put("pods", pod)
    await fleet.api.stop()
    await fleet.look(*nodes)
    assert "cannot be reached" in str(fleet.steward.notes())
    await fleet.api.start()
    await fleet.look_until(lambda: fleet.evicted() == ["p"])
    for _ in range(5):
        await fleet.look()
    assert fleet.api.written == 3  # a mark, one taken back, an eviction
    assert fleet.marks() == {"p": "DeviceUnhealthy"}
    assert fleet.steward.notes() == []


async def test_a_pod_that_failed_a_moment_before_its_device_is_marked_too(fleet: Fleet) -> None:
    def failed(name: str, at: str) -> core.Pod:
        pod = on(name)
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": at}
        pod["status"] = {"phase": "Failed", "conditions": [ready]}
        fleet.api.put("pods", pod)
        return b.pod(pod)

    fleet.finished.observe(failed("just-now", "2026-01-01T00:01:35Z"))
    fleet.finished.observe(failed("long-ago", "2026-01-01T00:00:35Z"))
    await fleet.see(BAD, FREE)
    await fleet.steward.look()
    assert fleet.marks() == {"just-now": "DeviceUnhealthy"}
    assert fleet.evicted() == []
