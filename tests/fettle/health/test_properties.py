"""What holds for health whatever is said, in whatever order, at whatever time."""

from itertools import pairwise

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from fettle.config import HealthSettings
from fettle.health.signals.reports import SignalReport, heaviest
from fettle.model import (
    SOUND,
    UNKNOWN_SCORE,
    Evidence,
    EvidenceKind,
    Family,
    Health,
    ReporterId,
    Source,
    SourceKind,
    State,
)
from tests.fettle.health.drawn import (
    KEY,
    SUBJECTS,
    T0,
    about_the_bus,
    assess,
    book,
    evidence,
    reported,
    reports,
    told,
    waits,
    who,
)

DWELL_S = 600.0
SEVERITY = {State.HEALTHY: 0, State.UNKNOWN: 0, State.DEGRADED: 1, State.UNHEALTHY: 2}


@given(reports(), st.lists(waits, max_size=4))
def test_a_score_is_a_share_and_its_evidence_is_sorted(
    said: list[SignalReport], later: list[float]
) -> None:
    filled, now = told(said), T0
    for wait in [0.0, *later]:
        now += wait
        health = assess(filled, now)
        assert 0.0 <= health.score <= 1.0
        assert all(0.0 <= w.weight <= 1.0 for w in health.evidence)
        assert all(a.weight >= b.weight for a, b in pairwise(health.evidence))


@given(reports(), evidence())
@example(
    [SignalReport(ReporterId("honest"), (about_the_bus(EvidenceKind.DECAYING, 0.5),))],
    about_the_bus(EvidenceKind.LATCHED, 1.0, reporting_namespace="team-a", together=0.1),
)
@example(
    [
        SignalReport(
            ReporterId(team),
            (about_the_bus(EvidenceKind.DECAYING, 0.35, reporting_namespace=team, together=0.6),),
        )
        for team in ("team-a", "team-b")
    ],
    about_the_bus(EvidenceKind.LEVEL, 0.4),
)
def test_more_evidence_never_raises_a_score(said: list[SignalReport], more: Evidence) -> None:
    before = assess(told(said)).score
    after = assess(told([*said, SignalReport(ReporterId("one", "more"), (more,))])).score
    assert after <= before + 0.005  # an event adds to what was forgotten as negligible


@given(reports([EvidenceKind.LEVEL, EvidenceKind.DECAYING]), st.lists(waits, max_size=4))
def test_what_tenants_could_bring_about_alone_never_makes_unhealthy(
    said: list[SignalReport], later: list[float]
) -> None:
    filled, now = book(), T0
    for report in said:
        tenant_caused = tuple(
            msgspec.structs.replace(
                e, reporting_namespace=e.reporting_namespace or "team-c", together=0.6
            )
            for e in report.evidence
        )
        filled.ledger.report(report._replace(evidence=tenant_caused), T0)
    for wait in [0.0, *later]:
        now += wait
        health = assess(filled, now)
        assert (health.state, health.proven) == (State.HEALTHY, 1.0)
        assert health.score >= 0.4
    for report in said:
        filled.ledger.report(SignalReport(report.reporter, (), absent_is_clear=True), now)
    assert assess(filled, now).state is State.HEALTHY


@given(
    reports(),
    reports([EvidenceKind.LEVEL, EvidenceKind.DECAYING, EvidenceKind.LATCHED]),
    st.lists(waits, max_size=4),
)
def test_what_tenants_could_bring_about_moves_no_state_and_nothing_that_is_proven(
    said: list[SignalReport], words: list[SignalReport], later: list[float]
) -> None:
    """Whatever else is said, now and when they take their words back."""
    without, beside, now = told(said), told(said), T0

    def alike() -> None:
        one, other = assess(without, now), assess(beside, now)
        assert (one.state, one.held) == (other.state, other.held)
        assert one.state is State.HEALTHY or one.since == other.since
        assert abs(one.proven - other.proven) < 0.02  # what moved by less than 0.01 is not shown

    for i, report in enumerate(words):
        tenant_caused = tuple(
            msgspec.structs.replace(
                e,
                reporting_namespace=e.reporting_namespace or "team-c",
                source=Source(SourceKind.CLAIM_CONDITION, e.source.name),
            )
            for e in report.evidence
        )
        beside.ledger.report(SignalReport(who(i, "tenant"), tenant_caused), now)
    alike()
    for wait in later:
        now += wait
        alike()
    for i in range(len(words)):
        beside.ledger.report(SignalReport(who(i, "tenant"), (), absent_is_clear=True), now)
        alike()


