"""What is known of expressions: outcomes and costs, within bounds.

An expression that was used once is forgotten before those that were used again since. So a stream
of expressions that nobody uses twice pushes out nothing that is in use.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import IntEnum

from fettle.cel.runtime.protocol import TOO_SLOW, EvaluateReply, Outcome, undecided
from fettle.cel.runtime.rows import AttributeRead, Equation, Reads, RowFingerprint

DIED = undecided("the process that evaluates it ended over it")
GIVEN_UP = (TOO_SLOW, DIED)
"""Outcomes that hold for a time only; then the row is tried again."""
PARSING: RowFingerprint = ()
"""Stands for all rows, while it is not known yet what the expression reads."""

TRIAL_S = 0.01
"""Worker time that every expression gets before it may count as costly."""
COSTLY_ROW_S = 0.0005
"""Mean worker time for one row above which an expression is costly: most take 20 µs."""
DEATH_S = 0.2
"""Worker time that one end of the worker counts as."""
DEATHS = 3
"""Deaths of the worker over a row after which the row is given up; one less for each row that was
given up before. The first may be chance: the kernel kills processes where memory is short."""
BUDGET_S = 1.0
"""Worker time after which a costly expression is given up."""
GIVEN_UP_S = 300.0
"""How long a row or an expression stays given up."""
STRIKES = 3
"""Rows that are given up before the whole expression is."""
LONG = 1024
"""A new expression with more characters waits for the shorter ones: parsing it takes long."""
AGAIN_S = 1.0
"""A use so long after an expression became known counts as another use, not as the same pod's."""
_AGAIN = 0.8  # share of the room for expressions that were used again


Priority = tuple[int, float]
"""A level, then a number within it; the least goes first."""


class Level(IntEnum):
    """Which question goes first.

    Within `LARGE` and `COSTLY`, what has cost the least so far; within `NEW`, what has the fewest
    loops.
    """

    PROVEN = 0
    NEW = 1
    LARGE = 2  # many rows, each of them cheap, or a long text
    COSTLY = 3


class ExpressionEntry:
    """What is known of one expression.

    `default` is the outcome for all devices whose row is not among `rows`. `deaths` counts how
    often the worker ended over a row that has not been answered since.
    """

    __slots__ = (
        "deaths",
        "default",
        "driver",
        "equations",
        "given_up_until",
        "judged",
        "known_at",
        "needed",
        "parsed",
        "reads",
        "rows",
        "segment",
        "spent_s",
        "strikes",
    )

    def __init__(self, segment: "OrderedDict[str, ExpressionEntry]", now: float) -> None:
        self.segment = segment
        self.known_at = now
        self.parsed = False
        self.reads: Reads = ()
        self.driver = ""
        self.equations: tuple[Equation, ...] = ()
        self.needed: tuple[AttributeRead, ...] = ()
        self.default: Outcome | None = None
        self.rows: dict[RowFingerprint, Outcome] = {}
        self.strikes = 0
        self.deaths: dict[RowFingerprint, int] = {}
        self.spent_s = 0.0
        self.judged = 0
        self.given_up_until = 0.0

    @property
    def costly(self) -> bool:
        return self.spent_s > TRIAL_S and self.spent_s > COSTLY_ROW_S * self.judged

    @property
    def measured(self) -> bool:
        return self.judged > 0 or self.costly

    @property
    def gave_up(self) -> bool:
        """Whether anything of it is given up."""
        return bool(self.strikes) or self.default in GIVEN_UP

    @property
    def suspect(self) -> bool:
        """Whether to ask the worker about it only where that is necessary."""
        return self.costly or self.gave_up or bool(self.deaths)

    def priority(self, spent_s: float, deaths: int = 0) -> Priority:
        """The priority of its next question.

        `spent_s` is the worker time that the asking call has used so far. `deaths` is how often
        the worker ended over the next row; the first death changes nothing.
        """
        if self.costly or deaths > 1:
            return (Level.COSTLY, self.spent_s + deaths * DEATH_S)
        if spent_s > TRIAL_S:
            return (Level.LARGE, spent_s)
        return (Level.PROVEN, 0.0)

    def may_be_retried(self, now: float) -> bool:
        """Whether something of it was given up long enough ago to be tried again."""
        return self.gave_up and now >= self.given_up_until

    def forgive(self, now: float) -> None:
        """Forget what was given up long enough ago, so that it is tried again."""
        if not self.may_be_retried(now):
            return
        self.strikes = 0
        self.deaths.clear()
        self.rows = {row: o for row, o in self.rows.items() if o not in GIVEN_UP}
        if self.default in GIVEN_UP:
            self.default = None

    def note_death(self, fingerprints: Sequence[RowFingerprint], now: float, *, slow: bool) -> None:
        """Count an end of the worker over a question about these rows.

        If the question was about one row alone, that row may now be given up.
        """
        for each in fingerprints:
            self.deaths[each] = self.deaths.get(each, 0) + 1
        if slow:
            self.spent_s += DEATH_S
        if len(fingerprints) > 1 or not (
            slow or self.deaths[fingerprints[0]] + self.strikes >= DEATHS
        ):
            return
        outcome = TOO_SLOW if slow else DIED
        if fingerprints[0] == PARSING:
            self.give_up(outcome, now)
        else:
            self.strike(fingerprints[0], outcome, now)

    def strike(self, row: RowFingerprint, outcome: Outcome, now: float) -> None:
        """Give up one row; after `STRIKES` of them, the whole expression."""
        self.rows[row] = outcome
        self.strikes += 1
        self.given_up_until = now + GIVEN_UP_S
        if self.strikes >= STRIKES:
            self.give_up(outcome, now)

    def give_up(self, outcome: Outcome, now: float) -> None:
        self.default, self.given_up_until = outcome, now + GIVEN_UP_S

    def learn(
        self, fingerprints: Iterable[RowFingerprint], judged: EvaluateReply, now: float
    ) -> None:
        for row, outcome in zip(fingerprints, judged.outcomes, strict=False):
            self.deaths.pop(row, None)
            if outcome == TOO_SLOW:
                self.strike(row, TOO_SLOW, now)
            else:
                self.rows[row] = outcome
        self.judged += len(judged.outcomes)
        self.spent_s += judged.spent_s
        # Many cheap rows may cost as much in sum: only a costly expression is given up.
        if self.costly and self.spent_s > BUDGET_S:
            self.give_up(TOO_SLOW, now)


