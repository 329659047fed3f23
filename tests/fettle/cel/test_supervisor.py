"""The worker ends and is started again: open questions are asked again, and what ends it each time
is given up for a while."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from fettle.cel.runtime.engine import SelectorEngine
from fettle.cel.runtime.memory import GIVEN_UP_S, STRIKES
from fettle.cel.runtime.protocol import OutcomeKind
from fettle.cel.runtime.supervisor import Worker
from fettle.model import WorkerError
from tests.fettle.cel.devices import DRIVER, GPU, MODEL, device
from tests.fettle.cel.engines import SOUND, A, decided, engine, fleet, worker

DEADLY = "deadly.example.com"
UUID = f'{A}.uuid != "x"'


def dying(
    where: str, marks: Path, deaths: int = 10**6, *, number: signal.Signals = signal.SIGKILL
) -> tuple[str, ...]:
    """A worker that is killed over its first questions of a kind, counted over all processes; over
    rows, only over those of devices of the deadly driver."""
    return worker(f"""
        import os, pathlib
        sound = worker.{where}
        def counted(first, *more):
            marks = pathlib.Path({str(marks)!r})
            before = len(marks.read_text()) if marks.exists() else 0
            harmless = more and getattr(more[0], "driver", {DEADLY!r}) != {DEADLY!r}
            if before < {deaths} and not harmless and first != "true":
                marks.write_text("x" * (before + 1))
                os.kill(os.getpid(), {int(number)})
            return sound(first, *more)
        worker.{where} = counted
    """)


async def test_a_new_expression_is_decided_though_the_worker_is_killed_twice_over_it() -> None:
    async with engine() as selectors:
        await selectors.start()
        evaluating = asyncio.create_task(selectors.evaluate([SOUND], fleet(1)))
        for _ in range(2):
            while (pid := selectors.worker_pid) is None:
                await asyncio.sleep(0)
            os.kill(pid, signal.SIGKILL)
            while selectors.worker_pid == pid:
                await asyncio.sleep(0)
        assert await evaluating
        assert selectors.outcome(SOUND, DRIVER, GPU) == (OutcomeKind.MATCH, "")


@pytest.mark.long
@pytest.mark.parametrize("where", ["prepare", "judge"])
async def test_two_deaths_over_the_same_question_do_not_leave_it_undecided(
    where: str, tmp_path: Path
) -> None:
    async with engine(dying(where, tmp_path / "deaths", 2)) as selectors:
        assert await selectors.evaluate([SOUND], [(DEADLY, device(MODEL))])
        outcome = selectors.outcome(SOUND, DEADLY, device(MODEL))
        assert outcome is not None
        assert not outcome.undecided
        quick = asyncio.Event()
        other = device({"model": {"string": "B200"}})
        await selectors.evaluate([SOUND], [(DRIVER, other)], quick)
        assert not quick.is_set()  # nor is it taken for costly after that


@pytest.mark.long
async def test_a_worker_that_ends_before_it_is_ready_counts_against_no_expression(
    tmp_path: Path,
) -> None:
    marks = tmp_path / "starts"
    ailing = worker(f"""
        import os, pathlib
        marks = pathlib.Path({str(marks)!r})
        before = len(marks.read_text()) if marks.exists() else 0
        marks.write_text("x" * (before + 1))
        if before < 4:
            os.kill(os.getpid(), 9)
    """)
    async with engine(ailing) as selectors:
        assert await decided(selectors) == (OutcomeKind.MATCH, "")
        quick = asyncio.Event()
        await selectors.evaluate([SOUND], [(DRIVER, device({"model": {"string": "B"}}))], quick)
        assert not quick.is_set()  # so it is not taken for costly either


@pytest.mark.long
async def test_a_row_that_ends_the_worker_each_time_is_given_up_and_the_others_are_decided(
    tmp_path: Path,
) -> None:
    now = 0.0
    selectors = SelectorEngine(
        command=dying("judge", tmp_path / "deaths"), clock=lambda: now, wait_s=5
    )
    devices = [*fleet(10), (DEADLY, GPU), *fleet(20)]
    try:
        assert not await selectors.evaluate([UUID, SOUND], devices)
        assert all(selectors.outcome(UUID, *each) == (OutcomeKind.MATCH, "") for each in fleet(20))
        outcome = selectors.outcome(UUID, DEADLY, GPU)
        assert outcome is not None
        assert "ended" in outcome.reason
        starts = selectors.worker_starts
        assert starts <= 1 + 2 * 3  # three deaths for each of the two expressions
        await selectors.evaluate([UUID, SOUND], devices)
        assert await selectors.nearest([SOUND], [(DEADLY, GPU)]) == ""
        assert selectors.worker_starts == starts
        assert selectors.given_up_until([UUID], now) == GIVEN_UP_S
    finally:
        await selectors.close()


@pytest.mark.long
async def test_an_expression_that_ends_the_worker_on_several_devices_is_given_up(
    tmp_path: Path,
) -> None:
    async with engine(dying("judge", tmp_path / "deaths")) as selectors:
        devices = [(DEADLY, of) for _, of in fleet(100)]
        for _ in range(3):
            await selectors.evaluate([UUID], devices)
        outcomes = [selectors.outcome(UUID, *each) for each in devices]
        assert selectors.worker_starts <= 1 + 3 + STRIKES
        assert (await decided(selectors)) == (OutcomeKind.MATCH, "")
    assert all(outcome is not None and outcome.undecided for outcome in outcomes)


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "number"),
    [("prepare", signal.SIGKILL), ("prepare", signal.SIGPROF), ("judge", signal.SIGKILL)],
)
async def test_an_expression_that_was_given_up_is_tried_again_after_a_time(
    where: str, number: signal.Signals, tmp_path: Path
) -> None:
    """Also what could not even be parsed: by then it is known what it reads."""
    now = 0.0
    deaths = 1 if number is signal.SIGPROF else 3
    command = dying(where, tmp_path / "deaths", deaths, number=number)
    selectors = SelectorEngine(command=command, clock=lambda: now)
    others = device({**MODEL, "model": {"string": "B200"}})
    text = f'device.attributes["{DEADLY}"].model == "A100"'
    try:
        assert not await selectors.evaluate([text], [(DEADLY, GPU)])
        outcome = selectors.outcome(text, DEADLY, GPU)
        assert outcome is not None
        assert outcome.undecided
        now += GIVEN_UP_S - 1
        assert not await selectors.evaluate([text], [(DEADLY, GPU)])
        assert selectors.outcome(text, DEADLY, GPU) == outcome
        now += 1
        assert selectors.outcome(text, DEADLY, GPU) is None
        assert await selectors.evaluate([text], [(DEADLY, GPU), (DEADLY, others)])
        assert selectors.outcome(text, DEADLY, GPU) == (OutcomeKind.MATCH, "")
        assert selectors.outcome(text, DEADLY, others) == (OutcomeKind.NO_MATCH, "")
    finally:
        await selectors.close()


async def test_a_row_that_took_too_long_is_tried_again_after_a_time(tmp_path: Path) -> None:
    now = 0.0
    well = tmp_path / "well"
    spinning = worker(f"""
        import pathlib
        sound = worker.judge
        def judge(prepared, row):
            while row.driver == {DEADLY!r} and not pathlib.Path({str(well)!r}).exists():
                pass
            return sound(prepared, row)
        worker.judge = judge
    """)
    selectors = SelectorEngine(command=spinning, clock=lambda: now)
    try:
        assert not await selectors.evaluate(["true"], [(DEADLY, GPU), (DRIVER, GPU)])
        outcome = selectors.outcome("true", DEADLY, GPU)
        assert outcome is not None
        assert outcome.undecided
        well.touch()
        now += GIVEN_UP_S
        assert selectors.outcome("true", DEADLY, GPU) is None
        assert selectors.outcome("true", DRIVER, GPU) == (OutcomeKind.MATCH, "")
        assert await selectors.evaluate(["true"], [(DEADLY, GPU)])
        assert selectors.outcome("true", DEADLY, GPU) == (OutcomeKind.MATCH, "")
    finally:
        await selectors.close()


async def test_a_process_that_answers_nonsense_is_ended_even_if_the_worker_is_closed_meanwhile(
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
