"""Which candidates each request could have if nothing else were asked for: found out once a search
has gone back a few times, before it is said that going on is of no use. Pure.
"""

from collections.abc import Mapping, Sequence

import msgspec

from fettle.dra.allocator.constraints import attribute, value_of
from fettle.dra.allocator.outcomes import Aborted, Unclear
from fettle.dra.allocator.plans import AllRequestData, RequestData, every
from fettle.dra.allocator.taking import Books
from fettle.dra.claims import Alternative
from fettle.pacing import pause

ByValue = Mapping[object, Sequence[int]]
"""Candidates by the value of an attribute; under None those whose value compares in other ways.
Those that have none are left out."""


class Ability:
    """The candidates that an alternative could have, in order; others that differ from it in
    nothing but name and number share it."""

    def __init__(self, able: Sequence[int], books: Books) -> None:
        self.able = able
        self._candidates = books.candidates
        self._by_value: dict[str | None, ByValue] = {}

    def by_value(self, name: str | None) -> ByValue:
        """By the value of the attribute of this name."""
        if name not in self._by_value:
            table: dict[object, list[int]] = {}
            for at in self.able:
                found = attribute(name, self._candidates[at].device)
                if found is not None:
                    table.setdefault(value_of(found), []).append(at)
                pause()
            self._by_value[name] = table
        return self._by_value[name]


Abilities = Mapping[RequestData, Ability]


def abilities(plans: AllRequestData, books: Books) -> Abilities | None:
    """None where looking at some candidate ends in an error, or cannot be told: that a search would
    come to the same, whatever it may be spared."""
    by_kind: dict[Alternative, Ability] = {}
    found: dict[RequestData, Ability] = {}
    try:
        for plan in every(plans):
            kind = selection_key(plan)
            if kind not in by_kind:
                by_kind[kind] = Ability(books.able(plan), books)
            found[plan] = by_kind[kind]
    except (Aborted, Unclear):
        return None
    return found


def selection_key(plan: RequestData) -> Alternative:
    """All that matters to whether a candidate can be had."""
    return msgspec.structs.replace(plan.alternative, name="", count=0)
