"""Where the binary comes from, and what people are told when there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane import building
from tests.controlplane.conftest import REQUIRED
from tests.controlplane.fettle_process import REPOSITORY

ONE_TEST = "tests/controlplane/test_harness.py::test_kubeconfigs_are_those_of_their_users"


@pytest.fixture
def no_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Go that never built the binary."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("FETTLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(REQUIRED, raising=False)


def run_one_test(*options: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, ONE_TEST]
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_cache_is_named_by_the_sources(tmp_path: Path) -> None:
    copy = shutil.copytree(building.SOURCES, tmp_path / "go")
    assert building.sources_hash(copy) == building.sources_hash()
    (copy / "README.md").write_text("not a source")
    assert building.sources_hash(copy) == building.sources_hash()
    with (copy / "main.go").open("a") as source:
        source.write("\n// changed\n")
    assert building.sources_hash(copy) != building.sources_hash()


def test_a_version_without_modules_is_refused_with_those_that_have_some() -> None:
    command = [sys.executable, "-m", "tests.controlplane.building"]
    env = {**os.environ, "FETTLE_KUBERNETES": "v1.2.3"}
    built = subprocess.run(
        command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False
    )
    assert built.returncode == 1
    assert (
        "FETTLE_KUBERNETES=v1.2.3: there are modules for v1.35.4, v1.36.4 and v1.37.1 "
        in built.stderr
    )


@pytest.mark.usefixtures("no_go")
def test_a_binary_built_before_needs_no_go() -> None:
    assert building.binary() is None
    building.cached().parent.mkdir(parents=True)
    building.cached().touch()
    assert building.binary() == building.cached()


@pytest.mark.usefixtures("no_go")
def test_building_without_go_says_so_in_one_sentence() -> None:
    command = [sys.executable, "-m", "tests.controlplane.building"]
    built = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert built.returncode == 1
    assert built.stdout == ""
    assert built.stderr == building.GO_ABSENT + "\n"


@pytest.mark.usefixtures("no_go")
@pytest.mark.parametrize("workers", [0, 1])
def test_without_go_the_suite_is_skipped_and_the_last_lines_say_so(workers: int) -> None:
    run = run_one_test("-n", str(workers))
    assert run.returncode == 0
    assert "1 skipped" in run.stdout
    assert f"control-plane suite SKIPPED: {building.GO_ABSENT}" in run.stdout.splitlines()[-3:]


@pytest.mark.usefixtures("no_go")
def test_without_go_the_suite_fails_where_it_is_required() -> None:
    run = run_one_test(**{REQUIRED: "1"})
    assert run.returncode == 1
    assert f"{REQUIRED}=1, but Go not found" in run.stdout
