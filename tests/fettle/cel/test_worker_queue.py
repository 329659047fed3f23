"""Turns go to the least order, then to who came first, and are never lost."""

import asyncio

import pytest

from fettle.cel.runtime.engine import WorkerQueue
from fettle.cel.runtime.memory import Order


async def run(turns: WorkerQueue, orders: dict[str, Order]) -> list[str]:
    """Names in the order of their turns, all having come while somebody else had one."""
    had: list[str] = []

    async def take(name: str, order: Order) -> None:
        async with turns.turn(order):
            had.append(name)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group, turns.turn((0, 0.0)):
        for name, order in orders.items():
            group.create_task(take(name, order))
        await asyncio.sleep(0)
    return had


async def test_the_least_order_comes_first_and_among_equals_the_first_come() -> None:
    orders = {"a": (3, 0.5), "b": (1, 0.0), "c": (3, 0.1), "d": (1, 0.0), "e": (0, 9.0)}
    assert await run(WorkerQueue(), orders) == ["e", "b", "d", "c", "a"]


async def test_a_turn_that_fails_is_passed_on() -> None:
    turns = WorkerQueue()
    with pytest.raises(RuntimeError):
        async with turns.turn((0, 0.0)):
            raise RuntimeError
    assert await run(turns, {"a": (0, 0.0)}) == ["a"]


@pytest.mark.parametrize("handed_over", [False, True])
async def test_who_stops_waiting_keeps_nobody_from_theirs(handed_over: bool) -> None:
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
