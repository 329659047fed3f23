"""`make demo-cluster ARGS=--serve`: a real control plane with three GPU nodes, for the tutorial.

It keeps running. Its kube-scheduler has Fettle's entry, and no Fettle runs.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import yaml

from tests.controlplane import building, objects, shipped
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import REPOSITORY
from tests.controlplane.fleet import create_node
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.processes import free_port

FOLDER = REPOSITORY / "build" / "demo-cluster"
NODES = {"gpu-1": "512", "gpu-2": "128", "gpu-3": "32"}
"""By processors: the scheduler prefers the node with the most that are idle."""
SETTINGS = """\
mode: enforce
deviceFailures: {allow: Evict, confirmSeconds: 5}   # a real cluster confirms for minutes
"""


async def main() -> int:
    """Until it is stopped."""
    binary = building.binary()
    if binary is None:
        print(f"make demo-cluster needs Go: {building.GO_ABSENT}")
        return 1
    with tempfile.TemporaryDirectory(prefix="fettle-demo-cluster-") as folder:
        async with ControlPlane(binary, Path(folder)) as plane:
            kubelet = Kubelet(plane.tester)
            kubelet.start()
            try:
                await _prepare(plane)
                print(
                    "Three nodes with 8 GPUs each, and no Fettle. In another terminal:", flush=True
                )
                print(f". {FOLDER.relative_to(REPOSITORY)}/env", flush=True)
                await asyncio.Event().wait()
            finally:
                await kubelet.stop()
    return 0


async def _prepare(plane: ControlPlane) -> None:
    for name, processors in NODES.items():
        await create_node(plane.tester, objects.node(name, 8, cpu=processors))
    await plane.start_controller_manager()
    extender, webhook = free_port(), free_port()
    url = f"http://127.0.0.1:{extender}"
    # The entry that is shipped first: without Fettle, pods are placed all the same.
    await plane.start_scheduler(shipped.scheduler_configuration(url, enforces=False))
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.copy(plane.tester_kubeconfig, FOLDER / "kubeconfig")
    (FOLDER / "settings.yaml").write_text(SETTINGS)
    documents = shipped.webhook_configurations(webhook)
    (FOLDER / "webhooks.yaml").write_text(yaml.safe_dump_all(documents))
    variables = {
        "PATH": f"{REPOSITORY}/.venv/bin:$PATH",
        "KUBECONFIG": FOLDER / "kubeconfig",
        "EXTENDER": f"127.0.0.1:{extender}",
        "WEBHOOK": f"127.0.0.1:{webhook}",
        "BROWSE": f"unix:{FOLDER}/browse.sock",
    }
    text = "".join(f'export {name}="{value}"\n' for name, value in variables.items())
    (FOLDER / "env").write_text(text)
