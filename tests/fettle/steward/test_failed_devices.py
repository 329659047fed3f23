"""Which pods on failed devices are marked and evicted, and which are not. What becomes of them is
tested on the control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from fettle.api import core, resource
from fettle.client import EventRecorder, Session
from fettle.cluster import NodeView
from fettle.config import DeviceFailureSettings, Settings, StewardSettings
from fettle.dra import DeviceView, PoolView
from fettle.model import (
    Evidence,
    EvidenceKind,
    Family,
    Health,
    Kept,
    Mode,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    State,
    Weighed,
)
from fettle.observing import DecisionMetrics, StewardMetrics
from fettle.records import DecisionLog, Journal, Recorder
from fettle.scheduling.placed import FinishedPods, FreedPlaces, PodClaims
from fettle.steward import STEWARD, FailedDevices, eviction_plans, paced_writes
from tests.fettle import building as b
from tests.fettle.client.fake_api import FakeApi, fake_api
from tests.fettle.scheduling.clusters import claim_view, kept
from tests.fettle.scheduling.placed.test_at_risk import BOUND_S, Watched, claim, placed
from tests.waiting import until

Raw = dict[str, Any]
FAILED = "fettle.dev/DeviceFailed"
JOB = [{"kind": "Job", "name": "train", "uid": "j", "controller": True}]
BAD, DEAD = b.node(gpus=1, units={"gpu": 0.1}), b.node(gpus=1, units={"gpu": 0.0})
FREE = b.node("free", gpus=1)


def would_evict(fleet: Fleet) -> list[str]:
    return [key for key, what, _ in fleet.recorded() if what == "EvictedFromFailedDevice"]


def on(name: str = "p", node: str = "n", wish: str = "Evict", *, gpus: int = 1, **meta: Any) -> Raw:
    pod = placed(name, node, gpus=gpus)
    pod["metadata"]["annotations"]["fettle.dev/on-device-failure"] = wish
    pod["metadata"] = {"ownerReferences": JOB, **pod["metadata"], **meta}
    return pod


def condition(message: str = "fettle: before", reason: str = "DeviceUnhealthy") -> Raw:
    return {"type": FAILED, "status": "True", "reason": reason, "message": message}


def having(pod: Raw, *conditions: Raw) -> Raw:
    pod["status"]["conditions"] += conditions
    return pod


class Fleet(Watched):
    """A cluster whose pods are those of a fake API server, and the steward."""

    def __init__(self, api: FakeApi, session: Session) -> None:
        super().__init__()
        self.api = api
        self.session = session
        self.finished = FinishedPods(PodClaims(self.publisher))
        self.freed = FreedPlaces()
        self.told: list[tuple[str, str]] = []
        self.steward = self.led()

    def led(self, mode: Mode = Mode.ENFORCE, *, dry_run: bool = False, **how: Any) -> FailedDevices:
        """By a steward that starts with these settings."""
        failures = DeviceFailureSettings(
            **{"allow": "Evict", "confirm_seconds": 60.0, "evictions_per_second": 100.0, **how}
        )
        steward = StewardSettings(dry_run=dry_run)
        self.events = EventRecorder(self.session, STEWARD, "one")
        settings = Settings(mode=mode, device_failures=failures, steward=steward)
        self.answers.policies = settings.all_policies()
        self.log = DecisionLog(100, 2**20)
        metrics = DecisionMetrics(CollectorRegistry())
        self.steward = FailedDevices(
            self.session,
            self.answers,
            self.at_risk,
            self.finished,
            self.freed,
            settings,
            self.events,
            Recorder(self.answers, self.log, Journal(None, 2**20), metrics),
            StewardMetrics(CollectorRegistry()),
            clock=lambda: self.now,
        )
        return self.steward

    async def look(
        self, *nodes: NodeView, pods: tuple[Raw, ...] = (), looks: int = 2, **fields: Any
    ) -> None:
        """The steward looks, and again at what it wrote. `fields` are the view's."""
        for pod in pods:
            self.api.put("pods", pod)
        for _ in range(looks):
            known = self.api.objects.get("pods", {}).values()
            self.pods = {}
            await self.see(*nodes, pods=tuple(known), **fields)
            await self.steward._look()

    async def look_until(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not seen():
                await self.look()
        await self.look()

    def marks(self) -> dict[str, str]:
        """By pod, the reason of its condition."""
        return {
            pod["metadata"]["name"]: one["reason"]
            for pod in self.api.objects.get("pods", {}).values()
            for one in pod["status"]["conditions"]
            if one["type"] == FAILED
        }

    def evicted(self) -> list[str]:
        return [one["metadata"]["name"] for one in self.api.objects.get("evictions", {}).values()]

    def recorded(self) -> list[tuple[str, str, str]]:
        return [(one.key, " ".join(one.reasons), str(one.decided)) for one in self.log]


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with (
        fake_api() as api,
        await Session.open(api.kubeconfig(tmp_path)) as session,
    ):
        yield Fleet(api, session)


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


DAEMON = [{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]


@pytest.mark.parametrize(
    ("node", "others", "pod", "reason"),
    [
        pytest.param(BAD, (), on(), "NoOtherNodeForReplacement", id="no other node"),
        pytest.param(
            BAD,
            (b.node("busy", gpus=1),),
            on(),
            "NoBetterNodeForReplacement",
            id="the other node is full",
        ),
        pytest.param(
            DEAD, (b.node("busy", gpus=1),), on(), None, id="dead, so nothing is lost by waiting"
        ),
        pytest.param(DEAD, (), on(), "NoOtherNodeForReplacement", id="dead, and no other node"),
        pytest.param(
            DEAD,
            (b.node("empty"), b.node("other", pools=(b.pool(b.device("gpu-0")),))),
            on(),
            "NoOtherNodeForReplacement",
            id="dead, and no other node has such devices",
        ),
        pytest.param(
            b.node(gpus=2, units={"gpu": 0.0}, busy=frozenset({"gpu"})),
            (b.node("small", gpus=1),),
            on(gpus=2),
            "NoOtherNodeForReplacement",
            id="dead, and no other node has as many",
        ),
        pytest.param(BAD, (FREE,), on(ownerReferences=[]), "NothingReplacesThePod", id="alone"),
        pytest.param(
            BAD, (FREE,), on(ownerReferences=DAEMON), "NothingReplacesThePod", id="daemon"
        ),
    ],
)
async def test_a_pod_is_evicted_only_where_its_replacement_would_be_better_off(
    fleet: Fleet, node: NodeView, others: tuple[NodeView, ...], pod: Raw, reason: str | None
) -> None:
    taken = tuple(on(f"on-{n.name}", n.name) for n in others if n.name == "busy")
    await fleet.look(node, *others, pods=(pod, *taken), looks=4)
    assert fleet.evicted() == ([] if reason else ["p"])
    assert fleet.marks() == {"p": reason or "DeviceUnhealthy"}


def pinned(**spec: Any) -> Raw:
    pod = on()
    pod["spec"] |= spec
    return pod


def affinity(key: str, *values: str, fields: bool = False) -> Raw:
    one = {"key": key, "operator": "In", "values": list(values)}
    term = {"matchFields" if fields else "matchExpressions": [one]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def tainted(node: NodeView, key: str, effect: str = "NoSchedule") -> NodeView:
    return msgspec.structs.replace(node, taints=(core.Taint(key=key, value="a", effect=effect),))


def labelled(node: NodeView, **labels: str) -> NodeView:
    return msgspec.structs.replace(node, labels=labels)


NOBODY, NOWHERE = "NoOtherNodeForReplacement", "NoBetterNodeForReplacement"
TEAM = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("node", "others", "pod", "reason"),
    [
        pytest.param(BAD, (FREE,), pinned(nodeSelector={"a": "b"}), NOBODY, id="selector"),
        pytest.param(DEAD, (FREE,), pinned(nodeSelector={"a": "b"}), NOBODY, id="even if dead"),
        pytest.param(
            BAD, (labelled(FREE, a="b"),), pinned(nodeSelector={"a": "b"}), None, id="selected"
        ),
        pytest.param(
            BAD,
            (labelled(b.node("ill", gpus=1, own=b.health(0.1)), a="b"), FREE),
            pinned(nodeSelector={"a": "b"}),
            NOWHERE,
            id="the selected ones are no better",
        ),
        pytest.param(BAD, (FREE,), pinned(**affinity("zone", "x")), NOBODY, id="affinity"),
        pytest.param(
            BAD, (labelled(FREE, zone="x"),), pinned(**affinity("zone", "x")), None, id="has it"
        ),
        pytest.param(
            BAD,
            (FREE,),
            pinned(**affinity("metadata.name", "n", fields=True)),
            NOBODY,
            id="affinity to its node by name",
        ),
        pytest.param(BAD, (tainted(FREE, "team"),), on(), NOBODY, id="a taint"),
        pytest.param(BAD, (tainted(FREE, "team", "PreferNoSchedule"),), on(), None, id="soft"),
        pytest.param(
            BAD, (tainted(FREE, "team"),), pinned(tolerations=[TEAM]), None, id="a toleration"
        ),
        pytest.param(
            BAD,
            (msgspec.structs.replace(FREE, unschedulable=True),),
            on(),
            NOBODY,
            id="the other node is cordoned",
        ),
        pytest.param(
            BAD,
            (tainted(FREE, core.LOST[0]),),
            pinned(tolerations=[{"key": core.LOST[0], "operator": "Exists"}]),
            NOBODY,
            id="not ready",
        ),
    ],
)
async def test_a_pod_is_evicted_only_if_its_own_manifest_lets_it_go_elsewhere(
    fleet: Fleet, node: NodeView, others: tuple[NodeView, ...], pod: Raw, reason: str | None
) -> None:
    await fleet.look(node, *others, pods=(pod,), looks=4)
    assert fleet.evicted() == ([] if reason else ["p"])
    assert fleet.marks() == {"p": reason or "DeviceUnhealthy"}


KEEPS_OFF = resource.DeviceTaint(key="xid", effect="NoSchedule")


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        pytest.param(
            (b.device("gpu-0", 0.0, taints=(KEEPS_OFF,)), b.device("gpu-1")), None, id="tainted"
        ),
        pytest.param(
            (b.device("gpu-0", 0.2, taints=(KEEPS_OFF,)), b.device("gpu-1")), None, id="not dead"
        ),
        pytest.param((b.device("gpu-0", 0.2), b.device("gpu-1")), NOBODY, id="given again"),
        pytest.param(
            (b.device("gpu-0", 0.2, taints=(KEEPS_OFF,)), b.device("gpu-1", allocated=True)),
            NOBODY,
            id="the sound one is in use",
        ),
        pytest.param(
            (b.device("gpu-0", 0.2, taints=(KEEPS_OFF,)), b.device("gpu-1", 0.2)),
            NOBODY,
            id="the other one is as bad",
        ),
    ],
)
@pytest.mark.parametrize("entry", ["resourceClaimTemplateName", "resourceClaimName"])
async def test_a_pod_is_evicted_if_its_own_node_would_give_it_a_sound_device_instead(
    fleet: Fleet, entry: str, devices: tuple[DeviceView, ...], reason: str | None
) -> None:
    """By a claim that is made for it, or one that is its own."""
    first, *rest = devices
    held = msgspec.structs.replace(first, allocated=True)
    pod = on(gpus=0)
    of_template = entry == "resourceClaimTemplateName"
    pod["spec"]["resourceClaims"] = [{"name": "gpu", entry: "t" if of_template else "c-p"}]
    if of_template:
        pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "c-p"}]
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": b.DRIVER}}]}}
    given = {**claim("p", "gpu-0"), "spec": spec}
    if of_template:
        owner = {"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
        given["metadata"]["ownerReferences"] = [owner]
    node = b.node(pools=(b.pool(held, *rest),))
    made_from = claim_view() | {"classes": {b.DRIVER: b.device_class(selectors=[])}}
    await fleet.look(node, pods=(pod,), looks=4, claims=[given], **made_from)
    assert fleet.evicted() == ([] if reason else ["p"])
    assert fleet.marks() == {"p": reason or "DeviceUnhealthy"}


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        pytest.param(b.DRIVER, None, id="such a device, in use"),
        pytest.param("nic.example.com", NOBODY, id="a device of another kind"),
    ],
)
async def test_a_pod_with_a_dead_device_is_evicted_if_another_node_has_such_a_device(
    fleet: Fleet, driver: str, reason: str | None
) -> None:
    pod = on(gpus=0)
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c-p"}]
    given = claim("p", "gpu-0")
    request = {"name": "r", "exactly": {"deviceClassName": b.DRIVER}}
    given["spec"] = {"devices": {"requests": [request]}}
    dead = b.node(pools=(b.pool(b.device("gpu-0", 0.0, allocated=True)),))
    device = b.device("dev-0", driver=driver, allocated=True)
    other = b.node("other", pools=(PoolView(driver, "n", (device,)),))
    await fleet.engine.start()
    try:
        await fleet.look(dead, other, pods=(pod,), looks=4, claims=[given], **claim_view())
    finally:
        await fleet.engine.close()
    assert fleet.evicted() == ([] if reason else ["p"])
    assert fleet.marks() == {"p": reason or "DeviceUnhealthy"}


