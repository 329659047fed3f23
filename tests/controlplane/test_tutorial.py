"""docs/tutorial.md is typed word by word: what it says is seen is seen."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane import building
from tests.controlplane.fettle_process import REPOSITORY

STEP = re.compile(r"```bash\n(.*?)```\n\n```\n(.*?)```", re.DOTALL)
PAGE = (REPOSITORY / "docs" / "tutorial.md").read_text()
BEGINS = "make demo-cluster ARGS=--serve"
PRINTED = ". build/demo-cluster/env"
WITHIN_S = 200


async def test_the_tutorial_can_be_typed_as_it_stands(
    controlplane_binary: Path, tmp_path: Path
) -> None:
    assert building.binary() == controlplane_binary
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl not found: the tutorial is typed with it")
    assert f"```\n{BEGINS}\n```" in PAGE
    assert "-m tests.controlplane.demo $(ARGS)" in (REPOSITORY / "Makefile").read_text()
    cluster = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.controlplane.demo", "--serve"),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
    )
    try:
        assert cluster.stdout is not None
        async with asyncio.timeout(60):
            while (told := await cluster.stdout.readline()).decode().strip() != PRINTED:
                assert told, "the cluster ended"
        steps = STEP.findall(PAGE)
        assert len(steps) == 7
        await typed([commands for commands, _ in steps], tmp_path)
        for number, (_, seen) in enumerate(steps):
            shown = (tmp_path / f"{number}.txt").read_text()
            assert is_shown(seen, shown), f"step {number}: {seen!r} is not what is shown: {shown!r}"
    finally:
        cluster.terminate()
        await asyncio.wait_for(cluster.wait(), 30)


async def typed(steps: list[str], folder: Path) -> None:
    """One shell, as a reader's; it ends what it started in the background."""
    script = ["set -e", "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"]
    for number, commands in enumerate(steps):
        script += [f"exec > {folder}/{number}.txt", commands]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-c", "\n".join(script)),
        cwd=REPOSITORY,
        env=environment,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            _, errors = await shell.communicate()
    except TimeoutError:
        os.killpg(shell.pid, signal.SIGKILL)
        done = sorted(file.name for file in folder.glob("*.txt"))
        pytest.fail(f"not done in {WITHIN_S} s: it came to {done[-1:]}")
    assert shell.returncode == 0, errors.decode()[-2000:]


def is_shown(wanted: str, shown: str) -> bool:
    """Whether this and nothing else was printed, but for blanks, and for what `…` stands for: lines
    where it is alone on its line, else a part of one."""
    return bool(re.fullmatch("".join(map(_pattern, wanted.splitlines())), shown))


def _pattern(line: str) -> str:
    if line.strip() == "…":
        return r"(?:.*\n)*?"
    parts = (r"\s+".join(map(re.escape, part.split())) for part in line.split("…"))
    return r"[ \t]*" + r"[ \t]*.*?[ \t]*".join(parts) + r"[ \t]*\n"


@pytest.mark.parametrize(
    ("wanted", "is_right"),
    [
        ("a  b\nc d\n", True),
        ("a b\n…\n", True),
        ("a …\n…  d\n", True),
        ("…\na b\n…\nc d\n", True),
        ("a b\n", False),
        ("a b …\n", False),
        ("a b\nc\n", False),
        ("…\nc\n", False),
    ],
)
def test_what_a_page_leaves_out_is_marked(wanted: str, is_right: bool) -> None:
    assert is_shown(wanted, "a b\nc   d\n") == is_right
