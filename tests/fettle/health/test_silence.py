"""Monitors that fell silent: what they said last counts alike before and after a restart."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.health.signals.nodes import report_of_node
from fettle.model import SOUND, Evidence, EvidenceKind, Health, State
from tests.fettle.health.incidents import HOUR, MINUTE, NODE, RULES, of, tell
from tests.fettle.health.signals.objects import NOW, condition, node

SILENT_AFTER = 15 * MINUTE
SETTINGS = HealthSettings()
CLOSE = 0.011
"""What scores differ by that tell the same: one that moved by less than 0.01 is not told anew, and
the times on a Node are whole seconds."""
MONITORS = ["KernelDeadlock", "FrequentKubeletRestart", "AMDGPUProblem", "GPUMissing"]


def seen(at: float, *conditions: dict[str, Any], boot: str = "boot-1") -> Any:
    """The node as it is while its kubelet renews its own condition."""
    return node(
        condition("Ready", "True", "x", at=NOW - 1000 * HOUR, renewed_at=at), *conditions, boot=boot
    )


def deadlock(renewed_at: float = NOW, status: str = "True") -> dict[str, Any]:
    return condition("KernelDeadlock", status, "DockerHung", "hung", renewed_at=renewed_at)


def restarted(said: Any, at: float) -> HealthBook:
    """A book that knows what the API says now, and no more."""
    book = HealthBook(HealthSettings(), RULES)
    tell(book, said, at)
    return book


def told(health: Health, at: float = NOW) -> set[Evidence]:
    """All that has not about faded, but for when it was observed: the times on a Node are whole
    seconds."""
    return {
        msgspec.structs.replace(one, observed_at=NOW)
        for one in (w.evidence for w in health.evidence)
        if one.kind is not EvidenceKind.DECAYING or at - one.observed_at < 5 * one.half_life_s
    }


@example([("FrequentKubeletRestart", 2.0)], [10.5, 10.5, 882.5, 6863.5, 7200.0, 7200.0])
@given(
    st.lists(
        st.tuples(st.sampled_from(MONITORS), st.floats(0.0, 10 * HOUR)),
        min_size=1,
        max_size=4,
        unique_by=lambda one: one[0],
    ),
    st.lists(st.floats(10.0, 2 * HOUR), min_size=1, max_size=12),
)
def test_faults_of_monitors_that_fell_silent_count_alike_after_a_restart(
    monitors: list[tuple[str, float]], waits: list[float]
) -> None:
    running = HealthBook(HealthSettings(), RULES)
    at = NOW
    for wait in [0.0, *waits]:
        at += wait
        faults = [
            condition(type_, "True", "x", renewed_at=min(at, NOW + hung_after))
            for type_, hung_after in monitors
        ]
        said = seen(at, *faults)
        tell(running, said, at)
        running.changed_by_time(at)
        before, after = of(running, NODE, at), of(restarted(said, at), NODE, at)
        assert after.score == pytest.approx(before.score, abs=CLOSE)
        assert told(after, at) == told(before, at)
        if before.score < 0.29 or 0.46 < before.score < 0.74:  # where no band holds another state
            assert after.state is before.state


def test_a_deadlock_whose_monitor_hangs_is_refused_after_a_restart_too() -> None:
    at = NOW + SILENT_AFTER + 10
    health = of(restarted(seen(at, deadlock()), at), NODE, at)
    assert health.state is State.UNHEALTHY
    assert health.score == pytest.approx(0.25, abs=0.01)
    (evidence,) = (e for e in told(health) if e.kind is not EvidenceKind.UNKNOWN)
    assert evidence.text == "KernelDeadlock is True (DockerHung): hung; no longer reported"


def test_the_stale_fault_of_a_silent_monitor_has_faded_by_a_later_restart() -> None:
    at = NOW + SILENT_AFTER + 24 * HOUR
    health = of(restarted(seen(at, deadlock()), at), NODE, at)
    assert (health.state, health.score) == (State.UNKNOWN, 0.75)
    assert [e.kind for e in told(health)] == [EvidenceKind.UNKNOWN]


def test_a_monitor_that_renews_again_ends_its_silence_without_a_trace() -> None:
    book = HealthBook(HealthSettings(), RULES)
    at = NOW + SILENT_AFTER + 10
    tell(book, seen(at, deadlock(status="False")), at)
    assert of(book, NODE, at).state is State.UNKNOWN
    tell(book, seen(at + 60, deadlock(at + 60, "False")), at + 60)
    assert of(book, NODE, at + 60) is SOUND


def test_the_stale_fault_of_a_silent_monitor_is_no_worse_for_being_seen_again() -> None:
    book = HealthBook(HealthSettings(), RULES)
    for minute in range(20, 80):
        at = NOW + minute * MINUTE
        tell(book, seen(at, deadlock()), at)
    at = NOW + SILENT_AFTER + HOUR + 4 * MINUTE
    health = of(book, NODE, at)
    assert health.score == pytest.approx(1 - 0.75 * 2 ** (-64 / 60), abs=1e-4)
    assert "lately" not in health.evidence[0].evidence.text


def test_a_stale_fault_that_is_seen_again_is_no_change() -> None:
    at = NOW + 20 * MINUTE
    book = restarted(seen(at, deadlock()), at)
    again = report_of_node(seen(at + 10, deadlock()), RULES, at + 10)
    assert book.ledger.report(again, at + 10) == set()


def test_a_monitor_that_comes_back_clears_what_it_left_before_the_restart() -> None:
    at = NOW + 20 * MINUTE
    book = restarted(seen(at, deadlock()), at)
    assert of(book, NODE, at).state is State.UNHEALTHY
    tell(book, seen(at + 10, deadlock(at + 10, "False")), at + 10)
    assert of(book, NODE, at + 10).state is State.HEALTHY


def test_a_monitor_that_falls_silent_again_leaves_its_fault_afresh() -> None:
    at = NOW + 20 * MINUTE
    book = restarted(seen(at, deadlock()), at)
    back = at + HOUR
    tell(book, seen(back, deadlock(back)), back)
    assert of(book, NODE, back).score == 0.25
    silent = back + SILENT_AFTER + 10
    tell(book, seen(silent, deadlock(back)), silent)
    assert of(book, NODE, silent).score == pytest.approx(0.25, abs=0.01)


@given(st.floats(-24 * HOUR, 24 * HOUR), st.lists(st.floats(10.0, HOUR), min_size=1, max_size=9))
@example(1.5, [468.5, *[HOUR] * 4, 1146.0])
@example(1.5, [1257.5])
def test_a_silence_counts_alike_whatever_the_clock_of_the_node_says(
    ahead: float, waits: list[float]
) -> None:
    right, wrong = HealthBook(HealthSettings(), RULES), HealthBook(HealthSettings(), RULES)
    at = NOW
    for wait in waits:
        at += wait
        tell(right, seen(at, deadlock()), at)
        tell(wrong, seen(at + ahead, deadlock(NOW + ahead)), at)
        one, other = of(right, NODE, at), of(wrong, NODE, at)
        assert other.score == pytest.approx(one.score, abs=CLOSE)
        limits = (SETTINGS.unhealthy_below, SETTINGS.unhealthy_until, SETTINGS.degraded_until)
        if all(abs(one.score - limit) > CLOSE for limit in limits):
            assert other.state is one.state


def test_a_silence_that_a_node_reports_late_is_neither_a_change_nor_longer() -> None:
    """The kubelet renews its own condition by the minute, and the Node comes in between."""
    at = NOW + 20 * MINUTE
    book = restarted(seen(at, deadlock()), at)
    for second in range(10, 300, 10):
        again = report_of_node(seen(at, deadlock()), RULES, at + second)
        assert book.ledger.report(again, at + second) == set()
    health = of(book, NODE, at + HOUR - 5 * MINUTE)
    assert health.score == pytest.approx(1 - 0.75 / 2, abs=0.01)


def test_a_silence_goes_on_while_the_kubelet_is_silent_too() -> None:
    """What the control plane then says of it has the time of the control plane."""
    at = NOW + 20 * MINUTE
    running = restarted(seen(at, deadlock()), at)
    died = condition("Ready", "Unknown", "NodeStatusUnknown", at=at + 50, renewed_at=at)
    dead, later = node(died, deadlock()), at + 3 * HOUR
    tell(running, dead, at + 50)
    tell(running, dead, later)
    before, after = of(running, NODE, later), of(restarted(dead, later), NODE, later)
    assert after.score == pytest.approx(before.score, abs=0.01)
    (weight,) = {w.weight for w in after.evidence if w.evidence.kind is EvidenceKind.DECAYING}
    assert weight == pytest.approx(0.75 * 2**-3.1, abs=0.01)


def test_a_silence_first_seen_after_all_has_faded_is_a_change() -> None:
    book = restarted(seen(NOW, deadlock()), NOW)
    late = NOW + 24 * HOUR
    assert book.ledger.report(report_of_node(seen(late, deadlock()), RULES, late), late) == {NODE}
