"""The worker process: `python -m fettle.selectors.worker`, requests on stdin, replies on stdout.

It may be killed at any time: the kernel ends it by SIGPROF when an expression takes more processor
time than its deadline (parsing and each row have their own), whatever Python is doing then. It
ends by itself when its stdin does, that is when its parent is gone.
"""

import gc
import os
import resource
import signal
import sys
import time
from functools import lru_cache

from fettle.selectors.environments import NODE, STORED
from fettle.selectors.evaluating import Prepared, judge, prepare
from fettle.selectors.inspecting import inspect
from fettle.selectors.outcomes import Outcome
from fettle.selectors.protocol import (
    Inspect,
    Inspected,
    Judge,
    Judged,
    Parse,
    Parsed,
    Ready,
    Reply,
    Request,
    frame,
    read_request,
)
from fettle.selectors.rows import Variable

PARSE_DEADLINE_S = 1.0
ROW_DEADLINE_S = 0.05
INSPECT_DEADLINE_S = 1.5
_TURN_S = 0.1  # after this, the rest of a batch waits for its next turn
_MEMORY_BYTES = 512 * 1024 * 1024
RECURSION_LIMIT = 6000


def limit() -> None:
    """Bounds on this process: memory, no core files, and that SIGPROF ends it."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    sys.setrecursionlimit(RECURSION_LIMIT)


def answer(request: Request) -> Reply:
    """The reply to one request."""
    match request:
        case Parse(expression, variable):
            prepared = _prepared(expression, variable)
            return Parsed(prepared.reads, prepared.outcome)
        case Judge(expression, rows, variable):
            prepared = _prepared(expression, variable)
            started = time.process_time()
            outcomes: list[Outcome] = []
            for row in rows:
                _deadline(ROW_DEADLINE_S)
                outcomes.append(judge(prepared, row))
                if time.process_time() - started > _TURN_S:
                    break
            _deadline(0)
            return Judged(tuple(outcomes), time.process_time() - started)
        case Inspect(expression, devices):
            _deadline(INSPECT_DEADLINE_S)
            inspection = inspect(expression, devices)
            _deadline(0)
            return Inspected(inspection.nearest)


@lru_cache(maxsize=256)
def _prepared(expression: str, variable: Variable) -> Prepared:
    _deadline(PARSE_DEADLINE_S)
    prepared = prepare(expression, NODE if variable == "node" else STORED)
    _deadline(0)
    return prepared


def _deadline(seconds: float) -> None:
    """Be ended by the kernel after this much more processor time; 0: never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def main() -> None:
    limit()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints cannot get among the replies
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