async def test_pods_that_share_a_claim_stay_and_are_told_so(fleet: Fleet) -> None:
    pods = []
    for name in ("p", "q"):
        pods.append(on(name, gpus=0))
        pods[-1]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c-p"}]
    given = claim("p", "gpu-0")
    given["status"]["reservedFor"].append({"resource": "pods", "name": "q", "uid": "uid-q"})
    dead = b.node(pools=(b.pool(b.device("gpu-0", 0.0, allocated=True)),))
    free = b.node("free", pools=(b.pool(b.device("gpu-1")),))
    await fleet.look(dead, free, pods=tuple(pods), looks=4, claims=[given], **claim_view())
    assert fleet.evicted() == []
    assert fleet.marks() == {"p": "ClaimIsShared", "q": "ClaimIsShared"}
    (said,) = {
        one["message"].partition("; ")[2]
        for pod in fleet.api.objects["pods"].values()
        for one in pod["status"]["conditions"]
        if one["type"] == FAILED
    }
    assert said.startswith("not evicted yet: other pods use the same claim")


def holding(unit: str) -> Raw:
    """The pod, and what its kubelet says that it holds."""
    pod = on()
    allocated = {"name": b.RESOURCE, "resources": [{"resourceID": unit, "health": "Unhealthy"}]}
    pod["status"]["containerStatuses"] = [{"name": "c", "allocatedResourcesStatus": [allocated]}]
    return pod


