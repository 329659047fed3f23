from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import Put, read
from fettle.api.kinds import BY_NAME, KINDS
from fettle.cluster.feeds import folders
from fettle.cluster.feeds.folders import Folder, ObjectKey
from tests.fettle.cluster.feeds.manifests import node, write


def rewritten(folder: Folder, path: Path) -> None:
    """Look until a file counts as changed and at rest, even if its text is as before."""
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))
    folder.look()
    folder.look()


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
            "cannot be written as JSON",
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
def test_a_file_that_turns_into_something_without_objects_keeps_what_it_held(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    folder = Folder(tmp_path)
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


def test_a_file_that_never_held_objects_says_only_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("No resources found")
    folder = Folder(tmp_path)
    folder.look()
    folder.look()
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
def test_a_list_that_says_there_are_none_takes_what_the_file_held(
    tmp_path: Path, text: str
) -> None:
    folder = Folder(tmp_path)
    write(tmp_path / "a.yaml", node("a"))
    rewritten(folder, tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text(text)
    rewritten(folder, tmp_path / "a.yaml")
    assert (folder.objects, folder.problems) == ({}, {})


@pytest.mark.parametrize("kind", ["Deployment", "Status", "AllowList"])
def test_a_file_of_objects_that_fettle_does_not_read_is_told_and_holds_nothing(
    tmp_path: Path, kind: str
) -> None:
    folder = Folder(tmp_path)
    write(tmp_path / "a.yaml", node("a"))
    rewritten(folder, tmp_path / "a.yaml")
    write(tmp_path / "a.yaml", node("a") | {"kind": kind}, "text")
    rewritten(folder, tmp_path / "a.yaml")
    assert folder.objects == {}
    problem = folder.problems["a.yaml"]
    assert f"'{kind}' is not a kind that Fettle reads" in problem
    assert problem.endswith("this is not a Kubernetes object but 'text'")


def test_a_file_is_not_read_while_it_is_being_written(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    write(tmp_path / "a.yaml", node("a"))
    assert folder.look()
    folder.look()
    (tmp_path / "a.yaml").write_text("half of")
    assert not folder.look(), "it may be growing"
    write(tmp_path / "a.yaml", node("a"), node("b"))
    assert not folder.look()
    assert folder.look(), "it is at rest"
    assert folder.problems == {}
    assert len(folder.objects) == 2


def test_what_is_told_in_several_ways_is_said_and_the_last_one_counts(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", node("alike"), node("n", x="1"), node("twice"), node("twice", x="2"))
    write(tmp_path / "b.yaml", node("alike"), node("n", x="3"))
    folder = Folder(tmp_path)
    folder.look()
    assert folder.problems == {}
    assert folder.clashes == [
        "Node n is defined in a.yaml and b.yaml, with differences; the last one counts",
        "Node twice is defined several times in a.yaml, with differences; the last one counts",
    ]
    assert b'"x":"3"' in folder.objects[ObjectKey("Node", "n")]
    assert b'"x":"2"' in folder.objects[ObjectKey("Node", "twice")]
    folder.look()
    write(tmp_path / "b.yaml", node("other"))
    folder.look()
    folder.look()
    assert len(folder.clashes) == 1


def test_a_file_that_is_too_large_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "LARGEST_BYTES", 10)
    write(tmp_path / "a.yaml", node("a"))
    folder = Folder(tmp_path)
    folder.look()
    assert "larger than 10 bytes" in folder.problems["a.yaml"]


def test_a_file_that_may_not_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    write(tmp_path / "a.yaml", node("a"))
    folder = Folder(tmp_path)
    folder.look()
    assert len(folder.objects) == 1
    assert folder.problems["loop.yaml"].startswith("loop.yaml: it cannot be read: Too many levels")


def test_a_file_that_could_not_be_read_is_tried_at_every_look_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    write(tmp_path / "a.yaml", node("a"))
    folder = Folder(tmp_path)
    with monkeypatch.context() as unreadable:
        unreadable.setattr(Path, "read_bytes", refuse)
        assert folder.look()
        assert folder.problems == {"a.yaml": "a.yaml: it cannot be read: Permission denied"}
        assert not folder.look(), "it is as it was"
        assert not folder.look()
    assert folder.look()
    assert (len(folder.objects), folder.problems) == (1, {})
    assert not folder.look()


def test_a_file_whose_time_of_modification_is_put_back_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    write(path, node("a"))
    folder = Folder(tmp_path)
    folder.look()
    folder.look()
    before = path.stat()
    write(path, node("b"))
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the file system's clock is coarse
        os.utime(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    folder.look()
    folder.look()
    assert folder.objects.keys() == {ObjectKey("Node", "b")}


def test_a_link_to_a_file_that_does_not_exist_is_a_problem_until_it_does(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to(tmp_path / "nowhere")
    folder = Folder(tmp_path)
    for _ in range(2):
        folder.look()
        assert folder.problems == {
            "a.yaml": "a.yaml: it cannot be read: the file that it is a link to does not exist"
        }
    write(tmp_path / "nowhere", node("a"))
    rewritten(folder, tmp_path / "nowhere")
    assert (len(folder.objects), folder.problems) == (1, {})


def test_a_link_whose_file_vanishes_keeps_what_it_held_and_one_that_is_deleted_does_not(
    tmp_path: Path,
) -> None:
    """As in the volume of a ConfigMap, where a link may point nowhere for a moment."""
    data, link = tmp_path / "..data", tmp_path / "a.yaml"
    data.mkdir()
    write(data / "a.yaml", node("a"))
    link.symlink_to("..data/a.yaml")
    folder = Folder(tmp_path)
    folder.look()
    folder.look()
    data.rename(tmp_path / "..old")
    assert not folder.look(), "it may be there again at the next look"
    assert folder.look()
    assert folder.objects.keys() == {ObjectKey("Node", "a")}
    assert folder.problems["a.yaml"].endswith("does not exist; its previous objects are kept")
    (tmp_path / "..old").rename(data)
    folder.look()
    assert folder.look()
    assert (len(folder.objects), folder.problems) == (1, {})
    link.unlink()
    folder.look()
    assert folder.look()
    assert (folder.objects, folder.problems) == ({}, {})


def test_what_is_called_like_a_file_and_is_none_is_a_problem_until_it_is_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "link.yaml").symlink_to("folder.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    folder = Folder(tmp_path)
    assert folder.look()
    assert not folder.look(), "it is told once"
    assert folder.problems == {
        "folder.yaml": "folder.yaml: it cannot be read: it is a directory",
        "link.yaml": "link.yaml: it cannot be read: it is a directory",
        "pipe.yaml": "pipe.yaml: it cannot be read: it is not a regular file",
    }
    (tmp_path / "folder.yaml").rmdir()
    (tmp_path / "pipe.yaml").unlink()
    write(tmp_path / "folder.yaml", node("a"))
    folder.look()
    folder.look()
    assert (len(folder.objects), folder.problems) == (1, {})


def test_a_file_that_turns_into_a_pipe_keeps_what_it_held(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", node("a"))
    folder = Folder(tmp_path)
    folder.look()
    (tmp_path / "a.yaml").unlink()
    os.mkfifo(tmp_path / "a.yaml")
    folder.look()
    folder.look()
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
def test_wild_objects_are_put_bad_or_problems(tmp_path: Path, things: list[Any]) -> None:
    path = tmp_path / "wild.yaml"
    path.write_text(yaml.safe_dump({"kind": "List", "items": things}))
    folder = Folder(tmp_path)
    folder.look()
    for key, raw in folder.objects.items():
        change = read(BY_NAME[key.kind], raw)
        told = change.object.metadata.key if isinstance(change, Put) else change.key
        assert told == key.key
