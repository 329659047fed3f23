"""Long work on the event loop in short slices, between which other requests have their turn.

A plain function calls `pause` wherever it goes from one entry to the next, however deep in its
calls. `run_within` runs it in slices: a pause ends the slice if that has lasted long enough. So
whoever writes a rule or an injection need not think of time, and a deadline around it holds for
objects of any size. `within` bounds work without slices. Outside of both a pause does nothing.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import NamedTuple, TypeVar

from greenlet import greenlet

SLICE_S = 0.0003
"""Longest stretch of work before waiting requests have their turn."""

_Result = TypeVar("_Result")


class _Turns(NamedTuple):
    slice_s: float
    clock: Callable[[], float]


_USUAL = _Turns(SLICE_S, time.perf_counter)
_TURNS: ContextVar[_Turns] = ContextVar("turns", default=_USUAL)


@contextmanager
def taking_turns(
    slice_s: float = SLICE_S, clock: Callable[[], float] = time.perf_counter
) -> Iterator[None]:
    """What begins within has slices of that length, in seconds of that clock."""
    token = _TURNS.set(_Turns(slice_s, clock))
    try:
        yield
    finally:
        _TURNS.reset(token)


class Superseded(Exception):
    """Nobody needs the result of the work any more."""


class _Bound:
    """The end of some work, on the clock of `working_s`."""

    __slots__ = ("ends_at",)

    def __init__(self, ends_at: float) -> None:
        self.ends_at = ends_at


class _OutOfTime(BaseException):
    """Unwinds the work up to the `within` whose bound it is; nothing in between may handle it."""

    def __init__(self, bound: _Bound) -> None:
        super().__init__()
        self.bound = bound


class _Pace:
    """When the work under way has to pause. `worker` runs it if it is run in slices."""

    def __init__(self, worker: greenlet | None = None) -> None:
        self.waited_s = 0.0
        self.due = inf
        """When the next pause has something to do, on this clock."""
        self.clock = _TURNS.get().clock
        self._slice_s = _TURNS.get().slice_s
        self._worker = worker
        self._slice_ends = inf
        self._left_at: float | None = None
        self._bounds: list[_Bound] = []

    def go_on(self) -> None:
        """A slice begins."""
        now = self.clock()
        if self._left_at is not None:
            self.waited_s += now - self._left_at
        self._slice_ends = now + self._slice_s
        self._reckon()

    def rest(self, now: float) -> None:
        """Something is due: the work ends if a bound is over, and its slice if that is."""
        for bound in self._bounds:
            if now - self.waited_s > bound.ends_at:
                raise _OutOfTime(bound)
        if self._worker is not None and now > self._slice_ends:
            assert self._worker.parent is not None
            self._left_at = now
            self._worker.parent.switch()

    def begin(self, seconds: float) -> _Bound:
        bound = _Bound(self.clock() - self.waited_s + seconds)
        self._bounds.append(bound)
        self._reckon()
        return bound

    def end(self, bound: _Bound) -> None:
        self._bounds.remove(bound)
        self._reckon()

    def _reckon(self) -> None:
        first = min((bound.ends_at for bound in self._bounds), default=inf)
        self.due = min(self._slice_ends, first + self.waited_s)


# Each greenlet has a context of its own, so this is the pace of the work that asks.
_PACE: ContextVar[_Pace | None] = ContextVar("pace", default=None)


def pause() -> None:
    """Let others have their turn if a slice is over; end the work if its time is."""
    pace = _PACE.get()
    if pace is not None and (now := pace.clock()) > pace.due:
        pace.rest(now)


def working_s() -> float:
    """Seconds on a clock that stands still while others have their turn."""
    pace = _PACE.get()
    return _TURNS.get().clock() if pace is None else pace.clock() - pace.waited_s


def within(seconds: float, work: Callable[[], _Result]) -> _Result:
    """What the function returns, or raises.

    Once it has worked for so many seconds, its next pause ends it: then this raises TimeoutError.
    """
    pace = _PACE.get()
    token = None
    if pace is None:
        pace = _Pace()
        token = _PACE.set(pace)
    bound = pace.begin(seconds)
    try:
        return work()
    except _OutOfTime as end:
        if end.bound is not bound:
            raise
        raise TimeoutError(f"no result within {seconds:g} s") from None
    finally:
        pace.end(bound)
        if token is not None:
            _PACE.reset(token)


async def run_within(
    work: Callable[[], _Result], *, superseded: Callable[[], bool] = lambda: False
) -> _Result:
    """What the function returns, or raises, run in slices.

    Raises Superseded if that is so after others had their turn. Cancelled between two slices, it
    ends there.
    """

    def run() -> _Result:
        _PACE.set(pace)
        return work()

    running = greenlet(run)
    pace = _Pace(running)
    try:
        while True:
            pace.go_on()
            result: _Result = running.switch()
            if running.dead:
                return result
            await asyncio.sleep(0)
            if superseded():
                raise Superseded
    finally:
        if not running.dead:
            running.throw()
