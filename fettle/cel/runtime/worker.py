"""The worker process: `python -m fettle.cel.runtime.worker`, requests on stdin, replies on stdout.

It may be killed at any time, and ends by itself when its stdin ends, which is when its parent is
gone. An expression that takes too much processor time on a row is interrupted. Python cannot be
interrupted within a library, nor safely while it parses. There the kernel ends the process by
SIGPROF.
"""

import gc
import os
import resource
import signal
import sys
import time
from functools import lru_cache
from types import FrameType

from fettle.cel.language.compiler import Prepared, judge, prepare
from fettle.cel.language.environment import NODE, STORED
from fettle.cel.misses.nearest import nearest
from fettle.cel.runtime.outcomes import TOO_SLOW, Outcome
from fettle.cel.runtime.protocol import (
    EvaluateReply,
    EvaluateRequest,
    Inspect,
    Inspected,
    Parse,
    Parsed,
    Ready,
    Reply,
    Request,
    frame,
    read_request,
)
from fettle.cel.runtime.rows import DeviceRow, Variable

PARSE_DEADLINE_S = 1.0
ROW_DEADLINE_S = 0.05
ROW_END_S = 0.1  # where it cannot be interrupted
INSPECT_DEADLINE_S = 1.5
_TURN_S = 0.01  # then the rest of a batch must be asked for again, so that others get their turn
_MEMORY_BYTES = 512 * 1024 * 1024
RECURSION_LIMIT = 6000


class _Interrupted(BaseException):
    """Raised wherever Python is when a row's time is over; no `except Exception` stops it."""


def limit() -> None:
    """Bound this process: its memory, its recursion, and the signals that interrupt or end it."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGVTALRM, _interrupt)
    sys.setrecursionlimit(RECURSION_LIMIT)


def answer(request: Request) -> Reply:
    """The reply to one request."""
    match request:
        case Parse(expression, variable):
            prepared = _prepared(expression, variable)
            return Parsed(
                prepared.reads,
                prepared.outcome,
                prepared.driver,
                prepared.equations,
                prepared.needed,
            )
        case EvaluateRequest(expression, rows, variable):
            prepared = _prepared(expression, variable)
            started = time.process_time()
            outcomes: list[Outcome] = []
            for row in rows:
                # The interrupt comes first; the kernel ends what cannot be interrupted.
                _deadline(ROW_END_S)
                outcomes.append(_judged(prepared, row))
                if time.process_time() - started > _TURN_S:
                    break
            _deadline(0)
            return EvaluateReply(tuple(outcomes), time.process_time() - started)
        case Inspect(expressions, devices):
            _deadline(INSPECT_DEADLINE_S)
            words = nearest(expressions, devices)
            _deadline(0)
            return Inspected(words)


def _judged(prepared: Prepared, row: DeviceRow) -> Outcome:
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, ROW_DEADLINE_S)
        try:
            return judge(prepared, row)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _Interrupted:  # also out here: the signal may come while the inner `finally` runs
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return TOO_SLOW


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise _Interrupted


@lru_cache(maxsize=256)
def _prepared(expression: str, variable: Variable) -> Prepared:
    _deadline(PARSE_DEADLINE_S)
    prepared = prepare(expression, NODE if variable == "node" else STORED)
    _deadline(0)
    return prepared


def _deadline(seconds: float) -> None:
    """Let the kernel end this process after this much more processor time; 0: never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def main() -> None:
    limit()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get among the replies
    # Load and freeze everything now, so that no question pays for it, and no collection visits it.
    prepare("true")
    gc.collect()
    gc.freeze()
    out.write(frame(Ready()))
    out.flush()
    while (request := read_request(sys.stdin.buffer)) is not None:
        out.write(frame(answer(request)))
        out.flush()


if __name__ == "__main__":
    main()
