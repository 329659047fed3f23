"""The worker's process, whatever it is, is gone once the worker is closed."""

import asyncio
import contextlib
import sys
from pathlib import Path

from fettle.cel.runtime.processes import Worker
from fettle.model import WorkerError


async def test_a_process_that_talks_nonsense_is_ended_though_it_is_closed_meanwhile(
    tmp_path: Path,
) -> None:
    pid = tmp_path / "pid"
    nonsense = f"""
import os, sys
sys.stdout.buffer.write(bytes([0, 0, 0, 1, 0]))
sys.stdout.flush()
open({str(pid)!r}, "w").write(f"{{os.getpid()}}\\n")
sys.stdin.read()
"""
    worker = Worker((sys.executable, "-c", nonsense))
    starting = asyncio.create_task(worker.start())
    while not (pid.exists() and pid.read_text().endswith("\n")):
        await asyncio.sleep(0)
    await asyncio.sleep(0.02)  # it has a moment to end by itself
    await worker.close()
    with contextlib.suppress(WorkerError, asyncio.CancelledError):
        await starting
    assert not Path("/proc", pid.read_text().strip()).exists()
