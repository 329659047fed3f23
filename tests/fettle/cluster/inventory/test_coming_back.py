"""Nodes and devices that go and come back, and what others say of them meanwhile."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.api.kinds import Kind
from fettle.cluster.view import View
from fettle.model import Health, State
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, node, slice_
from tests.fettle.cluster.inventory.saying import (
    Raw,
    condition_of_claim,
    device_said_ill,
    healths,
    ill,
    refused,
    rule,
    unit_said_ill,
)


def units(view: View, name: str = "n") -> dict[str, Health]:
    return {u.unit: u.health for u in view.nodes[name].plugins[b.RESOURCE].units}


def replaced(fleet: Fleet, raw: Raw, *, looking: bool = True) -> View:
    """The node is deleted, and one of the same name registers."""
    fleet.inventory.remove(kinds.NODE, raw["metadata"]["name"], fleet.now)
    if looking:
        fleet.look()
    fleet.put(kinds.NODE, raw)
    return fleet.look()


def test_what_a_pod_still_says_of_a_unit_is_there_again_with_its_node(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.POD, unit_said_ill())
    before = units(fleet.look())
    assert before["GPU-1"].state is State.UNHEALTHY
    assert units(replaced(fleet, node())) == before


def test_refusals_of_pods_that_are_still_there_count_again_with_their_node(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    for i in range(3):
        fleet.put(kinds.POD, refused(f"p{i}"))
    before = fleet.look().nodes["n"].health
    assert before.score == 0.05
    assert replaced(fleet, node()).nodes["n"].health == before
    fleet.inventory.remove(kinds.POD, "default/p0", fleet.now)
    fleet.look()
    again = replaced(fleet, node()).nodes["n"].health
    assert again.score == 0.2  # those of pods that are gone went with the node


def registered(fleet: Fleet, after_s: float, uid: str = "two") -> Raw:
    """A node, by the API server's clock."""
    at = datetime.fromtimestamp(fleet.now + after_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made: Raw = node(creationTimestamp=at, uid=uid)
    return made


def ended_ill(name: str = "ended") -> Raw:
    """A pod that was already over when it was first seen; its last word is of a sick unit."""
    pod = unit_said_ill(name)
    over = {"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-12T13:46:40Z"}
    pod["status"] |= {"phase": "Failed", "conditions": [over]}
    return pod


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "replaced"])
def test_events_from_before_a_node_was_made_anew_are_another_nodes(
    fleet: Fleet, deleted: bool
) -> None:
    fleet.put(kinds.NODE, registered(fleet, -3600, "one"))
    for raw in (refused(), refused("too"), ended_ill()):
        fleet.put(kinds.POD, raw)
    before = fleet.look()
    assert before.nodes["n"].health.score < 0.9
    assert units(before)["GPU-1"].score < 0.9
    if deleted:
        fleet.inventory.remove(kinds.NODE, "n", fleet.now)
        fleet.look()
    made = registered(fleet, 60)
    fleet.now += 61
    fleet.put(kinds.NODE, made)
    view = fleet.look()
    assert view.nodes["n"].health.score == 1.0
    assert units(view) == {}
    again = refused()
    again["metadata"]["labels"] = {"any": "change"}
    fleet.put(kinds.POD, again)
    assert fleet.look().nodes["n"].health.score == 1.0
    later = refused("later")
    later["status"]["startTime"] = made["metadata"]["creationTimestamp"]
    fleet.put(kinds.POD, later)
    assert fleet.look().nodes["n"].health.score < 0.9


@pytest.mark.parametrize("order", [1, -1])
def test_events_from_before_a_node_are_another_nodes_in_whatever_order_they_are_read(
    fleet: Fleet, order: int
) -> None:
    made = registered(fleet, 60)
    fleet.now += 61
    for kind, raw in [(kinds.NODE, made), (kinds.POD, refused()), (kinds.POD, ended_ill())][
        ::order
    ]:
        fleet.put(kind, raw)
    view = fleet.look()
    assert view.nodes["n"].health.score == 1.0
    assert units(view) == {}


