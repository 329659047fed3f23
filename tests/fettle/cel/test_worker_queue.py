"""Turns go to the least priority, then to who came first, and are never lost."""

import asyncio

import pytest

from fettle.cel.runtime.engine import WorkerQueue
from fettle.cel.runtime.memory import Priority


async def run(turns: WorkerQueue, priorities: dict[str, Priority]) -> list[str]:
    """The names in the order of their turns; all came while another had its turn."""
    had: list[str] = []

    async def take(name: str, priority: Priority) -> None:
        async with turns.turn(priority):
            had.append(name)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group, turns.turn((0, 0.0)):
        for name, priority in priorities.items():
            group.create_task(take(name, priority))
        await asyncio.sleep(0)
    return had


async def test_the_least_priority_comes_first_and_among_equals_the_first_come() -> None:
    priorities = {"a": (3, 0.5), "b": (1, 0.0), "c": (3, 0.1), "d": (1, 0.0), "e": (0, 9.0)}
    assert await run(WorkerQueue(), priorities) == ["e", "b", "d", "c", "a"]


async def test_a_turn_that_ends_in_an_error_is_passed_on() -> None:
    turns = WorkerQueue()
    with pytest.raises(RuntimeError):
        async with turns.turn((0, 0.0)):
            raise RuntimeError
    assert await run(turns, {"a": (0, 0.0)}) == ["a"]


@pytest.mark.parametrize("handed_over", [False, True])
async def test_a_waiter_that_gives_up_does_not_block_the_others(handed_over: bool) -> None:
    turns = WorkerQueue()

    async def take() -> None:
        async with turns.turn((0, 0.0)):
            pass

    async with turns.turn((0, 0.0)):
        gone = asyncio.create_task(take())
        await asyncio.sleep(0)
        if not handed_over:
            gone.cancel()
            await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    async with asyncio.timeout(20):
        assert await run(turns, {"a": (0, 0.0)}) == ["a"]
