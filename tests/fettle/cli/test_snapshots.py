"""`fettle snapshot`: what is in it, what is not, and that it can be read back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fettle.cli.calling import fetch
from fettle.cli.commands import main
from fettle.cli.snapshots import hashed
from fettle.cluster.feeds import SnapshotFolder
from tests.controlplane import objects
from tests.fettle.cli.linted import logging_restored
from tests.fettle.cli.test_direct import Reader, put_fleet, served, timeless
from tests.fettle.client.fake_api import FakeApi, fake_api

SECRET = "hunter2"
"""In every place of a Pod and a Node where people put secrets."""
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    monkeypatch.delenv("FETTLE_SERVER", raising=False)
    with logging_restored():
        async with fake_api() as api:
            yield api


def put_secrets(api: FakeApi) -> None:
    node = objects.node("secretive", 8)
    node["metadata"]["annotations"] = {
        "k3s.io/node-args": f'["--token={SECRET}"]',
        "fettle.dev/hold": "reason=riser",
    }
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "192.0.2.77"}]
    api.put("nodes", node)
    container = {
        "name": "main",
        "image": f"registry/{SECRET}",
        "command": ["train", f"--password={SECRET}"],
        "args": [SECRET],
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    said = f'failed to create containerd task: exec: "train --password={SECRET}": not found'
    api.put(
        "pods",
        {
            "metadata": {
                "name": "secret-pod",
                "namespace": "ml",
                "uid": "u-secret",
                "annotations": {APPLIED: SECRET, "fettle.dev/policy": "training"},
            },
            "spec": {"nodeName": "secretive", "containers": [container]},
            "status": {
                "phase": "Pending",
                "message": said,
                "containerStatuses": [
                    {"name": "main", "state": {"waiting": {"reason": "Error", "message": said}}}
                ],
            },
        },
    )


def written(folder: Path) -> str:
    return "".join(file.read_text() for file in sorted(folder.iterdir()))


async def test_a_snapshot_has_what_fettle_reads_and_no_secrets_commands_or_addresses(
    api: FakeApi, tmp_path: Path
) -> None:
    reader, folder = Reader(api, tmp_path), tmp_path / "snap"
    put_fleet(api)
    put_secrets(api)
    ended = await reader.run("snapshot", str(folder))
    assert ended.exit_code == 0, ended.output
    text = written(folder)
    assert SECRET not in text
    assert "192.0.2.77" not in text
    assert "NVLink bridge to be replaced" in text
    assert "reason=riser" in text
    assert "secret-pod" in text
    assert "names are as they are" in (folder / "ABOUT.txt").read_text()


@pytest.mark.long
@pytest.mark.parametrize("flags", [(), ("--hash-names",)])
async def test_a_server_of_a_snapshot_tells_what_one_of_the_original_tells(
    api: FakeApi, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    reader, folder = Reader(api, tmp_path), tmp_path / "snap"
    put_fleet(api)
    assert (await reader.run("snapshot", str(folder), *flags)).exit_code == 0
    ours = SnapshotFolder(folder)
    ours.poll()
    assert dict(ours.problems) == {}
    for path in ("/devices", "/pods"):
        async with served(tmp_path) as server:
            had = await asyncio.to_thread(fetch, server, path)
        async with served(tmp_path, folder) as server:
            has = await asyncio.to_thread(fetch, server, path)
        if not flags:
            assert timeless(has) == timeless(had)
        else:
            assert states(has) == states(had)


def states(told: Any) -> list[Any]:
    """Without names."""
    found = [] if not isinstance(told, dict) else [(told.get("state"), told.get("score"))]
    each = told.values() if isinstance(told, dict) else told if isinstance(told, list) else ()
    return sorted((s for one in each for s in states(one)), key=str) + found


async def test_lint_reads_a_snapshot(api: FakeApi, tmp_path: Path) -> None:
    put_fleet(api)
    folder, manifest = tmp_path / "snap", tmp_path / "claim.yaml"
    assert (await Reader(api, tmp_path).run("snapshot", str(folder))).exit_code == 0
    manifest.write_text(CLAIM)
    command = ["lint", str(manifest), "--snapshot", str(folder)]
    ended = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert "does not exist" not in ended.output, ended.output
    assert ended.exit_code == 0


CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: ml}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com}}]}}
"""


