"""When something is Healthy again, and what must be said first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.config import HealthSettings
from fettle.health import HealthBook, load_rules, report_of_node
from fettle.health.signals.reports import SignalReport
from fettle.model import (
    DeviceId,
    Evidence,
    EvidenceKind,
    ReporterId,
    Source,
    SourceKind,
    State,
    Subject,
)
from tests.fettle.health.builders import GPU, MESSAGE, a_book, flap
from tests.fettle.health.drawn import KEY, SUBJECTS, T0, assess, reports, told, waits, who
from tests.fettle.health.incidents import HOUR, MINUTE, NODE, RULES, of, tell
from tests.fettle.health.signals.objects import NOW, condition, node

fades = reports([EvidenceKind.DECAYING])
anything = reports()
LOOK_S = 30.0
"""How often the book is looked at, at most: a change is seen so much late."""


def watched(
    book: HealthBook,
    since: float,
    until: float,
    key: Subject = KEY,
    subjects: tuple[Subject, ...] = SUBJECTS,
) -> State:
    """The state at a time, if the book is looked at whenever time may have changed something."""
    now = since
    while now < until:
        due_at = book._memory[key].due_at if key in book._memory else until
        now = min(until, max(due_at, now + LOOK_S))
        if key in book.changed_by_time(now):
            book.assess(key, subjects, now)
    return book.assess(key, subjects, until).state


@given(st.one_of(fades, anything), st.lists(waits, max_size=3), st.integers(0, 4))
def test_with_nothing_new_it_is_healthy_again_at_that_time_and_not_a_minute_before(
    said: list[SignalReport], later: list[float], gone: int
) -> None:
    book, now = told(said), T0
    assess(book)
    for wait in later:
        now += wait
        book.ledger.vanish(who(gone), now)
        book.changed_by_time(now)
        assess(book, now)
    recovery = book.recovery(KEY, now)
    if recovery.awaited or recovery.at == now:
        return
    if recovery.at - now > 2 * MINUTE:
        assert watched(book, now, recovery.at - MINUTE) is not State.HEALTHY
    assert watched(book, max(now, recovery.at - MINUTE), recovery.at + 3 * LOOK_S) is State.HEALTHY


@given(anything, st.lists(waits, max_size=3))
def test_what_is_awaited_stands_in_the_way_and_only_then_is_anything_awaited(
    said: list[SignalReport], later: list[float]
) -> None:
    book, now = told(said), T0
    assess(book)
    for wait in later:
        now += wait
        book.changed_by_time(now)
        assess(book, now)
    recovery = book.recovery(KEY, now)
    shown = {w.evidence for w in recovery.health.evidence}
    assert {one.evidence for one in recovery.awaited} <= shown
    ten_years = now + 3650 * 86_400.0
    for _ in range(3):
        ten_years += 86_400.0
        book.changed_by_time(ten_years)
        state = assess(book, ten_years).state
    assert (state is State.HEALTHY) is (recovery.awaited == ())


@given(anything, st.lists(waits, max_size=2))
def test_once_what_is_awaited_is_over_it_is_healthy_when_it_was_said_to_be_at_the_earliest(
    said: list[SignalReport], later: list[float]
) -> None:
    book, now = told(said), T0
    assess(book)
    for wait in later:
        now += wait
        book.changed_by_time(now)
        assess(book, now)
    recovery = book.recovery(KEY, now)
    over = [one.evidence for one in recovery.awaited]
    if not over or any(e.weight <= 0.1 for e in over):  # a mild all-clear does not end a dwell
        return
    sources = {(e.subject, e.source) for e in over}
    for report in said:
        left = tuple(e for e in report.evidence if e not in over)
        if any((e.subject, e.source) in sources for e in left):
            return  # what the same source says next displaces what is latched, and ends it not
        book.ledger.report(report._replace(evidence=left, absent_is_clear=True), now)
    assess(book, now)
    if recovery.at - now > 2 * MINUTE:
        assert watched(book, now, recovery.at - MINUTE) is not State.HEALTHY
    assert watched(book, max(now, recovery.at - MINUTE), recovery.at + 3 * LOOK_S) is State.HEALTHY


def test_after_the_third_time_the_all_clear_is_not_enough() -> None:
    book = a_book()
    flap(book, [NOW, NOW + 30 * MINUTE])
    at = NOW + HOUR
    tell(book, node(condition("GpuNvlinkWatch", "True", "x", MESSAGE.format("X"), at=at)), at)
    of(book, GPU, at)
    recovery = book.recovery(GPU, at)
    assert len(recovery.awaited) == 1
    assert recovery.at > at + HOUR
    tell(book, node(condition("GpuNvlinkWatch", "False", "x", at=at)), at)
    of(book, GPU, at)
    assert book.recovery(GPU, at).at == pytest.approx(recovery.at, abs=5)


def test_a_condition_is_awaited_with_the_status_that_clears_it() -> None:
    book = a_book()
    lost = condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error", at=NOW)
    tell(book, node(lost), NOW)
    of(book, NODE, NOW)
    (awaited,) = book.recovery(NODE, NOW + HOUR).awaited
    assert str(awaited.evidence.source) == "condition AcceleratedHardwareReady"
    assert awaited.clear == "True"
    assert book.recovery(NODE, NOW + HOUR).at == NOW + HOUR


def test_what_weighs_too_little_to_matter_is_not_awaited() -> None:
    book = a_book()
    restarts = condition("FrequentKubeletRestart", "True", at=NOW)
    bad = condition("GpuNvlinkWatch", "True", "x", MESSAGE.format("X"), at=NOW)
    gap = {"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "7"}
    ill = node(bad, restarts, capacity=gap[0], allocatable=gap[1])
    tell(book, ill, NOW)
    health = of(book, GPU, NOW)
    assert len(health.evidence) > 1
    awaited = book.recovery(GPU, NOW).awaited
    assert str(awaited[0].evidence.source) == "condition GpuNvlinkWatch"
    assert "allocatable" not in [str(a.evidence.source) for a in awaited]


def test_what_kept_coming_back_is_awaited_until_it_was_quiet() -> None:
    book = a_book()
    at = flap(book, [NOW, NOW + 30 * MINUTE, NOW + HOUR])
    assert of(book, GPU, at).state is not State.HEALTHY
    recovery = book.recovery(GPU, at)
    assert recovery.awaited == ()
    assert recovery.at >= at + 30 * MINUTE
    gpu = GPU, (GPU, NODE)
    assert watched(book, at, recovery.at - MINUTE, *gpu) is State.DEGRADED
    assert watched(book, recovery.at - MINUTE, recovery.at + 3 * LOOK_S, *gpu) is State.HEALTHY


def test_a_fault_that_kept_coming_back_is_waited_for_though_its_score_is_well() -> None:
    rows = (
        "conditions: [{name: f, type: Flaps, faulty: true, family: link, weight: 0.24, source: s}]"
    )
    rules = load_rules("rules.yaml", rows)
    book, at = HealthBook(HealthSettings(), rules), NOW
    for i in range(3):
        for status, after in (("True", 0.0), ("False", MINUTE)):
            at = NOW + 2 * i * HOUR + after
            book.ledger.report(
                report_of_node(node(condition("Flaps", status, at=at)), rules, at), at
            )
            health = of(book, NODE, at)
    assert health.state is State.DEGRADED
    recovery = book.recovery(NODE, at)
    assert recovery.at == pytest.approx(at + 2 * HOUR, abs=2)
    here = NODE, (NODE,)
    assert watched(book, at, recovery.at - MINUTE, *here) is State.DEGRADED
    assert of(book, NODE, recovery.at - MINUTE).score >= HealthSettings().degraded_until
    assert watched(book, recovery.at - MINUTE, recovery.at + 3 * LOOK_S, *here) is State.HEALTHY


def test_the_dwell_and_the_hysteresis_are_counted_in() -> None:
    book = a_book()
    event = Evidence(
        subject=KEY,
        family=RULES.xid("79").family,
        kind=EvidenceKind.DECAYING,
        weight=0.21,
        source=Source(SourceKind.TAINT, "a"),
        reporter=ReporterId("x"),
        said="text",
        observed_at=NOW,
        half_life_s=60.0,
    )
    book.ledger.report(SignalReport(ReporterId("x"), (event,)), NOW)
    assert assess(book, NOW).state is State.DEGRADED
    settings = HealthSettings()
    # 0.90 would be reached in little more than a minute; the dwell is longer
    assert book.recovery(KEY, NOW).at == pytest.approx(NOW + settings.min_dwell_seconds, abs=2)
    slow = told([SignalReport(ReporterId("x"), (event,))], NOW)
    assert assess(slow, NOW).state is State.DEGRADED


def test_what_is_sound_is_healthy_now() -> None:
    recovery = a_book().recovery(DeviceId("d", "p", "x"), NOW)
    assert (recovery.health.score, recovery.at, recovery.awaited) == (1.0, NOW, ())


def test_asking_changes_nothing() -> None:
    book, same = a_book(), a_book()
    for each in (book, same):
        at = flap(each, [NOW, NOW + HOUR])
    book.recovery(GPU, at)
    for later in (at, at + HOUR, at + 9 * HOUR):
        for each in (book, same):
            each.changed_by_time(later)
        assert of(book, GPU, later) == of(same, GPU, later)
        book.recovery(GPU, later)
