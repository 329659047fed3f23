"""The do-nothing extender in its own process: the yardstick of benchmarks, and the proof in tests
that the scheduler asks an extender at all."""

from __future__ import annotations

from pathlib import Path

import aiohttp

from tests.controlplane.api import Object
from tests.controlplane.processes import Process, free_port


class EchoExtender:
    def __init__(self, binary: Path, folder: Path, port: int | None = None) -> None:
        port = port or free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [str(binary), "echo-extender", f"--listen=127.0.0.1:{port}"]
        self.process = Process("echo-extender", command, folder)

    async def ready(self) -> None:
        await self.process.ready(f"{self.url}/calls")

    async def calls(self) -> dict[str, int]:
        """How often it was asked: filter, prioritize, preempt; and of the first two, how often
        withNodes (whole objects) and withNames."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/calls") as reply:
            counts: dict[str, int] = await reply.json()
            return counts

    def entry(self, **more: object) -> Object:
        """Its entry in `extenders:` of a KubeSchedulerConfiguration."""
        return {
            "urlPrefix": self.url,
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "preemptVerb": "preempt",
            "weight": 1,
            "nodeCacheCapable": True,
            "ignorable": False,
            **more,
        }

    def stop(self) -> None:
        self.process.kill()