@pytest.mark.parametrize(
    ("withdrawn", "others", "reason"),
    [
        pytest.param(True, (), None, id="withdrawn"),
        pytest.param(False, (), NOBODY, id="it may be given again"),
        pytest.param(True, (placed("other", gpus=1),), NOBODY, id="the sound one is in use"),
    ],
)
async def test_a_unit_that_its_plugin_has_withdrawn_is_not_given_again(
    fleet: Fleet, others: tuple[Raw, ...], reason: str | None, *, withdrawn: bool
) -> None:
    gone = frozenset({"gpu"} if withdrawn else ())
    node = b.node(gpus=2 - len(gone), units={"gpu": 0.1}, busy=frozenset({"gpu"}), withdrawn=gone)
    await fleet.look(node, pods=(holding("gpu"), *others), looks=4)
    assert fleet.evicted() == ([] if reason else ["p"])


async def test_one_pod_of_a_small_pool_ends_at_a_time(fleet: Fleet) -> None:
    bad = [msgspec.structs.replace(BAD, name=name) for name in ("a", "b")]
    free = [msgspec.structs.replace(FREE, name=name) for name in ("c", "d")]
    await fleet.look(*bad, *free, pods=(on("on-a", "a"), on("on-b", "b")), looks=4)
    (first,) = fleet.evicted()
    assert "evicted later, by deviceFailures.maxShare: 1 pods" in str(fleet.steward.notes())
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


