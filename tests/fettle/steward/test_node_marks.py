"""What is written on Nodes, how much of it, and how it goes. What the API server makes of it is
tested on the control plane."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.cluster import NodeMarks, NodeView, PluginView, UnitView
from fettle.config import BreakerSettings, NodeMarkSettings
from fettle.model import LEFT_ALONE, SOUND, Health, State
from fettle.scheduling.plans import NodeHealths, lost_devices, plan_cordons
from fettle.steward.node_marks import (
    DueMark,
    Holds,
    Mark,
    cordon,
    due_marks,
    leave_alone,
    marks_after,
    uncordon,
    wanted_marks,
)
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import Cluster
from tests.fettle.scheduling.plans.builders import DEAD, fault, ill, lacking, node

ALL = NodeMarkSettings(
    label=True, condition=True, cordon="AnyDevice", confirm_seconds=0, max_cordoned=2
)
NOW = 10_000.0
HEALTHY, PARTLY = ((("fettle.dev/health.node", tier),) for tier in ("healthy", "degraded"))


class Planner:
    """What is to be on the nodes of a fleet, from one view to the next."""

    def __init__(self, settings: NodeMarkSettings = ALL) -> None:
        self._cluster = Cluster()
        self._settings = settings
        self._healths = NodeHealths(self._cluster.answers)
        self._of_hardware = NodeHealths(self._cluster.answers, of_hardware=True)

    def plan(self, nodes: dict[str, NodeView]) -> dict[str, NodeMarks]:
        self._cluster.show(nodes)
        healths, of_hardware = self._healths.look(nodes), self._of_hardware.look(nodes)
        assert healths is not None
        assert of_hardware is not None
        lost = lost_devices(healths, BreakerSettings(), NOW)
        cordons = plan_cordons(nodes, of_hardware, self._settings, NOW, lost)
        return wanted_marks(self._settings, healths, of_hardware, cordons, lost)


def planned(nodes: dict[str, NodeView], settings: NodeMarkSettings = ALL) -> dict[str, NodeMarks]:
    return Planner(settings).plan(nodes)


def write(nodes: dict[str, NodeView], due: list[DueMark]) -> dict[str, NodeView]:
    """The nodes once this is written."""
    nodes = dict(nodes)
    for one in due:
        to_be, marks = one.wanted, marks_after(nodes[one.node].marks, one)
        is_cordoned = bool(to_be.cordon) if one.mark is Mark.CORDON else None
        node_ = msgspec.structs.replace(nodes[one.node], marks=marks)
        if is_cordoned is not None:
            node_ = msgspec.structs.replace(node_, unschedulable=is_cordoned)
        nodes[one.node] = node_
    return nodes


def said(due: list[DueMark]) -> list[tuple[str, str]]:
    return [(one.node, str(one.mark)) for one in due]


def test_each_node_with_devices_gets_what_is_switched_on_the_bad_ones_first() -> None:
    nodes = {"a": node("a", ill()), "z": node("z", ill(DEAD), ill()), "none": b.node("none")}
    wanted = planned(nodes)
    assert wanted["a"] == NodeMarks(
        "healthy", "", "True", "DevicesHealthy", "1 devices Healthy", labels=HEALTHY
    )
    why = f"1 Unhealthy of 2 devices: {b.DRIVER} gpu-0: a fault"
    assert wanted["z"] == NodeMarks(
        "degraded", why, "False", "DevicesUnhealthy", why, why, score=0.0, labels=PARTLY
    )
    due = due_marks(nodes, wanted)
    assert said(due) == [
        ("z", "cordon"),
        ("z", "label"),
        ("z", "condition"),
        ("a", "label"),
        ("a", "condition"),
    ]
    written = write(nodes, due)
    assert due_marks(written, planned(written)) == []
    label_alone = planned(nodes, NodeMarkSettings(label=True))["z"]
    assert label_alone == NodeMarks("degraded", why, score=0.0, labels=PARTLY)


MISSING = ("fettle.dev/health.missing", "true")


def test_a_node_that_lost_a_device_says_so_beside_how_healthy_the_others_are() -> None:
    nodes = {"n": lacking("n"), "new": lacking("new", lost_at=NOW + 1)}
    gone = f"1 of 2 {b.DRIVER} missing, expected by somebody"
    why = f"{gone}; 1 devices Healthy"
    wanted = planned(nodes)
    labels = (MISSING, *HEALTHY)
    assert wanted["n"] == NodeMarks(
        "healthy", why, "False", "DevicesMissing", why, why, score=1.0, labels=labels
    )
    sound = NodeMarks("healthy", "", "True", "DevicesHealthy", "1 devices Healthy", labels=HEALTHY)
    assert wanted["new"] == sound
    written = write(nodes, due_marks(nodes, wanted))
    assert due_marks(written, planned(written)) == []
    # It is back: the marks go, once that has lasted.
    back = {**written, "n": node("n", SOUND, SOUND, marks=written["n"].marks, unschedulable=True)}
    due = due_marks(back, wanted := planned(back))
    holds = Holds(ALL)
    assert holds.ripe(due, back, wanted, NOW)[0] == []
    ripe, _ = holds.ripe(due, back, wanted, NOW + ALL.hold_seconds)
    assert said(ripe) == [("n", "cordon"), ("n", "label"), ("n", "condition")]
    assert not [one for one in due_marks(write(back, ripe), wanted) if one.node == "n"]


def test_of_a_node_that_lost_all_its_devices_a_pod_can_use_none() -> None:
    gone = f"2 of 2 {b.DRIVER} missing, expected by somebody"
    nodes = {"n": lacking("n", found=0), "new": lacking("new", found=0, lost_at=NOW + 1)}
    assert planned(nodes) == {
        "n": NodeMarks("unhealthy", gone, "False", "DevicesMissing", gone, gone, labels=(MISSING,))
    }


def test_what_is_unhealthy_is_the_reason_though_others_are_lost() -> None:
    gone = lacking("n").missing
    marks = planned({"n": node("n", ill(DEAD), missing=gone)})["n"]
    assert (marks.status, marks.cause) == ("False", "DevicesUnhealthy")
    assert marks.message.startswith(f"1 of 2 {b.DRIVER} missing, expected by somebody; 1 Unhealthy")


def test_where_too_many_nodes_lack_devices_no_mark_says_so() -> None:
    marks = planned({f"n{i}": lacking(f"n{i}") for i in range(3)})
    assert {one.status for one in marks.values()} == {"True"}
    assert not any(one.cordon or MISSING in one.labels for one in marks.values())


def test_a_node_that_is_healthy_though_tenants_lower_its_score_says_so_in_each_mark() -> None:
    word = ill(fault("g", 0.2, reporting_namespace="team-a"))
    (marks,) = planned({"n": node("n", word, ill())}).values()
    why = "2 devices Healthy, lowered by what tenants could cause"
    assert marks == NodeMarks(
        "healthy", why, "True", "DevicesHealthy", why, score=0.8, labels=HEALTHY
    )


def test_a_node_that_several_namespaces_suspect_is_labelled_degraded_and_its_condition_stays() -> (
    None
):
    words = [fault("g", 0.35, reporting_namespace=f"team-{name}") for name in "ab"]
    why = "1 Degraded of 2 devices, by what tenants could cause, which refuses nobody"
    of_one = planned({"n": node("n", ill(words[0]), ill())})["n"]
    assert of_one == NodeMarks(
        "healthy", why, "True", "DevicesHealthy", why, score=0.7, labels=HEALTHY
    )
    of_both = planned({"n": node("n", ill(*words), ill())})["n"]
    assert (of_both.tier, of_both.status, of_both.cause) == ("degraded", "True", "DevicesHealthy")
    assert of_both.labels == HEALTHY  # nobody is refused for it


def test_a_state_that_is_not_unhealthy_leaves_the_condition_true_or_unknown() -> None:
    degraded = planned({"n": node("n", b.health(0.5), ill())})["n"]
    assert (degraded.status, degraded.cause) == ("True", "DevicesDegraded")
    unknown = planned({"n": node("n", b.UNKNOWN, ill())})["n"]
    assert (unknown.tier, unknown.status, unknown.cause) == ("unknown", "Unknown", "DevicesUnknown")


GPUS = "fettle.dev/health.nvidia.com_gpu"


def test_each_resource_of_a_device_plugin_has_a_label_of_its_own() -> None:
    dead = UnitView("hca-0", ill(DEAD))
    plugins = {
        "nvidia.com/gpu": PluginView("nvidia.com/gpu", 8, 8),
        "rdma/hca": PluginView("rdma/hca", 2, 2, (dead,)),
        f"example.com/{'x' * 60}": PluginView("x", 1, 1),  # too long for a label
    }
    marks = planned({"n": node("n", plugins=plugins)})["n"]
    assert marks.tier == "degraded"
    assert marks.labels == (
        ("fettle.dev/health.node", "degraded"),
        ("fettle.dev/health.nvidia.com_gpu", "healthy"),
        ("fettle.dev/health.rdma_hca", "partly-unhealthy"),
    )
    off = NodeMarkSettings(condition=True)
    assert planned({"n": node("n", plugins=plugins)}, off)["n"].labels == ()


def test_labels_of_units_that_get_worse_are_written_at_once_too() -> None:
    def marks(*states: tuple[str, str]) -> NodeMarks:
        return NodeMarks("degraded", "0.0: gone", labels=states)

    settings = NodeMarkSettings(label=True)
    for before, after, at_once in (
        ("healthy", "partly-unhealthy", True),
        ("partly-unhealthy", "unhealthy", True),
        ("unhealthy", "degraded", False),
        ("unknown", "healthy", False),
        ("", "healthy", True),
        ("healthy", "", False),
    ):
        there = node("n", ill(), marks=marks(*[(GPUS, before)] * bool(before)))
        wanted, holds = marks(*[(GPUS, after)] * bool(after)), Holds(settings)
        assert (due_at(holds, there, wanted, 0) == ["label"]) == at_once
        assert at_once or due_at(holds, there, wanted, 60) == ["label"]


def test_switched_off_everything_of_ours_goes_and_nothing_else() -> None:
    nodes = {"n": node("n", ill(DEAD)), "theirs": node("theirs", ill(), unschedulable=True)}
    written = write(nodes, due_marks(nodes, planned(nodes)))
    gone = write(written, due_marks(written, {}))
    assert gone == nodes


def test_while_a_node_cannot_be_read_its_marks_stay() -> None:
    marked = node("n", ill(), marks=NodeMarks("unhealthy"), unread=True)
    assert due_marks({"n": marked}, {}) == []


def test_a_score_that_moves_a_little_is_not_written_again() -> None:
    there = node("n", ill(), marks=NodeMarks("degraded", "slow", score=0.4))
    assert due_marks({"n": there}, {"n": NodeMarks("degraded", "slow", score=0.5)}) == []
    assert len(due_marks({"n": there}, {"n": NodeMarks("degraded", "slow", score=0.6)})) == 1
    assert len(due_marks({"n": there}, {"n": NodeMarks("degraded", "slower", score=0.4)})) == 1


def test_who_is_faster_keeps_their_cordon() -> None:
    theirs = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}}
    assert cordon(theirs, "dead") is None
    assert uncordon(theirs) is None
    free: dict[str, Any] = {"metadata": {"name": "n"}}
    annotation = {"fettle.dev/cordoned": "dead"}
    assert cordon(free, "dead") == {
        "spec": {"unschedulable": True},
        "metadata": {"annotations": annotation},
    }
    ours = {"metadata": {"name": "n", "annotations": annotation}, "spec": {"unschedulable": True}}
    assert uncordon(ours) == {
        "spec": {"unschedulable": None},
        "metadata": {"annotations": {"fettle.dev/cordoned": None}},
    }


def test_what_is_cordoned_after_it_was_uncordoned_by_hand_stays_cordoned() -> None:
    ours = node("n", ill(DEAD), marks=NodeMarks(cordon="dead"))  # uncordoned by somebody
    (due,) = due_marks({"n": ours}, {"n": NodeMarks(cordon=LEFT_ALONE)})
    assert (due.mark, due.wanted.cordon) == (Mark.CORDON, LEFT_ALONE)
    left = {"metadata": {"name": "n", "annotations": {"fettle.dev/cordoned": LEFT_ALONE}}}
    assert leave_alone({"metadata": {"name": "n"}}) == {
        "metadata": {"annotations": {"fettle.dev/cordoned": LEFT_ALONE}}
    }
    theirs = {**left, "spec": {"unschedulable": True}}
    assert leave_alone(theirs) is None
    assert uncordon(theirs) == {"metadata": {"annotations": {"fettle.dev/cordoned": None}}}


def due_at(holds: Holds, view: NodeView, wanted: NodeMarks | None, now: float) -> list[str]:
    """The marks that are written at this time."""
    nodes, to_be = {"n": view}, {"n": wanted} if wanted is not None else {}
    ripe, _ = holds.ripe(due_marks(nodes, to_be), nodes, to_be, now)
    return [str(one.mark) for one in ripe]


GOOD = NodeMarks("healthy", "", "True", "DevicesHealthy", "2 devices Healthy")
DEGRADED = NodeMarks("degraded", "0.5: slow", "True", "DevicesDegraded", "slow")
ILL = NodeMarks("degraded", "0.0: gone", "False", "DevicesUnhealthy", "gone", "gone")


def test_worse_is_written_at_once_and_better_once_it_has_lasted() -> None:
    holds = Holds(ALL)
    assert due_at(holds, node("n", ill(), marks=GOOD), DEGRADED, 0) == ["label", "condition"]
    assert due_at(holds, node("n", ill(), marks=DEGRADED), ILL, 0) == ["cordon", "condition"]
    marked = node("n", ill(), marks=ILL, unschedulable=True)
    assert due_at(holds, marked, GOOD, 0) == []
    assert due_at(holds, marked, ILL, 30) == []  # it is as before, so it counts anew
    assert due_at(holds, marked, GOOD, 60) == []
    assert due_at(holds, marked, DEGRADED, 119) == []
    assert due_at(holds, marked, GOOD, 120) == ["cordon", "label", "condition"]


def test_a_node_without_devices_keeps_its_marks_while_its_driver_may_be_starting() -> None:
    holds, marked = Holds(ALL), node("n", marks=GOOD)
    assert due_at(holds, marked, None, 0) == []
    assert due_at(holds, marked, None, 599) == []
    assert due_at(holds, marked, None, 600) == ["label", "condition"]


def test_a_node_that_has_no_mark_yet_and_a_mark_that_is_switched_off_wait_for_nothing() -> None:
    unmarked = node("n", ill())
    assert due_at(Holds(ALL), unmarked, GOOD, 0) == ["label", "condition"]
    marked = node("n", ill(), marks=GOOD)
    of_label = NodeMarks("healthy")
    assert due_at(Holds(NodeMarkSettings(label=True)), marked, of_label, 0) == ["condition"]


def test_it_is_said_when_to_look_again() -> None:
    holds, nodes = Holds(ALL), {"n": node("n", ill(), marks=DEGRADED)}
    wanted = {"n": GOOD}
    assert holds.ripe(due_marks(nodes, wanted), nodes, wanted, 5.0) == ([], 65.0)


states = st.lists(st.sampled_from(("sound", "slow", "dead")), min_size=1, max_size=5)


@given(states, states, st.integers(0, 12))
def test_who_takes_over_between_two_writes_finishes_and_writes_nothing_twice(
    before: list[str], after: list[str], done: int
) -> None:
    def fleet(states: list[str], marks: Mapping[str, NodeView]) -> dict[str, NodeView]:
        healths = {"sound": ill(), "slow": b.health(0.5), "dead": ill(DEAD)}
        made = {f"n{i}": node(f"n{i}", healths[state]) for i, state in enumerate(states)}
        return {
            name: msgspec.structs.replace(
                one, marks=marks[name].marks, unschedulable=marks[name].unschedulable
            )
            if name in marks
            else one
            for name, one in made.items()
        }

    nodes = fleet(before, {})
    nodes = fleet(after, write(nodes, due_marks(nodes, planned(nodes))))
    whole = due_marks(nodes, planned(nodes))
    halfway = write(nodes, whole[:done])
    rest = due_marks(halfway, planned(halfway))
    assert not {*said(whole[:done])} & {*said(rest)}
    ended = write(halfway, rest)
    # A node that is uncordoned makes room for another one.
    ended = write(ended, due_marks(ended, planned(ended)))
    assert due_marks(ended, planned(ended)) == []
    assert sum(one.unschedulable for one in ended.values()) <= ALL.max_cordoned


def storm(bad: int, *, seconds: int, rate: int, nodes: int = 5000) -> tuple[int, int]:
    """Of a fleet, `bad` nodes lose their devices at once and get them back after `seconds`. Returns
    how many writes that took until all is as before, and the most cordoned at once."""
    fleet = {f"n{i:04}": node(f"n{i:04}", ill()) for i in range(nodes)}
    planner, written, most = Planner(), 0, 0
    fleet = write(fleet, due_marks(fleet, planner.plan(fleet)))

    def turn(names: list[str], health: Health) -> None:
        for name in names:
            before = fleet[name]
            marked = {"marks": before.marks, "unschedulable": before.unschedulable}
            fleet[name] = node(name, health, **marked)

    for second in count():
        if second in (0, seconds):
            turn([*fleet][:bad], ill() if second else ill(DEAD))
        due = due_marks(fleet, planner.plan(fleet))
        if not due and second >= seconds:
            return written, most
        now = [one for mark in Mark for one in [d for d in due if d.mark is mark][:rate]]
        written += len(now)
        fleet = write(fleet, now)
        most = max(most, sum(one.unschedulable for one in fleet.values()))
    raise AssertionError("it never ends")


@pytest.mark.long
def test_a_storm_that_takes_the_whole_fleet_is_said_within_the_rate_and_cordons_nothing() -> None:
    assert storm(5000, seconds=3, rate=100) == (1200, 0)


@pytest.mark.long
def test_a_storm_below_the_breaker_writes_within_its_rate_and_its_budget() -> None:
    """250 of 5000 nodes are away for two seconds: two cordons, 200 labels and conditions, and as
    many writes to undo them."""
    written, most = storm(250, seconds=2, rate=100)
    assert written == 2 * (2 + 200 + 200)
    assert most == ALL.max_cordoned


def test_the_worst_of_a_fleet_is_marked_though_most_of_it_is_new() -> None:
    nodes = {f"n{i}": node(f"n{i}", ill()) for i in range(50)} | {"z": node("z", ill(DEAD))}
    due = due_marks(nodes, planned(nodes))
    assert said(due[:3]) == [("z", "cordon"), ("z", "label"), ("z", "condition")]
    assert {one.wanted.tier for one in due[3:]} == {State.HEALTHY.lower()}
