"""The process that evaluates rules about objects, `python -m fettle.cel.objects.worker`: requests
on stdin, replies on stdout.

cel-python bounds neither time nor memory, and is 36 MB. An expression that takes too long on an
object is interrupted, or else the kernel ends the process.
"""

import gc
import os
import sys

from fettle.cel.objects import expressions, judging
from fettle.cel.runtime.limits import (
    Interrupted,
    end_after,
    interrupted_after,
    limit,
    uninterrupted,
)
from fettle.cel.runtime.protocol import (
    CheckExpressions,
    ExpressionsRead,
    JudgeObject,
    ObjectExpressions,
    ObjectJudged,
    ObjectRequest,
    Ready,
    Reply,
    RowOutcome,
    frame,
    read_object_request,
)

PARSE_DEADLINE_S = 2.0
ROW_DEADLINE_S = 0.25
ROW_END_S = 0.75  # where it cannot be interrupted
_TOO_SLOW = RowOutcome(problem=f"it takes more than {ROW_DEADLINE_S} s", slow=True)


def answer(request: ObjectRequest) -> Reply:
    """The reply to one request."""
    match request:
        case CheckExpressions(several):
            found = []
            for one in several:
                end_after(PARSE_DEADLINE_S)
                found.append(expressions.read(one))
            end_after(0)
            return ExpressionsRead(tuple(found))
        case JudgeObject(rows, object_, now, named):
            end_after(PARSE_DEADLINE_S)
            try:
                given = judging.activation(object_, now, named=named)
            except judging.NotJudged as error:
                end_after(0)
                return ObjectJudged((RowOutcome(problem=str(error)),) * len(rows))
            outcomes = []
            for row in rows:
                _prepare(row)
                end_after(ROW_END_S)
                outcomes.append(_judged(row, given))
            end_after(0)
            return ObjectJudged(tuple(outcomes))


def _prepare(row: ObjectExpressions) -> None:
    """Parse first, within a deadline of its own: that is done once."""
    end_after(PARSE_DEADLINE_S)
    for one in (row.when, row.node, row.device, *expressions.holes(row.message)[1::2]):
        try:
            if one:
                expressions.program(one)
        except Exception:  # noqa: S112 (to evaluate it will say why)
            continue


def _judged(row: ObjectExpressions, given: judging.Activation) -> RowOutcome:
    try:
        with interrupted_after(ROW_DEADLINE_S):
            return judging.judge(row, given)
    except Interrupted:
        uninterrupted()
        return _TOO_SLOW


def main() -> None:
    limit()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get among the replies
    judging.make_ready()
    gc.collect()
    gc.freeze()
    out.write(frame(Ready()))
    out.flush()
    while (request := read_object_request(sys.stdin.buffer)) is not None:
        out.write(frame(answer(request)))
        out.flush()


if __name__ == "__main__":
    main()
