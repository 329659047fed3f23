"""One selector over many devices, for people: how many it matches, and what the nearest one lacks.

Pure and bounded; runs in the worker or, for lint, in any process that may load RE2.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from fettle.selectors import rows
from fettle.selectors.compiling import Program
from fettle.selectors.evaluating import Prepared, judge, prepare
from fettle.selectors.outcomes import Kind, Outcome, undecided
from fettle.selectors.rows import Key
from fettle.selectors.syntax import Node
from fettle.selectors.wording import shortfall
from fettle.wire.resource import Device

_LONGEST_S = 0.1
_MOST_TERMS = 64


class Inspection(NamedTuple):
    """Counts of devices by outcome.

    `nearest` says in words what the nearest device lacks ("memory 80Gi < 96Gi"), "" where one
    matches or nothing can be said; `compile_error` is why the API server would refuse the
    expression, "" where it would not, and then nothing is counted.
    """

    matches: int = 0
    misses: int = 0
    aborts: int = 0
    undecided: int = 0
    nearest: str = ""
    compile_error: str = ""


class _Miss(NamedTuple):
    failing: int
    words: str


def inspect(expression: str, devices: Iterable[tuple[str, Device]]) -> Inspection:
    """What a selector says of devices, each given with its driver's name; never raises for them.

    Evaluates once for devices that look alike to the expression, and for no longer than 0.1 s of
    processor time in all: the devices left then are undecided.
    """
    prepared = prepare(expression)
    if prepared.outcome is not None and prepared.outcome.kind is Kind.WOULD_ABORT:
        return Inspection(compile_error=prepared.outcome.reason)
    over = _Survey(prepared, time.process_time() + _LONGEST_S)
    counts = dict.fromkeys(Kind, 0)
    for driver, device in devices:
        counts[over.outcome(driver, device).kind] += 1
    return Inspection(
        counts[Kind.MATCH],
        counts[Kind.NO_MATCH],
        counts[Kind.WOULD_ABORT],
        counts[Kind.UNDECIDED],
        "" if counts[Kind.MATCH] or over.nearest is None else over.nearest.words,
    )


class _Survey:
    """Remembers outcomes, and the nearest miss so far."""

    def __init__(self, prepared: Prepared, until: float) -> None:
        self._prepared = prepared
        self._until = until
        self._seen: dict[Key, Outcome] = {}
        self._terms: list[tuple[Node, Program]] | None = None
        self.nearest: _Miss | None = None

    def outcome(self, driver: str, device: Device) -> Outcome:
        problem = rows.problem(driver, device)
        if problem:
            return undecided(problem)
        key = rows.key(self._prepared.reads, driver, device)
        if key not in self._seen:
            if time.process_time() > self._until:
                return undecided("it takes too long")
            self._seen[key] = judge(self._prepared, rows.row(self._prepared.reads, key))
            if self._seen[key].kind in (Kind.NO_MATCH, Kind.WOULD_ABORT):
                with suppress(Exception):  # a mistake in these words may not cost the outcome
                    self._note(key, driver, device)
        return self._seen[key]

    def _note(self, key: Key, driver: str, device: Device) -> None:
        """Keep a miss where it fails fewer of the conditions than all before."""
        program = self._prepared.program
        assert program is not None  # it was judged, and not as undecided
        if self._terms is None:
            self._terms = program.terms()[:_MOST_TERMS]
        row = rows.row(self._prepared.reads, key)
        failing = [
            term
            for term, part in self._terms
            if not judge(self._prepared._replace(program=part), row).matches
        ]
        if failing and (self.nearest is None or len(failing) < self.nearest.failing):
            self.nearest = _Miss(len(failing), shortfall(failing[0], driver, device))
