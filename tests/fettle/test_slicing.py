"""Long work, and what others get to do meanwhile."""

import asyncio
import time

import pytest

from fettle.slicing import SLICE_S, in_slices, pause
from tests.fettle.others import turns_during


def _spin(seconds: float) -> str:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pause()
    return "done"


async def test_others_have_their_turn_while_long_work_goes_on() -> None:
    done, turns = await turns_during(in_slices(lambda: _spin(100 * SLICE_S)))
    assert done == "done"
    assert turns >= 10


async def test_a_deadline_ends_the_work_where_it_is() -> None:
    ended: list[str] = []

    def work() -> None:
        try:
            _spin(60)
        finally:
            ended.append("cleaned up")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await in_slices(work)
    assert ended == ["cleaned up"]


async def test_errors_of_the_work_are_those_of_the_caller() -> None:
    def work() -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        await in_slices(work)


async def test_several_works_take_turns() -> None:
    began = time.perf_counter()
    long = asyncio.create_task(in_slices(lambda: _spin(0.5)))
    assert await in_slices(lambda: _spin(0.001)) == "done"
    assert time.perf_counter() - began < 0.3
    assert not long.done()
    assert await long == "done"


def test_outside_of_such_work_a_pause_does_nothing() -> None:
    pause()