def test_an_event_of_the_second_in_which_its_node_was_made_counts(fleet: Fleet) -> None:
    made = registered(fleet, 1)
    fleet.now += 10
    fleet.put(kinds.NODE, made)
    fleet.put(kinds.POD, refused())
    assert fleet.look().nodes["n"].health.score < 0.9


def test_what_is_seen_to_happen_counts_though_our_clock_is_behind(fleet: Fleet) -> None:
    pending = b.gpu_pod(name="refused")
    pending["status"] = {"phase": "Pending"}
    fleet.put(kinds.POD, pending)
    fleet.put(kinds.NODE, registered(fleet, 3600))
    fleet.put(kinds.POD, refused())
    assert fleet.look().nodes["n"].health.score < 0.9


def test_what_a_running_pod_says_is_of_the_node_as_it_is(fleet: Fleet) -> None:
    """The kubelet of the new node goes on with the pods that are bound to its name."""
    fleet.put(kinds.NODE, registered(fleet, -3600, "one"))
    fleet.put(kinds.POD, unit_said_ill())
    before = units(fleet.look())
    made = registered(fleet, 60)
    fleet.now += 61
    fleet.put(kinds.NODE, made)
    assert units(fleet.look())["GPU-1"].state is before["GPU-1"].state is State.UNHEALTHY


def test_what_a_node_said_of_itself_is_gone_with_it(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, ill())
    assert fleet.look().nodes["n"].health.state is State.DEGRADED
    assert replaced(fleet, node()).nodes["n"].health.score == 1.0


def test_a_states_memory_is_gone_with_the_deleted_node(fleet: Fleet) -> None:
    """Its slices outlive the Node object for a moment, and are judged afresh."""
    fleet.put(kinds.NODE, ill())
    fleet.put(kinds.SLICE, slice_())
    (device, _) = fleet.look().nodes["n"].pools[0].devices
    assert device.health.state is State.DEGRADED
    (device, _) = replaced(fleet, node()).nodes["n"].pools[0].devices
    assert (device.health.state, device.health.score) == (State.HEALTHY, 1.0)


def test_a_node_that_is_another_under_the_same_name_was_deleted_in_between(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, {**ill(), "metadata": {"name": "n", "uid": "one"}})
    fleet.put(kinds.POD, unit_said_ill())
    fleet.look()
    fleet.put(kinds.NODE, {**node(), "metadata": {"name": "n", "uid": "two"}})
    view = fleet.look()
    assert view.nodes["n"].health.score == 1.0
    assert units(view)["GPU-1"].state is State.UNHEALTHY


@pytest.mark.parametrize("uids", [("", "one"), ("one", "")])
def test_a_node_that_is_read_with_a_uid_and_without_one_is_the_same(
    fleet: Fleet, uids: tuple[str, str]
) -> None:
    """Of one that cannot be read, only the name may be known."""
    fleet.put(kinds.NODE, {**ill(), "metadata": {"name": "n", "uid": uids[0]}})
    fleet.look()
    for uid in uids:
        fleet.put(kinds.NODE, {**node(), "metadata": {"name": "n", "uid": uid}})
        assert fleet.look().nodes["n"].health.score < 1.0, "a fault that is over leaves a trace"


