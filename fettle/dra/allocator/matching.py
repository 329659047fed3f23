"""Whether requests can be met at once, with different devices for each.

A maximum bipartite matching between requests and devices: what it cannot meet, no search can. Pure.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from fettle.pacing import pause


class Need(NamedTuple):
    """A request needs `number` different candidates of those that are `candidates`."""

    number: int
    candidates: Collection[int]


def can_serve_all(needs: Sequence[Need], shared: Collection[int]) -> bool:
    """Whether all needs can be met at once. Only `shared` candidates may serve several needs."""
    needs_left = _without_shared(needs, shared)
    holder: dict[int, int] = {}
    for number in _indices(needs_left):
        if not _serve_one_more(number, needs_left, holder):
            return False
        pause()
    return True


def most_served(needs: Sequence[Need], shared: Collection[int]) -> int:
    """How many candidates the needs can get at once, at most."""
    # What can be met together is a matroid, so a greedy order reaches the maximum.
    needs_left = _without_shared(needs, shared)
    holder: dict[int, int] = {}
    met = sum(need.number for need in needs) - sum(1 for _ in _indices(needs_left))
    for number in _indices(needs_left):
        met += _serve_one_more(number, needs_left, holder)
        pause()
    return met


def _without_shared(needs: Sequence[Need], shared: Collection[int]) -> Sequence[Need]:
    """What is left of the needs once shared candidates serve all that they can."""
    if not shared:
        return needs
    needs_left = []
    for number, candidates in needs:
        alone = []
        for at in candidates:
            if at not in shared:
                alone.append(at)
            pause()
        needs_left.append(Need(number - (len(candidates) - len(alone)), alone))
        pause()
    return needs_left


def _indices(needs: Sequence[Need]) -> Iterator[int]:
    """The index of each need, once for each candidate that it needs."""
    return (place for place, need in enumerate(needs) for _ in range(need.number))


def _serve_one_more(start: int, needs: Sequence[Need], holder: dict[int, int]) -> bool:
    """Give a need one more candidate, by an augmenting path that is searched breadth first: another
    need may give up a candidate for a third one."""
    wanted_by: dict[int, int] = {}
    given_up: dict[int, int] = {}
    asking = [start]
    for need in asking:
        for at in needs[need].candidates:
            pause()
            if at in wanted_by:
                continue
            wanted_by[at] = need
            other = holder.get(at)
            if other is None:
                _apply_path(at, start, wanted_by, given_up, holder)
                return True
            if other != start and other not in given_up:
                given_up[other] = at
                asking.append(other)
        pause()
    return False


def _apply_path(
    at: int,
    start: int,
    wanted_by: dict[int, int],
    given_up: dict[int, int],
    holder: dict[int, int],
) -> None:
    """Apply the augmenting path that ends in candidate `at`."""
    while True:
        need = holder[at] = wanted_by[at]
        if need == start:
            return
        at = given_up[need]
