"""Pods that a scheduler places without calling the extender show in `/readyz` and a metric."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from fettle.config import Settings
from fettle.serve.serving import Runtime
from tests.controlplane.processes import free_port
from tests.fettle.client.fake_api import OPERATOR, FakeApi
from tests.fettle.serve.runtimes import serve_options

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.12gb"


def pod(name: str, resource: str, node: str = "") -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {resource: "1"}}}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    return {"metadata": {"name": name, "namespace": "ml", "uid": name}, "spec": spec}


async def test_a_pod_that_a_scheduler_places_without_asking_shows_in_readyz_and_a_metric(
    api: FakeApi, tmp_path: Path
) -> None:
    extender, browse = free_port(), free_port()
    options = serve_options(api.kubeconfig(tmp_path), "extender", extender=extender, browse=browse)
    runtime = Runtime(options, Settings())
    try:
        await runtime.open()
        async with aiohttp.ClientSession(headers=OPERATOR) as client:

            async def until(said: str) -> str:
                async with asyncio.timeout(20):
                    while True:
                        url = f"http://127.0.0.1:{browse}/readyz?verbose"
                        async with client.get(url) as reply:
                            if said in (text := await reply.text()):
                                return text
                        await asyncio.sleep(0.02)

            await until("ok\n")
            asked = {"Pod": pod("asked", GPU), "NodeNames": ["n1"]}
            await (await client.post(f"http://127.0.0.1:{extender}/filter", json=asked)).read()
            api.put("pods", pod("mig", MIG))
            api.put("pods", pod("mig", MIG, "n1"))
            text = await until(MIG)
            async with client.get(f"http://127.0.0.1:{browse}/metrics") as reply:
                metrics = await reply.text()
    finally:
        await runtime.close()
    (line,) = [line for line in text.splitlines() if MIG in line]
    assert "managedResources" in line
    assert "ml/mig" in line
    sample = f'fettle_overlooked_resources{{resource="{MIG}",scheduler="default-scheduler"}} 1.0'
    assert sample in metrics.splitlines()
