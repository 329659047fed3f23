"""Whether requests can all be served at once, by one device each for whatever they count.

A maximum matching between requests and devices: what it cannot serve, no search finds. Pure.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Need(NamedTuple):
    """`number` different candidates of `able`."""

    number: int
    able: Collection[int]


def served(needs: Sequence[Need], shared: Collection[int]) -> bool:
    """Whether each need can be met while no candidate serves two, unless it is `shared`."""
    own = [
        Need(
            need.number - sum(at in shared for at in need.able),
            [a for a in need.able if a not in shared],
        )
        for need in needs
    ]
    holder: dict[int, int] = {}
    return all(
        _one_more(number, own, holder, set())
        for number, need in enumerate(own)
        for _ in range(need.number)
    )


def _one_more(number: int, needs: Sequence[Need], holder: dict[int, int], asked: set[int]) -> bool:
    """Give a need one more candidate, where others have to give way to others still."""
    asked.add(number)
    for at in needs[number].able:
        if at not in holder:
            holder[at] = number
            return True
    for at in needs[number].able:
        if holder[at] not in asked and _one_more(holder[at], needs, holder, asked):
            holder[at] = number
            return True
    return False