@given(
    reports(),
    reports(
        [EvidenceKind.LEVEL, EvidenceKind.LATCHED, EvidenceKind.UNKNOWN, EvidenceKind.DECAYING]
    ),
)
def test_for_a_returned_subject_only_what_living_reporters_say_counts(
    said: list[SignalReport], left: list[SignalReport]
) -> None:
    def gone(report: SignalReport) -> ReporterId:
        return msgspec.structs.replace(report.reporter, kind="gone")

    lived = told(said)
    for report in left:
        lived.ledger.report(report._replace(reporter=gone(report)), T0)
    assess(lived)
    for report in left:
        lived.ledger.vanish(gone(report), T0)
    for subject in SUBJECTS:
        lived.forget({subject}, T0)
    one, other = assess(lived), assess(told(said))
    assert abs(one.score - other.score) <= 0.0001
    assert (one.state, one.held) == (other.state, other.held)
    assert {w.evidence for w in one.evidence} == {w.evidence for w in other.evidence}


@given(reports(), st.randoms())
def test_the_order_of_reports_does_not_matter(said: list[SignalReport], random: object) -> None:
    shuffled = list(said)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = assess(told(said)), assess(told(shuffled))
    assert abs(one.score - other.score) <= 0.0001
    assert (one.state, one.held) == (other.state, other.held)
    assert {w.evidence for w in one.evidence} == {w.evidence for w in other.evidence}


@given(reports())
def test_repeated_reports_change_nothing_and_return_the_same_health(
    said: list[SignalReport],
) -> None:
    filled = told(said)
    first = assess(filled)
    assert [filled.ledger.report(report, T0 + 1) for report in said] == [set()] * len(said)
    assert assess(filled, T0) is first


@given(reports(), evidence([EvidenceKind.LATCHED]), st.lists(waits, min_size=1, max_size=5))
def test_time_alone_never_clears_what_is_latched(
    said: list[SignalReport], latched: Evidence, later: list[float]
) -> None:
    latched = msgspec.structs.replace(latched, reporting_namespace="")
    filled, now = told([*said, SignalReport(ReporterId("latch"), (latched,))]), T0
    for wait in later:
        now += 100 * wait
        filled.changed_by_time(now)
        filled.ledger.vanish(ReporterId("latch"), now)
        assert assess(filled, now).state is State.UNHEALTHY


@given(reports([EvidenceKind.UNKNOWN]))
def test_not_knowing_alone_scores_three_quarters(said: list[SignalReport]) -> None:
    health = assess(told(said))
    if any(report.evidence for report in said):
        assert (health.state, health.score) == (State.UNKNOWN, UNKNOWN_SCORE)
    else:
        assert health is SOUND


@given(reports(), evidence([EvidenceKind.UNKNOWN]))
def test_not_knowing_never_hides_or_worsens_what_is_known(
    said: list[SignalReport], unknown: Evidence
) -> None:
    known = assess(told(said))
    both = assess(told([*said, SignalReport(ReporterId("who", "knows"), (unknown,))]))
    assert both.score == min(known.score, UNKNOWN_SCORE)
    if known.state in (State.DEGRADED, State.UNHEALTHY):
        assert both.state is known.state


events = st.lists(
    st.tuples(st.floats(1.0, 1500.0), st.none() | evidence([EvidenceKind.DECAYING])), max_size=25
)


@given(events)
def test_without_an_all_clear_a_state_is_not_left_for_a_better_one_within_its_dwell(
    steps: list[tuple[float, Evidence | None]],
) -> None:
    filled, now = book(), T0
    state, entered = State.HEALTHY, T0 - DWELL_S
    for i, (wait, event) in enumerate(steps):
        now += wait
        if event is not None:
            fresh = msgspec.structs.replace(event, observed_at=now)
            filled.ledger.report(SignalReport(who(i, "pod"), (fresh,)), now)
        health = assess(filled, now)
        if SEVERITY[health.state] < SEVERITY[state]:
            assert now - entered >= DWELL_S
        if health.state is not state:
            state, entered = health.state, now


