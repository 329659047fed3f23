"""One expression on the devices of one call: what the worker is asked about next, and when.

Used by the engine, which asks.
"""

import re
from collections import deque
from itertools import islice, takewhile

from fettle.cel.runtime.memory import LONG, PARSING, ExpressionEntry, Level
from fettle.cel.runtime.rows import RowFingerprint
from fettle.cel.runtime.turns import Order

_BATCH = 64
_LOOP = re.compile(r"\.\s*(?:all|exists\w*|map|filter|transform\w+)\s*\(")
_PATTERN = re.compile(
    r"\b(?:matches|find|findAll)\s*\((?!\s*[rR]?(?P<quote>[\"'])[^\"'{]{0,64}(?P=quote)\s*[,)])"
)
"""A pattern that may be costly to compile: it is long, repeats by number, or is made on the way."""
_CALLS = 24
"""So many calls may cost what a loop does: they may be about texts that others made long."""


class Work:
    """One expression on the devices of one call; `keys` is None until it is known what it reads."""

    def __init__(self, expression: str, entry: ExpressionEntry | None) -> None:
        self.expression = expression
        self.entry = entry
        self.keys: deque[RowFingerprint] | None = None
        self.spent_s = 0.0
        self._heavy = sum(len(each.findall(expression)) for each in (_LOOP, _PATTERN))
        self._heavy += expression.count("(") // _CALLS

    def order(self) -> Order:
        """Where nothing was measured, by what can be seen: with neither loops, nor patterns but
        short ones, nor many calls, it cannot cost much."""
        entry, deaths = self.entry, 0
        if entry is not None and entry.deaths:
            deaths = entry.deaths.get(self.keys[0] if self.keys else PARSING, 0)
        if entry is not None and (entry.measured or deaths > 1):
            return entry.order(self.spent_s, deaths)
        return (Level.NEW if len(self.expression) <= LONG else Level.LARGE, self._heavy)

    def batch(self) -> list[RowFingerprint]:
        """The next keys of which nothing is known, even by another call's work.

        Rows over which the worker ended, maybe for another one's sake, are asked for one by one.
        """
        assert self.entry is not None
        assert self.keys is not None
        while self.keys and self.keys[0] in self.entry.rows:
            self.keys.popleft()
        if not self.keys or self.entry.default is not None:
            return []
        deaths = self.entry.deaths
        if self.keys[0] in deaths:
            return [self.keys[0]]
        return list(takewhile(lambda key: key not in deaths, islice(self.keys, _BATCH)))
