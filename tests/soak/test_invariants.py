"""Each invariant of the soak fails for a sample that breaks it, and holds for one that does not."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import pytest

from tests.controlplane import objects
from tests.controlplane.api import Object
from tests.soak.actions import ACTIONS, CALM_STEPS, steps
from tests.soak.asking import Call
from tests.soak.invariants import (
    WAITS_S,
    Ends,
    Sample,
    Seen,
    Waits,
    acts,
    bad_call,
    fitting,
    not_flat,
    remains,
    unexplained,
)


def explained(*, fits: bool = False, **told: list[str]) -> dict[str, Any]:
    lists: dict[str, list[str]] = {"refusals": [], "rejected": [], "undecided": []}
    return {"n": {"fits": fits, **lists, **told}}


def tainted(effect: str) -> Object:
    return objects.node("n", taints=[objects.taint("fettle.dev/hold", effect)])


def rule(effect: str | None = "NoSchedule") -> Object:
    return objects.device_taint_rule("r", "fettle.dev/unhealthy", effect)


def node_with(**metadata: dict[str, str]) -> Object:
    made = objects.node("n")
    for name, entries in metadata.items():
        made["metadata"].setdefault(name, {}).update(entries)
    return made


def marked(status: str) -> Object:
    condition = objects.node_condition("FettleDevicesSound", status)
    return objects.node("n", conditions=[condition])


CORDONED = objects.node("n") | {"spec": {"unschedulable": True}}


def test_a_refusal_without_a_reason_is_found() -> None:
    assert unexplained(explained()) == ["n"]
    assert unexplained(explained(refusals=[""])) == ["n"]
    assert unexplained(explained(refusals=["GPU is lost"])) == []
    assert unexplained(explained(fits=True)) == []


def test_a_pod_that_waits_for_nothing_is_found_once() -> None:
    waits = Waits()
    assert waits.look(0.0, {"p": ["n"], "q": []}) == []
    assert waits.look(WAITS_S, {"p": ["n"], "q": []}) == []
    (found,) = waits.look(WAITS_S + 1, {"p": ["n"], "q": []})
    assert "p has waited for 6.0 s" in found
    assert waits.look(WAITS_S + 9, {"p": ["n"], "q": []}) == []


def test_a_pod_whose_nodes_are_refused_in_between_waits_for_something() -> None:
    waits = Waits()
    for at, nodes in ((0.0, ["n"]), (4.0, []), (8.0, ["n"]), (12.0, ["n"])):
        assert waits.look(at, {"p": nodes}) == []


def test_a_disturbance_lets_pods_wait_anew() -> None:
    waits = Waits()
    waits.look(0.0, {"p": ["n"]})
    waits.forget()
    assert waits.look(WAITS_S + 1, {"p": ["n"]}) == []


@pytest.mark.parametrize("closed", [CORDONED, tainted("NoSchedule"), tainted("NoExecute")])
def test_a_closed_node_takes_nobody(closed: Object) -> None:
    assert fitting(explained(fits=True), [closed]) == []
    assert fitting(explained(fits=True), [tainted("PreferNoSchedule")]) == ["n"]
    assert fitting(explained(), [objects.node("n")]) == []


def test_memory_that_grows_after_the_warm_up_is_found() -> None:
    grows = [Sample(at, 100 + at / 10) for at in range(0, 700, 5)]
    assert "grew by" in not_flat("extender-b", grows)[0]
    assert not_flat("extender-b", grows[:60]) == []


def test_what_is_kept_of_pods_that_ended_may_grow_until_that_is_full() -> None:
    keeps = [Sample(at, 100 + at / 50) for at in range(0, 700, 5)]
    assert "grew by" in not_flat("extender-b", keeps)[0]
    assert not_flat("extender-b", keeps, 700) == []
    leaks = [Sample(at, 100 + at / 50) for at in range(0, 7000, 5)]
    assert "grew by" in not_flat("extender-b", leaks, 7000)[0]


def test_memory_that_only_warms_up_or_took_a_step_is_flat() -> None:
    warms = [Sample(at, 100 + min(at, 100)) for at in range(0, 700, 5)]
    assert not_flat("extender-b", warms) == []
    steps_once = [Sample(at, 100 + 40 * (at > 500)) for at in range(0, 700, 5)]
    assert not_flat("extender-b", steps_once) == []
    assert not_flat("extender-b", []) == []


@pytest.mark.parametrize("left", [CORDONED, tainted("NoSchedule"), marked("False")])
def test_what_still_keeps_pods_off_is_found(left: Object) -> None:
    assert len(acts([left], [])) == 1
    assert len(acts([], [rule()])) == 1
    assert acts([objects.node("n"), marked("True")], [rule("None")]) == []


@pytest.mark.parametrize(
    "left",
    [
        CORDONED,
        marked("True"),
        node_with(labels={"fettle.dev/health": "healthy"}),
        node_with(annotations={"fettle.dev/cordoned": "x"}),
    ],
)
def test_whatever_is_left_is_found_once_it_is_switched_off(left: Object) -> None:
    assert len(remains([left], [])) == 1
    assert len(remains([], [rule("None")])) == 1
    assert remains([node_with(annotations={"fettle.dev/repaired": "x"})], []) == []


def test_a_call_that_is_slow_or_mute_or_breaks_for_no_reason_is_found() -> None:
    assert bad_call(Call(100.0, 2.01), []) != []
    assert bad_call(Call(100.0, 2.01, broken="timed out"), [100.0]) != []
    assert bad_call(Call(100.0, 0.01, mute=["n"]), []) != []
    assert bad_call(Call(100.0, 0.01, broken="reset"), [90.0]) != []
    assert bad_call(Call(100.0, 0.01, broken="reset"), [101.0]) == []
    assert bad_call(Call(100.0, 0.01, error="not ready"), []) == []


def test_a_process_that_ends_or_is_replaced_by_itself_is_found() -> None:
    ends = Ends()
    assert ends.look({"a": Seen(1, None, 2), "b": Seen(3, None, 4)}, []) == {}
    found = ends.look({"a": Seen(1, -9, 0), "b": Seen(3, None, 5)}, [])
    assert found == {"a": "a ended with -9", "b": "b serves by process 5, not 4"}
    assert ends.look({"a": Seen(1, -9, 0), "b": Seen(3, None, 5)}, []) == {}


def test_what_an_action_takes_away_is_learnt_anew() -> None:
    ends = Ends()
    ends.look({"a": Seen(1, None, 2)}, [])
    assert ends.look({"a": Seen(1, -9, 0)}, ["a"]) == {}
    assert ends.look({"a": Seen(7, None, 8)}, []) == {}


def test_a_seed_repeats_the_actions_and_leaves_pods_time() -> None:
    first, again = (list(islice(steps("s"), 100)) for _ in range(2))
    assert first == again != list(islice(steps("t"), 100))
    assert {step.name for step in first} == set(ACTIONS)
    disturbing = [step.number for step in first if ACTIONS[step.name].disturbs]
    apart = [later - one for one, later in pairwise(disturbing)]
    assert min(apart) > CALM_STEPS
