"""A clock that jumps an hour forward, and back: what is known stays right, and is stored right."""

from fettle.api import kinds
from fettle.model import State
from fettle.steward.device_healths import PendingWrites
from tests.fettle.cluster.inventory import saying
from tests.fettle.cluster.inventory.fleets import Fleet, node
from tests.fettle.cluster.inventory.test_device_healths import read, started, uid

HOUR, MINUTE = 3600.0, 60.0


def state(fleet: Fleet) -> State:
    return fleet.look().nodes["n"].health.state


def ill() -> Fleet:
    """A node whose kubelet refused three pods."""
    fleet = Fleet()
    fleet.put(kinds.NODE, uid(node()))
    for name in ("a", "b", "c"):
        fleet.put(kinds.POD, saying.refused(name))
    assert state(fleet) is State.UNHEALTHY
    return fleet


def test_a_state_that_began_while_the_clock_was_ahead_lasts_no_longer_for_it() -> None:
    steady, jumping = Fleet(), Fleet()
    for fleet in (steady, jumping):
        fleet.put(kinds.NODE, uid(node()))
        fleet.look()
    jumping.now += HOUR
    for fleet in (steady, jumping):
        for name in "abcdef":
            fleet.put(kinds.POD, saying.refused(name))
        assert state(fleet) is State.UNHEALTHY
    jumping.now -= HOUR
    agreed = []
    for _ in range(6 * 60):
        for fleet in (steady, jumping):
            fleet.now += MINUTE
        agreed.append(state(steady) is state(jumping))
    # its dwell begins anew as the clock is set back, so a step may come so much later
    assert agreed.count(False) <= 2 * 11
    assert state(jumping) is State.HEALTHY


def test_a_clock_that_is_an_hour_ahead_for_a_while_changes_no_state_for_good() -> None:
    steady, jumping = ill(), ill()
    for by in (HOUR, -HOUR):
        jumping.now += by
        state(jumping)
        for fleet in (steady, jumping):
            fleet.now += 5
    before = steady.look().nodes["n"].health
    after = jumping.look().nodes["n"].health
    assert abs(before.score - after.score) < 0.02


def test_a_hold_that_ended_while_the_clock_was_ahead_is_in_force_again() -> None:
    fleet = Fleet()
    held = node()
    until = "1970-01-12T14:16:40Z"  # half an hour after the fleet's clock begins
    held["metadata"]["annotations"] = {"fettle.dev/hold": f'{{"reason": "x", "until": "{until}"}}'}
    fleet.put(kinds.NODE, held)
    assert state(fleet) is State.UNHEALTHY
    fleet.now += HOUR
    assert state(fleet) is State.HEALTHY
    fleet.now -= HOUR - MINUTE
    assert state(fleet) is State.UNHEALTHY
    assert fleet.view.holds


def test_what_was_stored_with_a_time_in_the_future_is_stored_again() -> None:
    """Nobody would believe it before that time comes, so a restart would forget all."""
    fleet = ill()
    pending = PendingWrites(fleet.inventory)
    fleet.now += HOUR
    pending.look(fleet.look(), None, fleet.now)
    ahead = pending.wanted("n")
    assert ahead is not None
    pending.written("n", read(ahead))
    fleet.inventory.put(kinds.DEVICE_HEALTH, read(ahead), fleet.now)
    fleet.now -= HOUR - 5
    pending.look(fleet.look(), (), fleet.now)
    assert pending.most_urgent() == ["n"]
    again = pending.wanted("n")
    assert again is not None
    restarted = started(read(again), (kinds.NODE, uid(node())), after_s=15)
    assert state(restarted) is State.UNHEALTHY
    pending.written("n", read(again))
    pending.look(fleet.look(), None, fleet.now + 1)
    assert pending.most_urgent() == []
