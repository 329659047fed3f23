"""The worker process: `python -m fettle.cel.runtime.worker`, requests on stdin, replies on stdout.

It may be killed at any time, and ends by itself when its stdin ends, which is when its parent is
gone. An expression that takes too much processor time on a row is interrupted, or else the kernel
ends the process.
"""

import gc
import os
import sys
import time
from functools import lru_cache

from fettle.cel.language.compiler import Prepared, judge, prepare
from fettle.cel.language.environment import NODE, STORED
from fettle.cel.misses.nearest import nearest
from fettle.cel.runtime.limits import (
    Interrupted,
    end_after,
    interrupted_after,
    limit,
    uninterrupted,
)
from fettle.cel.runtime.protocol import (
    TOO_SLOW,
    EvaluateReply,
    EvaluateRequest,
    Inspect,
    Inspected,
    Outcome,
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
                end_after(ROW_END_S)
                outcomes.append(_judged(prepared, row))
                if time.process_time() - started > _TURN_S:
                    break
            end_after(0)
            return EvaluateReply(tuple(outcomes), time.process_time() - started)
        case Inspect(expressions, devices):
            end_after(INSPECT_DEADLINE_S)
            words = nearest(expressions, devices)
            end_after(0)
            return Inspected(words)


def _judged(prepared: Prepared, row: DeviceRow) -> Outcome:
    try:
        with interrupted_after(ROW_DEADLINE_S):
            return judge(prepared, row)
    except Interrupted:
        uninterrupted()
        return TOO_SLOW


@lru_cache(maxsize=256)
def _prepared(expression: str, variable: Variable) -> Prepared:
    end_after(PARSE_DEADLINE_S)
    prepared = prepare(expression, NODE if variable == "node" else STORED)
    end_after(0)
    return prepared


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
