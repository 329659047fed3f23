from fettle.pacing.patience import MOST, Patience


def test_what_was_waited_for_in_vain_is_not_waited_for_again_soon() -> None:
    now = 0.0
    patience = Patience(lambda: now)
    assert patience.has("this pod", "this namespace")
    patience.lose({"this pod": 60.0, "this namespace": 1.5})
    assert not patience.has("this pod")
    assert not patience.has("other pod", "this namespace")
    assert patience.has("other pod", "other namespace")
    now = 1.5
    assert not patience.has("this pod", "this namespace")
    assert patience.has("other pod", "this namespace")
    now = 60.0
    assert patience.has("this pod", "this namespace")


def test_so_many_waits_in_vain_are_remembered_the_latest() -> None:
    patience = Patience(lambda: 0.0)
    for number in range(MOST + 1):
        patience.lose({number: 60.0})
    assert [number for number in (0, 1, MOST) if patience.has(number)] == [0]
