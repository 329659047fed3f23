"""The health book: who said what, and what becomes of it when they fall silent or are gone."""

import msgspec
import pytest

from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.health.signals.nodes import report_of_node
from fettle.health.signals.pods import report_of_pod
from fettle.health.signals.reports import SignalReport
from fettle.health.signals.rule_files import load_rules
from fettle.model import (
    SOUND,
    DeviceId,
    Evidence,
    EvidenceKind,
    Family,
    Health,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    State,
    Subject,
    UnitId,
)
from tests.fettle.health.signals.objects import (
    NOW,
    UUID,
    condition,
    health,
    node,
    pod,
    refused_pod,
)

RULES = load_rules()
DEVICE = DeviceId("gpu.nvidia.com", "gpu-1", "gpu-0")
NODE = NodeId("gpu-1")
UNIT = UnitId("gpu-1", "nvidia.com/gpu", UUID)


@pytest.fixture
def book() -> HealthBook:
    return HealthBook(HealthSettings(), RULES)


POD_A, POD_B = ReporterId("pod", "a"), ReporterId("pod", "b")
OF_NODE = ReporterId("Node", "gpu-1")
WHO = ReporterId("r")
SOURCE = Source(SourceKind.TAINT, "s")


def fault(
    subject: Subject = DEVICE,
    weight: float = 0.5,
    kind: EvidenceKind = EvidenceKind.LEVEL,
    family: Family = Family.THERMAL,
    source: Source = SOURCE,
    reporter: ReporterId = WHO,
) -> Evidence:
    return Evidence(
        subject=subject,
        family=family,
        kind=kind,
        weight=weight,
        source=source,
        reporter=reporter,
        said="hot",
        observed_at=NOW,
    )


def of(book: HealthBook, subject: Subject = DEVICE, now: float = NOW) -> Health:
    return book.assess(subject, (subject,), now)


def test_a_subject_without_evidence_has_the_shared_sound_health(book: HealthBook) -> None:
    assert of(book) is SOUND
    assert book.changed_by_time(NOW + 1e9) == set()


def test_a_report_names_the_subjects_whose_evidence_changed(book: HealthBook) -> None:
    both = SignalReport(WHO, (fault(), fault(NODE)))
    assert book.ledger.report(both, NOW) == {DEVICE, NODE}
    assert book.ledger.report(both, NOW + 60) == set()
    worse = SignalReport(WHO, (fault(weight=0.6), fault(NODE)))
    assert book.ledger.report(worse, NOW + 120) == {DEVICE}


def test_a_repeated_fault_stands_since_its_first_report(book: HealthBook) -> None:
    book.ledger.report(SignalReport(WHO, (fault(),)), NOW)
    first = of(book)
    later = msgspec.structs.replace(fault(), observed_at=NOW + 60)
    book.ledger.report(SignalReport(WHO, (later,)), NOW + 60)
    assert of(book, now=NOW + 60) is first


def test_silence_is_no_all_clear_a_level_fault_fades(book: HealthBook) -> None:
    book.ledger.report(SignalReport(WHO, (fault(),)), NOW)
    book.ledger.report(SignalReport(WHO, ()), NOW + 10)
    soon, later = of(book, now=NOW + 10), of(book, now=NOW + 10 + 3600)
    assert soon.score == 0.5
    assert later.score == 0.75
    assert soon.evidence[0].evidence.kind is EvidenceKind.DECAYING
    assert "no longer reported" in soon.evidence[0].evidence.text


def test_a_fault_fades_when_its_reporter_is_deleted(book: HealthBook) -> None:
    book.ledger.report(SignalReport(WHO, (fault(),)), NOW)
    assert book.ledger.vanish(WHO, NOW + 10) == {DEVICE}
    assert of(book, now=NOW + 10).score == 0.5
    assert book.ledger.vanish(WHO, NOW + 20) == set()
    assert book.ledger.vanish(ReporterId("nobody"), NOW) == set()


def test_latched_evidence_outlives_silence_and_its_reporter(book: HealthBook) -> None:
    book.ledger.report(SignalReport(WHO, (fault(kind=EvidenceKind.LATCHED),)), NOW)
    book.ledger.report(SignalReport(WHO, ()), NOW + 10)
    book.ledger.vanish(WHO, NOW + 20)
    assert of(book, now=NOW + 1e7).state is State.UNHEALTHY
    book.ledger.report(SignalReport(WHO, (), settled=frozenset({SOURCE})), NOW + 1e7)
    assert of(book, now=NOW + 1e7).state is State.HEALTHY


