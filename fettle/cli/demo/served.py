"""The demo's own Fettle in a process of its own: how it starts, is called, and ends.

`python -m fettle.cli.demo.served PARENT …` is that process: `python -m fettle …` that ends with the
process PARENT.
"""

import ctypes
import json
import os
import runpy
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fettle.cli.calling import ask, call_json
from fettle.model import FettleError

READY_WITHIN_S = 30.0
STOPS_WITHIN_S = 5.0
# Long enough that every call is decided, even on a slow or busy machine.
SETTINGS = "extender: {waitSeconds: 10}\n"
QUICK_HEALTH = {"minDwellSeconds": 10, "orphanHalfLifeSeconds": 10, "quietHalfLifeSeconds": 10}
"""What heals, heals while somebody looks on."""
QUICK = f"{SETTINGS}health: {json.dumps(QUICK_HEALTH)}\n"
_PR_SET_PDEATHSIG = 1


class Served:
    """`fettle serve` on a snapshot folder; it runs while the context is entered."""

    def __init__(self, snapshot: Path, log: Path, settings: str = SETTINGS) -> None:
        extender, webhook, browse = _free_ports(3)
        self.extender = f"http://127.0.0.1:{extender}"
        self.webhook = f"http://127.0.0.1:{webhook}"
        self.metrics = f"http://127.0.0.1:{browse}/metrics"
        self._token = secrets.token_urlsafe(12)
        self.browse = f"http://127.0.0.1:{browse}/#{self._token}"
        self._log = log
        self._settings = log.with_suffix(".settings.yaml")
        self._text = settings
        self._command = [
            *(sys.executable, "-m", "fettle.cli.demo.served", str(os.getpid())),
            *("serve", "extender", "webhook"),
            *("--snapshot", str(snapshot), "--settings", str(self._settings)),
            *("--extender-listen", f"127.0.0.1:{extender}"),
            *("--webhook-listen", f"127.0.0.1:{webhook}"),
            *("--browse-listen", f"127.0.0.1:{browse}"),
        ]

    def __enter__(self) -> Self:
        self._settings.write_text(self._text, encoding="utf-8")
        with self._log.open("wb") as log:
            environment = os.environ | {"FETTLE_TOKEN": self._token}
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                self._command, stderr=log, stdout=log, env=environment
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ends_within(self, seconds: float) -> bool:
        """Wait so long at most; whether the process has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def filter(self, pod: dict[str, Any], names: list[str]) -> dict[str, str]:
        """The refused nodes, each with the text that the scheduler would show."""
        reply = call_json(f"{self.extender}/filter", {"Pod": pod, "NodeNames": names})
        if reply["Error"]:
            raise FettleError(f"the extender answers: {reply['Error']}")
        return dict(reply["FailedAndUnresolvableNodes"])

    def prioritize(self, pod: dict[str, Any], names: list[str]) -> dict[str, int]:
        reply = call_json(f"{self.extender}/prioritize", {"Pod": pod, "NodeNames": names})
        return {entry["Host"]: entry["Score"] for entry in reply}

    def validate(self, review: dict[str, Any]) -> dict[str, Any]:
        """The response of the validating webhook."""
        response: dict[str, Any] = call_json(f"{self.webhook}/validate", review)["response"]
        return response

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + READY_WITHIN_S
        last = "no answer"
        while time.monotonic() < until:
            if self._process.poll() is not None:
                said = self._log.read_text(encoding="utf-8", errors="replace").strip()
                raise FettleError(f"fettle serve exited immediately: {said[-2000:]}")
            try:
                ask(self.browse, "/readyz")
            except FettleError as error:
                last = str(error)
            else:
                return
            time.sleep(0.05)
        raise FettleError(f"fettle serve is not ready after {READY_WITHIN_S:g} s: {last}")


def _free_ports(count: int) -> list[int]:
    # All are bound at once: the kernel may return a port again after it is closed.
    with ExitStack() as probes:
        bound = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in bound:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in bound]


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the stack as Ctrl-C does.

    The process then exits with 128 + the signal's number, as shells do. A signal that is ignored,
    as by nohup, stays ignored.
    """
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, _exit) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _serve_for(parent: int) -> None:
    """Be `python -m fettle` until the parent process ends, even if it is killed.

    Only Linux can signal a child when its parent ends, and only if the parent has not ended yet.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("fettle: the demo has ended")
    runpy.run_module("fettle", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve_for(int(sys.argv.pop(1)))
