from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from structlog.testing import capture_logs

from fettle.api import Contact, Gone, ListEnded, Lost, Put
from fettle.api.kinds import KINDS
from fettle.cluster.feeds.snapshot import SnapshotFeed
from fettle.model import SnapshotError
from tests.fettle.cluster.feeds.manifests import node, write
from tests.fettle.cluster.feeds.recorder import PATIENCE_S, Recorder


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[SnapshotFeed, Recorder]]:
    feed, recorder = SnapshotFeed(folder, poll_s=0.01), Recorder()
    task = asyncio.create_task(feed.run(recorder))
    try:
        await recorder.until(lambda r: r.count(Contact, "Pod") > 0)
        yield feed, recorder
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def told(feed: SnapshotFeed, name: str) -> str:
    async with asyncio.timeout(PATIENCE_S):
        while name not in feed.problems:
            await asyncio.sleep(0.01)
    return feed.problems[name]


async def test_every_kind_is_listed_whatever_the_files_are_called(tmp_path: Path) -> None:
    write(tmp_path / "things.yaml", node("a"))
    write(tmp_path / "more.json", node("b"))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}}
    (tmp_path / "one.yml").write_text(yaml.safe_dump_all([node("c"), pod]))
    (tmp_path / "README.md").write_text("not: [mine")
    (tmp_path / ".nodes.yaml.swp").write_bytes(b"\x00")
    async with serving(tmp_path) as (feed, recorder):
        assert recorder.names("Node") == {"a", "b", "c"}
        assert recorder.names("Pod") == {"ns/p"}
        assert recorder.synced == {kind.name for kind in KINDS}
        assert recorder.count(Contact, "ResourceSlice") == 1
        assert feed.problems == {}


async def test_a_changed_file_is_a_change_in_the_cluster_of_only_what_differs(
    tmp_path: Path,
) -> None:
    write(tmp_path / "n.yaml", node("a"), node("b"), node("c"))
    async with serving(tmp_path) as (_, recorder):
        before = len(recorder.changes)
        write(tmp_path / "n.yaml", node("a"), node("b", gpu="broken"))
        await recorder.until(lambda r: r.names("Node") == {"a", "b"})
        await recorder.until(lambda r: r.objects["Node"]["b"].metadata.label("gpu") == "broken")
        later = [c for c in recorder.changes[before:] if isinstance(c, Put | Gone)]
        assert len(later) == 2
        assert recorder.count(ListEnded, "Node") == 1