@pytest.mark.parametrize("how", [{"mode": Mode.OBSERVE}, {"mode": Mode.STEER}, {"dry_run": True}])
async def test_where_nothing_may_be_written_it_is_recorded_once_and_marks_are_taken_back(
    fleet: Fleet, how: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction_plans, "ENDS_WITHIN_S", 0.0)
    fleet.led(**how)
    marked = having(on("marked"), condition())
    await fleet.look(b.node(gpus=2, own=b.health(0.1)), FREE, pods=(on(), marked))
    await fleet.look_until(lambda: len(would_evict(fleet)) == 2)
    assert (fleet.marks(), fleet.evicted()) == ({}, [])
    assert sorted(fleet.recorded()) == sorted(
        [
            ("default/marked", "DeviceFailedOver", "wrote"),
            *(
                (f"default/{name}", what, "wouldWrite")
                for name in ("marked", "p")
                for what in ("DeviceFailed", "EvictedFromFailedDevice")
            ),
        ]
    )


TWO_BAD = [b.node(name, gpus=1, own=b.health(0.0)) for name in ("a", "b")]
TWO_PODS = (on("on-a", "a"), on("on-b", "b"))


async def test_a_dry_run_keeps_to_the_rate(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction_plans, "ENDS_WITHIN_S", 0.0)
    fleet.led(dry_run=True, evictions_per_second=0.001)
    await fleet.look(*TWO_BAD, FREE, pods=TWO_PODS, looks=4)
    assert len(would_evict(fleet)) == 1


