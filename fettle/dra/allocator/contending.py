"""Whether requests can all be served at once, by one device each for whatever they count.

A maximum matching between requests and devices: what it cannot serve, no search finds. Pure.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from fettle.pacing import pause


class Need(NamedTuple):
    """`number` different candidates of `able`."""

    number: int
    able: Collection[int]


def served(needs: Sequence[Need], shared: Collection[int]) -> bool:
    """Whether each need can be met while no candidate serves two, unless it is `shared`."""
    own = _apart(needs, shared)
    holder: dict[int, int] = {}
    for number in _units(own):
        if not _one_more(number, own, holder):
            return False
        pause()
    return True


def most(needs: Sequence[Need], shared: Collection[int]) -> int:
    """How much of the needs can be met at once.

    What can be met together is a matroid: meeting one after the other, while that is possible,
    meets the most.
    """
    own = _apart(needs, shared)
    holder: dict[int, int] = {}
    met = sum(need.number for need in needs) - sum(1 for _ in _units(own))
    for number in _units(own):
        met += _one_more(number, own, holder)
        pause()
    return met


def _apart(needs: Sequence[Need], shared: Collection[int]) -> Sequence[Need]:
    """What is left to be met by candidates that serve one need alone."""
    if not shared:
        return needs
    own = []
    for number, able in needs:
        alone = []
        for at in able:
            if at not in shared:
                alone.append(at)
            pause()
        own.append(Need(number - (len(able) - len(alone)), alone))
        pause()
    return own


def _units(needs: Sequence[Need]) -> Iterator[int]:
    """The place of each need, as often as what it counts."""
    return (place for place, need in enumerate(needs) for _ in range(need.number))


def _one_more(start: int, needs: Sequence[Need], holder: dict[int, int]) -> bool:
    """Give a need one more candidate, where others have to give way to others still: breadth first
    along what they hold."""
    wanted_by: dict[int, int] = {}
    given_up: dict[int, int] = {}
    asking = [start]
    for need in asking:
        for at in needs[need].able:
            pause()
            if at in wanted_by:
                continue
            wanted_by[at] = need
            other = holder.get(at)
            if other is None:
                _pass_on(at, start, wanted_by, given_up, holder)
                return True
            if other != start and other not in given_up:
                given_up[other] = at
                asking.append(other)
        pause()
    return False


def _pass_on(
    at: int,
    start: int,
    wanted_by: dict[int, int],
    given_up: dict[int, int],
    holder: dict[int, int],
) -> None:
    """Each need takes the candidate that it asked for, and gives up the one it was asked by."""
    while True:
        need = holder[at] = wanted_by[at]
        if need == start:
            return
        at = given_up[need]
