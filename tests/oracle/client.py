"""The oracle's client: Kubernetes' allocator and CEL evaluator, asked in JSON lines.

The program is one of those in `tests/controlplane/go`; `oracle.go` says what it reads and writes.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

MAX_STEPS = 4000
"""Searches longer than this are left: Kubernetes would answer, but a test has many to ask."""


class Verdict(msgspec.Struct, frozen=True):
    """What a selector says of one device; `error`: it fails at run time."""

    match: bool
    error: str = ""


class Selected(msgspec.Struct, frozen=True, rename="camel"):
    """One verdict per device, unless the expression does not compile."""

    compile_error: str = ""
    outcomes: tuple[Verdict, ...] | None = None
    max_cost: int = 0
    malformed: str = ""
    panic: str = ""

    def words(self) -> list[str]:
        """As `tests.conformance.selection.answer` says it; one for each device, or only one."""
        if self.malformed or self.panic:
            raise OracleFailed(self.malformed or self.panic)
        if self.compile_error:
            return ["compile_error"]
        return [
            "runtime_error" if o.error else "match" if o.match else "no_match"
            for o in self.outcomes or ()
        ]


class Allocated(msgspec.Struct, frozen=True, rename="camel"):
    """`results` is None where the node cannot satisfy the claims, else one allocation a claim."""

    results: list[dict[str, Any]] | None = None
    error: str = ""
    error_on_node: bool = False
    interrupted: bool = False
    steps: int = 0
    malformed: str = ""
    panic: str = ""


class OracleFailed(RuntimeError):
    """The oracle could not be asked that, or is gone."""


class Oracle:
    """The running program. Answers come in the order of the questions."""

    def __init__(self, binary: Path) -> None:
        self._process = subprocess.Popen(
            [binary, "oracle"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()

    def allocations(
        self, cases: Iterable[dict[str, Any]], max_steps: int = MAX_STEPS
    ) -> Iterator[Allocated]:
        questions = ({"allocate": {**case, "maxSteps": max_steps}} for case in cases)
        return map(msgspec.json.Decoder(Allocated).decode, self._ask(questions))

    def selections(self, asked: Iterable[tuple[str, list[dict[str, Any]]]]) -> Iterator[Selected]:
        questions = ({"select": {"expression": e, "devices": devices}} for e, devices in asked)
        return map(msgspec.json.Decoder(Selected).decode, self._ask(questions))

    def allocate(self, case: dict[str, Any]) -> Allocated:
        return next(self.allocations([case]))

    def select(self, expression: str, devices: list[dict[str, Any]]) -> Selected:
        return next(self.selections([(expression, devices)]))

    def _ask(self, questions: Iterable[dict[str, Any]]) -> Iterator[bytes]:
        """Written by a thread, so that neither side waits for the other to read."""
        lines = [msgspec.json.encode(question) + b"\n" for question in questions]
        writer = threading.Thread(target=self._write, args=(lines,))
        writer.start()
        try:
            assert self._process.stdout is not None
            replies = [self._process.stdout.readline() for _ in lines]
        finally:
            writer.join()
        if not all(replies):
            raise OracleFailed(f"the oracle ended with status {self._process.poll()}")
        return iter(replies)

    def _write(self, lines: list[bytes]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.writelines(lines)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the reader finds the end, and says so
