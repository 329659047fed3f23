"""`make demo-cluster`: the demo's story on a real etcd, kube-apiserver and kube-scheduler.

The same pods are scheduled twice, first as Kubernetes does it by itself, then with Fettle
registered by the files of `deploy/`; a fault then clears, and the waiting pod is bound.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fettle.cli.demo.served import ended_by_signals
from tests.controlplane import building, objects, serving_demo, shipped, waiting
from tests.controlplane.api import Api
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import register_extender, register_webhooks
from tests.controlplane.kubelet import Kubelet

LOST = [objects.taint("gpu.nvidia.com/xid", "None", "79")]
ASKS = {
    "training": {"gpus": 8},
    "inference": {"gpus": 1},
    "scavenger": {"gpus": 1},
    "training-dra": {"templates": {"gpu": "one-gpu"}},
}
OUT = Console(highlight=False, width=100)


async def main() -> int:
    binary = building.binary()
    if binary is None:
        OUT.print(f"make demo-cluster needs Go: {building.GO_ABSENT}")
        return 1
    with tempfile.TemporaryDirectory(prefix="fettle-demo-cluster-") as folder:
        async with ControlPlane(binary, Path(folder)) as plane:
            return await tell(plane)


async def tell(plane: ControlPlane) -> int:
    api = plane.tester
    kubelet = Kubelet(api)
    kubelet.start()
    try:
        OUT.print("[bold]A real Kubernetes 1.37.1 control plane; kubelets are stand-ins.[/]")
        await create_fleet(api, kubelet)
        await plane.start_controller_manager()
        await plane.start_scheduler()
        without = await place(api, "without")
        fettle = await start_fettle(plane)
        try:
            await register_webhooks(api, fettle)
            await register_extender(plane, fettle)
            with_fettle = await place(api, "with")
            show(without, with_fettle)
            healed = await heal(api)
        finally:
            await fettle.stop()
    finally:
        await kubelet.stop()
    steered = with_fettle["training"] == "good" and with_fettle["training-dra"] == "dra-good"
    return 0 if steered and healed else 1


async def create_fleet(api: Api, kubelet: Kubelet) -> None:
    """The faulty nodes are the ones that the scheduler's own scores prefer."""
    await create_node(api, objects.node("dead", 16, cpu="512"))
    await create_node(api, objects.node("worn", 16, cpu="128"))
    await create_node(api, objects.node("good", 16, cpu="32"))
    lost = objects.gpu_devices(4, taints={0: LOST, 1: LOST})
    await create_dra_node(api, "dra-dead", lost, objects.node("dra-dead", cpu="512"))
    await create_dra_node(api, "dra-good", 4, objects.node("dra-good", cpu="32"))
    await api.create(objects.claim_template("one-gpu"))
    await kubelet.set_node_condition(
        "dead", "AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost"
    )
    await kubelet.set_node_condition(
        "worn", "FrequentKubeletRestart", "True", "FrequentKubeletRestart", "6 in 20 minutes"
    )
    OUT.print(
        "dead: a GPU is lost · worn: its kubelet keeps restarting · good: sound\n"
        "dra-dead: its first two GPUs fell off the bus · dra-good: sound\n"
        "The scheduler prefers the dead nodes: they have the most idle processors.\n"
    )


async def place(api: Api, when: str) -> dict[str, str]:
    """Schedule one pod of each ask; where each landed. They are deleted again."""
    landed = {}
    for ask, needs in ASKS.items():
        name = f"{ask}-{when}"
        annotations = {"fettle.dev/policy": ask.partition("-")[0]}
        await api.create(objects.pod(name, cpu="8", annotations=annotations, **needs))  # type: ignore[arg-type]
        landed[ask] = await waiting.bound(api, name)
        await api.delete("pods", name)
        await waiting.gone(api, "pods", name)
    return landed


async def start_fettle(plane: ControlPlane) -> FettleProcess:
    account = await shipped.account_for(plane.tester, ())
    kubeconfig = await plane.kubeconfig_for_service_account(account, shipped.NAMESPACE)
    fettle = FettleProcess(plane.folder, kubeconfig=kubeconfig)
    fettle.start()
    OUT.print(f"Fettle is ready {await fettle.ready():.1f} s after its start.\n")
    return fettle


def show(without: dict[str, str], with_fettle: dict[str, str]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("POD", "WITHOUT FETTLE", "WITH FETTLE"):
        table.add_column(column)
    for ask in ASKS:
        table.add_row(ask, without[ask], with_fettle[ask])
    OUT.print(table)


async def heal(api: Api) -> bool:
    """A pod that only the dead node could take waits, says why, and runs once it is sound."""
    on_dead = {"kubernetes.io/hostname": "dra-dead"}
    annotations = {"fettle.dev/policy": "training"}
    waits = objects.pod(
        "waits", templates={"gpu": "one-gpu"}, node_selector=on_dead, annotations=annotations
    )
    await api.create(waits)
    said = await waiting.refused(api, "waits", saying="fettle:")
    OUT.print(f"\nA pod that must run on dra-dead waits:\n  {said}")
    await api.apply(objects.resource_slice("dra-dead", 4, generation=2))
    began = time.monotonic()
    try:
        await waiting.bound(api, "waits")
    except waiting.NotInTime as error:
        OUT.print(f"[red]{error}[/]")
        return False
    OUT.print(f"The driver publishes sound devices: bound {time.monotonic() - began:.1f} s later.")
    return True


if __name__ == "__main__":
    with ended_by_signals():
        sys.exit(asyncio.run(serving_demo.main() if sys.argv[1:] == ["--serve"] else main()))
