"""A Fettle as users start it goes on answering the scheduler while others write what they can."""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

import aiohttp
import pytest

from fettle.api import kinds
from fettle.api.meta import rfc3339_at
from tests.controlplane.processes import free_port
from tests.fettle.serve.runtimes import until_open
from tests.hostile.objects import MEGABYTE
from tests.hostile.texts import repeated
from tests.test_documents import ROOT

SNAPSHOT = ROOT / "fettle/cli/demo/snapshot"
ANSWERED_WITHIN_S = 1.0
"""kube-scheduler gives up after 2 s. Before texts were cut, an answer took 8 s and more."""
QUESTION = {
    "Pod": {
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    },
    "NodeNames": ["hgx-01"],
}


class Served:
    """An extender on a copy of the demo's snapshot."""

    def __init__(self, folder: Path, port: int, session: aiohttp.ClientSession) -> None:
        self._folder = folder
        self._url = f"http://127.0.0.1:{port}/filter"
        self._session = session

    def write(self, *objects: dict[str, Any]) -> None:
        """Whole at once, as the API server stores an object."""
        half = self._folder / ".half"
        half.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        half.rename(self._folder / "written.json")

    async def ask(self) -> tuple[float, list[str]]:
        """How long the answer took, and the nodes that fit."""
        began = time.monotonic()
        async with self._session.post(self._url, json=QUESTION) as response:
            answer = await response.json(content_type=None)
        return time.monotonic() - began, answer["NodeNames"]


@contextlib.asynccontextmanager
async def serving(
    folder: Path, stderr: int | IO[bytes] = asyncio.subprocess.DEVNULL
) -> AsyncIterator[Served]:
    shutil.copytree(SNAPSHOT, folder / "snapshot")
    (folder / "settings.yaml").write_text("mode: enforce\n")
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fettle", "serve", "extender"),
        *("--snapshot", str(folder / "snapshot"), "--settings", str(folder / "settings.yaml")),
        *("--extender-listen", f"127.0.0.1:{port}", "--browse-listen", f"127.0.0.1:{free_port()}"),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=stderr,
    )
    timeout = aiohttp.ClientTimeout(total=60)
    try:
        async with asyncio.timeout(60):
            await until_open(port)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            yield Served(folder / "snapshot", port, session)
    finally:
        process.terminate()
        await process.wait()


def event(message: str, **about: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "evil"},
        "involvedObject": {"namespace": "evil", **about},
        "reason": "XIsNotHealthy" if about["kind"] == "Node" else kinds.PREPARE_FAILED,
        "message": message,
        "lastTimestamp": rfc3339_at(time.time()),
    }


WAITING = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "b", "namespace": "evil", "uid": "b"},
    "spec": {
        "nodeName": "dra-01",
        "containers": [{"name": "c", "resources": {"claims": [{"name": "g"}]}}],
        "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "one-gpu"}],
    },
    "status": {
        "phase": "Pending",
        "conditions": [{"type": "PodReadyToStartContainers", "status": "False"}],
    },
}


@pytest.mark.long
async def test_a_log_that_cannot_be_written_keeps_nobody_from_an_answer(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        async with serving(tmp_path, stderr=full) as served:
            assert (await served.ask())[1] == ["hgx-01"]


@pytest.mark.long
@pytest.mark.parametrize("size", [20_000, MEGABYTE])
@pytest.mark.parametrize(
    ("about", "piece"),
    [
        ({"kind": "Node", "name": "hgx-01"}, "x"),
        ({"kind": "Node", "name": "hgx-01"}, "1%,,"),
        ({"kind": "Node", "name": "hgx-01"}, "NVRM: Xid (PCI:0000:3b:00): 79, "),
        ({"kind": "Pod", "name": "b"}, "/dev/nvidia"),
        ({"kind": "Pod", "name": "b"}, "Claim "),
    ],
    ids=["node", "xids", "driver's log", "device files", "claims"],
)
async def test_an_event_of_a_tenant_keeps_no_scheduler_waiting(
    tmp_path: Path, about: dict[str, str], piece: str, size: int
) -> None:
    async with serving(tmp_path) as served:
        assert (await served.ask())[1] == ["hgx-01"]
        bomb = event("xids " + repeated(piece, size), **about)
        served.write(*([WAITING] if about["kind"] == "Pod" else []), bomb)
        ends = time.monotonic() + 2.0  # a changed file is seen within 0.2 s
        while time.monotonic() < ends:
            took, fit = await served.ask()
            assert fit == ["hgx-01"]
            assert took < ANSWERED_WITHIN_S
            await asyncio.sleep(0.01)
