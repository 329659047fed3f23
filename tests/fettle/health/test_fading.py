"""What is left of faults that are over: how long it counts, and what a repair does to it."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fettle.api.meta import rfc3339_at
from fettle.api.own_group import StoredSubject
from fettle.health.signals.nodes import report_of_node
from fettle.model import Health, State
from fettle.model.reasons import describe_kept
from tests.fettle.health.builders import GPU, MESSAGE, a_book, flap
from tests.fettle.health.incidents import HOUR, MINUTE, NODE, RULES, of, tell
from tests.fettle.health.signals.objects import NOW, UUID, condition, node

REPAIRED = "fettle.dev/repaired"
UNSHOWN = 0.01
"""What a score moves by less than this is not shown."""


def trace(health: Health) -> tuple[float, str]:
    return next((w.weight, w.evidence.text) for w in health.evidence)


def test_what_failed_once_hardly_counts_three_hours_later() -> None:
    book = a_book()
    at = flap(book, [NOW])
    assert of(book, GPU, at).score == 0.88
    assert of(book, GPU, at + 3 * HOUR).score > 0.98


def test_what_came_back_every_two_hours_counts_until_it_was_quiet_for_longer() -> None:
    book = a_book()
    at = flap(book, [NOW + 2 * i * HOUR for i in range(8)], HOUR)
    for after, state in ((1, State.UNHEALTHY), (4, State.DEGRADED), (12, State.HEALTHY)):
        book.changed_by_time(at + after * HOUR)
        assert of(book, GPU, at + after * HOUR).state is state


def test_what_comes_back_daily_counts_for_days() -> None:
    book = a_book()
    at = flap(book, [NOW + i * 24 * HOUR for i in range(8)], HOUR, "GpuMemWatch")
    book.changed_by_time(at + 24 * HOUR)
    assert of(book, GPU, at + 24 * HOUR).state is State.DEGRADED


def test_when_it_comes_back_all_of_its_past_counts_again() -> None:
    book = a_book()
    at = flap(book, [NOW, NOW + 20 * MINUTE, NOW + 40 * MINUTE])
    later = at + 6 * HOUR
    book.changed_by_time(later)
    assert of(book, GPU, later).state is State.HEALTHY
    at = flap(book, [later])
    assert "(the latest of 4)" in trace(of(book, GPU, at))[1]
    assert of(book, GPU, at + 3 * HOUR).state is State.DEGRADED


def test_a_fault_that_flaps_changes_the_state_a_few_times_only() -> None:
    book, states = a_book(), []
    for i in range(16):
        at = NOW + i * HOUR
        tell(book, node(condition("GpuNvlinkWatch", "True", "x", MESSAGE.format(1), at=at)), at)
        states.append(of(book, GPU, at).state)
        tell(book, node(condition("GpuNvlinkWatch", "False", "x", at=at + 1)), at + 30 * MINUTE)
        states.append(of(book, GPU, at + 30 * MINUTE).state)
    assert sum(a is not b for a, b in pairwise(states)) <= 5


# -- repairs


def stated(value: str) -> dict[str, str]:
    return {REPAIRED: value}


@pytest.mark.parametrize(
    "value",
    [
        rfc3339_at(NOW + 3 * HOUR),
        f'{{"at": "{rfc3339_at(NOW + 3 * HOUR)}", "by": "ann"}}',
        f'{{"at": "{rfc3339_at(NOW + 3 * HOUR)}", "device": "nvidia.com/gpu {UUID}"}}',
    ],
)
def test_an_operator_says_that_a_gpu_that_kept_failing_is_mended(value: str) -> None:
    book = a_book()
    at = flap(book, [NOW, NOW + HOUR, NOW + 2 * HOUR]) + 58 * MINUTE
    assert of(book, GPU, at + 2 * MINUTE).state is not State.HEALTHY
    tell(book, node(annotations=stated(value)), at + 2 * MINUTE)
    mended = of(book, GPU, at + 2 * MINUTE)
    assert (mended.state, mended.score) == (State.HEALTHY, 0.95)
    assert f"repaired: {REPAIRED}={rfc3339_at(NOW + 3 * HOUR)}" in trace(mended)[1]


def test_if_it_comes_back_after_its_repair_all_of_its_past_counts_again() -> None:
    book, other = a_book(), a_book()
    begins = [NOW, NOW + HOUR, NOW + 2 * HOUR]
    for each in (book, other):
        flap(each, begins)
    tell(book, node(annotations=stated(rfc3339_at(NOW + 3 * HOUR))), NOW + 3 * HOUR)
    assert of(book, GPU, NOW + 3 * HOUR).state is State.HEALTHY
    for each in (book, other):
        at = flap(each, [NOW + 4 * HOUR])
    assert of(book, GPU, at).score == of(other, GPU, at).score


def test_another_gpus_repair_mends_nothing() -> None:
    book = a_book()
    at = flap(book, [NOW, NOW + HOUR, NOW + 2 * HOUR])
    value = f'{{"at": "{rfc3339_at(at)}", "device": "nvidia.com/gpu GPU-other"}}'
    before = of(book, GPU, at).score
    tell(book, node(annotations=stated(value)), at)
    assert of(book, GPU, at).score == before


@pytest.mark.parametrize("value", ["yes", "", '{"device": "x"}', "2999-01-01T00:00:00Z"])
def test_a_repair_that_cannot_be_read_is_none_and_says_what_to_write(value: str) -> None:
    book = a_book()
    at = flap(book, [NOW, NOW + HOUR, NOW + 2 * HOUR])
    before = of(book, GPU, at).score
    tell(book, node(annotations=stated(value)), at)
    assert of(book, GPU, at).score == before
    said = next(w for w in of(book, NODE, at).evidence)
    assert said.weight == 0.0
    assert "counts as no repair: write a time that is past, such as" in said.evidence.text


def test_a_repair_ends_what_is_latched_and_no_longer_reported() -> None:
    book = a_book()
    xid = condition("SysLogsXIDError", "True", "x", MESSAGE.format("79"), at=NOW)
    tell(book, node(xid), NOW)
    tell(book, node(), NOW + HOUR)  # the monitor was uninstalled
    assert of(book, GPU, NOW + HOUR).state is State.UNHEALTHY
    said = stated(rfc3339_at(NOW + 2 * HOUR))
    tell(book, node(annotations=said), NOW + 2 * HOUR)
    assert of(book, GPU, NOW + 2 * HOUR).state is State.HEALTHY


def test_what_is_still_reported_stands_in_spite_of_a_repair() -> None:
    book = a_book()
    xid = condition("SysLogsXIDError", "True", "x", MESSAGE.format("79"), at=NOW)
    tell(book, node(xid, annotations=stated(rfc3339_at(NOW + HOUR))), NOW + HOUR)
    assert of(book, GPU, NOW + HOUR).state is State.UNHEALTHY


@pytest.mark.parametrize(("check", "mended"), [("GpuNvlinkWatch", True), ("GpuMemWatch", False)])
def test_a_reboot_mends_links_and_no_memory(check: str, mended: bool) -> None:
    book = a_book()
    at = flap(book, [NOW, NOW + HOUR, NOW + 2 * HOUR], check=check)
    tell(book, node(condition(check, "False", "x", at=at), boot="boot-2"), at + MINUTE)
    after = of(book, GPU, at + MINUTE)
    assert (after.state is State.HEALTHY) is mended
    assert ("repaired: a reboot" in trace(after)[1]) is mended


def test_an_all_clear_soon_after_the_reboot_is_of_what_the_reboot_mended() -> None:
    book = a_book()
    flap(book, [NOW, NOW + HOUR])
    bad = condition("GpuNvlinkWatch", "True", "x", MESSAGE.format(1), at=NOW + 2 * HOUR)
    tell(book, node(bad), NOW + 2 * HOUR)
    of(book, GPU, NOW + 2 * HOUR)
    at = NOW + 3 * HOUR
    tell(book, node(bad, boot="boot-2"), at)
    assert of(book, GPU, at).state is State.HEALTHY  # though the monitor has not looked yet
    well = condition("GpuNvlinkWatch", "False", "x", at=at + 5 * MINUTE)
    tell(book, node(well, boot="boot-2"), at + 5 * MINUTE)
    assert (of(book, GPU, at + 5 * MINUTE).state) is State.HEALTHY
    assert of(book, GPU, at + 5 * MINUTE).score == 0.95


def test_a_remediation_mends_what_was_there_before_it() -> None:
    book = a_book()
    at = flap(book, [NOW, NOW + HOUR, NOW + 2 * HOUR])
    done = {"dgxc.nvidia.com/nvsentinel-state": "remediation-succeeded"}
    tell(book, node(labels=done), at + MINUTE)
    after = of(book, GPU, at + MINUTE)
    assert after.state is State.HEALTHY
    assert "repaired: the monitor's remediation" in trace(after)[1]


# -- whatever happened

gaps = st.lists(st.floats(2 * MINUTE, 30 * HOUR), min_size=1, max_size=6)
quiet = st.floats(0.0, 100 * HOUR)
checks = st.sampled_from(["GpuNvlinkWatch", "GpuMemWatch", "GpuThermalWatch", "GpuSmWatch"])


def times(gaps: list[float]) -> list[float]:
    return [NOW + sum(gaps[:i]) for i in range(len(gaps) + 1)]


@given(gaps, quiet, checks)
@example([2 * MINUTE], 2 * HOUR, "GpuNvlinkWatch")
def test_a_repeater_is_never_better_than_what_failed_once(
    gaps: list[float], quiet_s: float, check: str
) -> None:
    repeater, once = a_book(), a_book()
    at = flap(repeater, times(gaps), check=check)
    flap(once, times(gaps)[-1:], check=check)
    assert of(repeater, GPU, at + quiet_s).score <= of(once, GPU, at + quiet_s).score + UNSHOWN


@given(gaps, checks, st.lists(st.floats(1.0, 10 * HOUR), max_size=6))
def test_the_past_only_fades(gaps: list[float], check: str, waits: list[float]) -> None:
    book = a_book()
    at = flap(book, times(gaps), check=check)
    score = of(book, GPU, at).score
    for wait in waits:
        at += wait
        assert of(book, GPU, at).score >= score
        score = of(book, GPU, at).score


@given(gaps, checks, quiet, st.sampled_from(["annotation", "boot", "label"]))
def test_a_repair_never_makes_a_score_worse(
    gaps: list[float], check: str, quiet_s: float, how: str
) -> None:
    mended, left = a_book(), a_book()
    for each in (mended, left):
        at = flap(each, times(gaps), check=check) + 1.0
    well = condition(check, "False", "x", at=at)
    labels = {"dgxc.nvidia.com/nvsentinel-state": "remediation-succeeded"}
    tell(
        mended,
        node(
            well,
            annotations=stated(rfc3339_at(at)) if how == "annotation" else {},
            labels=labels if how == "label" else {},
            boot="boot-2" if how == "boot" else "boot-1",
        ),
        at,
    )
    tell(left, node(well, boot="boot-1"), at)
    for now in (at, at + quiet_s):
        assert of(mended, GPU, now).score >= of(left, GPU, now).score - UNSHOWN


@given(gaps, checks, quiet, st.sampled_from(["", "annotation", "boot", "label"]))
def test_a_restart_changes_nothing_in_what_is_left(
    gaps: list[float], check: str, quiet_s: float, how: str
) -> None:
    lived = a_book()
    at = flap(lived, times(gaps), check=check) + 1.0
    labels = {"dgxc.nvidia.com/nvsentinel-state": "remediation-succeeded"}
    there = node(
        condition(check, "False", "x", at=at),
        annotations=stated(rfc3339_at(at)) if how == "annotation" else {},
        labels=labels if how == "label" else {},
        boot="boot-2" if how == "boot" else "boot-1",
    )
    tell(lived, there, at)
    of(lived, GPU, at)
    raw = msgspec.json.encode(lived.recall(GPU, at))
    fresh = a_book()
    report = report_of_node(there, RULES, at)
    fresh.ledger.adopt_reporter(report.reporter, report.uid, report.boot, ())
    fresh.ledger.repairs.adopt(NODE, *lived.ledger.repairs.recall(NODE))
    fresh.adopt(GPU, msgspec.json.decode(raw, type=StoredSubject), at, at, starting=True)
    for each in (lived, fresh):
        tell(each, there, at + 1)
    fresh.ledger.all_read(at + 1)
    for now in (at + 1, at + 1 + quiet_s):
        one, other = of(lived, GPU, now), of(fresh, GPU, now)
        assert abs(one.score - other.score) < UNSHOWN
        assert [w.evidence.text for w in one.evidence] == [w.evidence.text for w in other.evidence]
        assert one.state is other.state


def test_a_reboot_does_not_free_what_memory_faults_keep() -> None:
    """Neither by a lighter trace, nor as if it were an all-clear."""
    rebooted, left = a_book(), a_book()
    for each in (rebooted, left):
        at = flap(each, [NOW, NOW + HOUR], check="GpuMemWatch")
    bad = condition("FrequentKubeletRestart", "True", at=at)
    tell(rebooted, node(bad, boot="boot-2"), at + MINUTE)
    tell(left, node(bad, boot="boot-1"), at + MINUTE)
    assert of(rebooted, GPU, at + MINUTE).state is of(left, GPU, at + MINUTE).state
    assert of(rebooted, GPU, at + MINUTE).score == of(left, GPU, at + MINUTE).score


def test_explanations_say_why_a_state_is_kept_and_until_when() -> None:
    book = a_book()
    at = flap(book, [NOW, NOW + 30 * MINUTE, NOW + HOUR])
    kept = of(book, GPU, at).kept
    assert kept is not None
    assert describe_kept(kept) == "held because its fault kept coming back"
    assert kept.until == at + 30 * MINUTE
