"""Puts nodes and their devices into the API server as a kubelet and a driver would: a node comes up
without the not-ready taint that admission gives it, which without a kubelet nobody takes off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.objects import device_class, node, resource_slice


async def create_node(api: Api, manifest: Object) -> Object:
    made = await api.create(manifest)
    wanted = manifest.get("spec", {}).get("taints") or None
    return await api.patch("nodes", made["metadata"]["name"], {"spec": {"taints": wanted}})


async def create_gpu_nodes(api: Api, *names: str, gpus: int = 8) -> None:
    """Nodes of a device plugin."""
    await asyncio.gather(*(create_node(api, node(name, gpus)) for name in names))


async def create_dra_node(
    api: Api, name: str, devices: int | Sequence[Object], manifest: Object | None = None
) -> None:
    """A node and its slice of devices, and the DeviceClass if there is none yet."""
    try:
        await api.create(device_class())
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    await create_node(api, manifest or node(name))
    await api.create(resource_slice(name, devices))


async def load(binary: Path, kubeconfig: Path, *flags: str) -> Object:
    """Many nodes, by the Go loader: `load(b, k, "--nodes=5000", "--devices=8", "--slices")`."""
    process = await asyncio.create_subprocess_exec(
        binary,
        "load",
        f"--kubeconfig={kubeconfig}",
        *flags,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"load: {err.decode()[-1000:]}")
    loaded: Object = json.loads(out)
    return loaded
