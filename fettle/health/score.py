"""The score: `Π (1 − worst weight of the family)` over all families of evidence.

Unknown evidence lowers a score to 0.75 and no further. Of the traces of past faults only the
heaviest counts, since a reboot or a repair shows in several families. Evidence with a witness is
corroborated by other witnesses, within a bound that holds across families too: what tenants could
cause takes no more than that from the rest of the score.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from fettle.health.fading import is_trace
from fettle.model import UNKNOWN_SCORE, Evidence, EvidenceKind, Family, Weighed

DIGITS = 4


def weigh(evidence: Evidence) -> Weighed:
    """Evidence that does not fade, with its weight."""
    unknown = evidence.kind is EvidenceKind.UNKNOWN
    return Weighed(evidence, 1.0 - UNKNOWN_SCORE if unknown else evidence.weight)


def ordered(said: Iterable[Weighed]) -> tuple[Weighed, ...]:
    """The heaviest first; ties in an order that does not depend on who reported first."""
    return tuple(sorted(said, key=_rank))


def _rank(one: Weighed) -> tuple[float, bool, str, str, str, str]:
    e = one.evidence
    latched_last = e.kind is not EvidenceKind.LATCHED
    return -one.weight, latched_last, str(e.subject), e.source, e.reporter, e.text


def known_score(said: Iterable[Weighed]) -> float:
    """The score by what is known, ignoring unknown evidence."""
    worst: dict[Family, float] = defaultdict(float)
    traces: dict[Family, float] = defaultdict(float)
    words: dict[tuple[Family, str], list[Weighed]] = defaultdict(list)
    for one in said:
        evidence = one.evidence
        if evidence.kind is EvidenceKind.UNKNOWN:
            continue
        if evidence.witness:
            words[evidence.family, evidence.source].append(one)
        else:
            of_kind = traces if is_trace(evidence) else worst
            of_kind[evidence.family] = max(of_kind[evidence.family], one.weight)
    over = [(weight, family) for family, weight in traces.items() if weight > worst[family]]
    if over:
        heaviest, family = max(over)
        worst[family] = heaviest
    score = _left(worst)
    if words:
        bound = max(one.evidence.together for about in words.values() for one in about)
        for (family, _), about in words.items():
            worst[family] = max(worst[family], corroborated(about))
        score = max(_left(worst), score * (1.0 - bound))
    return round(score, DIGITS)


def proven_evidence(said: tuple[Weighed, ...]) -> tuple[Weighed, ...]:
    """Evidence that no tenant could have caused."""
    return tuple(one for one in said if not one.evidence.witness)


def _left(worst: Mapping[Family, float]) -> float:
    score = 1.0
    for family in sorted(worst):  # the same product in whatever order evidence came
        score *= 1.0 - worst[family]
    return score


def corroborated(words: Iterable[Weighed]) -> float:
    """What the witnesses of one fact weigh together: `1 − Π (1 − weight)`, at most their bound."""
    by_witness: dict[str, float] = defaultdict(float)
    bound = 0.0
    for one in words:
        witness = one.evidence.witness
        by_witness[witness] = max(by_witness[witness], one.weight)
        bound = max(bound, one.evidence.together)
    doubt = 1.0
    for weight in sorted(by_witness.values()):
        doubt *= 1.0 - weight
    return min(1.0 - doubt, bound)


def is_unknown(said: Iterable[Weighed]) -> bool:
    return any(one.evidence.kind is EvidenceKind.UNKNOWN for one in said)


def is_latched(said: Iterable[Weighed]) -> bool:
    return any(one.evidence.kind is EvidenceKind.LATCHED for one in said)


def is_held(said: Iterable[Weighed]) -> bool:
    return any(
        one.evidence.kind is EvidenceKind.LATCHED and one.evidence.family is Family.OPERATOR
        for one in said
    )
