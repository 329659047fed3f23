"""A folder of manifests as a feed, and what becomes of files that cannot be read."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fettle.api import Contact, Gone, ListEnded, Lost, Put, read_object
from fettle.api.kinds import BY_NAME, KINDS
from fettle.cluster.feeds import snapshot
from fettle.cluster.feeds.snapshot import ObjectKey, SnapshotFeed, SnapshotFolder
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


async def problem_of(feed: SnapshotFeed, name: str) -> str:
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


async def test_a_changed_file_changes_only_the_objects_that_differ(
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


def test_annotations_that_nobody_reads_take_no_memory_and_change_nothing(tmp_path: Path) -> None:
    def write_pods(note: str) -> None:
        annotations = {"tool/note": note * 250_000, "fettle.dev/policy": "training"}
        metadata = {"namespace": "n", "annotations": annotations}
        pods = [
            {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": f"p{i}"}}
            for i in range(20)
        ]
        (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "items": pods}))

    folder = SnapshotFolder(tmp_path)
    write_pods("x")
    assert folder.poll()
    before = dict(folder.objects)
    assert len(before) == 20
    assert all(b"training" in raw and len(raw) < 300 for raw in before.values())
    write_pods("y")
    folder.poll()
    folder.poll()
    assert folder.objects == before


async def test_a_deleted_file_takes_its_objects_along_and_is_logged_once(tmp_path: Path) -> None:
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
async def test_a_file_that_is_emptied_keeps_its_objects(tmp_path: Path, nothing: str) -> None:
    write(tmp_path / "a.yaml", node("a"))
    async with serving(tmp_path) as (feed, recorder):
        (tmp_path / "a.yaml").write_text(nothing)
        problem = await problem_of(feed, "a.yaml")
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


async def test_a_file_that_becomes_invalid_keeps_its_objects_until_it_is_valid_again(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a.yaml", node("a"))
    write(tmp_path / "b.yaml", node("b"))
    async with serving(tmp_path) as (feed, recorder):
        (tmp_path / "a.yaml").write_text("kind: Node\nmetadata: {name: [\n")
        problem = await problem_of(feed, "a.yaml")
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
        problem = await problem_of(feed, "nodes.yaml")
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


async def test_an_object_of_another_kind_is_reported_and_the_rest_of_its_file_served(
    tmp_path: Path,
) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    old = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "DeviceClass", "metadata": {}}
    write(tmp_path / "a.yaml", secret, node("a"), "text", old, {"kind": "Node"})
    async with serving(tmp_path) as (feed, recorder):
        assert recorder.names("Node") == {"a"}
        problem = feed.problems["a.yaml"]
        assert "line 3: 'Secret' is not a kind that Fettle reads (DeviceHealth, Node, " in problem
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


async def test_kinds_with_no_object_or_an_unreadable_one_are_unknown(tmp_path: Path) -> None:
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


def rewritten(folder: SnapshotFolder, path: Path) -> None:
    """Poll until a file counts as changed and complete, even if its text is as before."""
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))
    folder.poll()
    folder.poll()


LOGGED_OUT = "error: You must be logged in to the server (Unauthorized)"
STATUS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "message": "Unauthorized"}
TABLE = "NAME    STATUS   ROLES    AGE   VERSION\ngpu-1   Ready    <none>   9d    v1.37.1\n"
BROKEN_OFF = "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: b}\n"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.yaml", LOGGED_OUT, "line 1: this is not a Kubernetes object: it has no kind"),
        ("a.yaml", "No resources found", "not a Kubernetes object but 'No resources found'"),
        ("a.yaml", TABLE, "not a Kubernetes object but 'NAME STATUS ROLES"),
        ("a.yaml", BROKEN_OFF, "not a Kubernetes object: it has no kind"),
        ("a.yaml", "{}", "not a Kubernetes object: it has no kind"),
        (
            "a.yaml",
            "---\n- text\n---\n7\n",
            "but ['text']; line 4: this is not a Kubernetes object",
        ),
        ("a.yaml", "kind: Node\napiVersion: v1\n", "this Node has no metadata.name"),
        ("a.yaml", "kind: Node\nmetadata: {name: b}\n", "it has no kind and apiVersion"),
        (
            "a.yaml",
            "{kind: Node, apiVersion: v1, metadata: {name: b}, ~: 1}",
            "a key must be text, and is null",
        ),
        ("a.yaml", "kind: List\napiVersion: v1\n", "this 'List' has no list of items"),
        ("a.yaml", "kind: NodeList\napiVersion: v1\nitems:\n", "'NodeList' has no list of items"),
        ("a.yaml", "kind: List\nitems: [text]\n", "not a Kubernetes object but 'text'"),
        ("a.yaml", "kind: List\nitems: []\n---\nerror: gone\n", "line 4: this is not a Kubernetes"),
        ("a.json", "{}", "not a Kubernetes object: it has no kind"),
        ("a.json", "[]", "not a Kubernetes object but []"),
        ("a.json", '[1, {"a": 2}]', "not a Kubernetes object but [1, {'a': 2}]"),
        ("a.json", "null", "not a Kubernetes object but None"),
        ("a.json", json.dumps(STATUS), "not a Kubernetes object but a Status: 'Unauthorized'"),
        (
            "a.json",
            '{"kind": "Status", "apiVersion": "v1"}',
            "not a Kubernetes object but a Status",
        ),
    ],
)
def test_a_file_that_becomes_something_without_objects_keeps_its_objects(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    folder = SnapshotFolder(tmp_path)
    write(tmp_path / name, node("a"))
    rewritten(folder, tmp_path / name)
    held = dict(folder.objects)
    (tmp_path / name).write_text(text)
    for _ in range(2):  # the second time, it is what was there before
        rewritten(folder, tmp_path / name)
        assert folder.objects == held
        problem = folder.problems[name]
        assert problem.startswith(f"{name}: line ")
        assert reason in problem
        assert problem.count(name) == 1
        assert problem.endswith("; its previous objects are kept")
    write(tmp_path / name, node("b"))
    rewritten(folder, tmp_path / name)
    assert folder.objects.keys() == {ObjectKey("Node", "b")}
    assert folder.problems == {}


def test_a_file_that_never_held_objects_is_only_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("No resources found")
    folder = SnapshotFolder(tmp_path)
    folder.poll()
    folder.poll()
    assert folder.objects == {}
    assert folder.problems == {
        "a.yaml": "a.yaml: line 1: this is not a Kubernetes object but 'No resources found'"
    }


@pytest.mark.parametrize(
    "text",
    [
        "kind: List\napiVersion: v1\nitems: []\n",
        '{"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": []}',
        "kind: List\nitems:\n- {kind: NodeList, items: []}\n",
    ],
)
def test_an_empty_list_in_a_file_removes_its_objects(tmp_path: Path, text: str) -> None:
    folder = SnapshotFolder(tmp_path)
    write(tmp_path / "a.yaml", node("a"))
    rewritten(folder, tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text(text)
    rewritten(folder, tmp_path / "a.yaml")
    assert (folder.objects, folder.problems) == ({}, {})


@pytest.mark.parametrize("kind", ["Deployment", "Status", "AllowList"])
def test_a_file_of_kinds_that_fettle_does_not_read_is_a_problem_without_objects(
    tmp_path: Path, kind: str
) -> None:
    folder = SnapshotFolder(tmp_path)
    write(tmp_path / "a.yaml", node("a"))
    rewritten(folder, tmp_path / "a.yaml")
    write(tmp_path / "a.yaml", node("a") | {"kind": kind}, "text")
    rewritten(folder, tmp_path / "a.yaml")
    assert folder.objects == {}
    problem = folder.problems["a.yaml"]
    assert f"'{kind}' is not a kind that Fettle reads" in problem
    assert problem.endswith("this is not a Kubernetes object but 'text'")


def test_a_file_is_not_read_while_it_is_being_written(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path)
    write(tmp_path / "a.yaml", node("a"))
    assert folder.poll()
    folder.poll()
    (tmp_path / "a.yaml").write_text("half of")
    assert not folder.poll(), "it may be growing"
    write(tmp_path / "a.yaml", node("a"), node("b"))
    assert not folder.poll()
    assert folder.poll(), "it is at rest"
    assert folder.problems == {}
    assert len(folder.objects) == 2


def test_an_object_defined_in_several_ways_is_a_clash_and_the_last_one_counts(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a.yaml", node("alike"), node("m", x="1"), node("twice"), node("twice", x="2"))
    write(tmp_path / "b.yaml", node("alike"), node("m", x="3"))
    folder = SnapshotFolder(tmp_path)
    folder.poll()
    assert folder.problems == {}
    assert folder.clashes == [
        "Node m is defined in a.yaml and b.yaml, with differences; the last one counts",
        "Node twice is defined several times in a.yaml, with differences; the last one counts",
    ]
    assert b'"x":"3"' in folder.objects[ObjectKey("Node", "m")]
    assert b'"x":"2"' in folder.objects[ObjectKey("Node", "twice")]
    folder.poll()
    write(tmp_path / "b.yaml", node("other"))
    folder.poll()
    folder.poll()
    assert len(folder.clashes) == 1


def test_a_file_that_is_too_large_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "LARGEST_BYTES", 10)
    write(tmp_path / "a.yaml", node("a"))
    folder = SnapshotFolder(tmp_path)
    folder.poll()
    assert "larger than 10 bytes" in folder.problems["a.yaml"]


def test_a_link_to_itself_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    write(tmp_path / "a.yaml", node("a"))
    folder = SnapshotFolder(tmp_path)
    folder.poll()
    assert len(folder.objects) == 1
    assert folder.problems["loop.yaml"].startswith("loop.yaml: it cannot be read: Too many levels")


def test_a_file_that_cannot_be_read_is_tried_at_every_poll_and_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    write(tmp_path / "a.yaml", node("a"))
    folder = SnapshotFolder(tmp_path)
    with monkeypatch.context() as unreadable:
        unreadable.setattr(Path, "read_bytes", refuse)
        assert folder.poll()
        assert folder.problems == {"a.yaml": "a.yaml: it cannot be read: Permission denied"}
        assert not folder.poll(), "it is as it was"
        assert not folder.poll()
    assert folder.poll()
    assert (len(folder.objects), folder.problems) == (1, {})
    assert not folder.poll()


def test_a_file_whose_time_of_modification_is_put_back_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    write(path, node("a"))
    folder = SnapshotFolder(tmp_path)
    folder.poll()
    folder.poll()
    before = path.stat()
    write(path, node("b"))
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the file system's clock is coarse
        os.utime(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    folder.poll()
    folder.poll()
    assert folder.objects.keys() == {ObjectKey("Node", "b")}


def test_a_link_to_a_file_that_does_not_exist_is_a_problem_until_it_does(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to(tmp_path / "nowhere")
    folder = SnapshotFolder(tmp_path)
    for _ in range(2):
        folder.poll()
        assert folder.problems == {
            "a.yaml": "a.yaml: it cannot be read: the file that it is a link to does not exist"
        }
    write(tmp_path / "nowhere", node("a"))
    rewritten(folder, tmp_path / "nowhere")
    assert (len(folder.objects), folder.problems) == (1, {})


def test_a_link_keeps_its_objects_when_its_file_vanishes_but_not_when_it_is_deleted(
    tmp_path: Path,
) -> None:
    """As in the volume of a ConfigMap, where a link may point nowhere for a moment."""
    data, link = tmp_path / "..data", tmp_path / "a.yaml"
    data.mkdir()
    write(data / "a.yaml", node("a"))
    link.symlink_to("..data/a.yaml")
    folder = SnapshotFolder(tmp_path)
    folder.poll()
    folder.poll()
    data.rename(tmp_path / "..old")
    assert not folder.poll(), "it may be there again at the next look"
    assert folder.poll()
    assert folder.objects.keys() == {ObjectKey("Node", "a")}
    assert folder.problems["a.yaml"].endswith("does not exist; its previous objects are kept")
    (tmp_path / "..old").rename(data)
    folder.poll()
    assert folder.poll()
    assert (len(folder.objects), folder.problems) == (1, {})
    link.unlink()
    folder.poll()
    assert folder.poll()
    assert (folder.objects, folder.problems) == ({}, {})


def test_a_folder_or_pipe_named_like_a_file_is_a_problem_until_it_is_a_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "link.yaml").symlink_to("folder.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    folder = SnapshotFolder(tmp_path)
    assert folder.poll()
    assert not folder.poll(), "it is reported once"
    assert folder.problems == {
        "folder.yaml": "folder.yaml: it cannot be read: it is a directory",
        "link.yaml": "link.yaml: it cannot be read: it is a directory",
        "pipe.yaml": "pipe.yaml: it cannot be read: it is not a regular file",
    }
    (tmp_path / "folder.yaml").rmdir()
    (tmp_path / "pipe.yaml").unlink()
    write(tmp_path / "folder.yaml", node("a"))
    folder.poll()
    folder.poll()
    assert (len(folder.objects), folder.problems) == (1, {})


def test_a_file_that_becomes_a_pipe_keeps_its_objects(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", node("a"))
    folder = SnapshotFolder(tmp_path)
    folder.poll()
    (tmp_path / "a.yaml").unlink()
    os.mkfifo(tmp_path / "a.yaml")
    folder.poll()
    folder.poll()
    assert folder.objects.keys() == {ObjectKey("Node", "a")}
    assert folder.problems["a.yaml"].endswith("a regular file; its previous objects are kept")


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
WILD = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "status", "name", "devices", "items", "conditions"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
OBJECTS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([kind.name for kind in KINDS]),
        "apiVersion": st.sampled_from(["v1", "resource.k8s.io/v1"]),
        "metadata": WILD | st.fixed_dictionaries({"name": st.text(min_size=1, max_size=5)}),
    },
    optional={"spec": WILD, "status": WILD},
)


@given(st.lists(OBJECTS | WILD, max_size=4))
def test_any_object_is_put_bad_or_a_problem(tmp_path: Path, things: list[Any]) -> None:
    path = tmp_path / "wild.yaml"
    path.write_text(yaml.safe_dump({"kind": "List", "items": things}))
    folder = SnapshotFolder(tmp_path)
    folder.poll()
    for key, raw in folder.objects.items():
        change = read_object(BY_NAME[key.kind], raw)
        told = change.object.metadata.key if isinstance(change, Put) else change.key
        assert told == key.key
