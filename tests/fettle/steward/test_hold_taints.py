"""The steward keeps the taints of held nodes. What it does of DRA devices is tested on the control
plane, which serves DeviceTaintRules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from fettle.api import core
from fettle.client import Session
from fettle.cluster import NodeView, Publisher
from fettle.health import holds_on_node
from fettle.model import NodeId
from fettle.steward import holding
from fettle.steward.holding import HoldTaints
from tests.fettle import building as b
from tests.fettle.client.fake_api import FakeApi, fake_api
from tests.waiting import until

OURS = {"key": "fettle.dev/hold", "value": "annotated", "effect": "NoSchedule"}
THEIRS = {"key": "fettle.dev/hold", "effect": "NoSchedule"}
OTHER = {"key": "other", "effect": "NoExecute"}
NOW = 1_790_000_000.0


class Cluster:
    """Nodes in the API server, and a view of them as they are when `look` is called."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.publisher = Publisher()

    def put(self, name: str, *taints: dict[str, str], hold: str = "") -> None:
        annotations = {"fettle.dev/hold": hold} if hold else {}
        metadata = {"name": name, "annotations": annotations}
        self.api.put("nodes", {"metadata": metadata, "spec": {"taints": [*taints]}})

    def taints(self, name: str) -> Any:
        return self.api.objects["nodes"][name]["spec"].get("taints")

    def look(self, *, unread: bool = False) -> None:
        nodes: dict[str, NodeView] = {}
        holds: Any = {}
        for raw in self.api.objects.get("nodes", {}).values():
            node = msgspec.convert(raw, core.Node)
            taints = (node.spec.taints if node.spec else None) or ()
            name = node.metadata.name
            nodes[name] = msgspec.structs.replace(b.node(name), taints=taints, unread=unread)
            if found := holds_on_node(node.metadata):
                holds[NodeId(name)] = found
        view = self.publisher.view
        again = msgspec.structs.replace(
            view, generation=view.generation + 1, synced=True, nodes=nodes, holds=holds
        )
        self.publisher.publish(again, frozenset())


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with fake_api() as api:
        yield Cluster(api)


@asynccontextmanager
async def keeping(cluster: Cluster, folder: Path, *, adds: bool = True) -> AsyncIterator[None]:
    async with await Session.open(cluster.api.kubeconfig(folder)) as session:
        made = HoldTaints(
            session,
            cluster.publisher,
            adds=lambda: adds,
            clock=lambda: NOW,
            longest_pause_s=0.02,
            every_s=0.01,
        )
        task = asyncio.create_task(made.keep())
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_held_nodes_get_the_taint_and_others_lose_it_and_foreign_taints_stay(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.put("held", OTHER, hold="riser")
    cluster.put("over", OTHER, OURS)
    cluster.put("both", THEIRS, hold="riser")
    cluster.put("theirs", THEIRS, OTHER)
    cluster.look()
    async with keeping(cluster, tmp_path):
        await until(lambda: cluster.taints("held") == [OTHER, OURS])
        await until(lambda: cluster.taints("over") == [OTHER])
        cluster.look()
        await asyncio.sleep(0.05)
    assert cluster.taints("both") == [THEIRS]
    assert cluster.taints("theirs") == [THEIRS, OTHER]
    assert cluster.api.verbs("nodes").count("patch") == 2


async def test_an_older_view_undoes_nothing_that_an_operator_has_just_written(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.put("n", OURS, hold="riser")
    cluster.look()
    cluster.put("n")  # released, which no view shows yet
    async with keeping(cluster, tmp_path):
        cluster.put("n", OURS, hold="again")
        cluster.look()
        await asyncio.sleep(0.05)
    assert cluster.taints("n") == [OURS]


async def test_a_hold_that_is_over_taints_nothing(cluster: Cluster, tmp_path: Path) -> None:
    cluster.put("n", hold='{"until": "2020-01-01T00:00:00Z"}')
    cluster.look()
    async with keeping(cluster, tmp_path):
        await until(lambda: "get" in cluster.api.verbs("nodes"))
        await asyncio.sleep(0.02)
    assert cluster.taints("n") == []


async def test_a_node_that_cannot_be_read_keeps_its_taint(cluster: Cluster, tmp_path: Path) -> None:
    cluster.put("n", OURS)
    cluster.look(unread=True)
    async with keeping(cluster, tmp_path):
        await asyncio.sleep(0.05)
    assert cluster.api.verbs("nodes") == []


async def test_where_none_may_be_added_they_are_still_taken_away(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.put("held", hold="riser")
    cluster.put("over", OURS)
    cluster.look()
    async with keeping(cluster, tmp_path, adds=False):
        await until(lambda: cluster.taints("over") == [])
        await asyncio.sleep(0.02)
    assert cluster.taints("held") == []


async def test_without_the_right_it_says_so_once_and_begins_when_the_right_is_given(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.api.forbidden = {("patch", "nodes")}
    cluster.put("a", hold="riser")
    cluster.put("b", hold="riser")
    cluster.look()
    with capture_logs() as logs:
        async with keeping(cluster, tmp_path):
            await until(lambda: cluster.api.verbs("nodes").count("patch") >= 3)
            said = [log for log in logs if log["log_level"] == "warning"]
            assert len(said) == 1
            assert "hold-taints.yaml" in said[0]["remedy"]
            assert not any(log["event"] == "taint of a hold" for log in logs)
            cluster.api.forbidden = set()
            await until(lambda: cluster.taints("a") == cluster.taints("b") == [OURS])


async def test_a_taint_that_somebody_sets_meanwhile_is_not_lost(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.put("n")
    before: list[Any] = []

    def change(node: Any) -> dict[str, Any]:
        if not before:
            cluster.put("n", OTHER)  # between our read and our write
        before.append(node["spec"]["taints"])
        return {"spec": {"taints": holding.taints_changed(node, held=True)}}

    async with await Session.open(cluster.api.kubeconfig(tmp_path)) as session:
        await holding.change_node(session, "n", change)
    assert before == [[], [OTHER]]
    assert cluster.taints("n") == [OTHER, OURS]