def test_a_reboot_clears_what_is_latched_and_not_said_again(book: HealthBook) -> None:
    latched = (fault(kind=EvidenceKind.LATCHED), fault(NODE, kind=EvidenceKind.LATCHED))
    book.ledger.report(SignalReport(OF_NODE, latched, boot="b1", node=NODE), NOW)
    book.ledger.report(SignalReport(OF_NODE, latched[:1], boot="b2", node=NODE), NOW + 300)
    assert of(book, DEVICE, NOW + 300).state is State.UNHEALTHY
    assert of(book, NODE, NOW + 300).state is State.HEALTHY


@pytest.mark.parametrize(
    "clear",
    [
        SignalReport(WHO, (), settled=frozenset({SOURCE})),
        SignalReport(WHO, (), cleared=frozenset({(DEVICE, SOURCE)})),
        SignalReport(WHO, (), absent_is_clear=True),
    ],
)
def test_an_all_clear_frees_at_once_but_for_a_light_trace(
    book: HealthBook, clear: SignalReport
) -> None:
    book.ledger.report(SignalReport(WHO, (fault(kind=EvidenceKind.LATCHED, weight=1.0),)), NOW)
    assert of(book).state is State.UNHEALTHY
    assert book.ledger.report(clear, NOW + 5) == {DEVICE}
    after = of(book, now=NOW + 5)
    assert (after.state, after.score) == (State.HEALTHY, 0.88)
    assert after.evidence[0].evidence.text == "was until recently: hot"


def test_an_all_clear_also_settles_what_had_begun_to_fade(book: HealthBook) -> None:
    book.ledger.report(SignalReport(WHO, (fault(),)), NOW)
    book.ledger.report(SignalReport(WHO, ()), NOW + 10)
    book.ledger.report(SignalReport(WHO, (), settled=frozenset({SOURCE})), NOW + 20)
    assert of(book, now=NOW + 20).score == 0.88


def test_an_all_clear_also_ends_what_a_vanished_reporter_left(book: HealthBook) -> None:
    book.ledger.report(SignalReport(POD_A, (fault(reporter=POD_A),)), NOW)
    book.ledger.vanish(POD_A, NOW + 10)
    book.ledger.report(SignalReport(POD_B, (), cleared=frozenset({(DEVICE, SOURCE)})), NOW + 20)
    assert of(book, now=NOW + 20).state is State.HEALTHY


def test_one_recovery_reported_by_several_leaves_one_trace(book: HealthBook) -> None:
    pods = [ReporterId("pod", str(i)) for i in range(8)]  # that share one device
    for one in pods:
        book.ledger.report(SignalReport(one, (fault(reporter=one),)), NOW)
    for one in pods:
        book.ledger.report(SignalReport(one, (), cleared=frozenset({(DEVICE, SOURCE)})), NOW + 5)
    assert of(book, now=NOW + 5).score == 0.88


def test_an_all_clear_does_not_end_what_another_living_reporter_says(book: HealthBook) -> None:
    book.ledger.report(SignalReport(POD_A, (fault(reporter=POD_A),)), NOW)
    book.ledger.report(SignalReport(POD_B, (), cleared=frozenset({(DEVICE, SOURCE)})), NOW + 20)
    assert of(book, now=NOW + 20).score == 0.5


def test_what_stands_again_hides_what_was_fading(book: HealthBook) -> None:
    book.ledger.report(SignalReport(WHO, (fault(),)), NOW)
    book.ledger.report(SignalReport(WHO, ()), NOW + 10)
    book.ledger.report(SignalReport(WHO, (fault(),)), NOW + 20)
    assert [w.evidence.kind for w in of(book, now=NOW + 20).evidence] == [EvidenceKind.LEVEL]


def test_a_light_fault_leaves_a_lighter_trace_and_a_hold_none(book: HealthBook) -> None:
    book.ledger.report(SignalReport(WHO, (fault(weight=0.1),)), NOW)
    book.ledger.report(SignalReport(WHO, (), absent_is_clear=True), NOW + 5)
    assert of(book, now=NOW + 5).score == 0.975

    hold = fault(NODE, 1.0, EvidenceKind.LATCHED, Family.OPERATOR)
    book.ledger.report(SignalReport(ReporterId("h"), (hold,)), NOW)
    assert of(book, NODE).held
    book.ledger.report(SignalReport(ReporterId("h"), (), absent_is_clear=True), NOW + 5)
    assert of(book, NODE, NOW + 5) is SOUND


