"""A test that hangs fails in time, says where its tasks are, and the others go on."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_documents import ROOT

HANGING = """
import asyncio
import threading


async def waits_for_a_lock() -> None:
    lock = asyncio.Lock()
    await lock.acquire()
    await lock.acquire()


async def test_a_task_that_waits_for_ever() -> None:
    task = asyncio.create_task(waits_for_a_lock(), name="the-one-that-waits")
    await task


def test_a_thread_that_waits_for_ever() -> None:
    threading.Event().wait()


async def test_that_does_not_hang() -> None:
    await asyncio.sleep(0)
"""


def run(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(
        "from tests.hanging import "
        "pytest_exception_interact, pytest_runtest_protocol, pytest_timeout_set_timer\n"
    )
    (folder / "test_it.py").write_text(test)
    command = (sys.executable, "-m", "pytest", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider")
    return subprocess.run(
        [*command, f"--rootdir={folder}", "--timeout=1", "--timeout-method=signal", *options],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.long
def test_tests_that_hang_fail_with_the_stacks_of_their_tasks(tmp_path: Path) -> None:
    found = run(tmp_path, HANGING)
    assert "2 failed, 1 passed" in found.stdout, found.stdout + found.stderr
    assert "hangs: it is not done after 1 s" in found.stdout
    assert "the-one-that-waits" in found.stdout
    assert "in waits_for_a_lock" in found.stdout


SWALLOWS = """
import asyncio


async def test_it() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except BaseException:
            pass
"""
SEES_NO_SIGNALS = """
import asyncio

import uvloop


def test_it() -> None:
    uvloop.run(asyncio.sleep(1000))
"""


@pytest.mark.long
@pytest.mark.parametrize("test", [SWALLOWS, SEES_NO_SIGNALS], ids=["swallows", "uvloop"])
def test_a_test_that_nothing_ends_ends_with_its_process(test: str, tmp_path: Path) -> None:
    found = run(tmp_path, test)
    assert found.returncode != 0
    assert "Timeout (0:00:0" in found.stderr, found.stdout + found.stderr
