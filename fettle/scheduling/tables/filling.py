"""Fills a table with verdicts on many nodes: of those that look the same, one is judged.

To judge a node by itself, though only to find that it looks like another, costs some microseconds
for each of thousands of nodes; to look at it costs one or two. Beside `answers`. Pure.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

from fettle.cluster import NodeView
from fettle.pacing import pause
from fettle.scheduling.tables.looking import Fingerprint
from fettle.scheduling.tables.tables import Matching, Table

LOOKED_AT = 1000
"""So many nodes are told apart before one of each look is judged."""
LOOKS = 16
"""Nodes looked at between two pauses: a look takes only some times as long as a pause."""
BATCH = 200
"""So many at a time are given the verdict of one that looks like them."""


def fill(
    table: Table,
    names: Sequence[str],
    nodes: Mapping[str, NodeView],
    match: Matching,
    sibling: Table | None = None,
    judged: Callable[[Collection[str]], None] = lambda names: None,
) -> None:
    """Judge these nodes; `judged` gets the names of those that are, some at a time.

    The `sibling` is a table to which the same nodes look alike, as new as this one. To be given up
    once the table is brought up to date with another view.
    """
    for start in range(0, len(names), LOOKED_AT):
        look = table.look(match)
        some = names[start : start + LOOKED_AT]
        for first, *others in _alike(some, nodes, look, sibling):
            table.judge(nodes[first], match, look)
            judged((first,))
            pause()
            for at in range(0, len(others), BATCH):
                table.follow(first, batch := others[at : at + BATCH])
                judged(batch)
                pause()


def _alike(
    names: Iterable[str], nodes: Mapping[str, NodeView], look: Fingerprint, sibling: Table | None
) -> Collection[list[str]]:
    """The names in groups of nodes that look the same. Those that share a verdict in the sibling
    do, and need not be looked at."""
    groups: dict[Hashable, list[str]] = {}
    looks = 0
    for name in names:
        verdict = sibling.settled(name) if sibling is not None else None
        if verdict is not None:
            groups.setdefault(id(verdict), []).append(name)
            continue
        seen = look(nodes[name])
        groups.setdefault(name if seen is None else seen, []).append(name)
        looks += 1
        if not looks % LOOKS:
            pause()
    return groups.values()
