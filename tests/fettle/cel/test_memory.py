"""Expressions that are used again, or pinned, are kept beside any number of others."""

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
from fettle.cel.runtime.protocol import MATCH, TOO_SLOW, EvaluateReply


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


def test_expressions_used_again_outlive_any_number_that_are_used_once() -> None:
    clock = Clock()
    memory = Memory(10, 1000, clock)
    used_again(memory, clock, "ours")
    for number in range(50):
        known(memory, clock, f"theirs {number}")
    assert memory.peek("ours")
    assert memory.peek("theirs 49")
    assert not memory.peek("theirs 30")


def test_a_second_use_at_the_same_time_does_not_count() -> None:
    clock = Clock()
    memory = Memory(10, 1000, clock)
    known(memory, clock, "ours")
    memory.use(["ours"])
    for number in range(10):
        known(memory, clock, f"theirs {number}")
    assert not memory.peek("ours")


def test_costly_expressions_are_not_kept_for_being_used_again() -> None:
    clock = Clock()
    memory = Memory(10, 1000, clock)
    used_again(memory, clock, "dear", spent_s=TRIAL_S * 2)
    for number in range(10):
        known(memory, clock, f"theirs {number}")
    assert not memory.peek("dear")


def test_pinned_expressions_stay_until_others_are_pinned() -> None:
    clock = Clock()
    memory = Memory(10, 1000, clock)
    known(memory, clock, "of a class")
    memory.pin({"of a class"})
    for number in range(50):
        used_again(memory, clock, f"theirs {number}")
    assert memory.peek("of a class")
    memory.pin(())
    for number in range(50):
        used_again(memory, clock, f"others' {number}")
    assert not memory.peek("of a class")


def test_expressions_used_once_make_room_for_rows_first() -> None:
    clock = Clock()
    memory = Memory(100, 100, clock)
    used_again(memory, clock, "ours")
    for number in range(5):
        known(memory, clock, f"theirs {number}", rows=60)
    assert memory.peek("ours")
    assert not memory.peek("theirs 3")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("know", "use", "pin", "wait")),
            st.integers(0, 12),
            st.integers(0, 9),
        )
    )
)
def test_the_memory_never_exceeds_its_bounds(steps: list[tuple[str, int, int]]) -> None:
    clock = Clock()
    memory = Memory(5, 20, clock)
    for does, number, rows in steps:
        if does == "know":
            known(memory, clock, str(number), rows)
        elif does == "use":
            memory.use([str(number)])
        elif does == "pin":
            memory.pin({str(number)})
        clock.now += AGAIN_S if does == "wait" else 0
        texts = [text for n in range(13) if memory.peek(text := str(n)) is not None]
        entries = [memory.add(text) for text in texts]
        assert len(entries) <= 5
        assert sum(len(entry.rows) for entry in entries) <= 20


def test_cheap_questions_go_before_large_and_these_before_costly_ones() -> None:
    clock = Clock()
    memory = Memory(10, 1000, clock)
    cheap = known(memory, clock, "cheap")
    dear = known(memory, clock, "dear", spent_s=TRIAL_S * 3)
    dearer = known(memory, clock, "dearer", spent_s=TRIAL_S * 4)
    priorities = [
        cheap.priority(0.0),
        cheap.priority(TRIAL_S * 2),
        dear.priority(0.0),
        dearer.priority(0.0),
    ]
    assert priorities == sorted(priorities)
    levels = [Level.PROVEN, Level.LARGE, Level.COSTLY, Level.COSTLY]
    assert [level for level, _ in priorities] == levels
    assert not memory.add("new").measured


def test_many_cheap_rows_are_not_costly() -> None:
    clock = Clock()
    entry = known(Memory(10, 100_000, clock), clock, "x", 10_000, 10_000 * COSTLY_ROW_S / 2)
    assert not entry.costly
    assert entry.default is None


def test_a_costly_expression_is_given_up_and_tried_again_later() -> None:
    clock = Clock()
    entry = known(Memory(10, 1000, clock), clock, "x", 10, BUDGET_S * 1.1)
    assert entry.default is TOO_SLOW
    assert not entry.may_be_retried(clock())
    clock.now += GIVEN_UP_S
    assert entry.may_be_retried(clock())
    entry.forgive(clock())
    assert not entry.may_be_retried(clock())
    assert entry.priority(0.0) > (Level.COSTLY, BUDGET_S)
    assert len(entry.rows) == 10


def test_the_first_death_of_the_worker_leaves_an_expressions_priority_and_the_next_lower_it() -> (
    None
):
    clock = Clock()
    entry = known(Memory(10, 1000, clock), clock, "x")
    assert entry.priority(0.0, deaths=1) == entry.priority(0.0)
    assert entry.priority(0.0, deaths=2)[0] is Level.COSTLY
    assert entry.priority(0.0, deaths=2) < entry.priority(0.0, deaths=3)


def test_a_row_over_which_alone_the_worker_died_several_times_is_given_up() -> None:
    clock = Clock()
    entry = known(Memory(10, 1000, clock), clock, "x")
    first, second = ("first",), ("second",)
    for _ in range(5):
        entry.note_death([first, second], clock(), slow=False)  # it may have been either
    assert not entry.gave_up
    entry.note_death([first], clock(), slow=False)
    assert entry.rows[first] is DIED
    assert second not in entry.rows
    assert entry.default is None


def test_deaths_over_a_row_are_forgotten_once_it_is_answered() -> None:
    clock = Clock()
    entry = known(Memory(10, 1000, clock), clock, "x")
    for _ in range(5):
        entry.note_death([("row",)], clock(), slow=False)
        entry.note_death([("row",)], clock(), slow=False)
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
            entry.note_death([row], clock(), slow=False)
            died += 1
        deaths.append(died)
    assert deaths == [3, 2, 1]
    assert entry.default is DIED
    clock.now += GIVEN_UP_S
    entry.forgive(clock())
    assert not entry.gave_up
    assert not any((number,) in entry.rows for number in range(STRIKES))
