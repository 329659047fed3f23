"""Where Helm comes from, and what people are told when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane import building
from tests.controlplane.fettle_process import REPOSITORY
from tests.deploy import charting
from tests.deploy.conftest import REQUIRED

ONE_TEST = "tests/deploy/test_chart.py::test_a_rule_may_be_off_without_quotes"


@pytest.fixture
def no_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Go that never built Helm."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("FETTLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(REQUIRED, raising=False)


def run(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=REPOSITORY,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.long
@pytest.mark.usefixtures("no_go")
def test_without_go_the_tests_of_the_chart_are_skipped_and_the_last_lines_say_so() -> None:
    tests = run("pytest", "-p", "no:cacheprovider", ONE_TEST)
    assert tests.returncode == 0
    assert charting.SKIPPED in tests.stdout.splitlines()[-3:]


@pytest.mark.long
@pytest.mark.usefixtures("no_go")
def test_without_go_they_fail_where_they_are_required() -> None:
    tests = run("pytest", "-p", "no:cacheprovider", ONE_TEST, **{REQUIRED: "1"})
    assert tests.returncode == 1
    assert f"{REQUIRED}=1, but {charting.SKIPPED}" in tests.stdout


@pytest.mark.usefixtures("no_go")
def test_a_helm_built_before_needs_no_go() -> None:
    assert charting.binary() is None
    charting.cached().parent.mkdir(parents=True)
    charting.cached().touch()
    assert charting.binary() == charting.cached()


@pytest.mark.usefixtures("no_go")
def test_building_helm_without_go_says_so_in_one_sentence() -> None:
    built = run("tests.deploy.charting")
    assert (built.returncode, built.stdout) == (1, "")
    assert built.stderr == building.GO_ABSENT + "\n"
