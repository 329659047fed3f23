"""One selector over many devices, for people: what the nearest one lacks.

Pure and bounded; runs in the worker.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from fettle.selectors import rows
from fettle.selectors.compiling import Program
from fettle.selectors.conditions import distance
from fettle.selectors.evaluating import Prepared, judge, prepare
from fettle.selectors.outcomes import Kind
from fettle.selectors.rows import Key
from fettle.selectors.syntax import Node
from fettle.selectors.wording import shortfall
from fettle.wire.resource import Device

_LONGEST_S = 0.1
_MOST_TERMS = 64


def nearest(expression: str, devices: Iterable[tuple[str, Device]]) -> str:
    """What the device lacks that fails the fewest conditions ("memory 80Gi < 96Gi"), or of those
    that fail the same one first, the one that is closest to meeting it; "" where one matches, or
    nothing can be said. Devices are given with their drivers' names.

    Evaluates once for devices that look alike to the expression, and for no longer than 0.1 s of
    processor time in all: devices left then are not looked at.
    """
    prepared = prepare(expression)
    if prepared.program is None:
        return ""
    misses = _Misses(prepared, prepared.program)
    until = time.process_time() + _LONGEST_S
    for driver, device in devices:
        if time.process_time() > until:
            break
        if misses.add(driver, device):
            return ""
    return misses.nearest.words if misses.nearest is not None else ""


class _Miss(NamedTuple):
    """A device that fails some conditions, the first of which it is some way from meeting."""

    failing: int
    first: Node
    distance: float
    words: str

    def is_nearer(self, other: "_Miss") -> bool:
        if self.failing != other.failing or self.first is not other.first:
            return self.failing < other.failing
        return self.distance < other.distance


class _Misses:
    """Remembers the devices that it has seen, and the nearest miss so far."""

    def __init__(self, prepared: Prepared, program: Program) -> None:
        self._prepared = prepared
        self._program = program
        self._seen: set[Key] = set()
        self._terms: list[tuple[Node, Program]] | None = None
        self.nearest: _Miss | None = None

    def add(self, driver: str, device: Device) -> bool:
        """Judge a device; true where it is no miss but a match."""
        if rows.problem(driver, device):
            return False
        key = rows.key(self._prepared.reads, driver, device)
        if key in self._seen:
            return False
        self._seen.add(key)
        outcome = judge(self._prepared, rows.row(self._prepared.reads, key))
        if outcome.kind in (Kind.NO_MATCH, Kind.WOULD_ABORT):
            with suppress(Exception):  # a mistake in these words may not cost those of others
                self._note(key, driver, device)
        return outcome.matches

    def _note(self, key: Key, driver: str, device: Device) -> None:
        """Keep a miss where it is nearer than all before."""
        if self._terms is None:
            self._terms = self._program.terms()[:_MOST_TERMS]
        row = rows.row(self._prepared.reads, key)
        failing = [
            term
            for term, part in self._terms
            if not judge(self._prepared._replace(program=part), row).matches
        ]
        if not failing:
            return
        first = failing[0]
        words = shortfall(first, driver, device)
        miss = _Miss(len(failing), first, distance(first, driver, device), words)
        if self.nearest is None or miss.is_nearer(self.nearest):
            self.nearest = miss
