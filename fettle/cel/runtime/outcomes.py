"""What a selector says about one device, as values."""

from enum import StrEnum
from typing import NamedTuple


class OutcomeKind(StrEnum):
    """The four outcomes; only the first lets the allocator take the device."""

    MATCH = "match"
    NO_MATCH = "no match"
    WOULD_ABORT = "would abort"  # an error, which ends the scheduler's whole attempt for the pod
    UNDECIDED = "undecided"  # not surely any of the others


class Outcome(NamedTuple):
    """One of the four kinds; `reason` is one phrase for people, empty where there is a decision."""

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
"""Its evaluation on one device, or on all of them, took more time than it gets."""
