from fettle.patience import MOST, Patience


def test_after_a_wait_in_vain_nothing_is_waited_for_a_moment_and_the_same_for_longer() -> None:
    now = 0.0
    patience = Patience(60.0, 1.5, lambda: now)
    assert patience.has("this")
    patience.lose("this")
    assert not patience.has("this")
    assert not patience.has("other")
    now = 1.5
    assert not patience.has("this")
    assert patience.has("other")
    now = 60.0
    assert patience.has("this")


def test_so_many_waits_in_vain_are_remembered_the_latest() -> None:
    patience = Patience(60.0, clock=lambda: 0.0)
    for number in range(MOST + 1):
        patience.lose(number)
    assert [number for number in (0, 1, MOST) if patience.has(number)] == [0]
