"""Which pods on lost nodes are deleted by force, and which are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from fettle.api import core
from fettle.api.meta import rfc3339_at
from fettle.client import EventRecorder, Session
from fettle.cluster import NodeView
from fettle.config import DeviceFailureSettings, Settings
from fettle.model import Failure, Mode, OnLostNode, Policy
from fettle.observing import DecisionMetrics
from fettle.records import DecisionLog, Journal, Recorder
from fettle.steward import STEWARD, LostNodes
from fettle.steward.paced_writes import FIRST_PAUSE_S
from tests.fettle import building as b
from tests.fettle.client.fake_api import FakeApi, fake_api
from tests.fettle.scheduling.placed.builders import Watched, placed

Raw = dict[str, Any]
AFTER_S = 600.0
NOW = 1_767_300_000.0
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
POLICIES = {
    "forcing": Policy(name="forcing", failure=Failure(on_lost_node=OnLostNode.FORCE_DELETE)),
    "other": Policy(name="other"),
}


class Lost(Watched):
    """A cluster with one lost node, whose pods, Nodes and Leases are those of a fake API server."""

    def __init__(self, api: FakeApi, session: Session) -> None:
        super().__init__()
        self.api = api
        self.session = session
        api.clock = lambda: NOW
        self.fails("n")
        self.led()

    def led(self, mode: Mode = Mode.ENFORCE, after_s: float | None = AFTER_S, **how: Any) -> None:
        failures = DeviceFailureSettings(
            force_delete_seconds=after_s, evictions_per_second=100.0, **how
        )
        settings = Settings(mode=mode, device_failures=failures)
        self.answers.policies = settings.all_policies()
        self.log = DecisionLog(100, 2**20)
        self.steward = LostNodes(
            self.session,
            self.answers,
            settings,
            EventRecorder(self.session, STEWARD, "one"),
            Recorder(
                self.answers,
                self.log,
                Journal(None, 2**20),
                DecisionMetrics(CollectorRegistry()),
            ),
            clock=lambda: NOW,
        )

    def fails(
        self,
        name: str,
        *,
        condition_s: float = AFTER_S,
        lease_s: float | None = AFTER_S,
        status: str = "Unknown",
        taints: tuple[Raw, ...] = (UNREACHABLE,),
    ) -> None:
        """The Node has been in this state for so long, and its Lease is so old."""
        ready = {
            "type": "Ready",
            "status": status,
            "lastTransitionTime": rfc3339_at(NOW - condition_s),
        }
        node = {
            "metadata": {"name": name},
            "spec": {"taints": list(taints)},
            "status": {"conditions": [ready]},
        }
        self.api.put("nodes", node)
        if lease_s is None:
            self.api.objects.pop("leases", None)
            return
        named = {"name": name, "namespace": "kube-node-lease"}
        renewed = {"renewTime": rfc3339_at(NOW - lease_s)}
        self.api.put("leases", {"metadata": named, "spec": renewed})

    async def look(self, *pods: Raw, lost: int = 1, others: int = 0, without: int = 0) -> list[str]:
        """The pods that are left after the steward looked."""
        self.api.objects["pods"] = {}
        for pod in pods:
            self.api.put("pods", pod)
        nodes = [unreachable(f"lost-{n}" if n else "n") for n in range(lost)]
        nodes += [b.node(f"fine-{n}", gpus=1) for n in range(others)]
        nodes += [b.node(f"cpu-{n}") for n in range(without)]
        await self.see(*nodes, pods=pods, policies=POLICIES)
        await self.steward.look()
        return [pod["metadata"]["name"] for pod in self.api.objects["pods"].values()]

    def recorded(self) -> list[tuple[str, str]]:
        return [(" ".join(one.reasons), str(one.decided)) for one in self.log]


def unreachable(name: str) -> NodeView:
    taint = core.Taint(key=UNREACHABLE["key"], effect="NoExecute")
    return msgspec.structs.replace(b.node(name, gpus=1), taints=(taint,))


def ending(policy: str = "forcing", since_s: float = AFTER_S, **meta: Any) -> Raw:
    """A pod that should have ended so long ago."""
    pod = placed("p", gpus=1, policy=policy)
    pod["metadata"] |= {"deletionTimestamp": rfc3339_at(NOW - since_s), **meta}
    return pod


@pytest.fixture
async def lost(tmp_path: Path) -> AsyncIterator[Lost]:
    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        yield Lost(api, session)


async def test_a_pod_that_does_not_end_on_a_lost_node_fails_and_is_deleted(lost: Lost) -> None:
    assert await lost.look(ending()) == []
    assert [(one.verb, one.target.plural) for one in lost.api.asked] == [
        ("get", "nodes"),
        ("get", "leases"),
        ("patch", "pods"),
        ("delete", "pods"),
    ]
    assert lost.recorded() == [("ForceDeleted", "wrote")]


@pytest.mark.parametrize(
    "pod",
    [ending("other"), ending(since_s=AFTER_S - 1.0), ending(deletionTimestamp=None)],
    ids=["its policy says nothing", "it has not ended for less long", "nobody deleted it"],
)
async def test_no_other_pod_is_deleted(lost: Lost, pod: Raw) -> None:
    assert await lost.look(pod) == ["p"]
    assert not lost.recorded()


@pytest.mark.parametrize(
    "node",
    [
        {"lease_s": AFTER_S - 1.0},
        {"lease_s": None},
        {"lease_s": -60.0},
        {"condition_s": AFTER_S - 1.0},
        {"status": "False"},
        {"status": "True"},
        {"taints": ()},
    ],
    ids=str,
)
async def test_a_node_that_may_be_alive_keeps_its_pods(lost: Lost, node: Raw) -> None:
    """As the API server says at that moment, whatever the view shows."""
    lost.fails("n", **node)
    assert await lost.look(ending()) == ["p"]
    assert not lost.recorded()


async def test_where_too_many_nodes_are_lost_at_once_no_pod_is_deleted(lost: Lost) -> None:
    lost.led(max_share=0.05)
    assert await lost.look(ending(), lost=2, others=20) == ["p"]
    assert lost.steward.notes() == [
        "lost nodes: 2 nodes are unreachable at once, 2 of them with devices, more than "
        "deviceFailures.maxShare, so no pod is deleted by force"
    ]
    assert await lost.look(ending(), lost=2, others=40) == []
    assert not lost.steward.notes()


async def test_nodes_without_devices_do_not_make_a_few_of_those_that_have_some(lost: Lost) -> None:
    assert await lost.look(ending(), lost=2, others=20, without=200) == ["p"]
    assert "2 of them with devices" in lost.steward.notes()[0]
    assert await lost.look(ending(), lost=2, others=40, without=200) == []


async def test_without_the_setting_nothing_is_asked(lost: Lost) -> None:
    lost.led(after_s=None)
    assert await lost.look(ending()) == ["p"]
    assert not lost.api.asked


async def test_where_nothing_may_be_written_it_is_recorded_once_what_would_be(lost: Lost) -> None:
    lost.led(Mode.OBSERVE)
    assert await lost.look(ending()) == ["p"]
    await lost.steward.look()
    assert lost.recorded() == [("ForceDeleted", "wouldWrite")]


async def test_a_pod_that_was_marked_as_failed_is_deleted_when_that_succeeds(lost: Lost) -> None:
    """No view shows pods that have failed."""
    lost.api.forbidden.add(("delete", "pods"))
    assert await lost.look(ending()) == ["p"]
    assert not lost.recorded()
    lost.pods = {}
    await lost.see(unreachable("n"), policies=POLICIES)
    lost.api.forbidden.clear()
    async with asyncio.timeout(20):
        while lost.api.objects["pods"]:
            await lost.steward.look()
            await asyncio.sleep(0.05)
    assert lost.recorded() == [("ForceDeleted", "wrote")]


async def test_a_pod_that_was_marked_as_failed_is_left_to_a_node_that_is_back(lost: Lost) -> None:
    lost.api.forbidden.add(("delete", "pods"))
    await lost.look(ending())
    lost.pods = {}
    await lost.see(b.node("n", gpus=1), policies=POLICIES)
    lost.api.forbidden.clear()
    await asyncio.sleep(FIRST_PAUSE_S + 0.1)
    lost.api.asked.clear()
    await lost.steward.look()
    assert not lost.api.asked


async def test_a_later_pod_of_the_same_name_is_not_meant(lost: Lost) -> None:
    first, later = ending(), ending(uid="later")
    first["status"]["phase"] = "Succeeded"
    await lost.see(unreachable("n"), pods=(first,), policies=POLICIES)
    lost.api.put("pods", later)
    await lost.steward.look()
    assert not lost.recorded()
    assert [pod["metadata"]["uid"] for pod in lost.api.objects["pods"].values()] == ["later"]


async def test_a_pod_that_has_ended_keeps_its_phase(lost: Lost) -> None:
    pod = ending()
    pod["status"]["phase"] = "Succeeded"
    assert await lost.look(pod) == []
    assert not [one for one in lost.api.asked if one.verb == "patch"]


@pytest.mark.parametrize("seconds", [0.0, 299.0, float("inf"), float("nan")])
def test_a_time_that_is_too_short_or_endless_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="forceDeleteSeconds must be finite, and 300 or more"):
        DeviceFailureSettings(force_delete_seconds=seconds)