@given(reports([EvidenceKind.LEVEL, EvidenceKind.LATCHED, EvidenceKind.UNKNOWN]), waits)
def test_an_explicit_all_clear_frees_at_once(said: list[SignalReport], stood: float) -> None:
    """One recovery of each thing leaves only light traces, and no state outlives it."""
    filled = told(said)
    assess(filled, T0 + stood)
    now = T0 + stood + 1
    for report in said:
        filled.ledger.report(SignalReport(report.reporter, (), absent_is_clear=True), now)
    health = assess(filled, now)
    assert all(w.evidence.kind is EvidenceKind.DECAYING for w in health.evidence)
    # a light trace of a fault, and one of having known nothing about the same thing
    assert health.score >= (1 - 2 * 0.12) ** len(Family) - 0.0001
    if health.score >= HealthSettings().degraded_below and _was_told_of_more_than_mild(said):
        assert health.state is State.HEALTHY


def _was_told_of_more_than_mild(said: list[SignalReport]) -> bool:
    said_of_it = (e for r in said for e in r.evidence if not e.reporting_namespace)
    return any(e.weight > 0.1 and e.kind is not EvidenceKind.UNKNOWN for e in said_of_it)


@given(reports(), st.lists(st.tuples(waits, st.integers(0, 4)), max_size=8))
def test_changed_by_time_names_exactly_the_keys_whose_health_time_has_changed(
    said: list[SignalReport], steps: list[tuple[float, int]]
) -> None:
    filled, now = told(said), T0
    before = assess(filled)
    for wait, gone in steps:
        now += wait
        moved = filled.changed_by_time(now)
        after = assess(filled, now)
        if KEY in moved:
            assert after is not before
        elif after is not before:  # a hair's breadth after the last look
            assert abs(after.score - before.score) < 0.011
            assert after.state is before.state
        filled.ledger.vanish(who(gone), now)
        before = assess(filled, now)


@given(reports(), waits)
def test_without_reporters_everything_but_latched_evidence_fades_to_sound(
    said: list[SignalReport], wait: float
) -> None:
    filled = told(said)
    assess(filled)
    for report in said:
        filled.ledger.vanish(report.reporter, T0 + wait)
    now = T0 + wait
    for _ in range(4):  # a state may be left step by step
        now += 60 * 86_400.0
        filled.changed_by_time(now)
        health = assess(filled, now)
    if not any(e.kind is EvidenceKind.LATCHED for r in said for e in r.evidence):
        assert health is SOUND


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.lists(
                evidence([EvidenceKind.LEVEL, EvidenceKind.UNKNOWN, EvidenceKind.DECAYING]),
                max_size=3,
            ),
            st.booleans(),
            waits,
        ),
        max_size=10,
    )
)
def test_what_is_no_longer_said_is_as_if_never_said_once_it_has_faded(
    steps: list[tuple[int, list[Evidence], bool, float]],
) -> None:
    """Whether a messenger's silence is an all-clear or not."""
    lived, now = book(), T0
    latest: dict[int, SignalReport] = {}
    for number, part, absent_is_clear, wait in steps:
        now += wait
        found = heaviest(reported(who(number), part))
        report = SignalReport(who(number), found, absent_is_clear=absent_is_clear)
        latest[number] = report
        lived.ledger.report(report, now)
        assess(lived, now)
    for _ in range(4):
        now += 60 * 86_400.0
        lived.changed_by_time(now)
        one = assess(lived, now)
    other = assess(told(latest.values(), now), now)
    assert abs(one.score - other.score) <= 0.0001
    assert told_of(one) == told_of(other)


def told_of(health: Health) -> set[Evidence]:
    return {msgspec.structs.replace(w.evidence, observed_at=T0) for w in health.evidence}


@given(reports())
def test_nothing_is_left_of_a_subject_that_is_gone_with_all_its_reporters(
    said: list[SignalReport],
) -> None:
    filled = told(said)
    assess(filled)
    for report in said:
        filled.ledger.vanish(report.reporter, T0)
    for subject in SUBJECTS:
        filled.forget({subject}, T0)
    assert assess(filled) is SOUND
    assert filled.ledger.units("gpu-1") == set()