async def test_a_snapshot_says_of_which_kinds_there_is_nothing_and_what_was_not_to_be_read(
    api: FakeApi, tmp_path: Path
) -> None:
    api.put("nodes", objects.node("n", 8))
    api.forbidden = {("list", "pods")}
    folder = tmp_path / "snap"
    assert (await Reader(api, tmp_path).run("snapshot", str(folder))).exit_code == 0
    command = ["devices", "--snapshot", str(folder)]
    ended = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert ended.exit_code == 0
    assert ended.stderr.splitlines() == [
        "fettle: the snapshot has no Pod: who uses which device is not seen, nor which pods failed "
        "on one",
    ]


async def test_hashed_names_are_nowhere_and_fit_each_other(api: FakeApi, tmp_path: Path) -> None:
    reader, folder = Reader(api, tmp_path), tmp_path / "snap"
    put_fleet(api)
    assert (await reader.run("snapshot", str(folder), "--hash-names")).exit_code == 0
    text = written(folder)
    for name in ("dra-03", "hgx-05", "serving-0", '"ml"'):
        assert name not in text
    (pod,) = (p for p in items(folder, "pods") if (p["status"].get("phase")) == "Running")
    (claim,) = items(folder, "resourceclaims")
    assert pod["spec"]["nodeName"] in {n["metadata"]["name"] for n in items(folder, "nodes")}
    (given,) = claim["status"]["allocation"]["devices"]["results"]
    assert given["pool"] == pod["spec"]["nodeName"]
    assert given["driver"] == "gpu.nvidia.com"
    assert claim["metadata"]["namespace"] == pod["metadata"]["namespace"]


def items(folder: Path, plural: str) -> list[Any]:
    listed: list[Any] = json.loads((folder / f"{plural}.json").read_text())["items"]
    return listed


def test_a_name_is_hashed_as_a_word_or_a_part_between_dashes_and_not_within_another() -> None:
    node: Any = {
        "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}},
        "status": {"conditions": [{"type": "n1", "message": "n1 is ill, n10 is not (n1); x-n1.y"}]},
    }
    (told,) = hashed({"nodes": [node]}, b"salt")["nodes"]
    name = told["metadata"]["name"]
    assert name != "n1"
    assert told["metadata"]["labels"] == {"kubernetes.io/hostname": name}
    condition = told["status"]["conditions"][0]
    assert condition == {"type": "n1", "message": f"{name} is ill, n10 is not ({name}); x-{name}.y"}
    assert hashed({"nodes": [node]}, b"other")["nodes"][0]["metadata"]["name"] != name


async def test_a_folder_that_is_not_empty_is_left_alone(api: FakeApi, tmp_path: Path) -> None:
    folder = tmp_path / "snap"
    folder.mkdir()
    (folder / "mine").write_text("")
    ended = await Reader(api, tmp_path).run("snapshot", str(folder))
    assert ended.exit_code == 1
    assert "is not empty: name a folder that is new" in ended.output


async def test_what_may_not_be_listed_is_said_and_the_rest_is_written(
    api: FakeApi, tmp_path: Path
) -> None:
    put_fleet(api)
    api.forbidden = {("list", "pods")}
    folder = tmp_path / "snap"
    ended = await Reader(api, tmp_path).run("snapshot", str(folder))
    assert ended.exit_code == 0
    assert "you may not list pods: they are not in it" in ended.stderr
    assert "you may not list pods" in (folder / "ABOUT.txt").read_text()
    assert (folder / "nodes.json").exists()
