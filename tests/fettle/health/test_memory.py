"""What is stored of health, and a process that starts with it."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api.own_group import StoredSubject
from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.health.signals.reports import SignalReport, heaviest
from fettle.model import Evidence, EvidenceKind, Health, ReporterId, State, Subject
from tests.fettle.health.drawn import (
    KEY,
    RULES,
    SOURCES,
    SUBJECTS,
    T0,
    about_the_bus,
    assess,
    book,
    evidence,
    told,
)

NODE = ReporterId("Node", "gpu-1")
PODS = (ReporterId("Pod", "ml/a"), ReporterId("Pod", "ml/b"))
REPORTERS = (NODE, *PODS, ReporterId("ResourceSlice", "gpu-1-x"))
KEPT = msgspec.json.Decoder(StoredSubject)


def said_of(evidence: Evidence, reporter: ReporterId, now: float) -> Evidence:
    """As an object tells it: an event of the last hours."""
    at = now - (T0 - evidence.observed_at)
    return msgspec.structs.replace(evidence, reporter=reporter, observed_at=round(at, 3))


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[float, ReporterId, SignalReport | None]]:
    """(when, who, what it says then; None: it is gone). A Node that goes takes all along."""
    made: list[tuple[float, ReporterId, SignalReport | None]] = []
    now = T0
    for _ in range(draw(st.integers(1, 8))):
        now = round(now + draw(st.floats(1.0, 3000.0)), 3)  # as finely as it is stored
        who = draw(st.sampled_from(REPORTERS))
        if who != NODE and draw(st.integers(0, 5)) == 0:
            made.append((now, who, None))
            continue
        found = [said_of(e, who, now) for e in draw(st.lists(evidence(), max_size=3))]
        cleared = draw(st.sampled_from([frozenset(), frozenset({(SUBJECTS[1], SOURCES[0])})]))
        report = SignalReport(
            who,
            heaviest(found),
            cleared=cleared - {(e.subject, e.source) for e in found},
            absent_is_clear=who.kind == "ResourceSlice",
            settled=draw(
                st.sampled_from([frozenset(), frozenset(SOURCES[:1]), frozenset(SOURCES)])
            ),
            uid=draw(st.sampled_from(["1", "1", "2"])) if who.kind == "Pod" else "",
            boot=draw(st.sampled_from(["one", "one", "two"])) if who == NODE else "",
        )
        made.append((now, who, report))
    return made


def stored(lived: HealthBook, now: float) -> dict[Subject, bytes]:
    kept = {key: lived.recall(key, now) for key in SUBJECTS}
    return {key: msgspec.json.encode(one) for key, one in kept.items() if one is not None}


def restarted(
    kept: Mapping[Subject, bytes],
    observed_at: float,
    alive: Mapping[ReporterId, SignalReport],
    now: float,
) -> HealthBook:
    """A process that reads what is stored, and then everything that is there."""
    fresh = HealthBook(HealthSettings(), RULES)
    node = alive.get(NODE)
    if node is not None:
        fresh.ledger.adopt_reporter(NODE, node.uid, node.boot, ())
    for key, raw in kept.items():
        fresh.adopt(key, KEPT.decode(raw), observed_at, now, starting=True)
    for report in alive.values():
        fresh.ledger.report(report, now)
    fresh.ledger.all_read(now)
    return fresh


def hear_again(lived: HealthBook, alive: Mapping[ReporterId, SignalReport], now: float) -> None:
    """A restart is like a watch that lists again: all-clears are said once more."""
    for report in alive.values():
        lived.ledger.report(report, now)


def alike(one: Health, other: Health) -> None:
    assert abs(one.score - other.score) < 0.02, (one, other)
    assert abs(one.proven - other.proven) < 0.02
    assert (one.state, one.held) == (other.state, other.held)
    # since when something is Healthy is only shown, and it is not kept while that is in doubt
    assert one.state in (State.HEALTHY, State.UNKNOWN) or abs(one.since - other.since) < 0.01


@given(steps(), st.integers(0, 7), st.floats(0.0, 4000.0), st.lists(st.floats(1, 5000), max_size=3))
def test_a_process_that_was_restarted_shows_what_one_that_was_not_shows(
    history: list[tuple[float, ReporterId, SignalReport | None]],
    restart_after: int,
    away_s: float,
    later: list[float],
) -> None:
    lived = book()
    again: HealthBook | None = None
    alive: dict[ReporterId, SignalReport] = {}
    now = T0
    for i, (at, who, report) in enumerate(history):
        now = at
        books = [lived] if again is None else [lived, again]
        if report is None:
            alive.pop(who, None)
        else:
            alive[who] = report
        for each in books:
            if report is None:
                each.ledger.vanish(who, now)
            else:
                each.ledger.report(report, now)
        if again is not None:
            alike(assess(lived, now), assess(again, now))
        assess(lived, now)
        if i == restart_after and again is None:
            kept = stored(lived, now)
            again = restarted(kept, now, alive, now)
            hear_again(lived, alive, now)
            alike(assess(lived, now), assess(again, now))
    if again is None:
        again = restarted(stored(lived, now), now, alive, now)
        hear_again(lived, alive, now)
    for wait in [away_s, *later]:
        now += wait
        alike(assess(lived, now), assess(again, now))


def in_order(kept: Mapping[Subject, bytes]) -> dict[Subject, object]:
    """All evidence, and the states that something keeps."""
    read = {key: KEPT.decode(raw) for key, raw in kept.items()}
    ill = (State.DEGRADED, State.UNHEALTHY)
    return {
        key: (
            sorted(one.evidence, key=msgspec.json.encode),
            (one.state, one.since, one.score, one.proven_score) if one.state in ill else None,
        )
        for key, one in read.items()
        if one.evidence or one.state in ill
    }


@given(steps())
def test_what_is_adopted_is_recalled_and_adopting_it_once_more_changes_nothing(
    history: list[tuple[float, ReporterId, SignalReport | None]],
) -> None:
    lived, now = book(), T0
    for at, who, report in history:
        now = at
        lived.ledger.vanish(who, now) if report is None else lived.ledger.report(report, now)
        assess(lived, now)
    kept = stored(lived, now)
    fresh = HealthBook(HealthSettings(), RULES)
    for key, raw in kept.items():
        fresh.adopt(key, KEPT.decode(raw), now, now, starting=True)
    assert in_order(stored(fresh, now)) == in_order(kept)
    for key, raw in kept.items():  # as when the one that writes reads what it wrote
        assert lived.adopt(key, KEPT.decode(raw), now + 1, now + 1, starting=False) <= set()


def test_what_a_replica_saw_change_later_than_the_writer_is_its_own_to_tell() -> None:
    fault = about_the_bus(EvidenceKind.DECAYING, 0.5)
    replica = told([SignalReport(PODS[0], (fault,))])
    kept = stored(replica, T0)[KEY]
    replica.ledger.report(
        SignalReport(PODS[1], (), cleared=frozenset({(KEY, SOURCES[0])})), T0 + 60
    )
    cleared = assess(replica, T0 + 60)
    replica.adopt(KEY, KEPT.decode(kept), T0 + 30, T0 + 61, starting=False)
    alike(assess(replica, T0 + 61), cleared)


def test_a_replica_takes_the_writers_word_for_what_it_could_not_see() -> None:
    """It read a refused pod from a list, so only the writer knows who placed the pod."""
    word = about_the_bus(EvidenceKind.DECAYING, 0.35, reporting_namespace="ml", together=0.6)
    proven = about_the_bus(EvidenceKind.DECAYING, 0.1)
    replica = told([SignalReport(PODS[0], (word,), uid="1")])
    writer = told([SignalReport(PODS[0], (proven,), uid="1")])
    kept = stored(writer, T0)[KEY]
    replica.adopt(KEY, KEPT.decode(kept), T0 + 30, T0 + 31, starting=False)
    alike(assess(replica, T0 + 31), assess(writer, T0 + 31))
    replica.ledger.report(SignalReport(PODS[0], (word,), uid="1"), T0 + 40)
    alike(assess(replica, T0 + 41), assess(writer, T0 + 41))


@pytest.mark.parametrize(
    "changes",
    [
        {"lastSeen": "2999-01-01T00:00:00Z"},
        {"lastSeen": "1969-01-01T00:00:00Z"},
        {"lastSeen": None},
        {"kind": "level", "reports": []},
        {"kind": "level", "firstSeen": "2999-01-01T00:00:00Z", "reports": [{"by": "Node gpu-1"}]},
        {
            "kind": "latched",
            "source": "condition NoRuleNamesThis",
            "firstSeen": "2026-09-01T00:00:00Z",
            "reports": [{"by": "Node gpu-1", "uid": ""}],
            "gone": True,
        },
    ],
    ids=["future", "before 1970", "never", "said by nobody", "will be", "of a rule that is gone"],
)
def test_evidence_that_cannot_be_is_left_out(changes: dict[str, object]) -> None:
    sound = {"source": "taint s", "family": "bus", "kind": "decaying", "weight": 1.0}
    sound |= {"lastSeen": "2026-09-21T14:00:00Z"}
    for one, is_left in ((sound, False), (sound | changes, True)):
        raw = msgspec.json.encode({"state": "Healthy", "score": 1.0, "evidence": [one]})
        fresh = book()
        fresh.adopt(SUBJECTS[1], KEPT.decode(raw), T0, T0, starting=True)
        fresh.ledger.all_read(T0)
        assert (assess(fresh).score == 1.0) is is_left


@pytest.mark.parametrize("field", ["weight", "sum", "cap", "together", "halfLifeSeconds"])
@pytest.mark.parametrize("value", [-0.1, 1e9])
def test_weights_and_half_lives_are_bounded(field: str, value: float) -> None:
    evidence = {"source": "s", "family": "bus", "kind": "decaying", field: value}
    with pytest.raises(msgspec.ValidationError):
        KEPT.decode(msgspec.json.encode({"state": "Healthy", "score": 1, "evidence": [evidence]}))
