from hypothesis import given
from hypothesis import strategies as st

from fettle.cluster.inventory.holdings import Holdings
from fettle.dra import AllocatedDevice
from fettle.model import DeviceId

A, B = DeviceId("d", "p", "a"), DeviceId("d", "p", "b")


def test_a_device_is_held_until_the_last_claim_lets_go() -> None:
    holdings = Holdings()
    assert holdings.put("x", [AllocatedDevice(A)]) == {A}
    assert holdings.put("y", [AllocatedDevice(A)]) == {A}
    assert holdings.put("x", ()) == {A}
    assert holdings.alone(A)
    holdings.put("y", ())
    assert not holdings.alone(A)


def test_only_devices_that_a_claim_took_or_let_go_have_changed() -> None:
    holdings = Holdings()
    holdings.put("x", [AllocatedDevice(A)])
    assert holdings.put("x", [AllocatedDevice(A), AllocatedDevice(B)]) == {B}
    assert holdings.put("x", [AllocatedDevice(B)]) == {A}
    assert holdings.put("x", [AllocatedDevice(B)]) == set()
    assert (holdings.alone(A), holdings.alone(B)) == (False, True)


def test_shares_add_up_and_hold_nothing_alone() -> None:
    holdings = Holdings()
    holdings.put("x", [AllocatedDevice(A, "1", (("memory", 3),))])
    holdings.put("y", [AllocatedDevice(A, "2", (("memory", 4), ("cores", 1)))])
    assert holdings.shares(A) == 2
    assert not holdings.alone(A)
    assert holdings.consumed(A) == {"memory": 7, "cores": 1}
    assert holdings.consumed(B) == {}


def test_without_the_shares_feature_a_share_holds_the_whole_device() -> None:
    """As the scheduler counts it while DRAConsumableCapacity is off."""
    holdings = Holdings(shares=False)
    holdings.put("x", [AllocatedDevice(A, "1", (("memory", 3),))])
    assert holdings.alone(A)
    assert not holdings.shares(A)
    assert holdings.consumed(A) == {}
    holdings.put("x", ())
    assert not holdings.alone(A)


HELD = st.builds(
    AllocatedDevice,
    st.sampled_from([A, B]),
    st.sampled_from(["", "1", "2"]),
    st.sampled_from([(), (("memory", 2),)]),
)


@given(st.lists(st.tuples(st.sampled_from("xy"), st.lists(HELD))), st.booleans())
def test_after_any_changes_only_the_last_allocation_of_each_claim_counts(
    puts: list[tuple[str, list[AllocatedDevice]]], shares: bool
) -> None:
    lived, fresh = Holdings(shares=shares), Holdings(shares=shares)
    for claim, held in puts:
        lived.put(claim, held)
    for claim, held in dict(puts).items():
        fresh.put(claim, held)
    for device in (A, B):
        assert lived.alone(device) == fresh.alone(device)
        assert lived.shares(device) == fresh.shares(device)
        assert lived.consumed(device) == fresh.consumed(device)
