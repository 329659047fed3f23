"""The decisions in memory: repetitions are counted, and the oldest go first."""

from fettle.records import Became, Decided, DecisionLog, Placed, Verb
from tests.fettle.records.building import decision


def test_the_same_said_again_is_counted_in_one_decision() -> None:
    log = DecisionLog(10, 2**20)
    first = log.note(decision(reasons={"NodeHeld": 3}, nodes=3, refused=3))
    again = log.note(decision(reasons={"NodeHeld": 2}, nodes=2, refused=2, at=1001.0))
    assert again is first
    assert (first.count, first.first, first.last) == (2, 1000.0, 1001.0)
    assert (first.nodes, first.reasons) == (2, {"NodeHeld": 2})
    assert len(log) == 1


def test_another_reason_result_verb_or_pod_is_another_decision() -> None:
    log = DecisionLog(10, 2**20)
    log.note(decision(reasons={"NodeHeld": 3}))
    log.note(decision(reasons={"NodeUnhealthy": 3}))
    log.note(decision(decided=Decided.NARROWED, reasons={"NodeUnhealthy": 3}))
    log.note(decision(verb=Verb.PREEMPT))
    log.note(decision("q", reasons={"NodeHeld": 3}))
    assert len(log) == 5


def test_the_oldest_go_first_by_number_and_by_bytes() -> None:
    by_number = DecisionLog(3, 2**20)
    by_bytes = DecisionLog(100, 6000)
    for log in (by_number, by_bytes):
        for i in range(20):
            log.note(decision(f"p{i}", why="x" * 1500))
            log.changed()
    assert [one.key for one in by_number] == ["default/p17", "default/p18", "default/p19"]
    assert 1 < len(by_bytes) < 6
    assert by_number.of_pod("uid-p0") is None


def test_a_decision_that_is_forgotten_and_said_again_is_a_new_one() -> None:
    log = DecisionLog(1, 2**20)
    for pod in ("a", "b", "a"):
        log.note(decision(pod))
    assert [(one.key, one.count) for one in log] == [("default/a", 1)]


def test_decisions_are_found_by_pod_node_policy_and_time() -> None:
    log = DecisionLog(10, 2**20)
    log.note(decision("old", at=10.0))
    log.note(decision("a", refused_nodes=("w1",)))
    placed = log.note(decision("b", Decided.PASSED, policy="inference", preferred={"w2": 10}))
    placed.placed = Placed(node="w3", at=1001.0)

    def found(**wanted: str) -> list[str]:
        return [one.key for one in log.select(100.0, **wanted)]

    assert found() == ["default/a", "default/b"]
    assert found(pod="default/a") == found(node="w1") == ["default/a"]
    assert found(policy="inference") == found(node="w2") == found(node="w3") == ["default/b"]


def test_what_became_of_a_pod_is_said_with_each_decision_on_it() -> None:
    log = DecisionLog(10, 2**20)
    refused = log.note(decision())
    passed = log.note(decision(decided=Decided.PASSED, at=1005.0))
    passed.placed, passed.became = Placed(node="w1", at=1006.0), Became.RUNNING
    shown = log.with_fate(refused)
    assert shown.placed == passed.placed
    assert shown.became is Became.RUNNING
    assert refused.placed is None
    assert log.open() == [passed]
    passed.became = Became.SUCCEEDED
    assert log.open() == []
