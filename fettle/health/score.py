"""The score: `Π (1 − worst weight of the family)` over all families of evidence.

Unknown evidence lowers a score to 0.75 and no further. Of the traces of past faults only the
heaviest counts, since a reboot or a repair shows in several families; the record of the last 28
days is one of them. Evidence with a reporting namespace is corroborated by that of other
namespaces, within bounds that hold across families too: what one tenant could cause, and what all
could, takes no more than that from the rest of the score.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from math import prod

import msgspec

from fettle.health.fading import RECORD_SOURCE, is_past
from fettle.model import (
    UNKNOWN_SCORE,
    Evidence,
    EvidenceKind,
    Family,
    ReporterId,
    Source,
    SourceKind,
    Weighed,
)

DIGITS = 4
"""Scores are rounded, so that an error of floating point is no change that is published."""


def corroborate(weighed: Iterable[Weighed]) -> list[Weighed]:
    """What several namespaces met counts in full, as nobody's word; what one met, at most as much
    as namespaces may together. Only of sources that no tenant brings about alone."""
    found = list(weighed)
    tell: dict[Source, set[str]] = defaultdict(set)
    for one in found:
        if one.evidence.source.kind is SourceKind.UNEXPLAINED and one.weight > 0:
            tell[one.evidence.source].add(one.evidence.reporting_namespace)
    if not tell:
        return found
    return [
        _corroborated(one, len(tell[source]) > 1)
        if (source := one.evidence.source) in tell
        else one
        for one in found
    ]


def _corroborated(one: Weighed, is_proven: bool) -> Weighed:
    said = one.evidence
    if is_proven:
        return Weighed(msgspec.structs.replace(said, reporting_namespace=""), one.weight)
    return Weighed(msgspec.structs.replace(said, cap=said.together), min(one.weight, said.together))


def weigh(evidence: Evidence) -> Weighed:
    """Evidence that does not fade, with its weight."""
    unknown = evidence.kind is EvidenceKind.UNKNOWN
    return Weighed(evidence, 1.0 - UNKNOWN_SCORE if unknown else evidence.weight)


def ordered(weighed: Iterable[Weighed]) -> tuple[Weighed, ...]:
    """The heaviest first; ties in an order that does not depend on who reported first."""
    return tuple(sorted(weighed, key=_rank))


def _rank(one: Weighed) -> tuple[float, bool, str, Source, ReporterId, str]:
    e = one.evidence
    latched_last = e.kind is not EvidenceKind.LATCHED
    return -one.weight, latched_last, str(e.subject), e.source, e.reporter, e.said


def known_score(weighed: Iterable[Weighed]) -> float:
    """The score by what is known, ignoring unknown evidence."""
    worst: dict[Family, float] = defaultdict(float)
    traces: dict[Family, float] = defaultdict(float)
    reported: dict[tuple[Family, Source], list[Weighed]] = defaultdict(list)
    for one in weighed:
        evidence = one.evidence
        if evidence.kind is EvidenceKind.UNKNOWN:
            continue
        if evidence.reporting_namespace:
            reported[evidence.family, evidence.source].append(one)
        else:
            of_kind = traces if is_past(evidence) else worst
            of_kind[evidence.family] = max(of_kind[evidence.family], one.weight)
    over = [(weight, family) for family, weight in traces.items() if weight > worst[family]]
    if over:
        heaviest, family = max(over)
        worst[family] = heaviest
    score = _left(worst)
    if reported:
        for (family, _), together in reported.items():
            worst[family] = max(worst[family], corroborated(together))
        score = max(_left(worst), score * _left_by_namespaces(reported.values()))
    return round(score, DIGITS)


def reporting_namespaces(weighed: Iterable[Weighed]) -> set[str]:
    """The namespaces whose word still weighs something."""
    return {
        one.evidence.reporting_namespace
        for one in weighed
        if one.evidence.reporting_namespace and one.weight > 0
    }


def stating_evidence(weighed: tuple[Weighed, ...]) -> tuple[Weighed, ...]:
    """Evidence that the state follows from: what is proven, but for the record of 28 days."""
    return tuple(
        one
        for one in weighed
        if not one.evidence.reporting_namespace and one.evidence.source != RECORD_SOURCE
    )


def _left(worst: Mapping[Family, float]) -> float:
    score = 1.0
    for family in sorted(worst):  # the same product in whatever order evidence came
        score *= 1.0 - worst[family]
    return score


def _left_by_namespaces(reported: Iterable[Iterable[Weighed]]) -> float:
    """What they leave of a score at least, whatever they say."""
    caps: dict[str, float] = defaultdict(float)
    bound = 0.0
    for one in chain.from_iterable(reported):
        evidence = one.evidence
        caps[evidence.reporting_namespace] = max(caps[evidence.reporting_namespace], evidence.cap)
        bound = max(bound, evidence.together)
    return max(1.0 - bound, prod(1.0 - caps[namespace] for namespace in sorted(caps)))


def corroborated(reported: Iterable[Weighed]) -> float:
    """What the namespaces that report one fact weigh together: `1 − Π (1 − weight)`, at most
    their bound."""
    by_namespace: dict[str, float] = defaultdict(float)
    bound = 0.0
    for one in reported:
        namespace = one.evidence.reporting_namespace
        by_namespace[namespace] = max(by_namespace[namespace], one.weight)
        bound = max(bound, one.evidence.together)
    doubt = 1.0
    for weight in sorted(by_namespace.values()):
        doubt *= 1.0 - weight
    return min(1.0 - doubt, bound)


def is_unknown(weighed: Iterable[Weighed]) -> bool:
    return any(one.evidence.kind is EvidenceKind.UNKNOWN for one in weighed)


def is_latched(weighed: Iterable[Weighed]) -> bool:
    return any(one.evidence.kind is EvidenceKind.LATCHED for one in weighed)


def is_held(weighed: Iterable[Weighed]) -> bool:
    return any(
        one.evidence.kind is EvidenceKind.LATCHED and one.evidence.family is Family.OPERATOR
        for one in weighed
    )
