"""Fettle as users run it: its own process, its own kubeconfig, its own ports. Nothing of Fettle is
imported here; what a test sees of it, it sees over HTTP, in its log, and in the API server."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from tests.controlplane.processes import Process, ProcessFailed, free_port

REPOSITORY = Path(__file__).parents[2]
STOPS_WITHIN_S = 30.0
"""What Kubernetes gives a pod to stop in."""


class FettleProcess:
    """`start` it, then `ready`; a further `start` after `stop` or `kill` uses the same ports."""

    def __init__(
        self,
        folder: Path,
        *,
        roles: Sequence[str] = (),
        kubeconfig: Path | None = None,
        settings: Path | None = None,
        arguments: Sequence[str | Path] = (),
        env: Mapping[str, str] | None = None,
        name: str = "fettle",
        extender_port: int | None = None,
        webhook_port: int | None = None,
    ) -> None:
        self.name = name
        self.folder = folder
        self.extender_port = extender_port or free_port()
        self.webhook_port = webhook_port or free_port()
        self.browse_port = free_port()
        self.extender_url = f"http://127.0.0.1:{self.extender_port}"
        self.browse_url = f"http://127.0.0.1:{self.browse_port}"
        # Not in `folder`: the paths of sockets are short.
        private = tempfile.mkdtemp(prefix="fettle-")
        weakref.finalize(self, shutil.rmtree, private, ignore_errors=True)
        self.browse_socket = Path(private, "browse.sock")
        self.server = f"unix:{self.browse_socket}"
        self.command: list[str | Path] = [sys.executable, "-m", "fettle", "serve", *roles]
        if kubeconfig is not None:
            self.command += ["--kubeconfig", kubeconfig]
        if settings is not None:
            self.command += ["--settings", settings]
        self.command += ["--extender-listen", f"127.0.0.1:{self.extender_port}"]
        self.command += ["--webhook-listen", f"127.0.0.1:{self.webhook_port}"]
        self.command += ["--browse-listen", f"127.0.0.1:{self.browse_port}"]
        self.command += ["--browse-listen", self.server]
        self.command += arguments
        paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._env = {"PYTHONPATH": os.pathsep.join(paths), **(env or {})}
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None, "not started"
        return self._process

    @property
    def serving_pid(self) -> int:
        """Of the process that serves, a child of the one that stays; of two, that of the newer."""
        if not (children := self._children()):
            raise ProcessFailed(f"{self.name} serves no more\n{self.process.tail()}")
        return children[-1]

    def _children(self) -> list[int]:
        pid = self.process.pid
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def start(self) -> None:
        assert self._process is None or not self._process.running, "running already"
        self._process = Process(self.name, self.command, self.folder, env=self._env)

    async def ready(self, timeout_s: float = 60.0) -> float:
        """Seconds until /readyz answered 200."""
        return await self.process.ready(f"{self.browse_url}/readyz", timeout_s=timeout_s)

    async def stop(self) -> float:
        """SIGTERM; the seconds it took. It must end with 0, and in time."""
        began = time.monotonic()
        code = await self.process.terminate(STOPS_WITHIN_S)
        if code != 0:
            raise ProcessFailed(f"exit code {code} after SIGTERM\n{self.process.tail()}")
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """It holds its connections and answers nothing, until `thaw`."""
        self.process.signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.signal_all(signal.SIGCONT)

    async def reload(self) -> None:
        """SIGHUP; returns once the successor serves alone."""
        before = self.serving_pid
        self.process.signal(signal.SIGHUP)
        await self.replaced(before)

    async def replaced(self, before: int, timeout_s: float = 60.0) -> None:
        """Until another process than `before` serves alone, and is ready."""
        deadline = time.monotonic() + timeout_s
        # For a moment after a crash there is none.
        while self._children()[-1:] in ([], [before]) or Path(f"/proc/{before}").exists():
            if time.monotonic() > deadline:
                raise ProcessFailed(f"not replaced within {timeout_s} s\n{self.process.tail()}")
            await asyncio.sleep(0.02)
        await self.ready()

    async def browse(self, path: str, **params: str) -> tuple[int, Any]:
        """GET from the browse listener, by the socket of whoever may see everything: the status,
        and the JSON or else the text."""
        connector = aiohttp.UnixConnector(str(self.browse_socket))
        return await self._ask("GET", "http://localhost" + path, connector, params=params)

    async def browse_as(
        self, token: str, path: str, headers: Mapping[str, str] | None = None, **params: str
    ) -> tuple[int, Any]:
        """GET over TCP, as people do who have a token; "": without one."""
        headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        return await self._ask("GET", self.browse_url + path, headers=headers, params=params)

    async def ask_extender(self, verb: str, body: object) -> tuple[int, Any]:
        """POST to the extender as a scheduler would."""
        return await self._ask("POST", f"{self.extender_url}/{verb}", json=body)

    async def _ask(
        self, method: str, url: str, connector: aiohttp.BaseConnector | None = None, **how: Any
    ) -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, url, **how) as reply,
        ):
            if reply.content_type == "application/json":
                return reply.status, await reply.json()
            return reply.status, await reply.text()

    def resident_mb(self) -> float:
        """Memory it holds now."""
        for line in Path(f"/proc/{self.serving_pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise ProcessFailed(f"{self.name} has no memory: it ended\n{self.process.tail()}")

    def cpu_s(self) -> float:
        """Processor time it has used so far, user and system."""
        fields = Path(f"/proc/{self.serving_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
