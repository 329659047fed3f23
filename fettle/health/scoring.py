"""The score: the worst of each family, what is left across families.

`score = Π (1 − worst weight of the family)`. Unknown takes a score down to 0.75 and no further.
"""

from collections.abc import Iterable

from fettle.model import UNKNOWN_SCORE, Evidence, Family, Kind, Weighed

DIGITS = 4


def weigh(evidence: Evidence) -> Weighed:
    """Evidence that does not fade."""
    unknown = evidence.kind is Kind.UNKNOWN
    return Weighed(evidence, 1.0 - UNKNOWN_SCORE if unknown else evidence.weight)


def ordered(said: Iterable[Weighed]) -> tuple[Weighed, ...]:
    """The heaviest first; ties in an order that does not depend on who spoke first."""
    return tuple(sorted(said, key=_rank))


def _rank(one: Weighed) -> tuple[float, bool, str, str, str, str]:
    e = one.evidence
    latched_last = e.kind is not Kind.LATCHED
    return -one.weight, latched_last, str(e.subject), e.source, e.reporter, e.text


def known_score(said: Iterable[Weighed]) -> float:
    """The score by what is known, whatever is unknown beside it."""
    worst: dict[Family, float] = {}
    for one in said:
        family = one.evidence.family
        if one.evidence.kind is not Kind.UNKNOWN and one.weight > worst.get(family, 0.0):
            worst[family] = one.weight
    score = 1.0
    for family in sorted(worst):  # the same product in whatever order evidence came
        score *= 1.0 - worst[family]
    return round(score, DIGITS)


def is_unknown(said: Iterable[Weighed]) -> bool:
    return any(one.evidence.kind is Kind.UNKNOWN for one in said)


def is_latched(said: Iterable[Weighed]) -> bool:
    return any(one.evidence.kind is Kind.LATCHED for one in said)


def is_held(said: Iterable[Weighed]) -> bool:
    return any(
        one.evidence.kind is Kind.LATCHED and one.evidence.family is Family.OPERATOR for one in said
    )
