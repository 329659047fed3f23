"""The process that stays, with small stand-ins for the processes that serve."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGKILL

import pytest

REPOSITORY = Path(__file__).parents[3]
WITHIN_S = 30
KILLED = "fettle: the serving process was killed by SIGKILL, as when memory runs out"
STAYS = """
import sys
from fettle.serve import staying

staying.FORGOTTEN_AFTER_S = float(sys.argv[2])
staying.stay([sys.executable, sys.argv[1]])
"""
SERVES = """
import signal, socket, sys
from pathlib import Path
from fettle.serve.channel import inherited

channel = inherited()
folder = Path(__file__).parent
behaviour, _, name = (folder / "behaviour").read_text().partition(" ")

def say(text):
    with (folder / "said").open("a") as said:
        said.write(f"{name} {text}\\n")

def end(*_):
    say("ends")
    if name == "stubborn":
        signal.pause()
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
say("succeeds" if channel.succeeds else "starts")
if channel.crashes.number:
    say(f"is told of {channel.crashes.number}, the last {channel.crashes.last}")
if behaviour == "fails":
    channel.send("failed", "it is wrong")
    sys.exit(1)
if behaviour == "crashes":
    sys.exit(3)
if behaviour == "is-killed":
    signal.raise_signal(signal.SIGKILL)
if given := channel.listening.get("extender"):
    say(f"listens on {given[0].getsockname()[1]} too")
else:
    listening = socket.create_server(("127.0.0.1", 0), reuse_port=True)
    say(f"listens on {listening.getsockname()[1]}")
    channel.send("listening", "extender", [listening.fileno()])
say(behaviour)
channel.send(behaviour, "for Godot" if behaviour == "waiting" else "")
if behaviour == "ready" and name.startswith("brief"):
    sys.exit(4)
while (messages := channel.receive()) is not None:
    for word, sentence, _ in messages:
        say(f"hears {word} {sentence}".rstrip())
say("is alone")
"""


class Parent:
    """Runs `serves.py` in a folder; each process does what `behaviour` says when it starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "serves.py").write_text(SERVES)
        self.process: subprocess.Popen[str] | None = None

    def start(self, behaviour: str, forgotten_after_s: float = 600) -> None:
        self.next(behaviour)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", STAYS),
                *(str(self._folder / "serves.py"), str(forgotten_after_s)),
            ],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def next(self, behaviour: str) -> None:
        """What processes do that start from now on."""
        (self._folder / "behaviour").write_text(behaviour)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill_serving(self, number: int = SIGKILL) -> None:
        """To the oldest process that serves."""
        assert self.process is not None
        pid = self.process.pid
        child = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
        os.kill(int(child), number)

    def ended(self) -> tuple[int, str]:
        """The exit code, and what it wrote to standard error."""
        assert self.process is not None
        _, errors = self.process.communicate(timeout=WITHIN_S)
        return self.process.returncode, errors

    def said(self) -> list[str]:
        file = self._folder / "said"
        return file.read_text().splitlines() if file.exists() else []

    def port(self) -> int:
        """On which the first one listens."""
        return next(int(line.split()[-1]) for line in self.said() if "listens on" in line)

    def until_said(self, *lines: str) -> None:
        soon(lambda: set(lines) <= set(self.said()), f"{lines}, but only {self.said()}")


def soon(true: Callable[[], object], what: str) -> None:
    until = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < until, what
        time.sleep(0.02)


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    made = Parent(tmp_path)
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.communicate()


def test_a_predecessor_ends_only_when_its_successor_is_ready(parent: Parent) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    parent.next("ready second")
    parent.signal(signal.SIGHUP)
    parent.until_said("second ready", "first ends")
    said = parent.said()
    assert "second succeeds" in said
    assert said.index("second ready") < said.index("first ends")


def test_a_successor_gets_the_sockets_that_its_predecessor_listens_on(parent: Parent) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    port = parent.port()
    parent.next("ready second")
    parent.signal(signal.SIGHUP)
    parent.until_said("second ready", "first ends", f"second listens on {port} too")
    parent.next("ready third")
    parent.signal(signal.SIGHUP)
    parent.until_said("third ready", "second ends", f"third listens on {port} too")


def test_the_serving_process_can_ask_for_a_successor_itself(parent: Parent) -> None:
    parent.start("reload first")
    parent.until_said("first reload")
    parent.next("ready second")
    parent.until_said("first hears starting")


def test_a_successor_that_fails_leaves_the_old_one_and_tells_it_why(parent: Parent) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    parent.next("fails second")
    parent.signal(signal.SIGHUP)
    parent.until_said("first hears starting", "first hears failed it is wrong")
    assert "first ends" not in parent.said()


def test_a_successor_that_crashes_is_told_of_by_its_code(parent: Parent) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    parent.next("crashes second")
    parent.signal(signal.SIGHUP)
    parent.until_said("first hears failed the new process ended with exit code 3")


def test_what_a_successor_waits_for_is_known_and_a_newer_one_takes_its_place(
    parent: Parent,
) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    parent.next("waiting second")
    parent.signal(signal.SIGHUP)
    parent.until_said("first hears starting for Godot")
    parent.next("ready third")
    parent.signal(signal.SIGHUP)
    parent.until_said("third ready", "second ends", "first ends")