class Memory:
    """Entries of up to `expressions` expressions with about `rows` outcomes.

    A segmented LRU cache: expressions that were used once, and those that were used again and are
    cheap, which get most of the room. What the second segment has no room for goes back to the
    first. Pinned expressions, such as the selectors of classes, are in neither and stay.
    """

    def __init__(self, expressions: int, rows: int, clock: Callable[[], float]) -> None:
        self._entries: dict[str, ExpressionEntry] = {}
        self._once: OrderedDict[str, ExpressionEntry] = OrderedDict()
        self._again: OrderedDict[str, ExpressionEntry] = OrderedDict()
        self._pinned: OrderedDict[str, ExpressionEntry] = OrderedDict()
        self._most_expressions = expressions
        self._most_rows = rows
        self._clock = clock

    def find(self, expression: str) -> ExpressionEntry | None:
        """Its entry; it becomes the latest used of its segment."""
        entry = self._entries.get(expression)
        if entry is not None:
            entry.segment.move_to_end(expression)
        return entry

    def peek(self, expression: str) -> ExpressionEntry | None:
        """Its entry; the order of use stays."""
        return self._entries.get(expression)

    def add(self, expression: str) -> ExpressionEntry:
        """Its entry; a new one if there is none."""
        # New entries join the segment that is forgotten first, whoever asks for them.
        if (entry := self.find(expression)) is None:
            entry = self._entries[expression] = ExpressionEntry(self._once, self._clock())
            self._once[expression] = entry
            if len(self._entries) > self._most_expressions:
                self._forget_one(entry)
        return entry

    def use(self, expressions: Iterable[str]) -> None:
        """Note that these are in use; those that are cheap and were used before are kept longer."""
        for expression in expressions:
            entry = self.find(expression)
            if (
                entry is not None
                and entry.segment is self._once
                and entry.judged
                and not entry.costly
                and self._clock() - entry.known_at > AGAIN_S
            ):
                self._move(expression, self._again)

    def pin(self, expressions: Collection[str]) -> None:
        """Never forget these, until others are pinned instead."""
        for expression in [e for e in self._pinned if e not in expressions]:
            self._move(expression, self._again)
        for expression in expressions:
            if expression in self._entries:
                self._move(expression, self._pinned)

    def make_room(self, entry: ExpressionEntry, more: int) -> None:
        """Forget other expressions until its rows fit; if it alone has too many, its own rows."""
        kept = sum(len(other.rows) for other in self._entries.values())
        while kept + more > self._most_rows and (gone := self._forget_one(entry)) is not None:
            kept -= len(gone.rows)
        if kept + more > self._most_rows:
            entry.rows.clear()

    def _move(self, expression: str, segment: OrderedDict[str, ExpressionEntry]) -> None:
        entry = self._entries[expression]
        del entry.segment[expression]
        segment[expression] = entry
        entry.segment = segment
        if len(self._again) > max(1, int(self._most_expressions * _AGAIN)):
            self._move(next(iter(self._again)), self._once)

    def _forget_one(self, spared: ExpressionEntry) -> ExpressionEntry | None:
        """Forget the least lately used expression other than `spared`; None if there is none."""
        for segment in (self._once, self._again):
            for expression, entry in segment.items():
                if entry is not spared:
                    del segment[expression], self._entries[expression]
                    return entry
        return None
