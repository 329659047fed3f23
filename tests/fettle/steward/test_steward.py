"""The steward at work on a cluster."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from fettle.api import core
from fettle.client import Session
from fettle.cluster import NodeView, Publisher, View
from fettle.config import StewardSettings
from fettle.model import SOUND
from fettle.observing import StewardMetrics
from fettle.steward.steward import Steward
from fettle.steward.waking import REST, FindAllowedNodes, Nudge, Waking, waiting
from tests.fettle.client.fake_api import FakeApi, fake_api
from tests.fettle.steward.failing import pod
from tests.waiting import until

CLAIM = "fettle-system/fettle-wake-up"


class Cluster:
    """Views that a test publishes, and the nodes that are allowed for every pod."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.publisher = Publisher()
        self.allowed: frozenset[str] = frozenset()
        self.registry = CollectorRegistry()

    def publish(self, pods: Iterable[core.Pod] = (), **fields: Any) -> None:
        old = self.publisher.view
        named = {p.metadata.key: p for p in pods}
        view = msgspec.structs.replace(
            old, generation=old.generation + 1, synced=True, pods=named, **fields
        )
        self.publisher.publish(view, frozenset())

    def allow(self, *nodes: str) -> None:
        self.allowed = frozenset(nodes)
        self.publish(self.publisher.view.pods.values())

    @property
    def writes(self) -> list[str]:
        """What was written, leases apart, in order."""
        return [
            f"{asked.verb} {asked.target.plural}"
            for asked in self.api.asked
            if asked.target.plural != "leases"
        ]

    async def wrote(self, count: int) -> None:
        await until(lambda: len(self.writes) >= count)

    async def looked(self, looks: list[int]) -> None:
        """Wait until pods were judged twice: whatever the first time decided has been written."""
        wanted = len(looks) + 2
        while len(looks) < wanted:
            self.publish(self.publisher.view.pods.values())
            await asyncio.sleep(0.01)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with fake_api() as api:
        yield Cluster(api)


@asynccontextmanager
async def steward(
    cluster: Cluster, folder: Path, allowed: FindAllowedNodes | None = None
) -> AsyncIterator[list[int]]:
    """A steward at work; yields the generations that it judged pods on."""
    looks: list[int] = []

    async def allowed_now(_: core.Pod, view: View) -> frozenset[str]:
        looks.append(view.generation)
        return cluster.allowed

    async with await Session.open(cluster.api.kubeconfig(folder)) as session:
        metrics = StewardMetrics(cluster.registry)
        waking = Waking(
            cluster.publisher,
            metrics,
            waiting=waiting,
            allowed=allowed or allowed_now,
            wake=Nudge(session, "fettle-system", "fettle-wake-up").wake,
            whom="refused pods",
            interval_s=0.01,
            clock=lambda: 1_700_000_000.5,
            retry_s=0.02,
        )
        made = Steward(
            session,
            namespace="fettle-system",
            identity="one",
            metrics=metrics,
            settings=StewardSettings(lease_seconds=600.0),
            keeping=[waking.keep],
        )
        task = asyncio.create_task(made.run())
        try:
            yield looks
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_a_node_that_becomes_allowed_wakes_pods_by_a_claim_of_our_own(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.publish([pod()])
    async with steward(cluster, tmp_path) as looks:
        await until(lambda: bool(looks))
        assert cluster.writes == []
        cluster.allow("gpu-1")
        await cluster.wrote(3)
        assert cluster.writes[:3] == [
            "patch resourceclaims",
            "create resourceclaims",
            "patch resourceclaims",
        ]
        claims = cluster.api.objects["resourceclaims"]
        mark = "fettle.dev/woken-at"
        await until(
            lambda: mark in claims[CLAIM]["metadata"]["annotations"]
        )  # asked for, then done
        claim = claims[CLAIM]
        assert claim["metadata"]["annotations"][mark] == "2023-11-14T22:13:20.500000Z"
        (request,) = claim["spec"]["devices"]["requests"]
        assert re.fullmatch(r"[a-z0-9.-]+", request["exactly"]["deviceClassName"])


def named(name: str) -> core.Pod:
    metadata = msgspec.structs.replace(pod().metadata, name=name, uid=f"u-{name}")
    return msgspec.structs.replace(pod(), metadata=metadata)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("b", "ns/b"),
        ("cab", "ns/a, ns/b, ns/c"),
        ("edcba", "ns/a, ns/b, ns/c and 2 more"),
    ],
)
async def test_pods_that_are_woken_are_named_up_to_three_and_counted(
    cluster: Cluster, tmp_path: Path, names: str, text: str
) -> None:
    cluster.allowed = frozenset({"gpu-1"})
    cluster.publish([named(name) for name in names])
    with capture_logs() as logs:
        async with steward(cluster, tmp_path):
            await until(lambda: any(log["event"] == "woke waiting pods" for log in logs))
    first = next(log for log in logs if log["event"] == "woke waiting pods")
    assert (first["pods"], first["names"]) == (len(names), text)


