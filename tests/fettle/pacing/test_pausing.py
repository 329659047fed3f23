"""Long work, and what others get to do meanwhile."""

import asyncio
import itertools
import time

import pytest

from fettle.pacing import (
    SLICE_S,
    Superseded,
    pause,
    run_within,
    taking_turns,
    within,
    working_s,
)
from tests.fettle.others import turns_during


async def test_others_have_their_turn_while_long_work_goes_on() -> None:
    def work() -> str:
        for _ in range(100):
            pause()
        return "done"

    with taking_turns(clock=itertools.count(0.0, SLICE_S * 0.4).__next__):
        done, turns = await turns_during(run_within(work))
    assert done == "done"
    assert 10 <= turns <= 100


async def test_a_deadline_ends_the_work_where_it_is() -> None:
    ended: list[str] = []

    def work() -> None:
        try:
            while True:
                pause()
        finally:
            ended.append("cleaned up")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await run_within(work)
    assert ended == ["cleaned up"]


async def test_work_that_takes_longer_than_it_may_is_ended() -> None:
    ended: list[str] = []

    def work() -> None:
        try:
            while True:
                pause()
        finally:
            ended.append("cleaned up")

    with pytest.raises(TimeoutError, match=r"no result within 0\.01 s"):
        await run_within(lambda: within(0.01, work))
    assert ended == ["cleaned up"]


async def test_the_time_that_others_take_does_not_count() -> None:
    """Each turn of another takes longer than the work may."""
    ended = False

    async def other() -> None:
        while not ended:
            time.sleep(0.02)
            await asyncio.sleep(0)

    def work() -> float:
        began = working_s()
        for _ in range(4):
            until = time.perf_counter() + 2 * SLICE_S
            while time.perf_counter() < until:
                pass
            pause()
        return working_s() - began

    task = asyncio.create_task(other())
    began = time.perf_counter()
    assert await run_within(lambda: within(0.02, work)) < 0.02
    assert time.perf_counter() - began > 0.05
    ended = True
    await task


async def test_work_whose_result_nobody_needs_any_more_is_ended() -> None:
    def work() -> None:
        while True:
            pause()

    turns = itertools.count()
    with pytest.raises(Superseded):
        await run_within(work, superseded=lambda: next(turns) == 3)


async def test_errors_of_the_work_are_those_of_the_caller() -> None:
    def work() -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        await run_within(work)


async def test_several_works_take_turns() -> None:
    ended = asyncio.Event()

    def longer() -> str:
        while not ended.is_set():
            pause()
        return "longer"

    long = asyncio.create_task(run_within(longer))
    await asyncio.sleep(0)
    assert await run_within(lambda: "short") == "short"
    assert not long.done()
    ended.set()
    assert await long == "longer"


def test_outside_of_such_work_a_pause_does_nothing() -> None:
    pause()


def endless(number: int = 10**9) -> str:
    for _ in range(number):
        pause()
    return "done"


def test_without_slices_too_work_is_bounded() -> None:
    with taking_turns(clock=itertools.count(0.0, 0.1).__next__):
        assert within(1.0, lambda: endless(8)) == "done"
        with pytest.raises(TimeoutError, match="no result within 1 s"):
            within(1.0, endless)
        assert endless(8) == "done"


@pytest.mark.parametrize(
    ("outer", "inner", "ended"), [(9.0, 1.0, "inner"), (1.0, 9.0, "outer"), (1.0, 1.0, "outer")]
)
def test_of_two_bounds_the_one_that_is_over_first_ends_its_work(
    outer: float, inner: float, ended: str
) -> None:
    """What handles errors on the way, and whoever set the other bound, does not notice."""

    def bounded() -> str:
        try:
            return within(inner, endless)
        except Exception:
            return "inner"

    with taking_turns(clock=itertools.count(0.0, 0.1).__next__):
        try:
            found = within(outer, bounded)
        except TimeoutError:
            found = "outer"
    assert found == ended
