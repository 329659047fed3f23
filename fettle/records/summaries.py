"""What a table of verdicts says about the nodes of one request, in numbers by reason.

Nodes share verdicts, so reasons are looked at once for each verdict, not for each node.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from sys import intern
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fettle.model.reasons import Reason
from fettle.scheduling import Table, Verdict

MOST_NODES = 100
"""Names of refused nodes that are kept."""
MOST_PREFERRED = 3


class Counted(NamedTuple):
    """Reasons by code, each with the number of nodes; the commonest one; some of the nodes."""

    codes: dict[str, int]
    commonest: Reason | None = None
    nodes: tuple[str, ...] = ()


NOTHING = Counted({})


class Summaries:
    """Keeps what it counted for all refused nodes of a table, which is what most requests need."""

    def __init__(self) -> None:
        self._of_table: WeakKeyDictionary[Table, tuple[frozenset[str], Counted]] = (
            WeakKeyDictionary()
        )

    def refusals(self, table: Table, names: Iterable[str], refused: int) -> Counted:
        """Why so many of the names are refused."""
        if not refused:
            return NOTHING
        refusing = table.refusing
        if refused < len(refusing):
            return _refusals(table, list(filter(refusing.__contains__, names)))
        kept = self._of_table.get(table)
        if kept is None or kept[0] is not refusing:
            kept = self._of_table[table] = (refusing, _refusals(table, refusing))
        return kept[1]


def undecided(table: Table, names: Sequence[str]) -> dict[str, int]:
    """Why nodes among the names are undecided."""
    if not table.undecided:
        return {}
    return count_verdicts(
        table.verdicts, table.undecided.intersection(names), lambda verdict: verdict.undecided
    ).codes


def best_of(table: Table, names: Sequence[str]) -> dict[str, int]:
    """Some of the best names, with their score."""
    best = table.best_among(names, MOST_PREFERRED)
    return {intern(name): score for name, score in best.items()}


def _refusals(table: Table, names: Collection[str]) -> Counted:
    return count_verdicts(table.verdicts, names, lambda verdict: verdict.refusals)


def count_verdicts(
    verdicts: Mapping[str, Verdict],
    names: Collection[str],
    reasons_of: Callable[[Verdict], Sequence[Reason]],
) -> Counted:
    """The reasons of these nodes' verdicts."""
    by_verdict: Counter[int] = Counter()
    seen: dict[int, Verdict] = {}
    for name in names:
        if (verdict := verdicts.get(name)) is not None:
            by_verdict[id(verdict)] += 1
            seen[id(verdict)] = verdict
    codes: Counter[str] = Counter()
    for key, nodes in by_verdict.items():
        for code in dict.fromkeys(reason.code for reason in reasons_of(seen[key])):
            codes[code] += nodes
    commonest: Reason | None = None
    if codes:
        (code, _), *_ = codes.most_common(1)
        found = (r for verdict in seen.values() for r in reasons_of(verdict) if r.code == code)
        commonest = next(found, None)
    some = tuple(map(intern, islice(sorted(names) if len(names) < 1000 else names, MOST_NODES)))
    return Counted(dict(codes), commonest, some)
