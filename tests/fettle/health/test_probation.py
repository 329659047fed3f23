"""What failed again and again in 28 days, and is well now, is used a little later than the rest."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api.meta import rfc3339_at
from fettle.api.own_group import StoredSubject
from fettle.config import HealthSettings
from fettle.health import HealthBook, load_rules, probation
from fettle.health.fading import RECORD_SOURCE
from fettle.health.signals.nodes import report_of_node
from fettle.model import Health, NodeId, State, UnitId
from tests.fettle.health.builders import GPU, MESSAGE, a_book
from tests.fettle.health.incidents import HOUR, NODE, RULES, of, tell
from tests.fettle.health.signals.objects import NOW, UUID, condition, node

DAY = 24 * HOUR
XID = "SysLogsXIDError"


def fail(book: HealthBook, at: float, message: str = MESSAGE.format("79")) -> float:
    """A GPU falls off the bus and is reset an hour later; returns when that was."""
    tell(book, node(condition(XID, "True", "x", message, at=at)), at)
    of(book, GPU, at)
    over = at + HOUR
    tell(book, node(condition(XID, "False", "x", at=over)), over)
    of(book, GPU, over)
    return over


def after(*days: float, later: float = 2 * DAY) -> Health:
    """The GPU's health so long after it failed on these days."""
    book = a_book()
    for day in days:
        over = fail(book, NOW + day * DAY)
    book.changed_by_time(over + later)
    return of(book, GPU, over + later)


def record_in(health: Health) -> list[tuple[float, str]]:
    return [
        (round(w.weight, 2), w.evidence.text)
        for w in health.evidence
        if w.evidence.source == RECORD_SOURCE
    ]


@pytest.mark.parametrize(
    ("days", "score"),
    [
        ((0,), 1.0),
        ((0, 3), 0.97),
        ((0, 3, 6), 0.94),
        ((0, 3, 6, 9), 0.91),
        ((0, *range(2, 20)), 0.91),
    ],
)
def test_each_fault_beyond_the_first_takes_a_little_and_never_more_than_a_tenth(
    days: tuple[float, ...], score: float
) -> None:
    health = after(*days, later=5 * DAY)
    assert (health.state, health.score) == (State.HEALTHY, score)


def test_the_record_is_explained() -> None:
    health = after(0, 3, 6)
    date = rfc3339_at(NOW + 6 * DAY + HOUR)[:10]
    text = f"on probation: 3 faults in 28 days, the last one over on {date}"
    assert record_in(health) == [(0.06, text)]


def test_it_is_over_after_28_days() -> None:
    book = a_book()
    over = [fail(book, NOW), fail(book, NOW + 5 * DAY)]
    just_before, then = over[0] + 28 * DAY - 60, over[0] + 28 * DAY + 60
    book.changed_by_time(just_before)
    assert of(book, GPU, just_before).score == 0.97
    assert GPU in book.changed_by_time(then)
    assert of(book, GPU, then).score == 1.0


def test_what_comes_back_within_a_day_is_one_fault() -> None:
    assert record_in(after(0, 0.2, 0.4, 0.6)) == []
    assert record_in(after(0, 0.5, 1.5))[0][0] == 0.03


def test_a_repair_ends_no_record() -> None:
    book = a_book()
    for day in (0, 3, 6):
        over = fail(book, NOW + day * DAY)
    tell(book, node(annotations={"fettle.dev/repaired": rfc3339_at(over)}), over + 60)
    health = of(book, GPU, over + 60)
    assert health.state is State.HEALTHY
    assert record_in(health)[0][0] == 0.06
    assert health.score == 0.94  # the heaviest of trace and record, not both


def test_holds_reboots_of_the_node_and_light_faults_are_no_faults_on_record() -> None:
    book = a_book()
    for day in (0, 3, 6):
        at = NOW + day * DAY
        tell(book, node(annotations={"fettle.dev/hold": "fan"}), at)
        of(book, GPU, at)
        tell(book, node(condition("Ready", "False", at=at)), at + HOUR)
        tell(book, node(condition("Ready", "True", at=at), boot=f"boot-{day}"), at + 2 * HOUR)
        fail(book, at + 3 * HOUR, f"ErrorCode:13 GPU_UUID:{UUID} x Recommended Action=NONE;")
        health = of(book, GPU, at + 2 * DAY)
    assert record_in(health) == []


def test_it_follows_the_gpu_by_all_its_names_and_counts_a_fault_told_twice_once() -> None:
    book = a_book()
    device = UnitId("gpu-1", "nvidia.com/gpu", "pci:0000:c4:00.0")
    for day in (0, 3):
        fail(book, NOW + day * DAY)
        both = "ErrorCode:79 PCI:0000:c4:00.0 text Recommended Action=COMPONENT_RESET;"
        at = NOW + day * DAY + 2 * HOUR
        tell(book, node(condition(XID, "True", "x", both, at=at)), at)
        tell(book, node(condition(XID, "False", "x", at=at)), at + HOUR)
    found = book.assess(device, (GPU, device, NODE), NOW + 6 * DAY)
    assert record_in(found)[0][0] == 0.03


