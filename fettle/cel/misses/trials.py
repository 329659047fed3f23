"""One device that an expression is tried on, part by part.

Runs in the worker, for people who ask why a device does not match.
"""

import time
from typing import NamedTuple

from fettle.api.resource import Device
from fettle.cel.language.compiling import Program
from fettle.cel.language.evaluating import Prepared, evaluate, judge
from fettle.cel.language.syntax import Expr
from fettle.cel.library.values import CelError, Ended, Undecidable, Value
from fettle.cel.runtime import rows
from fettle.cel.runtime.outcomes import TOO_SLOW, Outcome
from fettle.cel.runtime.rows import AttributeRead, RowFingerprint


class Parts:
    """The parts of an expression, each compiled once, when it is first asked for."""

    def __init__(self, prepared: Prepared, program: Program) -> None:
        self.whole = prepared
        self.terms = program.terms()
        self._program = program
        self._prepared: dict[Expr, Prepared] = {}

    def prepared(self, part: Expr) -> Prepared:
        found = self._prepared.get(part)
        if found is None:
            found = self.whole._replace(program=self._program.part(part))
            self._prepared[part] = found
        return found


class Trial(NamedTuple):
    """`until`: the processor time (s) after which nothing more is evaluated."""

    parts: Parts
    key: RowFingerprint
    driver: str
    device: Device
    until: float

    def outcome(self, part: Expr) -> Outcome:
        """What a condition comes to."""
        if self._is_over():
            return TOO_SLOW
        return judge(self.parts.prepared(part), rows.row(self.parts.whole.reads, self.key))

    def value(self, part: Expr) -> tuple[Value, ...]:
        """What a part comes to; nothing where that is an error, or not known."""
        if self._is_over():
            return ()
        row = rows.row(self.parts.whole.reads, self.key)
        try:
            return (evaluate(self.parts.prepared(part), row),)
        except (CelError, Ended, Undecidable):
            return ()

    def look(self, read: AttributeRead) -> rows.Value | bool | None:
        """What the device publishes at a place; None where it has nothing there."""
        return rows.value_at_read(read, self.driver, self.device)

    def _is_over(self) -> bool:
        return time.process_time() > self.until