def test_the_all_clear_of_something_mild_does_not_end_the_dwell_of_something_else(
    book: HealthBook,
) -> None:
    event = fault(weight=0.25, kind=EvidenceKind.DECAYING, source=Source(SourceKind.EVENT, "e"))
    book.ledger.report(SignalReport(ReporterId("pod"), (event,)), NOW)
    book.ledger.report(SignalReport(WHO, (fault(weight=0.1, family=Family.BUS),)), NOW)
    assert of(book).state is State.DEGRADED
    book.ledger.report(SignalReport(WHO, (), absent_is_clear=True), NOW + 1900)
    assert 0.80 <= of(book, now=NOW + 1900).score < 0.90
    assert of(book, now=NOW + 1900).state is State.DEGRADED


def test_an_event_counts_once_however_often_its_pod_is_listed(book: HealthBook) -> None:
    refused = report_of_pod(refused_pod("a", NOW), RULES, NOW, lambda _: None)
    for _ in range(5):
        book.ledger.report(refused, NOW)
    assert of(book, NODE).score == 0.6
    again = report_of_pod(refused_pod("a", NOW, uid="another"), RULES, NOW, lambda _: None)
    book.ledger.report(again, NOW)  # a pod of the same name, made anew
    assert of(book, NODE).score == 0.2


def test_an_event_stays_counted_when_its_pod_is_deleted(book: HealthBook) -> None:
    refused = report_of_pod(refused_pod("a", NOW), RULES, NOW, lambda _: None)
    book.ledger.report(refused, NOW)
    book.ledger.vanish(refused.reporter, NOW)
    assert of(book, NODE).score == 0.6


def test_old_events_read_after_a_restart_have_faded(book: HealthBook) -> None:
    refused = report_of_pod(refused_pod("a", NOW - 86_400), RULES, NOW, lambda _: None)
    book.ledger.report(refused, NOW)
    assert of(book, NODE) is SOUND


def test_the_fault_that_an_ended_and_deleted_pod_reported_fades(book: HealthBook) -> None:
    resources = [health("nvidia.com/gpu", UUID, "Unhealthy")]

    def tell(phase: str, at: float) -> None:
        said = report_of_pod(pod(resources=resources, phase=phase), RULES, at, lambda _: None)
        book.ledger.report(said, at)

    tell("Running", NOW)
    assert of(book, UNIT).state is State.UNHEALTHY
    assert book.ledger.units("gpu-1") == {UNIT}
    tell("Failed", NOW + 60)
    tell("Failed", NOW + 61)
    book.ledger.vanish(ReporterId("Pod", "ml/train-0"), NOW + 62)
    assert of(book, UNIT, NOW + 62).state is State.UNHEALTHY
    later = of(book, UNIT, NOW + 86_400)
    assert later.score > 0.9


def test_units_are_those_of_the_node_with_evidence(book: HealthBook) -> None:
    other = UnitId("gpu-2", "nvidia.com/gpu", "GPU-2")
    book.ledger.report(SignalReport(OF_NODE, (fault(UNIT), fault(NODE))), NOW)
    book.ledger.report(SignalReport(ReporterId("Node", "gpu-2"), (fault(other),)), NOW)
    assert book.ledger.units("gpu-1") == {UNIT}
    assert book.ledger.units("gpu-2") == {other}
    assert book.ledger.units("gpu-3") == set()


def test_a_unit_is_let_go_once_nothing_is_left_to_say(book: HealthBook) -> None:
    book.ledger.report(SignalReport(OF_NODE, (fault(UNIT),)), NOW)
    of(book, UNIT)
    book.ledger.report(SignalReport(OF_NODE, (), absent_is_clear=True), NOW + 5)
    of(book, UNIT, NOW + 5)
    assert book.ledger.units("gpu-1") == {UNIT}  # its trace still shows
    much_later = NOW + 30 * 86_400
    assert book.changed_by_time(much_later) == {UNIT}
    assert of(book, UNIT, much_later) is SOUND
    book.changed_by_time(much_later + 3600)
    assert book.ledger.units("gpu-1") == set()


def test_a_unit_is_not_let_go_before_its_dwell_is_over() -> None:
    settings = HealthSettings(orphan_half_life_seconds=10.0, min_dwell_seconds=7200.0)
    book = HealthBook(settings, RULES)
    book.ledger.report(SignalReport(ReporterId("pod"), (fault(UNIT, 0.9),)), NOW)
    of(book, UNIT)
    book.ledger.vanish(ReporterId("pod"), NOW)
    for after in (3600, 4800):
        book.changed_by_time(NOW + after)
        assert book.ledger.units("gpu-1") == {UNIT}
        assert of(book, UNIT, NOW + after).state is State.UNHEALTHY


