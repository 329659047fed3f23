"""The process that evaluates rules about objects, `python -m fettle.cel.objects.worker`: requests
on stdin, replies on stdout; and what rows of the rules say of an object.

cel-python bounds neither time nor memory, and is 36 MB. An expression that takes too long on an
object is interrupted, or else the kernel ends the process.
"""

import gc
import os
import sys
from datetime import UTC, datetime
from typing import Any

import celpy
import msgspec
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from fettle.api import ObjectFact
from fettle.cel.objects import expressions
from fettle.cel.runtime.limits import (
    MEMORY_BYTES,
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

MOST_FACTS = 256
"""Of one row about one object. The rest is not told of."""
LONGEST_NAME = 1024
LONGEST_SAID = 1024
_UNKNOWN = "?"
"""Stands for what cannot be evaluated of a message."""
_SHOWN = 160
_ALL_OF_CEL = " (in activation "
"""After it, cel-python lists all that it knows."""

Activation = dict[str, Any]
PARSE_DEADLINE_S = 2.0
ROW_DEADLINE_S = 0.25
ROW_END_S = 0.75  # where it cannot be interrupted
_TOO_SLOW = RowOutcome(problem=f"it takes more than {ROW_DEADLINE_S} s", slow=True)


class NotJudged(Exception):
    """Why an outcome is not known."""


def activation(object_: bytes, now: float, *, named: bool = False) -> Activation:
    """Raises NotJudged."""
    try:
        if named:
            members = msgspec.json.decode(object_, type=dict[str, Any])
            return {name: json_to_cel(value) for name, value in members.items()}
        return {
            "resource": json_to_cel(msgspec.json.decode(object_)),
            "now": celtypes.TimestampType(datetime.fromtimestamp(now, UTC)),
        }
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise NotJudged(f"the object cannot be read: {_short(error)}") from error


def judge(row: ObjectExpressions, given: Activation) -> RowOutcome:
    try:
        return _outcome(row, given)
    except NotJudged as error:
        return RowOutcome(problem=str(error))


def _outcome(row: ObjectExpressions, given: Activation) -> RowOutcome:
    counts = _value("when", row.when, given)
    if not isinstance(counts, celtypes.BoolType | bool):
        raise NotJudged(f"when: it gives {_kind(counts)}, not true or false")
    if not counts:
        return RowOutcome()
    nodes = _names("node", row.node, given)
    if row.device and len(nodes) > 1:
        raise NotJudged(f"node: it gives {len(nodes)} nodes, and with device there can be only one")
    devices = _names("device", row.device, given) if row.device else ()
    said, unsaid = _said(row.message, given)
    facts = (ObjectFact(node, device, said) for node in nodes for device in devices or ("",))
    return RowOutcome(tuple(facts), counts=True, unsaid=unsaid)


def _value(field: str, expression: str, given: Activation) -> Any:
    try:
        return expressions.program(expression).evaluate(given)
    except CELParseError as error:
        raise NotJudged(f"{field}: it cannot be parsed") from error
    except CELEvalError as error:
        raise NotJudged(f"{field}: {_short(error)}") from error
    except (ArithmeticError, LookupError, MemoryError, RecursionError) as error:
        raise NotJudged(f"{field}: {_short(error)}") from error
    except (AttributeError, TypeError, ValueError) as error:  # what cel-python does not foresee
        raise NotJudged(f"{field}: {_short(error)}") from error


def _names(field: str, expression: str, given: Activation) -> tuple[str, ...]:
    """One text, or a list of texts. Empty ones name nothing."""
    value = _value(field, expression, given)
    many = list(value) if isinstance(value, celtypes.ListType | list) else [value]
    if any(not isinstance(one, str) for one in many):
        raise NotJudged(f"{field}: it gives {_kind(value)}, not a text or a list of texts")
    if any(len(one) > LONGEST_NAME for one in many):
        raise NotJudged(f"{field}: it gives a text of more than {LONGEST_NAME} characters")
    return tuple(dict.fromkeys(str(one) for one in many if one))[:MOST_FACTS]


def _said(message: str, given: Activation) -> tuple[str, str]:
    """What people read, and why the first of its parts that cannot be told cannot."""
    parts, unsaid = expressions.holes(message), ""
    for at in range(1, len(parts), 2):
        try:
            parts[at] = _part(parts[at], given)
        except NotJudged as error:
            parts[at], unsaid = _UNKNOWN, unsaid or str(error)
    return "".join(parts)[:LONGEST_SAID], unsaid


def _part(expression: str, given: Activation) -> str:
    """Raises NotJudged."""
    value = _value("message", expression, given)
    is_shown = isinstance(value, str | int | float) and not isinstance(value, celtypes.BoolType)
    return str(value)[:LONGEST_SAID] if is_shown else str(bool(value)).lower()


def _kind(value: Any) -> str:
    name = type(value).__name__.removesuffix("Type").lower()
    return "nothing" if value is None else f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def _short(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return f"it takes more memory than {MEMORY_BYTES // 1024**2} MiB"
    words = error.args[0] if error.args else error
    line = " ".join(str(words).split()).partition(_ALL_OF_CEL)[0]
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def make_ready() -> None:
    """Load all that an evaluation needs."""
    judge(ObjectExpressions("true", "'n'"), {"resource": celpy.json_to_cel({}), "now": None})


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
                given = activation(object_, now, named=named)
            except NotJudged as error:
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


def _judged(row: ObjectExpressions, given: Activation) -> RowOutcome:
    try:
        with interrupted_after(ROW_DEADLINE_S):
            return judge(row, given)
    except Interrupted:
        uninterrupted()
        return _TOO_SLOW


def main() -> None:
    limit()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get among the replies
    make_ready()
    gc.collect()
    gc.freeze()
    out.write(frame(Ready()))
    out.flush()
    while (request := read_object_request(sys.stdin.buffer)) is not None:
        out.write(frame(answer(request)))
        out.flush()


if __name__ == "__main__":
    main()