def test_being_asked_to_stop_it_passes_that_on_and_ends_with_0(parent: Parent) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    parent.next("waiting second")
    parent.signal(signal.SIGHUP)
    parent.until_said("first hears starting for Godot")
    parent.signal(signal.SIGTERM)
    assert parent.ended() == (0, "")
    assert {"first ends", "second ends"} <= set(parent.said())


def test_it_ends_with_the_code_of_a_serving_process_that_crashes(parent: Parent) -> None:
    parent.start("crashes first")
    assert parent.ended() == (3, "")


def test_one_that_is_killed_before_any_was_ready_ends_it_as_a_shell_would(parent: Parent) -> None:
    parent.start("waiting first")
    parent.until_said("first waiting")
    parent.kill_serving()
    assert parent.ended() == (128 + signal.SIGKILL, f"{KILLED}\n")


def test_one_that_crashes_is_started_again_at_once_on_the_same_sockets_and_told_why(
    parent: Parent,
) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    port = parent.port()
    parent.next("ready second")
    parent.kill_serving()
    parent.until_said(
        "second starts",
        "second is told of 1, the last was killed by SIGKILL, as when memory runs out",
        f"second listens on {port} too",
        "second ready",
    )
    parent.signal(signal.SIGTERM)
    assert parent.ended() == (0, f"{KILLED}; it is started again (1 of 3)\n")


def test_one_that_is_killed_as_it_starts_again_is_started_once_more(parent: Parent) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    parent.next("is-killed second")
    parent.kill_serving()
    code, errors = parent.ended()
    assert code == 128 + signal.SIGKILL
    assert parent.said().count("second starts") == 3
    assert errors.splitlines()[-1] == KILLED


def test_while_it_is_started_again_callers_wait_and_are_not_refused(parent: Parent) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    port = parent.port()
    parent.next("waiting second")
    parent.kill_serving()
    parent.until_said("second waiting")
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S):
        pass


def test_where_another_process_listens_too_no_caller_waits_for_the_one_that_starts_again(
    parent: Parent,
) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    port = parent.port()
    with socket.create_server(("127.0.0.1", port), reuse_port=True) as other:
        parent.next("waiting second")
        parent.kill_serving()
        parent.until_said("second waiting")
        assert f"second listens on {port} too" not in parent.said()
        other.settimeout(WITHIN_S)
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)):
                other.accept()[0].close()


def test_a_successor_is_told_of_crashes_too(parent: Parent) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    parent.next("ready second")
    parent.kill_serving()
    parent.until_said("second ready")
    parent.next("ready third")
    parent.signal(signal.SIGHUP)
    parent.until_said("third is told of 1, the last was killed by SIGKILL, as when memory runs out")


@pytest.mark.long
def test_one_that_goes_on_crashing_is_started_again_three_times(parent: Parent) -> None:
    parent.start("ready brief")
    code, errors = parent.ended()
    assert code == 4
    assert parent.said().count("brief starts") == 4
    assert errors.splitlines() == [
        f"fettle: the serving process ended with exit code 4; it is started again ({n} of 3)"
        for n in (1, 2, 3)
    ]


@pytest.mark.long
def test_crashes_of_processes_that_served_for_long_are_forgotten(parent: Parent) -> None:
    parent.start("ready brief", forgotten_after_s=0)
    soon(lambda: parent.said().count("brief starts") > 8, "it is started again and again")
    assert parent.process is not None
    assert parent.process.poll() is None


def test_one_that_says_why_it_ends_is_not_started_again(parent: Parent) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    parent.next("fails second")
    parent.kill_serving()
    code, errors = parent.ended()
    assert code == 1
    assert errors.splitlines()[0] == f"{KILLED}; it is started again (1 of 3)"
    assert errors.splitlines()[-1].endswith("FettleError: it is wrong")
    assert parent.said().count("second starts") == 1


def test_one_that_ends_in_order_ends_it_too(parent: Parent) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    parent.kill_serving(signal.SIGTERM)
    assert parent.ended() == (0, "")


def test_one_that_crashes_as_it_is_asked_to_end_is_not_started_again(parent: Parent) -> None:
    parent.start("ready stubborn")
    parent.until_said("stubborn ready")
    parent.signal(signal.SIGTERM)
    parent.until_said("stubborn ends")
    parent.kill_serving()
    assert parent.ended() == (128 + signal.SIGKILL, f"{KILLED}\n")
    assert parent.said().count("stubborn starts") == 1


def test_a_successor_in_start_takes_the_place_of_one_that_crashes(parent: Parent) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    port = parent.port()
    parent.next("waiting second")
    parent.signal(signal.SIGHUP)
    parent.until_said("first hears starting for Godot", f"second listens on {port} too")
    parent.next("ready third")
    parent.kill_serving()
    time.sleep(0.5)
    assert not [line for line in parent.said() if line.startswith("third")]
    parent.signal(signal.SIGTERM)
    assert parent.ended() == (0, f"{KILLED}; its successor takes its place\n")
    assert "second ends" in parent.said()


def test_a_successor_that_is_killed_is_told_of_by_the_signal(parent: Parent) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    parent.next("is-killed second")
    parent.signal(signal.SIGHUP)
    parent.until_said(
        "first hears failed the new process was killed by SIGKILL, as when memory runs out"
    )


def test_the_serving_process_notices_when_it_is_left_alone(parent: Parent) -> None:
    parent.start("ready first")
    parent.until_said("first ready")
    parent.signal(signal.SIGKILL)
    parent.until_said("first is alone")