def test_a_unit_is_let_go_though_the_rest_of_its_node_is_still_ill(book: HealthBook) -> None:
    """Its own past holds it in no state that it would not be in without it."""
    book.ledger.report(
        SignalReport(ReporterId("pod"), (fault(UNIT, 0.9),), absent_is_clear=True), NOW
    )
    book.ledger.report(SignalReport(OF_NODE, (fault(NODE, 0.9, family=Family.NODE),)), NOW)
    about = (UNIT, NODE)
    assert book.assess(UNIT, about, NOW).state is State.UNHEALTHY
    book.ledger.vanish(ReporterId("pod"), NOW)
    later = NOW + 30 * 86_400
    book.changed_by_time(later)
    assert book.assess(UNIT, about, later).state is State.UNHEALTHY
    assert UNIT in book.changed_by_time(later + 3600)
    assert book.ledger.units("gpu-1") == set()
    assert of(book, NODE, later + 3600).state is State.UNHEALTHY


def test_a_unit_is_let_go_though_the_device_that_it_was_is_still_ill(book: HealthBook) -> None:
    book.ledger.report(SignalReport(ReporterId("pod"), (fault(UNIT),), absent_is_clear=True), NOW)
    book.ledger.report(SignalReport(ReporterId("driver"), (fault(DEVICE, 0.9),)), NOW)
    of(book, UNIT)
    book.assess(DEVICE, (DEVICE, UNIT), NOW)
    book.ledger.vanish(ReporterId("pod"), NOW)
    later = NOW + 30 * 86_400
    for at in (later, later + 3600):
        let_go = book.changed_by_time(at)
        of(book, UNIT, at)
        assert book.assess(DEVICE, (DEVICE, UNIT), at).state is State.UNHEALTHY
    assert UNIT in let_go
    assert book.ledger.units("gpu-1") == set()


def test_a_device_inherits_what_is_said_of_its_node_and_its_other_names(book: HealthBook) -> None:
    book.ledger.report(
        SignalReport(OF_NODE, (fault(UNIT, 0.5), fault(NODE, 0.4, family=Family.NODE))),
        NOW,
    )
    assert book.assess(DEVICE, (DEVICE, UNIT, NODE), NOW).score == 0.3


def test_health_changes_only_when_it_matters(book: HealthBook) -> None:
    book.ledger.report(
        SignalReport(ReporterId("pod"), (fault(weight=0.4, kind=EvidenceKind.DECAYING),)), NOW
    )
    first = of(book)
    assert book.changed_by_time(NOW + 60) == set()  # 0.6046
    assert of(book, now=NOW + 60) is first
    assert book.changed_by_time(NOW + 300) == {DEVICE}
    second = of(book, now=NOW + 300)
    assert second.score > first.score
    assert second.state is State.DEGRADED


def test_the_end_of_a_dwell_is_a_change(book: HealthBook) -> None:
    settings = HealthSettings(orphan_half_life_seconds=10.0)
    book = HealthBook(settings, RULES)
    book.ledger.report(SignalReport(WHO, (fault(weight=0.9),)), NOW)
    assert of(book).state is State.UNHEALTHY
    book.ledger.vanish(WHO, NOW + 1)
    assert of(book, now=NOW + 200).state is State.UNHEALTHY
    assert of(book, now=NOW + 200).score == 1.0  # all has faded, the dwell has not ended
    assert book.changed_by_time(NOW + 599) == set()
    assert book.changed_by_time(NOW + 601) == {DEVICE}
    assert of(book, now=NOW + 601) is SOUND


def test_a_ready_that_is_unknown_after_false_still_counts_as_failed(book: HealthBook) -> None:
    book.ledger.report(report_of_node(node(condition("Ready", "False", "x")), RULES, NOW), NOW)
    book.ledger.report(
        report_of_node(node(condition("Ready", "Unknown", "x")), RULES, NOW + 60), NOW + 60
    )
    silent = of(book, NODE, NOW + 60)
    assert silent.state is State.UNHEALTHY
    assert {w.evidence.kind for w in silent.evidence} == {
        EvidenceKind.DECAYING,
        EvidenceKind.UNKNOWN,
    }
    book.ledger.report(
        report_of_node(node(condition("Ready", "True", "x")), RULES, NOW + 90), NOW + 90
    )
    assert of(book, NODE, NOW + 90).score == 0.88  # one outage, one trace
    assert of(book, NODE, NOW + 90).state is State.HEALTHY