async def test_a_dry_run_keeps_to_the_share_of_pods_that_would_be_ending(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.led(dry_run=True)
    await fleet.look(*TWO_BAD, FREE, pods=TWO_PODS, looks=4)
    assert len(would_evict(fleet)) == 1
    assert "evicted later, by deviceFailures.maxShare: 1 pods" in str(fleet.steward.notes())
    monkeypatch.setattr(eviction_plans, "ENDS_WITHIN_S", 0.0)
    await fleet.look_until(lambda: would_evict(fleet) == ["default/on-a", "default/on-b"])
    assert fleet.evicted() == []


async def test_a_dry_run_asks_the_api_server_and_says_once_if_it_may_not(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction_plans, "ENDS_WITHIN_S", 0.0)
    fleet.led(dry_run=True)
    await fleet.look(BAD, FREE, pods=(on(),), looks=4)
    (asked,) = [one for one in fleet.api.asked if one.target.plural == "evictions"]
    assert asked.query == {"dryRun": "All"}
    assert would_evict(fleet) == ["default/p"]

    fleet.led(dry_run=True)
    fleet.api.forbidden.add(("create", "evictions"))
    with capture_logs() as logs:
        await fleet.look(*TWO_BAD, FREE, pods=TWO_PODS)
        await fleet.look_until(lambda: len(would_evict(fleet)) == 3)
    (said,) = [one["event"] for one in logs if "remedy" in one]
    assert said == "PodDisruptionBudgets cannot be asked what they would allow"
    (note,) = [one for one in fleet.steward.notes() if "PodDisruptionBudgets" in one]
    assert "(deploy/rbac/optional/pod-evictions.yaml grants the rights)" in note


async def test_what_would_be_evicted_delays_nothing_that_is(fleet: Fleet) -> None:
    """As where one namespace is observed only."""
    observed = on("on-a", "a", namespace="observed")
    modes = {"observed": {"fettle.dev/mode": "observe"}}
    fleet.led(evictions_per_second=0.001)
    await fleet.look(*TWO_BAD, FREE, pods=(observed, TWO_PODS[1]), looks=4, namespaces=modes)
    assert sorted(would_evict(fleet)) == ["default/on-b", "observed/on-a"]
    assert fleet.evicted() == ["on-b"]


async def test_in_a_dry_run_it_is_recorded_why_a_pod_would_not_be_evicted(fleet: Fleet) -> None:
    fleet.led(dry_run=True)
    await fleet.look(BAD, pods=(on(),), looks=4)
    assert ("default/p", "EvictionWaits", "wouldWrite") in fleet.recorded()
    assert would_evict(fleet) == []


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
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paced_writes, "FIRST_PAUSE_S", 0.05)
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

    fleet.finished.put(failed("just-now", "2026-01-01T00:01:35Z"))
    fleet.finished.put(failed("long-ago", "2026-01-01T00:00:35Z"))
    await fleet.see(BAD, FREE)
    await fleet.steward._look()
    assert fleet.marks() == {"just-now": "DeviceUnhealthy"}
    assert fleet.evicted() == []