def test_it_never_makes_a_state_worse_and_holds_none() -> None:
    """Beside other light evidence too: the state is as if there were no record."""
    row = "name: w, type: Warm, faulty: true, family: thermal, weight: 0.05, source: s"
    warm = f"conditions: [{{{row}}}]"
    none = "signals: [{name: record, weight: 0, source: none}]"
    with_record, without_any = (load_rules("r", warm), load_rules("r", f"{warm}\n{none}"))
    book, without = (HealthBook(HealthSettings(), r) for r in (with_record, without_any))
    scores = []
    for day in (0, 3, 6, 9):
        for each in (book, without):
            over = fail(each, NOW + day * DAY)
            said = report_of_node(node(condition("Warm", "True", at=over)), with_record, over + 1)
            each.ledger.report(said, over + 1)
        for later in (1, HOUR, 3 * HOUR, 9 * HOUR, 40 * HOUR):
            for each in (book, without):
                each.changed_by_time(over + later)
            one, other = of(book, GPU, over + later), of(without, GPU, over + later)
            assert (one.state, one.since, one.kept) == (other.state, other.since, other.kept)
            assert book.recovery(GPU, over + later).at == without.recovery(GPU, over + later).at
            scores.append((one.score, other.score))
    assert scores[-1][0] < 0.87 < scores[-1][1]
    at = over + 5 * DAY  # and what fades leaves its state at the same time
    slow = condition("GpuSmWatch", "True", "x", MESSAGE.format("X"), at=at)
    for each in (book, without):
        for there in (node(slow, condition("Warm", "True", at=over)), node()):
            each.ledger.report(report_of_node(there, with_record, at), at)
            of(each, GPU, at)
    states = []
    for minute in range(0, 12 * 60, 5):
        for each in (book, without):
            each.changed_by_time(at + 60 * minute)
        one, other = of(book, GPU, at + 60 * minute), of(without, GPU, at + 60 * minute)
        assert one.state is other.state
        states.append(one.state)
    assert states[0] is not State.HEALTHY
    assert states[-1] is State.HEALTHY


def test_a_restart_keeps_the_record() -> None:
    book = a_book()
    for day in (0, 3, 6):
        over = fail(book, NOW + day * DAY)
    now = over + 3 * DAY
    book.changed_by_time(now)
    before = of(book, GPU, now)
    raw = msgspec.json.encode(book.recall(GPU, now))
    assert len(raw) < 900
    fresh = a_book()
    there = report_of_node(node(), RULES, now)
    fresh.ledger.adopt_reporter(there.reporter, there.uid, there.boot, ())
    fresh.adopt(GPU, msgspec.json.decode(raw, type=StoredSubject), now, now, starting=True)
    fresh.ledger.report(there, now)
    fresh.ledger.all_read(now)
    assert GPU in fresh.ledger.units("gpu-1")
    assert of(fresh, GPU, now).score == before.score == 0.94
    assert record_in(of(fresh, GPU, now)) == record_in(before)


def test_a_running_replica_takes_over_the_record_and_once_more_changes_nothing() -> None:
    writer, replica = a_book(), a_book()
    for day in (0, 3):
        over = fail(writer, NOW + day * DAY)
    kept = writer.recall(GPU, over + DAY)
    assert kept is not None
    for changed in ({GPU}, set()):
        assert replica.adopt(GPU, kept, over + DAY, over + DAY, starting=False) >= changed
    assert record_in(of(replica, GPU, over + 3 * DAY))[0][0] == 0.03
    assert writer.adopt(GPU, kept, over + DAY, over + DAY, starting=False) == set()


def test_a_node_that_is_another_one_inherits_no_record() -> None:
    book = a_book()
    for day in (0, 3):
        over = fail(book, NOW + day * DAY)
    book.forget({NodeId("gpu-1")}, over + DAY, over + DAY)
    assert of(book, GPU, over + DAY).score == 1.0


times = st.lists(st.floats(NOW - 40 * DAY, NOW + DAY), max_size=40)


@given(times)
def test_whatever_times_are_known_the_record_is_short_and_bounded(known: list[float]) -> None:
    found = probation.faults(known, NOW)
    assert len(found) <= probation.MOST_FAULTS
    assert all(NOW - probation.RECORD_S < at <= NOW for at in found)
    assert all(b - a >= probation.APART_S for a, b in pairwise(found))
    row = RULES.signals["record"]
    weighed = probation.weighed(GPU, found, row)
    assert weighed is None or 0.0 < weighed.weight <= 0.1