def test_the_end_of_unknown_evidence_leaves_one_trace_however_many_reported_it(
    book: HealthBook,
) -> None:
    for reporter in map(ReporterId, "abc"):
        book.ledger.report(
            SignalReport(reporter, (fault(UNIT, 0.25, kind=EvidenceKind.UNKNOWN),)), NOW
        )
    of(book, UNIT)
    for reporter in map(ReporterId, "abc"):
        book.ledger.report(SignalReport(reporter, (), absent_is_clear=True), NOW + 60)
    assert of(book, UNIT, NOW + 60).score == 0.9375


def test_a_node_that_is_forgotten_takes_its_units_with_it(book: HealthBook) -> None:
    book.ledger.report(
        SignalReport(OF_NODE, (fault(UNIT), fault(NODE, kind=EvidenceKind.LATCHED))),
        NOW,
    )
    of(book, UNIT)
    of(book, NODE)
    book.ledger.vanish(OF_NODE, NOW)
    book.forget({NODE}, NOW)
    assert of(book, UNIT) is SOUND
    assert of(book, NODE) is SOUND
    assert book.ledger.units("gpu-1") == set()
    assert book.changed_by_time(NOW + 1e6) == set()


def test_what_a_living_reporter_says_counts_again_when_the_subject_returns(
    book: HealthBook,
) -> None:
    event = fault(
        UNIT,
        0.4,
        EvidenceKind.DECAYING,
        reporter=POD_A,
        source=Source(SourceKind.EVENT, "e"),
    )
    book.ledger.report(SignalReport(POD_A, (event,)), NOW)
    book.ledger.report(
        SignalReport(
            POD_B,
            (msgspec.structs.replace(event, reporter=POD_B),),
        ),
        NOW,
    )
    book.ledger.report(
        SignalReport(
            ReporterId("pod", "c"),
            (fault(UNIT, 0.5, family=Family.BUS, reporter=ReporterId("pod", "c")),),
        ),
        NOW,
    )
    assert of(book, UNIT).score == 0.1
    book.ledger.vanish(POD_B, NOW)
    assert of(book, UNIT).score == 0.1  # bad news outlives its messenger,
    book.forget({NODE}, NOW)
    assert of(book, UNIT).score == 0.3  # but not what it was about as well
    assert book.ledger.units("gpu-1") == {UNIT}
    book.ledger.vanish(POD_A, NOW)
    book.ledger.vanish(ReporterId("pod", "c"), NOW)
    book.forget({NODE}, NOW)
    assert of(book, UNIT) is SOUND
    assert book.ledger.units("gpu-1") == set()


def test_latched_evidence_about_a_device_that_is_gone_goes_with_its_reporter(
    book: HealthBook,
) -> None:
    book.ledger.report(SignalReport(ReporterId("claim"), (fault(kind=EvidenceKind.LATCHED),)), NOW)
    of(book)
    book.forget({DEVICE}, NOW)
    book.changed_by_time(NOW + 3600)
    assert of(book, now=NOW + 3600).state is State.UNHEALTHY  # its messenger is still there
    book.forget({DEVICE}, NOW + 3600)
    book.ledger.vanish(ReporterId("claim"), NOW + 3600)
    book.changed_by_time(NOW + 7200)
    assert of(book, now=NOW + 7200) is SOUND


def test_what_fades_of_a_unit_that_is_gone_is_let_go(book: HealthBook) -> None:
    book.ledger.report(SignalReport(ReporterId("pod"), (fault(UNIT),)), NOW)
    book.forget({NODE}, NOW)
    book.ledger.vanish(ReporterId("pod"), NOW)
    book.changed_by_time(NOW + 86_400)
    assert book.ledger.units("gpu-1") == set()
    assert of(book, UNIT, NOW) is SOUND  # not even what it would weigh if it had not faded


def test_a_device_is_judged_afresh_once_its_node_is_another(book: HealthBook) -> None:
    book.ledger.report(SignalReport(OF_NODE, (fault(NODE, 0.9),)), NOW)
    assert book.assess(DEVICE, (DEVICE, NODE), NOW).state is State.UNHEALTHY
    book.ledger.vanish(OF_NODE, NOW)
    book.forget({NODE}, NOW)
    assert book.assess(DEVICE, (DEVICE, NODE), NOW) is SOUND
