from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fettle.cli.calling import fetch
from fettle.cli.demo import story
from fettle.cli.demo.past import FleetPast
from fettle.cli.demo.served import QUICK, QUICK_HEALTH, Served

DEMO = [sys.executable, "-m", "fettle", "demo"]
UP = "Ctrl-C ends it."
Start = Callable[..., subprocess.Popen[str]]


@pytest.mark.long
def test_the_demo_succeeds_fits_a_hundred_columns_and_has_no_colours_in_a_pipe() -> None:
    told = subprocess.run(DEMO, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stdout + told.stderr
    assert max(len(line) for line in told.stdout.splitlines()) <= 100
    assert "\x1b" not in told.stdout
    for part in (
        "hgx-04   refused    refused    refused",
        "XID 79",
        "FTL010",
        "s after the file changed",
    ):
        assert part in told.stdout
    assert told.stdout.splitlines() == [line.rstrip() for line in told.stdout.splitlines()]


@pytest.mark.long
def test_the_demo_needs_no_cluster_and_no_network() -> None:
    environment = {**os.environ, "KUBECONFIG": "/nowhere", "HTTP_PROXY": "http://127.0.0.1:9"}
    told = subprocess.run(DEMO, capture_output=True, text=True, timeout=120, env=environment)
    assert told.returncode == 0, told.stdout + told.stderr


SLOWLY = """
import signal, sys, time
if "fettle.cel.runtime.worker" in sys.orig_argv:
    at_once = signal.setitimer
    def slowly(*given):
        time.sleep(0.5)
        return at_once(*given)
    signal.setitimer = slowly
"""
"""Each deadline that the process sets for its selectors takes it so long."""


@pytest.mark.long
def test_the_demo_succeeds_on_a_machine_that_evaluates_selectors_slowly(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOWLY)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    told = subprocess.run(DEMO, capture_output=True, text=True, timeout=120, env=environment)
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the demo and waits until it says something; its files are in `tmp_path`."""
    started: list[subprocess.Popen[str]] = []

    def start(
        *arguments: str, until: str = UP, ignored: int | None = None
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*DEMO, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            preexec_fn=lambda: as_a_shell_starts_it(ignored),
        )
        started.append(process)
        assert process.stdout is not None
        assert any(until in line for line in process.stdout), "it ended before"
        return process

    yield start
    for process in started:
        left = descendants(process.pid) if process.poll() is None else []
        process.kill()
        process.communicate()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def as_a_shell_starts_it(ignored: int | None) -> None:
    """A shell without a terminal starts what is in the background with SIGINT ignored, the tests
    too, and all that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if ignored is not None:
        signal.signal(ignored, signal.SIG_IGN)


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [one for child in map(int, children) for one in (child, *descendants(child))]


def are_gone(pids: list[int]) -> bool:
    until = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_demo_that_is_ended_ends_its_server_and_removes_its_files(
    start: Start, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    demo = start("--serve")
    server = descendants(demo.pid)
    assert server
    assert list(tmp_path.iterdir())
    demo.send_signal(number)
    assert demo.wait(60) == code
    assert are_gone(server)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize("said", ["Fettle on a fleet", "1. Device plugin"])
def test_a_demo_that_is_ended_in_its_story_leaves_nothing_behind(
    start: Start, tmp_path: Path, said: str
) -> None:
    demo = start(until=said)
    server = descendants(demo.pid)
    demo.terminate()
    assert demo.wait(60) == 143
    assert are_gone(server)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_a_demo_outlives_the_terminal_that_it_was_detached_from(start: Start) -> None:
    demo = start("--serve", ignored=signal.SIGHUP)
    demo.send_signal(signal.SIGHUP)
    demo.terminate()  # the kernel tells it after the other: had that ended it, it would be 129
    assert demo.wait(60) == 143


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child")
def test_the_server_of_a_demo_that_is_killed_ends_too(start: Start) -> None:
    demo = start("--serve")
    server = descendants(demo.pid)
    demo.kill()
    assert are_gone(server)


def test_a_server_whose_demo_ended_before_it_began_ends_at_once(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    serve = ("serve", "--snapshot", str(tmp_path), "--browse-listen", "127.0.0.1:0")
    command = [sys.executable, "-m", "fettle.cli.demo.served", str(gone.pid), *serve]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert told.returncode == 1
    assert told.stderr == "fettle: the demo has ended\n"


@pytest.mark.long
def test_the_demo_that_serves_says_the_url_of_its_page_first_and_what_can_be_typed_as_it_stands(
    start: Start,
) -> None:
    demo = start("--serve", until="for your browser")
    assert demo.stdout is not None
    url = demo.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:")
    said: list[str] = []
    for line in demo.stdout:
        if UP in line:
            break
        said.append(line.strip())
    hints = [line for line in said if "--server" in line]
    assert len(hints) == 2
    for hint in hints:
        assert f"'{url}'" in hint
        told = subprocess.run(["sh", "-c", hint], capture_output=True, text=True, timeout=60)
        assert told.returncode == 0, told.stderr


@pytest.mark.long
def test_faults_of_the_living_fleet_come_spread_and_are_mended(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    story.write(snapshot, datetime.now(UTC))
    with Served(snapshot, tmp_path / "log", QUICK) as served:
        first = ill(served)
        assert not first & {act.node for act in story.ACTS}
        faults = [number for number, act in enumerate(story.ACTS) if act.type]
        for number in faults:
            story.play(snapshot, number, datetime.now(UTC))
        assert soon(lambda: ill(served) == first | {act.node for act in story.ACTS})
        for number in set(range(len(story.ACTS))) - set(faults):
            story.play(snapshot, number, datetime.now(UTC))
        assert soon(lambda: ill(served) == first)


@pytest.mark.long
def test_the_devices_of_the_demo_that_serves_have_a_past_and_their_future_is_remembered(
    tmp_path: Path,
) -> None:
    snapshot, now = tmp_path / "snapshot", datetime.now(UTC)
    snapshot.mkdir()
    story.write(snapshot, now)
    past = FleetPast(snapshot, now, QUICK_HEALTH)
    past.write()
    with Served(snapshot, tmp_path / "log", QUICK) as served:

        def told(**about: str) -> tuple[int, set[str]]:
            found = fetch(served.browse, "/explain", about)
            assert all(now.timestamp() - 28 * 86_400 < e["start"] for e in found["episodes"])
            return len(found["episodes"]), {one["what"] for one in found["happened"]}

        fault, reboot, repair = "a grave fault was over", "the node was rebooted", "the node was"
        corrupt = "hgx-05/nvidia.com/gpu/GPU-05d9a1c0-77a3-4f0b-8a67-5c1f4e0a9b44"
        mended = "hgx-01/nvidia.com/gpu/GPU-01c3f2aa-9e1d-4a54-b1d4-6a50c1d2e9f7"
        assert told(device=corrupt) == (3, {fault, reboot})
        assert told(device="gpu.nvidia.com/dra-02/gpu-0") == (3, {fault, reboot})
        assert {f"{repair} remediated"} == told(device=mended)[1]
        (held,) = fetch(served.browse, "/explain", {"node": "dra-04"})["holds"]
        assert datetime.fromisoformat(held["since"]) < now - timedelta(days=1)
        assert told(node="dra-01") == (1, {reboot})
        assert told(node="hgx-04")[0] >= 2
        number = next(n for n, act in enumerate(story.ACTS) if act.node == "dra-01")
        for after_s in (0, 60):
            then = now + timedelta(seconds=after_s)
            story.play(snapshot, number + (2 if after_s else 0), then)
            past.follow(then)
        past.write()
        assert soon(lambda: told(node="dra-01")[0] == 2)


@pytest.mark.long
def test_the_pods_of_the_demo_that_serves_run_where_they_may_and_one_waits_for_health(
    tmp_path: Path,
) -> None:
    snapshot, now = tmp_path / "snapshot", datetime.now(UTC)
    snapshot.mkdir()
    story.write(snapshot, now)
    with Served(snapshot, tmp_path / "log", QUICK) as served:
        story.lose_gpu(snapshot, story.BREAKING, now)
        assert soon(lambda: story.BREAKING in ill(served))
        roomy = story.schedule(served, snapshot, now)
        assert soon(lambda: fetch(served.browse, "/pods")["total"] == 5)
        pods = {one["pod"]: one["node"] for one in fetch(served.browse, "/pods")["pods"]}
        assert (pods["ml/train-0"], pods["ml/training-plugin"]) == ("hgx-02", "hgx-07")
        (waiting,) = fetch(served.browse, "/headline")["waiting"]
        assert (waiting["pod"], waiting["refused"]) == ("ml/llm-0", True)
        assert "hgx-02" not in roomy


def ill(served: Served) -> set[str]:
    """Nodes with a device that is not Healthy."""
    told = fetch(served.browse, "/fleet")
    return {
        node[0]
        for node in told["nodes"]
        if node[3] not in "H" or any(letter in "DdUu" for kind in node[-1] for letter in kind[3])
    }


def soon(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True
