"""What is known of expressions: outcomes and costs, within bounds.

An expression that was used once is forgotten before those that were used again since. So a stream
of expressions that nobody uses twice pushes out nothing that is in use.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import IntEnum

from fettle.cel.runtime.outcomes import TOO_SLOW, Outcome, undecided
from fettle.cel.runtime.protocol import EvaluateReply
from fettle.cel.runtime.rows import Equation, Reads, RowFingerprint

DIED = undecided("the process that evaluates it ended over it")
GIVEN_UP = (TOO_SLOW, DIED)
"""What is said for a time, until it is tried again."""
PARSING: RowFingerprint = ()
"""In place of a row's key, while it is not known yet what the expression reads."""

TRIAL_S = 0.01
"""Worker time that every expression gets before it is told what it costs."""
COSTLY_ROW_S = 0.0005
"""Worker time for one row, in the mean, above which an expression is costly: most take 20 µs."""
DEATH_S = 0.2
"""What it costs where an expression ends the worker."""
DEATHS = 3
"""Deaths of the worker over a row after which that is given up, less one for each row before it.
Somebody else may have killed it, as the kernel does where memory is short."""
BUDGET_S = 1.0
"""Worker time after which a costly expression is given up."""
GIVEN_UP_S = 300.0
"""For how long it is, or one row of it."""
STRIKES = 3
"""Rows that were given up, after which the whole expression is."""
LONG = 1024
"""Characters beyond which a new expression waits for the shorter ones: parsing takes its time."""
AGAIN_S = 1.0
"""A use so long after an expression became known is another one: it is not the same pod's."""
_AGAIN = 0.8


Order = tuple[int, float]


class Level(IntEnum):
    """What goes first; within `LARGE` and `COSTLY`, what has cost the least so far, and within
    `NEW`, what has the fewest loops."""

    PROVEN = 0
    NEW = 1
    LARGE = 2  # many rows, each of them cheap, or a long text
    COSTLY = 3


class ExpressionEntry:
    """What is known of one expression.

    `default` is for devices whose row is not among `rows`: an outcome that holds for all of them.
    `deaths` is how often the worker ended over a row that has not been answered since.
    """

    __slots__ = (
        "deaths",
        "default",
        "driver",
        "equations",
        "given_up_until",
        "judged",
        "known_at",
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
        """Whether anything of it was given up, and not forgiven since."""
        return bool(self.strikes) or self.default in GIVEN_UP

    @property
    def suspect(self) -> bool:
        """Whether it had better not be asked about anything that is not needed."""
        return self.costly or self.gave_up or bool(self.deaths)

    def order(self, spent_s: float, deaths: int = 0) -> Order:
        """When its next question is to be asked, after so much worker time for who asks and so
        many deaths over the row that is next, of which the first costs no turn."""
        if self.costly or deaths > 1:
            return (Level.COSTLY, self.spent_s + deaths * DEATH_S)
        if spent_s > TRIAL_S:
            return (Level.LARGE, spent_s)
        return (Level.PROVEN, 0.0)

    def lacks(self, now: float) -> bool:
        """Whether something of it was given up, and that was long ago."""
        return self.gave_up and now >= self.given_up_until

    def forgive(self, now: float) -> None:
        """Forget what was given up long ago: it may go better now."""
        if not self.lacks(now):
            return
        self.strikes = 0
        self.deaths.clear()
        self.rows = {key: o for key, o in self.rows.items() if o not in GIVEN_UP}
        if self.default in GIVEN_UP:
            self.default = None

    def died(self, keys: Sequence[RowFingerprint], now: float, *, slow: bool) -> None:
        """The worker ended over a question about these rows; if about one alone, it may be given
        up by that."""
        for key in keys:
            self.deaths[key] = self.deaths.get(key, 0) + 1
        if slow:
            self.spent_s += DEATH_S
        if len(keys) > 1 or not (slow or self.deaths[keys[0]] + self.strikes >= DEATHS):
            return
        outcome = TOO_SLOW if slow else DIED
        if keys[0] == PARSING:
            self.give_up(outcome, now)
        else:
            self.strike(keys[0], outcome, now)

    def strike(self, key: RowFingerprint, outcome: Outcome, now: float) -> None:
        """One row is given up; after some, no further one is tried."""
        self.rows[key] = outcome
        self.strikes += 1
        self.given_up_until = now + GIVEN_UP_S
        if self.strikes >= STRIKES:
            self.give_up(outcome, now)

    def give_up(self, outcome: Outcome, now: float) -> None:
        self.default, self.given_up_until = outcome, now + GIVEN_UP_S

    def learn(self, keys: Iterable[RowFingerprint], judged: EvaluateReply, now: float) -> None:
        for key, outcome in zip(keys, judged.outcomes, strict=False):
            self.deaths.pop(key, None)
            if outcome == TOO_SLOW:
                self.strike(key, TOO_SLOW, now)
            else:
                self.rows[key] = outcome
        self.judged += len(judged.outcomes)
        self.spent_s += judged.spent_s
        if self.costly and self.spent_s > BUDGET_S:
            self.give_up(TOO_SLOW, now)


class Memory:
    """Entries of up to `expressions` expressions with about `rows` outcomes.

    Two segments, each in the order of the latest use: what was used once, and, for most of the
    room, what was used again and is cheap. What the second has no room for goes back to the first.
    What stands, such as the selectors of classes, is beside them and stays.
    """

    def __init__(self, expressions: int, rows: int, clock: Callable[[], float]) -> None:
        self._entries: dict[str, ExpressionEntry] = {}
        self._once: OrderedDict[str, ExpressionEntry] = OrderedDict()
        self._again: OrderedDict[str, ExpressionEntry] = OrderedDict()
        self._standing: OrderedDict[str, ExpressionEntry] = OrderedDict()
        self._most_expressions = expressions
        self._most_rows = rows
        self._clock = clock

    def find(self, expression: str) -> ExpressionEntry | None:
        """Its entry, which thereby is the latest used of its segment."""
        entry = self._entries.get(expression)
        if entry is not None:
            entry.segment.move_to_end(expression)
        return entry

    def look(self, expression: str) -> ExpressionEntry | None:
        """Its entry, without that."""
        return self._entries.get(expression)

    def add(self, expression: str) -> ExpressionEntry:
        """Its entry, a new one if need be."""
        if (entry := self.find(expression)) is None:
            entry = self._entries[expression] = ExpressionEntry(self._once, self._clock())
            self._once[expression] = entry
            if len(self._entries) > self._most_expressions:
                self._forget_one(entry)
        return entry

    def use(self, expressions: Iterable[str]) -> None:
        """Somebody asks for these; those that are cheap and were asked for before are kept."""
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

    def stand(self, expressions: Collection[str]) -> None:
        """Never forget these, until others stand in their place."""
        for expression in [e for e in self._standing if e not in expressions]:
            self._move(expression, self._again)
        for expression in expressions:
            if expression in self._entries:
                self._move(expression, self._standing)

    def make_room(self, entry: ExpressionEntry, more: int) -> None:
        """Forget others until its rows fit; where it alone has too many, its own."""
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
        """Forget the least used, but for one; None where there is no other."""
        for segment in (self._once, self._again):
            for expression, entry in segment.items():
                if entry is not spared:
                    del segment[expression], self._entries[expression]
                    return entry
        return None
