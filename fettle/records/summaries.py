"""What a table of verdicts says about the nodes of one request, in numbers by reason.

Nodes share verdicts, so reasons are looked at once for each verdict, not for each node.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import filterfalse, islice
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fettle.cluster import NodeView
from fettle.model.reasons import Reason
from fettle.scheduling import NEUTRAL, Leaning, Table, Verdict

MOST_NODES = 30
"""Names of refused nodes that are kept."""
MOST_PREFERRED = 3


class Counted(NamedTuple):
    """Reasons by code, each with the number of nodes; the commonest one; some of the nodes."""

    codes: dict[str, int]
    commonest: Reason | None = None
    nodes: tuple[str, ...] = ()

    def adding(self, reasons: Mapping[str, Reason]) -> "Counted":
        """With these nodes, each with its reason, none of which is counted yet."""
        if not reasons:
            return self
        codes = Counter(self.codes)
        codes.update(reason.code for reason in reasons.values())
        nodes = (*self.nodes, *reasons)[:MOST_NODES]
        return Counted(dict(codes), self.commonest or next(iter(reasons.values())), nodes)


NOTHING = Counted({})


class _Group(NamedTuple):
    """Nodes that are refused for reasons of the same codes."""

    codes: tuple[str, ...]
    first: Reason
    nodes: frozenset[str]


class Summaries:
    """Keeps how the refused nodes of a table are grouped, until one of them changes."""

    def __init__(self) -> None:
        self._of_table: WeakKeyDictionary[Table, tuple[frozenset[str], list[_Group]]] = (
            WeakKeyDictionary()
        )

    def refusals(
        self,
        table: Table,
        names: Iterable[str],
        refused: int,
        nodes: Mapping[str, NodeView],
    ) -> Counted:
        """Why so many of the names are refused; `nodes` are those of the view."""
        if not refused:
            return NOTHING
        refusing = table.refusing
        kept = self._of_table.get(table)
        if kept is None or kept[0] is not refusing:
            kept = self._of_table[table] = (refusing, _groups(table, refusing))
        groups = kept[1]
        if refused == len(refusing):
            counts, some = [len(group.nodes) for group in groups], iter(refusing)
        else:
            names = [*names]
            # Mostly there is one group, so nothing has to be looked up.
            counts = [sum(map(group.nodes.__contains__, names)) for group in groups[1:]]
            counts.insert(0, refused - sum(counts))
            some = filter(refusing.__contains__, names)
        codes: Counter[str] = Counter()
        for group, count in zip(groups, counts, strict=True):
            if count > 0:
                for code in group.codes:
                    codes[code] += count
        first = groups[max(range(len(groups)), key=counts.__getitem__)].first
        return Counted(dict(codes), first, own_names(islice(some, MOST_NODES), nodes))


def _groups(table: Table, names: Iterable[str]) -> list[_Group]:
    by_verdict: dict[int, tuple[Verdict, list[str]]] = {}
    for name in names:
        verdict = table.verdicts[name]
        known = by_verdict.get(id(verdict))
        if known is None:
            by_verdict[id(verdict)] = (verdict, [name])
        else:
            known[1].append(name)
    by_codes: dict[tuple[str, ...], tuple[Reason, list[str]]] = {}
    for verdict, nodes in by_verdict.values():
        codes = tuple(dict.fromkeys(reason.code for reason in verdict.refusals))
        by_codes.setdefault(codes, (verdict.refusals[0], []))[1].extend(nodes)
    return [_Group(codes, first, frozenset(n)) for codes, (first, n) in by_codes.items()]


def undecided(table: Table, names: Sequence[str]) -> dict[str, int]:
    """Why nodes among the names are undecided."""
    if not table.undecided:
        return {}
    return count_verdicts(
        table.verdicts, table.undecided.intersection(names), lambda verdict: verdict.undecided
    ).codes


def best_of(
    table: Table,
    names: Sequence[str],
    nodes: Mapping[str, NodeView],
    leaning: Leaning = NEUTRAL,
) -> dict[str, int]:
    """Some of the best names, with their score as the scheduler is told it; `nodes` are those of
    the view."""
    if not leaning:
        best = table.best_among(names, MOST_PREFERRED)
    else:
        leaning = leaning.among(names, table.score_of)
        special = leaning.named.intersection(names)
        # Of the others, what is best for its demand is best for the pod.
        others = [*filterfalse(special.__contains__, names)] if special else names
        score = leaning.scores(table)
        scored = {
            name: score(name) for name in (*special, *table.best_among(others, MOST_PREFERRED))
        }
        highest = max(scored.values(), default=0)
        best = {name: highest for name, found in scored.items() if found == highest}
    return {name: best[name] for name in own_names(best, nodes)[:MOST_PREFERRED]}


def own_names(names: Iterable[str], nodes: Mapping[str, NodeView]) -> tuple[str, ...]:
    """The names of known nodes, in the view's memory."""
    # A request's names are freed in a row; one that is kept would leave a hole.
    return tuple(nodes[name].name for name in names if name in nodes)


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
    return Counted(dict(codes), commonest, tuple(islice(names, MOST_NODES)))