def test_a_pod_that_ends_while_its_node_is_gone_haunts_no_other(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    for raw in (unit_said_ill(), refused()):
        fleet.put(kinds.POD, raw)
    fleet.look()
    fleet.inventory.remove(kinds.NODE, "n", fleet.now)
    fleet.look()
    for name in ("unit", "refused"):
        fleet.inventory.remove(kinds.POD, f"default/{name}", fleet.now)
    fleet.put(kinds.NODE, node())
    view = fleet.look()
    assert view.nodes["n"].health.score == 1.0
    assert units(view) == {}


def test_a_slice_published_again_shows_what_others_say_of_its_devices(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, slice_())
    fleet.put(kinds.POD, device_said_ill())
    fleet.put(kinds.CLAIM, condition_of_claim())
    fleet.put(kinds.TAINT_RULE, rule())
    before = fleet.look().nodes["n"]
    assert [d.health.state for d in before.pools[0].devices] == [State.UNHEALTHY] * 2
    fleet.inventory.remove(kinds.SLICE, "n-slice", fleet.now)
    assert fleet.look().nodes["n"].pools == ()
    fleet.put(kinds.SLICE, slice_())
    assert healths(fleet.look().nodes["n"]) == healths(before)


def test_a_device_left_out_by_one_generation_and_back_in_the_next_is_as_others_say(
    fleet: Fleet,
) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, slice_())
    fleet.put(kinds.CLAIM, condition_of_claim())
    before = fleet.look().nodes["n"]
    fleet.put(kinds.SLICE, slice_(devices=1, generation=2))
    assert len(fleet.look().nodes["n"].pools[0].devices) == 1
    fleet.put(kinds.SLICE, slice_(generation=3))
    assert healths(fleet.look().nodes["n"]) == healths(before)


OBJECTS: dict[str, tuple[Kind, Raw]] = {
    "node": (kinds.NODE, ill()),
    "slice": (kinds.SLICE, slice_()),
    "rule": (kinds.TAINT_RULE, rule()),
    "claim": (kinds.CLAIM, condition_of_claim()),
    "unit": (kinds.POD, unit_said_ill()),
    "device": (kinds.POD, device_said_ill()),
    "refused": (kinds.POD, refused()),
    "refused too": (kinds.POD, refused("too")),
}
COMING_AND_GOING = ("node", "slice")
"""What may be deleted at any time; of the others, deletion is told by what fades."""

steps = st.lists(
    st.sampled_from([*OBJECTS, *(f"gone {name}" for name in COMING_AND_GOING), "look"]),
    max_size=30,
)


@given(steps)
@example(["node", "unit", "refused", "look", "gone node", "look", "node", "look"])
@example(["slice", "rule", "device", "claim", "look", "gone slice", "look", "slice", "look"])
@example(["node", "slice", "look", "gone node", "look", "node", "look"])
def test_after_any_changes_the_inventory_is_as_if_read_at_once(steps: list[str]) -> None:
    lived, there = Fleet(), set()
    for step in steps:
        if step == "look":
            lived.look()
        elif step.startswith("gone "):
            name = step.removeprefix("gone ")
            kind, raw = OBJECTS[name]
            lived.inventory.remove(kind, raw["metadata"]["name"], lived.now)
            there.discard(name)
        else:
            lived.put(*OBJECTS[step])
            there.add(step)
    started = Fleet()
    for name, (kind, raw) in OBJECTS.items():
        if name in there:
            started.put(kind, raw)
    expected = {name: healths(record) for name, record in started.look().nodes.items()}
    assert {name: healths(record) for name, record in lived.look().nodes.items()} == expected


def test_refusals_of_any_device_plugin_from_before_a_reboot_leave_a_trace(fleet: Fleet) -> None:
    def booted(boot: str) -> Raw:
        made: Raw = node(status={"nodeInfo": {"bootID": boot}})
        for amounts in ("capacity", "allocatable"):
            made["status"][amounts]["smarter-devices/fuse"] = "20"
        return made

    fleet.put(kinds.NODE, booted("one"))
    for i in range(3):
        pod = refused(f"p{i}")
        if i:
            limits = {"limits": {"smarter-devices/fuse": "1"}}
            pod["spec"]["containers"] = [{"name": "c", "resources": limits}]
        fleet.put(kinds.POD, pod)
    before = fleet.look().nodes["n"].health
    assert {w.evidence.domain for w in before.evidence} == {"example.com", "smarter-devices"}
    assert before.score == 0.2
    fleet.put(kinds.NODE, booted("two"))
    assert fleet.look().nodes["n"].health.score > 0.8
