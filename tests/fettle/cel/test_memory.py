"""Expressions that are used again, or stand, are remembered beside any number of others."""

from hypothesis import given
from hypothesis import strategies as st

from fettle.cel.runtime.memory import (
    AGAIN_S,
    BUDGET_S,
    COSTLY_ROW_S,
    DIED,
    GIVEN_UP_S,
    STRIKES,
    TRIAL_S,
    ExpressionEntry,
    Level,
    Memory,
)
from fettle.cel.runtime.outcomes import MATCH, TOO_SLOW
from fettle.cel.runtime.protocol import EvaluateReply


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def known(
    memory: Memory, clock: Clock, text: str, rows: int = 1, spent_s: float = 0.0
) -> ExpressionEntry:
    """The expression's entry, after so many rows were judged."""
    entry = memory.add(text)
    entry.parsed = True
    keys = [(text, at) for at in range(rows)]
    memory.make_room(entry, rows)
    entry.learn(keys, EvaluateReply((MATCH,) * rows, spent_s), clock())
    return entry


def used_again(memory: Memory, clock: Clock, text: str, spent_s: float = 0.0) -> None:
    known(memory, clock, text, spent_s=spent_s)
    clock.now += AGAIN_S * 2
    memory.use([text])


def test_what_is_used_again_outlives_any_stream_of_what_is_used_once() -> None:
    clock = Clock()
    memory = Memory(10, 1000, clock)
    used_again(memory, clock, "ours")
    for number in range(50):
        known(memory, clock, f"theirs {number}")
    assert memory.look("ours")
    assert memory.look("theirs 49")
    assert not memory.look("theirs 30")


def test_a_second_use_at_the_same_time_is_none() -> None:
    clock = Clock()
    memory = Memory(10, 1000, clock)
    known(memory, clock, "ours")
    memory.use(["ours"])
    for number in range(10):
        known(memory, clock, f"theirs {number}")
    assert not memory.look("ours")


def test_what_is_costly_is_not_kept_for_being_used_again() -> None:
    clock = Clock()
    memory = Memory(10, 1000, clock)
    used_again(memory, clock, "dear", spent_s=TRIAL_S * 2)
    for number in range(10):
        known(memory, clock, f"theirs {number}")
    assert not memory.look("dear")


def test_what_stands_stays_until_it_does_not() -> None:
    clock = Clock()
    memory = Memory(10, 1000, clock)
    known(memory, clock, "of a class")
    memory.stand({"of a class"})
    for number in range(50):
        used_again(memory, clock, f"theirs {number}")
    assert memory.look("of a class")
    memory.stand(())
    for number in range(50):
        used_again(memory, clock, f"others' {number}")
    assert not memory.look("of a class")


def test_rows_of_what_was_used_once_make_room_first() -> None:
    clock = Clock()
    memory = Memory(100, 100, clock)
    used_again(memory, clock, "ours")
    for number in range(5):
        known(memory, clock, f"theirs {number}", rows=60)
    assert memory.look("ours")
    assert not memory.look("theirs 3")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("know", "use", "stand", "wait")),
            st.integers(0, 12),
            st.integers(0, 9),
        )
    )
)
def test_it_never_holds_more_than_it_may(steps: list[tuple[str, int, int]]) -> None:
    clock = Clock()
    memory = Memory(5, 20, clock)
    for does, number, rows in steps:
        if does == "know":
            known(memory, clock, str(number), rows)
        elif does == "use":
            memory.use([str(number)])
        elif does == "stand":
            memory.stand({str(number)})
        clock.now += AGAIN_S if does == "wait" else 0
        texts = [text for n in range(13) if memory.look(text := str(n)) is not None]
        entries = [memory.add(text) for text in texts]
        assert len(entries) <= 5
        assert sum(len(entry.rows) for entry in entries) <= 20


def test_cheap_goes_before_large_before_costly() -> None:
    clock = Clock()
    memory = Memory(10, 1000, clock)
    cheap = known(memory, clock, "cheap")
    dear = known(memory, clock, "dear", spent_s=TRIAL_S * 3)
    dearer = known(memory, clock, "dearer", spent_s=TRIAL_S * 4)
    orders = [cheap.order(0.0), cheap.order(TRIAL_S * 2), dear.order(0.0), dearer.order(0.0)]
    assert orders == sorted(orders)
    levels = [Level.PROVEN, Level.LARGE, Level.COSTLY, Level.COSTLY]
    assert [level for level, _ in orders] == levels
    assert not memory.add("new").measured


def test_many_cheap_rows_are_not_costly() -> None:
    clock = Clock()
    entry = known(Memory(10, 100_000, clock), clock, "x", 10_000, 10_000 * COSTLY_ROW_S / 2)
    assert not entry.costly
    assert entry.default is None


def test_what_is_costly_is_given_up_and_tried_again_later() -> None:
    clock = Clock()
    entry = known(Memory(10, 1000, clock), clock, "x", 10, BUDGET_S * 1.1)
    assert entry.default is TOO_SLOW
    assert not entry.lacks(clock())
    clock.now += GIVEN_UP_S
    assert entry.lacks(clock())
    entry.forgive(clock())
    assert not entry.lacks(clock())
    assert entry.order(0.0) > (Level.COSTLY, BUDGET_S)
    assert len(entry.rows) == 10


def test_the_first_death_of_the_worker_costs_an_expression_no_turn_and_the_next_ones_do() -> None:
    clock = Clock()
    entry = known(Memory(10, 1000, clock), clock, "x")
    assert entry.order(0.0, deaths=1) == entry.order(0.0)
    assert entry.order(0.0, deaths=2)[0] is Level.COSTLY
    assert entry.order(0.0, deaths=2) < entry.order(0.0, deaths=3)


def test_a_row_is_given_up_over_which_alone_the_worker_died_several_times() -> None:
    clock = Clock()
    entry = known(Memory(10, 1000, clock), clock, "x")
    first, second = ("first",), ("second",)
    for _ in range(5):
        entry.died([first, second], clock(), slow=False)  # it may have been either
    assert not entry.gave_up
    entry.died([first], clock(), slow=False)
    assert entry.rows[first] is DIED
    assert second not in entry.rows
    assert entry.default is None


def test_what_was_answered_since_was_not_to_blame() -> None:
    clock = Clock()
    entry = known(Memory(10, 1000, clock), clock, "x")
    for _ in range(5):
        entry.died([("row",)], clock(), slow=False)
        entry.died([("row",)], clock(), slow=False)
        entry.learn([("row",)], EvaluateReply((MATCH,), 0.0), clock())
    assert not entry.deaths
    assert not entry.gave_up


def test_each_further_row_that_ends_the_worker_is_given_up_sooner() -> None:
    clock = Clock()
    entry = known(Memory(10, 1000, clock), clock, "x")
    deaths = []
    for number in range(STRIKES):
        row, died = (number,), 0
        while row not in entry.rows:
            entry.died([row], clock(), slow=False)
            died += 1
        deaths.append(died)
    assert deaths == [3, 2, 1]
    assert entry.default is DIED
    clock.now += GIVEN_UP_S
    entry.forgive(clock())
    assert not entry.gave_up
    assert not any((number,) in entry.rows for number in range(STRIKES))
