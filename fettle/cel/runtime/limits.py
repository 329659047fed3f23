"""Bounds of a worker process: its memory, its recursion, and the signals that interrupt or end it.

Python cannot be interrupted within a library, nor safely while it parses. There the kernel ends the
process by SIGPROF.
"""

import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

MEMORY_BYTES = 512 * 1024 * 1024
RECURSION_LIMIT = 6000


class Interrupted(BaseException):
    """Raised wherever Python is when its time is over; no `except Exception` stops it."""


def limit() -> None:
    """Bound this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGVTALRM, _interrupt)
    sys.setrecursionlimit(RECURSION_LIMIT)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise Interrupted


def end_after(seconds: float) -> None:
    """Let the kernel end this process after this much more processor time; 0: never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Raises Interrupted after this much processor time; its caller clears the timer once more,
    since the signal may come while this ends."""
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        uninterrupted()


def uninterrupted() -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