async def test_metrics_show_who_leads_and_how_often_pods_were_woken(
    cluster: Cluster, tmp_path: Path
) -> None:
    def value(name: str) -> float | None:
        return cluster.registry.get_sample_value(f"fettle_steward_{name}")

    cluster.publish([pod()])
    async with steward(cluster, tmp_path) as looks:
        await until(lambda: bool(looks))
        assert (value("leader"), value("wakeups_total")) == (1, 0)
        cluster.allow("gpu-1")
        await until(lambda: bool(value("wakeups_total")))
    assert value("leader") == 0


async def test_a_pod_that_still_waits_is_woken_again_later_and_later(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Whether views are published meanwhile or not."""
    metadata = msgspec.structs.replace(pod().metadata, name="other", uid="other")
    other = msgspec.structs.replace(pod(), metadata=metadata)
    looks: list[int] = []

    async def allowed(waiting: core.Pod, view: View) -> frozenset[str]:
        if waiting.metadata.name != "other":
            return cluster.allowed
        looks.append(view.generation)
        return frozenset()

    cluster.publish([pod(), other])
    async with steward(cluster, tmp_path, allowed):
        cluster.allow("gpu-1")
        await cluster.wrote(2 + 4)
        await cluster.looked(looks)
        cluster.publish([pod(node="gpu-1"), other])
        await cluster.looked(looks)
        before = len(cluster.writes)
        await asyncio.sleep(0.3)
        await cluster.looked(looks)
        assert len(cluster.writes) == before


async def test_nothing_is_judged_or_written_while_no_pod_waits(
    cluster: Cluster, tmp_path: Path
) -> None:
    asked: list[core.Pod] = []

    async def allowed(waiting: core.Pod, _: View) -> frozenset[str]:
        asked.append(waiting)
        return frozenset({"gpu-1"})

    cluster.publish([pod(node="gpu-1")])
    async with steward(cluster, tmp_path, allowed):
        await until(lambda: "leases" in cluster.api.objects)
        cluster.publish([pod("0/4 nodes are available: 4 Insufficient cpu.")])
        cluster.publish([pod(node="gpu-1")])
        await asyncio.sleep(0.05)
        assert cluster.writes == []
        cluster.publish([pod()])
        await cluster.wrote(1)
        assert all(waiting == pod() for waiting in asked)


async def test_judging_that_takes_long_is_done_less_often(cluster: Cluster, tmp_path: Path) -> None:
    looks: list[tuple[float, float]] = []

    async def slowly(_: core.Pod, __: View) -> frozenset[str]:
        began_s = asyncio.get_running_loop().time()
        await asyncio.sleep(0.02)
        looks.append((began_s, asyncio.get_running_loop().time()))
        cluster.publish([pod()])
        return frozenset()

    cluster.publish([pod()])
    async with steward(cluster, tmp_path, slowly):
        await until(lambda: len(looks) == 3)
    for (began_s, ended_s), (next_s, _) in itertools.pairwise(looks):
        assert next_s - ended_s >= REST * (ended_s - began_s)


async def test_without_dra_a_node_is_annotated(cluster: Cluster, tmp_path: Path) -> None:
    cluster.api.put("nodes", {"metadata": {"name": "gpu-1"}})
    node = NodeView("gpu-1", {}, SOUND, {}, ())
    cluster.allowed = frozenset({"gpu-1"})
    cluster.publish([pod()], nodes={"gpu-1": node}, served={"ResourceClaim": False})
    async with steward(cluster, tmp_path):
        await cluster.wrote(1)
    assert set(cluster.writes) == {"patch nodes"}
    assert "fettle.dev/woken-at" in cluster.api.objects["nodes"]["gpu-1"]["metadata"]["annotations"]


async def test_a_refused_write_is_tried_again_until_it_is_granted(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.api.forbidden = {("patch", "resourceclaims")}
    cluster.allowed = frozenset({"gpu-1"})
    cluster.publish([pod()])
    async with steward(cluster, tmp_path):
        await cluster.wrote(3)
        cluster.api.forbidden = set()
        await until(lambda: CLAIM in cluster.api.objects.get("resourceclaims", {}))
    text = capsys.readouterr().out
    assert text.count('grant the verb "patch" on the resource "resourceclaims"') == 1


async def test_a_pod_that_cannot_be_judged_does_not_keep_others_waiting(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def allowed(pod: core.Pod, _: View) -> frozenset[str]:
        if pod.metadata.name == "odd":
            raise RuntimeError("a bug")
        return frozenset({"gpu-1"})

    odd = msgspec.structs.replace(
        pod(), metadata=msgspec.structs.replace(pod().metadata, name="odd")
    )
    cluster.publish([odd, pod()])
    async with steward(cluster, tmp_path, allowed):
        await cluster.wrote(1)


async def test_only_who_leads_says_what_is_amiss(tmp_path: Path) -> None:
    async def keep() -> None:
        await asyncio.Event().wait()

    async with (
        fake_api() as api,
        await Session.open(api.kubeconfig(tmp_path)) as session,
    ):
        made = Steward(
            session,
            namespace="fettle-system",
            identity="one",
            metrics=StewardMetrics(CollectorRegistry()),
            settings=StewardSettings(),
            keeping=[keep],
            notes=[lambda: ["holds are not kept as taints"]],
        )
        assert made.notes() == []
        task = asyncio.create_task(made.work())
        await until(lambda: made.notes() == ["holds are not kept as taints"])
        task.cancel()
        await asyncio.wait([task])
        assert made.notes() == []
