"""Long work, and what others get to do meanwhile."""

import asyncio
import itertools
from types import SimpleNamespace

import pytest

from fettle.pacing import pausing as slicing
from fettle.pacing.pausing import SLICE_S, in_slices, pause
from tests.fettle.others import turns_during


async def test_others_have_their_turn_while_long_work_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: next(readings) * SLICE_S * 0.4)
    monkeypatch.setattr(slicing, "time", clock)

    def work() -> str:
        for _ in range(100):
            pause()
        return "done"

    done, turns = await turns_during(in_slices(work))
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
            await in_slices(work)
    assert ended == ["cleaned up"]


async def test_errors_of_the_work_are_those_of_the_caller() -> None:
    def work() -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        await in_slices(work)


async def test_several_works_take_turns() -> None:
    ended = asyncio.Event()

    def longer() -> str:
        while not ended.is_set():
            pause()
        return "longer"

    long = asyncio.create_task(in_slices(longer))
    await asyncio.sleep(0)
    assert await in_slices(lambda: "short") == "short"
    assert not long.done()
    ended.set()
    assert await long == "longer"


def test_outside_of_such_work_a_pause_does_nothing() -> None:
    pause()
