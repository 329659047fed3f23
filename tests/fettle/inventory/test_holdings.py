from hypothesis import given
from hypothesis import strategies as st

from fettle.asks.claims import Held
from fettle.inventory.holdings import Holdings
from fettle.model import DeviceId

A, B = DeviceId("d", "p", "a"), DeviceId("d", "p", "b")


def test_a_device_is_held_until_the_last_claim_lets_go() -> None:
    holdings = Holdings()
    holdings.hold(Held(A), "x")
    holdings.hold(Held(A), "y")
    holdings.release(Held(A), "x")
    assert holdings.alone(A)
    holdings.release(Held(A), "y")
    assert not holdings.alone(A)


def test_shares_add_up_and_hold_nothing_alone() -> None:
    holdings = Holdings()
    holdings.hold(Held(A, "1", (("memory", 3),)), "x")
    holdings.hold(Held(A, "2", (("memory", 4), ("cores", 1))), "y")
    assert holdings.shared(A)
    assert not holdings.alone(A)
    assert holdings.consumed(A) == {"memory": 7, "cores": 1}
    assert holdings.consumed(B) == {}


def test_without_shares_who_holds_one_holds_the_device() -> None:
    """As the scheduler counts it while DRAConsumableCapacity is off."""
    holdings = Holdings(shares=False)
    share = Held(A, "1", (("memory", 3),))
    holdings.hold(share, "x")
    assert holdings.alone(A)
    assert not holdings.shared(A)
    assert holdings.consumed(A) == {}
    holdings.release(share, "x")
    assert not holdings.alone(A)


HELD = st.builds(
    Held,
    st.sampled_from([A, B]),
    st.sampled_from(["", "1", "2"]),
    st.sampled_from([(), (("memory", 2),)]),
)


@given(st.lists(st.tuples(HELD, st.sampled_from("xy"))), st.booleans())
def test_what_is_released_leaves_nothing_behind(held: list[tuple[Held, str]], shares: bool) -> None:
    holdings = Holdings(shares=shares)
    for one, claim in held:
        holdings.hold(one, claim)
    for one, claim in held:
        holdings.release(one, claim)
    for device in (A, B):
        assert not holdings.alone(device)
        assert not holdings.shared(device)
        assert holdings.consumed(device) == {}
