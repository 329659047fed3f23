"""Child processes that cannot outlive the tests: each is started by its own handle, writes to its
own log file, and is killed by the kernel when the thread that started it dies. Start them from
the main thread, since a worker thread that ends would take them along. Ports are drawn from below
the range that the kernel gives to outgoing connections, so that a restarted server finds its port
free."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class ProcessFailed(AssertionError):
    """A process ended, or did not get ready; the message carries the end of its log."""


_given: set[int] = set()
_random = random.SystemRandom()  # property tests seed the shared one
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def free_port() -> int:
    """One that nobody has, and that was not given before: it may be listened on later only. Tests
    that run beside these in other workers are given others."""
    while True:
        port = _random.randrange(20000 + _WORKER, 32000, _WORKERS)
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port


class Process:
    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        folder.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **(env or {})},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number when a signal ended it."""
        return self._child.poll()

    @property
    def running(self) -> bool:
        return self.exit_code is None

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            self._child.send_signal(number)

    def signal_all(self, number: int) -> None:
        """To the processes that it started, too."""
        if self.running:
            os.killpg(self.pid, number)

    async def ended(self, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        while (code := self.exit_code) is None:
            if time.monotonic() > deadline:
                raise ProcessFailed(f"{self.name} still runs after {timeout_s} s\n{self.tail()}")
            await asyncio.sleep(0.01)
        return code

    async def terminate(self, timeout_s: float = 10.0) -> int:
        """SIGTERM, then the exit code; killed, and an error, when it does not end in time."""
        self.signal(signal.SIGTERM)
        try:
            return await self.ended(timeout_s)
        finally:
            self.kill()

    def kill(self) -> None:
        self.signal_all(signal.SIGKILL)
        self._child.wait()

    async def ready(
        self, url: str, *, tls: ssl.SSLContext | None = None, timeout_s: float = 60.0
    ) -> float:
        """Seconds until a GET of the URL answered 200."""
        started = time.monotonic()
        last = "no answer yet"
        connector = aiohttp.TCPConnector(ssl=tls if tls is not None else True)
        async with aiohttp.ClientSession(connector=connector) as session:
            while (waited := time.monotonic() - started) < timeout_s:
                if not self.running:
                    raise ProcessFailed(f"{self.name} ended with {self.exit_code}\n{self.tail()}")
                try:
                    async with session.get(url, timeout=aiohttp.ClientTimeout(2)) as response:
                        if response.status == 200:
                            return waited
                        last = f"{response.status} {(await response.text())[-1500:]}"
                except (aiohttp.ClientError, TimeoutError) as error:
                    last = repr(error)
                await asyncio.sleep(0.02)
        raise ProcessFailed(
            f"{self.name} not ready at {url} after {timeout_s} s, last: {last}\n{self.tail()}"
        )

    def tail(self, lines: int = 40) -> str:
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join([f"--- last lines of {self.log}", *(line[:500] for line in text[-lines:])])
