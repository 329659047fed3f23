from fettle.pacing.backoff import Backoff


def test_pauses_grow_up_to_the_longest() -> None:
    backoff = Backoff(1.0, 10.0)
    assert [backoff.next_s() for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_the_first_failures_may_be_free() -> None:
    backoff = Backoff(0.1, free=2, factor=4.0)
    assert [backoff.next_s() for _ in range(5)] == [0.0, 0.0, 0.1, 0.4, 1.6]


def test_a_success_begins_again() -> None:
    backoff = Backoff(1.0)
    assert backoff.pause_s() == 0.0, "nothing has failed"
    for _ in range(3):
        backoff.failed()
    assert (backoff.failures, backoff.pause_s()) == (3, 4.0)
    backoff.succeeded()
    assert (backoff.failures, backoff.next_s()) == (0, 1.0)


def test_chance_shortens_pauses_by_at_most_the_jitter() -> None:
    drawn: list[tuple[float, float]] = []

    def lowest(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    assert Backoff(8.0, jitter=0.25, uniform=lowest).next_s() == 6.0
    assert drawn == [(0.75, 1.0)]
    pauses = [Backoff(8.0, jitter=0.5).next_s() for _ in range(50)]
    assert all(4.0 <= pause <= 8.0 for pause in pauses)
    assert len(set(pauses)) > 1


def test_the_longest_pause_may_depend_on_what_failed() -> None:
    backoff = Backoff(1.0, 100.0)
    assert [backoff.next_s(longest_s) for longest_s in (3.0, 3.0, 3.0, None)] == [
        1.0,
        2.0,
        3.0,
        8.0,
    ]


def test_any_number_of_failures_gives_a_number() -> None:
    backoff = Backoff(0.1, 30.0, factor=4.0)
    assert [backoff.next_s() for _ in range(5000)][-1] == 30.0
