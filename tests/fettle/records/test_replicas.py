"""Of several processes, each decision counts once."""

from __future__ import annotations

from fettle.records import Decided, Decision, Verb, merged


def decision(id_: str, verb: Verb = Verb.FILTER, uid: str = "p", first: float = 0.0) -> Decision:
    return Decision(
        id=id_,
        verb=verb,
        key=f"default/{uid}",
        uid=uid,
        decided=Decided.PASSED,
        first=first,
        last=first,
    )


def ids(*records: list[Decision]) -> list[str]:
    return [one.id for one in merged(records)]


def test_what_each_decided_is_there_the_oldest_first() -> None:
    first = [decision("a", first=1.0), decision("c", first=3.0)]
    second = [decision("b", Verb.MUTATE, first=2.0)]
    assert ids(first, second) == ids(second, first) == ["a", "b", "c"]


def test_a_process_that_is_asked_twice_counts_once() -> None:
    records = [decision("a"), decision("b", Verb.SEEN, "q")]
    assert ids(records, records) == ["a", "b"]


def test_what_another_was_asked_about_was_not_merely_seen() -> None:
    asked, saw = [decision("a", first=2.0)], [decision("b", Verb.SEEN, first=1.0)]
    assert ids(asked, saw) == ids(saw, asked) == ["a"]


def test_what_several_saw_counts_as_the_first_saw_it() -> None:
    one = [decision("a1", Verb.SEEN, first=1.0), decision("a2", Verb.SEEN, first=4.0)]
    other = [decision("b1", Verb.SEEN, first=2.0), decision("b2", Verb.SEEN, "q", first=3.0)]
    assert ids(one, other) == ids(other, one) == ["a1", "b2", "a2"]


def test_of_none_there_is_nothing() -> None:
    assert ids() == ids([], []) == []
