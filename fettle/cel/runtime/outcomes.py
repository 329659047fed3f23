"""What a selector says about one device, as values."""

from enum import StrEnum
from typing import NamedTuple


class OutcomeKind(StrEnum):
    """The four outcomes; only a match lets the allocator take the device."""

    MATCH = "match"
    NO_MATCH = "no match"
    WOULD_ABORT = "would abort"  # an error that ends the scheduler's attempt for the whole pod
    UNDECIDED = "undecided"  # it is not known which of the others Kubernetes finds


class Outcome(NamedTuple):
    """One of the four kinds; `reason` is a phrase for people, empty for a match or no match."""

    kind: OutcomeKind
    reason: str = ""

    @property
    def matches(self) -> bool:
        return self.kind is OutcomeKind.MATCH

    @property
    def undecided(self) -> bool:
        return self.kind is OutcomeKind.UNDECIDED


MATCH = Outcome(OutcomeKind.MATCH)
NO_MATCH = Outcome(OutcomeKind.NO_MATCH)


def would_abort(reason: str) -> Outcome:
    return Outcome(OutcomeKind.WOULD_ABORT, reason)


def undecided(reason: str) -> Outcome:
    return Outcome(OutcomeKind.UNDECIDED, reason)


TOO_SLOW = undecided("it takes too long")
"""The evaluation took more time than an expression gets for one device, or for all of them."""
