"""Asks the worker what rules about objects say, and what is wrong with their expressions."""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import BytesIO

from fettle.cel.runtime import protocol
from fettle.cel.runtime.protocol import (
    CheckExpressions,
    ExpressionRead,
    ExpressionsRead,
    JudgeObject,
    ObjectExpressions,
    ObjectJudged,
    RowOutcome,
)
from fettle.cel.runtime.supervisor import Worker, WorkerDied
from fettle.model import WorkerError

COMMAND = (sys.executable, "-m", "fettle.cel.objects.worker")
_CHECKED_WITHIN_S = 60.0
_TOO_MUCH = ExpressionRead("it is too long or has too many parts: it cannot be checked")
_MOST_TEXTS = 64
"""Files' worth of expressions of which it is remembered what they read."""


class ObjectJudge:
    """Judges one object at a time, in a worker that is started when it is first needed."""

    def __init__(self) -> None:
        self._worker = Worker(COMMAND, wait_s=10.0, name="the worker for rules about objects")

    async def close(self) -> None:
        await self._worker.close()

    async def judge(
        self,
        rows: Sequence[ObjectExpressions],
        object_: bytes,
        now: float,
        *,
        named: bool = False,
    ) -> tuple[RowOutcome, ...]:
        """An outcome for each row; `named` as in `JudgeObject`. Raises WorkerError if no worker can
        be asked."""
        try:
            return await self._ask(rows, object_, now, named=named)
        except WorkerDied as death:
            if len(rows) == 1:
                return (RowOutcome(problem=_ended(death), slow=True),)
        # Only one of them may be to blame.
        found: list[RowOutcome] = []
        for row in rows:
            try:
                found += await self._ask((row,), object_, now, named=named)
            except WorkerDied as death:
                found.append(RowOutcome(problem=_ended(death), slow=True))
        return tuple(found)

    async def conditions(
        self, expressions: Sequence[str], variables: bytes
    ) -> tuple[bool | str, ...]:
        """Whether each expression over these variables, a JSON object, is true; a text says why
        that is not known."""
        rows = [ObjectExpressions(one, "'holds'") for one in expressions]
        try:
            found = await self.judge(rows, variables, 0.0, named=True)
        except WorkerError as error:
            return (str(error),) * len(rows)
        return tuple(one.problem.removeprefix("when: ") or bool(one.facts) for one in found)

    async def _ask(
        self, rows: Sequence[ObjectExpressions], object_: bytes, now: float, *, named: bool
    ) -> tuple[RowOutcome, ...]:
        reply = await self._worker.ask(JudgeObject(tuple(rows), object_, now, named))
        assert isinstance(reply, ObjectJudged)
        return reply.outcomes


def _ended(death: WorkerDied) -> str:
    return "it took too long, so its worker was ended" if death.slow else "its worker ended over it"


def read_expressions(expressions: Sequence[str]) -> Mapping[str, ExpressionRead]:
    """What each expression reads, and what is wrong with it: asked of a process with the same
    bounds. Blocks for half a second. Raises WorkerError if that cannot be told."""
    return _read(tuple(sorted(set(expressions))))


@lru_cache(maxsize=_MOST_TEXTS)
def _read(expressions: tuple[str, ...]) -> Mapping[str, ExpressionRead]:
    if not expressions:
        return {}
    found = _checked(expressions, time.monotonic() + _CHECKED_WITHIN_S)
    return dict(zip(expressions, found, strict=True))


def _checked(expressions: tuple[str, ...], until: float) -> tuple[ExpressionRead, ...]:
    """One for each. What ends the worker is looked for by halves, so that it alone is to blame.
    Raises WorkerError."""
    asked = protocol.frame(CheckExpressions(expressions))
    try:
        done = subprocess.run(  # noqa: S603 (our own worker)
            COMMAND,
            input=asked,
            capture_output=True,
            timeout=max(0.0, until - time.monotonic()),
            check=False,
        )
        replies = BytesIO(done.stdout)
        replies.read(protocol.body_length(replies.read(4)))  # it is ready
        if not done.returncode:
            reply = protocol.decode_reply(replies.read(protocol.body_length(replies.read(4))))
            assert isinstance(reply, ExpressionsRead)
            return reply.found
    except subprocess.TimeoutExpired as error:
        why = f"that takes more than {_CHECKED_WITHIN_S:g} s"
        raise WorkerError(f"expressions cannot be checked: {why}") from error
    except (OSError, ValueError) as error:
        raise WorkerError(f"expressions cannot be checked: {error}") from error
    if len(expressions) == 1:
        return (_TOO_MUCH,)
    middle = len(expressions) // 2
    return _checked(expressions[:middle], until) + _checked(expressions[middle:], until)
