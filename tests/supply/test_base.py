"""`make base` names the base image by what its tag means today."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.supply.runtime import REPOSITORY

DIGEST = f"sha256:{'0' * 64}"
TAG = "python:3.11-slim-bookworm"


def make_base(folder: Path, docker: str) -> subprocess.CompletedProcess[str]:
    """With this script in the place of docker."""
    for name in ("Makefile", "Dockerfile"):
        if not (folder / name).exists():
            shutil.copy(REPOSITORY / name, folder)
    program = folder / "bin" / "docker"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{docker}\n")
    program.chmod(0o755)
    env = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["make", "base"], cwd=folder, env=env, text=True, capture_output=True, timeout=60
    )


def test_the_digest_is_written_beside_the_tag_and_replaced_by_the_next(tmp_path: Path) -> None:
    for digest in (f"sha256:{'1' * 64}", DIGEST):
        assert make_base(tmp_path, f'test "$4" = {TAG} && echo {digest}').returncode == 0
    written = (tmp_path / "Dockerfile").read_text()
    assert [line for line in written.splitlines() if line.startswith(("ARG", "FROM"))] == [
        f"ARG BASE={TAG}@{DIGEST}",
        "FROM ${BASE} AS build",
        "FROM ${BASE}",
    ]


def test_without_a_registry_nothing_is_written(tmp_path: Path) -> None:
    assert make_base(tmp_path, "echo 'no network' >&2; exit 1").returncode != 0
    assert (tmp_path / "Dockerfile").read_text() == (REPOSITORY / "Dockerfile").read_text()