async def test_a_deleted_file_takes_its_objects_along_and_is_said_once(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", node("a"))
    write(tmp_path / "b.yaml", node("b"))
    with capture_logs() as logs:
        async with serving(tmp_path) as (_, recorder):
            (tmp_path / "a.yaml").unlink()
            await recorder.until(lambda r: r.names("Node") == {"b"})
            write(tmp_path / "c.yaml", node("c"))
            await recorder.until(lambda r: r.names("Node") == {"b", "c"})
    assert [(line["event"], line["file"]) for line in logs] == [
        ("snapshot file is gone, and its objects with it", "a.yaml")
    ]


@pytest.mark.parametrize("nothing", ["", "\n\n"])
async def test_a_file_that_is_emptied_keeps_what_it_held(tmp_path: Path, nothing: str) -> None:
    write(tmp_path / "a.yaml", node("a"))
    async with serving(tmp_path) as (feed, recorder):
        (tmp_path / "a.yaml").write_text(nothing)
        problem = await told(feed, "a.yaml")
        assert problem == (
            "a.yaml: it is empty; delete it if its objects are gone; its previous objects are kept"
        )
        assert recorder.names("Node") == {"a"}
        write(tmp_path / "a.yaml", node("b"))
        await recorder.until(lambda r: r.names("Node") == {"b"})
        assert feed.problems == {}


async def test_a_list_without_items_empties_a_file(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", node("a"))
    async with serving(tmp_path) as (feed, recorder):
        write(tmp_path / "a.yaml")
        await recorder.until(lambda r: r.names("Node") == set())
        assert feed.problems == {}


async def test_an_object_may_move_from_file_to_file(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", node("a", seen="first"))
    write(tmp_path / "b.yaml", node("a", seen="last"))
    async with serving(tmp_path) as (_, recorder):
        assert recorder.objects["Node"]["a"].metadata.label("seen") == "last"
        (tmp_path / "b.yaml").unlink()
        await recorder.until(lambda r: r.objects["Node"]["a"].metadata.label("seen") == "first")
        assert recorder.count(Gone, "Node") == 0


async def test_a_file_that_turns_bad_keeps_what_it_held_until_it_is_good_again(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a.yaml", node("a"))
    write(tmp_path / "b.yaml", node("b"))
    async with serving(tmp_path) as (feed, recorder):
        (tmp_path / "a.yaml").write_text("kind: Node\nmetadata: {name: [\n")
        problem = await told(feed, "a.yaml")
        assert problem.startswith("a.yaml: line ")
        assert problem.endswith("its previous objects are kept")
        write(tmp_path / "b.yaml", node("b"), node("b2"))
        await recorder.until(lambda r: r.names("Node") == {"a", "b", "b2"})
        write(tmp_path / "a.yaml", node("a2"))
        await recorder.until(lambda r: r.names("Node") == {"a2", "b", "b2"})
        assert feed.problems == {}


async def test_an_error_in_place_of_objects_changes_nothing_in_the_cluster(tmp_path: Path) -> None:
    write(tmp_path / "nodes.yaml", node("a"))
    async with serving(tmp_path) as (feed, recorder):
        (tmp_path / "nodes.yaml").write_text("error: You must be logged in")
        problem = await told(feed, "nodes.yaml")
        assert problem.endswith("; its previous objects are kept")
        write(tmp_path / "more.yaml", node("b"))
        await recorder.until(lambda r: r.names("Node") == {"a", "b"})
        assert recorder.count(Gone, "Node") == 0
        assert "Node" not in feed.unknown


async def test_a_bad_file_that_is_deleted_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("]")
    write(tmp_path / "b.yaml", node("b"))
    async with serving(tmp_path) as (feed, recorder):
        assert recorder.names("Node") == {"b"}
        assert "a.yaml" in feed.problems
        (tmp_path / "a.yaml").unlink()
        async with asyncio.timeout(PATIENCE_S):
            while feed.problems:
                await asyncio.sleep(0.01)


async def test_an_object_of_another_kind_is_told_and_the_rest_of_its_file_served(
    tmp_path: Path,
) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    old = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "DeviceClass", "metadata": {}}
    write(tmp_path / "a.yaml", secret, node("a"), "text", old, {"kind": "Node"})
    async with serving(tmp_path) as (feed, recorder):
        assert recorder.names("Node") == {"a"}
        problem = feed.problems["a.yaml"]
        assert "line 3: 'Secret' is not a kind that Fettle reads (Node, " in problem
        assert "this is not a Kubernetes object but 'text'" in problem
        assert "DeviceClass is read as resource.k8s.io/v1" in problem
        assert problem.endswith("and 1 more like these")
        write(tmp_path / "a.yaml", secret, node("a"), "text", old)
        async with asyncio.timeout(PATIENCE_S):
            while "more" in feed.problems["a.yaml"]:
                await asyncio.sleep(0.01)
        assert "DeviceClass is read as resource.k8s.io/v1" in feed.problems["a.yaml"]


async def test_an_object_of_another_version_is_bad_until_it_is_of_ours(tmp_path: Path) -> None:
    spec = {"nodeName": "gpu-1", "driver": "d", "pool": {"name": "p"}}
    made = {"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}
    write(tmp_path / "a.yaml", {"apiVersion": "resource.k8s.io/v9", **made})
    async with serving(tmp_path) as (feed, recorder):
        bad = recorder.bad["ResourceSlice"]["s"]
        assert bad.node == "gpu-1"
        assert bad.reason == "its apiVersion is resource.k8s.io/v9, not resource.k8s.io/v1"
        assert "ResourceSlice is read as resource.k8s.io/v1" in feed.problems["a.yaml"]
        write(tmp_path / "a.yaml", {"apiVersion": "resource.k8s.io/v1", **made})
        await recorder.until(lambda r: r.names("ResourceSlice") == {"s"})


async def test_an_object_of_an_older_version_with_the_same_fields_is_read(tmp_path: Path) -> None:
    spec = {"deviceSelector": {"pool": "p"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    made = {"kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": spec}
    write(tmp_path / "a.yaml", {"apiVersion": "resource.k8s.io/v1beta2", **made})
    async with serving(tmp_path) as (feed, recorder):
        assert recorder.names("DeviceTaintRule") == {"r"}
        assert not feed.problems


async def test_a_malformed_object_is_bad_as_it_would_be_from_a_cluster(tmp_path: Path) -> None:
    spec = {"nodeName": "gpu-1", "driver": 7, "pool": {"name": "p"}}
    odd = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": spec}
    write(tmp_path / "a.yaml", odd | {"metadata": {"name": "s"}}, node("a"))
    async with serving(tmp_path) as (_, recorder):
        assert recorder.bad["ResourceSlice"]["s"].node == "gpu-1"
        (tmp_path / "a.yaml").unlink()
        await recorder.until(lambda r: not r.bad["ResourceSlice"])


async def test_times_are_read_as_the_api_writes_them(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: a, creationTimestamp: 2026-01-02T03:04:05Z}\n"
    )
    async with serving(tmp_path) as (_, recorder):
        created = recorder.objects["Node"]["a"].metadata.creation_timestamp
        assert created is not None
        assert created.isoformat() == "2026-01-02T03:04:05+00:00"


async def test_a_pod_without_a_namespace_is_in_the_default_one(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
    async with serving(tmp_path) as (_, recorder):
        assert recorder.names("Pod") == {"default/p"}


async def test_a_missing_folder_is_an_error_that_says_what_to_pass(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"absent: No such file.*--snapshot"):
        await SnapshotFeed(tmp_path / "absent").run(Recorder())


async def test_a_folder_that_vanishes_is_lost_and_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "snapshot"
    folder.mkdir()
    write(folder / "a.yaml", node("a"))
    async with serving(folder) as (_, recorder):
        folder.rename(tmp_path / "elsewhere")
        await recorder.until(lambda r: r.count(Lost, "Node") == 1)
        assert recorder.names("Node") == {"a"}
        contacts = recorder.count(Contact, "Node")
        (tmp_path / "elsewhere").rename(folder)
        await recorder.until(lambda r: r.count(Contact, "Node") > contacts)


async def test_kinds_of_which_it_holds_nothing_or_not_all_are_unknown(tmp_path: Path) -> None:
    write(tmp_path / "nodes.yaml", node("a"))
    async with serving(tmp_path) as (feed, _):
        assert "Node" not in feed.unknown
        assert {"DeviceClass", "ResourceSlice"} <= feed.unknown
        bad = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b", "labels": 7}}
        write(tmp_path / "more.yaml", bad)
        async with asyncio.timeout(PATIENCE_S):
            while "Node" not in feed.unknown:
                await asyncio.sleep(0.01)
        (tmp_path / "more.yaml").unlink()
        async with asyncio.timeout(PATIENCE_S):
            while "Node" in feed.unknown:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("nodes", [0, 1])
async def test_a_folder_without_a_node_is_served_with_a_warning(tmp_path: Path, nodes: int) -> None:
    for number in range(nodes):
        write(tmp_path / "nodes.yaml", node(f"n{number}"))
    (tmp_path / "pods").mkdir()
    with capture_logs() as logs:
        async with serving(tmp_path):
            await asyncio.sleep(0)
    warned = [line for line in logs if "holds no Node" in line["event"]]
    assert len(warned) == (0 if nodes else 1)
    assert all(line["files"] == 0 for line in warned)
