"""Long work on the loop in short slices, between which other requests have their turn.

A coroutine says by `Slices` where one may end. A plain function says `pause` where it goes from one
entry of an object to the next, however deep in its calls, and is run by `in_slices`: so whoever
writes a rule or an injection need not think of time, and a deadline around it holds for objects of
any size. Outside of such work a pause does nothing.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from greenlet import getcurrent, greenlet

SLICE_S = 0.0003
"""Longest stretch of work before waiting requests have their turn."""

_Result = TypeVar("_Result")


class Slices:
    """For a coroutine: a `pause` at each step lets others have their turn if a slice is over."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pause(self) -> None:
        if time.perf_counter() - self._began > SLICE_S:
            await asyncio.sleep(0)
            self._began = time.perf_counter()


class _Work(greenlet):
    """A call that can be left in the middle. `began`: when its slice did, on the process clock."""

    began = 0.0


async def in_slices(work: Callable[[], _Result]) -> _Result:
    """What the function returns, or raises. Cancelled between two slices, it ends there."""
    running = _Work(work)
    try:
        while True:
            running.began = time.perf_counter()
            result: _Result = running.switch()
            if running.dead:
                return result
            await asyncio.sleep(0)
    finally:
        if not running.dead:
            running.throw()


def pause() -> None:
    """Let others have their turn, if a slice is over."""
    work = getcurrent()
    if isinstance(work, _Work) and time.perf_counter() - work.began > SLICE_S:
        assert work.parent is not None
        work.parent.switch()
