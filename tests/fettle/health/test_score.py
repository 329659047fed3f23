"""The score from weighed evidence: families, traces, namespaces and the unknown."""

import msgspec
import pytest

from fettle.health import fading
from fettle.health.score import known_score, ordered, weigh
from fettle.model import (
    Evidence,
    EvidenceKind,
    Family,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    Weighed,
)
from tests.fettle.health.signals.objects import NOW


def evidence(
    family: Family = Family.DRIVER,
    weight: float = 0.5,
    kind: EvidenceKind = EvidenceKind.LEVEL,
    at: float = NOW,
    cap: float = 1.0,
) -> Evidence:
    return Evidence(
        subject=NodeId("n"),
        family=family,
        kind=kind,
        weight=weight,
        source=Source(SourceKind.TAINT, "s"),
        reporter=ReporterId("r"),
        said="t",
        observed_at=at,
        half_life_s=3600.0,
        cap=cap,
    )


def score(*said: Evidence) -> float:
    return known_score([weigh(e) for e in said])


def test_a_family_counts_once_by_its_worst() -> None:
    assert score(evidence(weight=0.5), evidence(weight=0.3)) == 0.5


def test_families_multiply() -> None:
    assert score(evidence(Family.LINK, 0.5), evidence(Family.MEMORY, 0.4)) == 0.3


def test_of_all_traces_only_the_heaviest_counts_beside_what_stands() -> None:
    traces = [
        fading.trace(evidence(family), weight, 0.5, 3600.0, NOW)
        for family, weight in ((Family.BUS, 0.12), (Family.NODE, 0.1), (Family.DRIVER, 0.11))
    ]
    assert score(*traces) == 0.88
    assert score(*traces, evidence(Family.BUS, 0.5)) == pytest.approx(0.5 * 0.89)
    assert score(*traces, evidence(Family.LINK, 0.5)) == 0.44
    assert score(*traces, *(evidence(family) for family in Family)) == score(
        *(evidence(family) for family in Family)
    )


def test_a_clock_that_was_ahead_and_is_set_back_keeps_nothing_from_fading() -> None:
    ahead = NOW + 86_400
    one = fading.starting(evidence(weight=0.4, at=ahead, kind=EvidenceKind.DECAYING), ahead)
    assert one.weighed(NOW).weight == 0.4
    assert one.weighed(NOW + 3600).weight == pytest.approx(0.2)


def test_an_event_after_a_clock_was_set_back_counts_in_full() -> None:
    ahead = NOW + 86_400
    for renew in (False, True):
        one = fading.starting(evidence(weight=0.1, at=ahead, kind=EvidenceKind.DECAYING), ahead)
        event = evidence(weight=0.4, at=NOW, kind=EvidenceKind.DECAYING)
        (one.renew if renew else one.add)(event, NOW)
        assert one.weighed(NOW).weight == pytest.approx(0.4 if renew else 0.5)
        assert one.weighed(NOW + 3600).weight == pytest.approx(0.2 if renew else 0.25)


def word(
    of: str, weight: float = 0.35, source: str = "s", family: Family = Family.DRIVER
) -> Evidence:
    said = evidence(family, weight)
    return msgspec.structs.replace(
        said,
        reporting_namespace=of,
        source=Source(SourceKind.TAINT, source),
        cap=0.35,
        together=0.6,
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([word("a")], 0.65),
        ([word("a"), word("a"), word("a", 0.2)], 0.65),  # one namespace, however often it reports
        ([word("a"), word("b")], 0.4225),
        ([word("a"), word("b"), word("c")], 0.4),  # the bound on all of them
        ([word("a", source="x"), word("b", source="y")], 0.65),  # not about the same thing
        ([word("a"), word("b"), evidence(weight=0.5)], 0.4225),  # the worst of the family
        ([word("a"), evidence(weight=0.5)], 0.5),
        # in other families too, they take no more from what else is known
        ([word("a"), word("a", family=Family.LINK)], 0.65),
        ([word("a"), word("b", family=Family.LINK)], 0.4225),
        ([word(of, family=f) for of in "ab" for f in (Family.LINK, Family.ADMISSION)], 0.4225),
        ([word(of, family=f) for of in "abc" for f in (Family.LINK, Family.ADMISSION)], 0.4),
        ([*(word(of, family=Family.LINK) for of in "abc"), evidence(Family.NODE, 0.5)], 0.2),
    ],
)
def test_namespaces_corroborate_each_other_within_a_bound(
    said: list[Evidence], expected: float
) -> None:
    assert score(*said) == expected
    assert score(*reversed(said)) == expected


def test_nothing_said_is_a_perfect_score() -> None:
    assert score() == 1.0


@pytest.mark.parametrize(
    ("age_s", "weight"), [(0, 0.4), (3600, 0.2), (7200, 0.1), (36_000, 0.0004)]
)
def test_an_event_halves_every_half_life(age_s: float, weight: float) -> None:
    one = fading.starting(evidence(weight=0.4, kind=EvidenceKind.DECAYING), NOW)
    assert one.weighed(NOW + age_s).weight == pytest.approx(weight, abs=0.00005)


def test_events_add_up_to_the_cap_in_any_order() -> None:
    def total(*ages_s: float) -> float:
        ordered = [evidence(weight=0.3, at=NOW - age, cap=0.8) for age in ages_s]
        one = fading.starting(ordered[0], NOW)
        for event in ordered[1:]:
            one.add(event, NOW)
        return one.weighed(NOW).weight

    assert total(0, 3600) == pytest.approx(0.45)
    assert total(3600, 0) == pytest.approx(0.45)
    assert total(7200, 0, 3600) == pytest.approx(0.525)
    assert total(0, 0, 0, 0, 0) == 0.8


def test_repeats_are_counted_for_people() -> None:
    one = fading.starting(evidence(), NOW)
    one.add(evidence(), NOW)
    one.add(evidence(), NOW)
    assert one.weighed(NOW).evidence.text == "t (the latest of 3)"


def test_an_event_from_the_future_counts_as_one_of_now() -> None:
    one = fading.starting(evidence(weight=0.4, at=NOW + 900), NOW)
    assert one.weighed(NOW).weight == 0.4
    assert one.weighed(NOW + 3600).weight == pytest.approx(0.2)


def test_the_same_fact_from_another_reporter_is_fresh_but_not_worse() -> None:
    one = fading.starting(evidence(weight=0.4), NOW)
    one.renew(evidence(weight=0.4, at=NOW + 3600), NOW + 3600)
    assert one.weighed(NOW + 3600).weight == 0.4


def test_explanations_are_sorted_heaviest_first_latched_before_level() -> None:
    light, level = evidence(weight=0.1), evidence(weight=1.0)
    latched = evidence(weight=1.0, kind=EvidenceKind.LATCHED)
    said = ordered(Weighed(e, e.weight) for e in (light, level, latched))
    assert [w.evidence for w in said] == [latched, level, light]
