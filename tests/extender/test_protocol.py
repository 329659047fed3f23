"""What kube-scheduler sends and what it may be answered, row by row.

The rows are what a running Kubernetes 1.37.1 was seen to do with each form of reply; its side of
them is tested on the real one in `tests/controlplane/`.
"""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from fettle.pacing import SLICE_S, taking_turns
from tests.extender.conftest import Extender, listening
from tests.fettle import building as b

POD = b.gpu_pod()
TRAINING = b.gpu_pod(annotations={"fettle.dev/policy": "training"})
PLAIN = {"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "c"}]}}
TEXT = f"fettle: no sound devices ({b.RESOURCE})"


# -- filter replies


async def test_refusals_are_unresolvable_and_never_in_failed_nodes(fleet: Extender) -> None:
    reply = await fleet.filter(POD, "good", "worn", "dead")
    assert reply == {
        "Nodes": None,
        "NodeNames": ["good", "worn"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"dead": TEXT},
        "Error": "",
    }


async def test_a_name_is_either_passed_or_refused_and_none_is_dropped(fleet: Extender) -> None:
    reply = await fleet.filter(TRAINING, "good", "worn", "dead", "new")
    refused = set(reply["FailedAndUnresolvableNodes"])
    assert refused == {"worn", "dead"}
    assert {*reply["NodeNames"], *refused} == {"good", "worn", "dead", "new"}


AT_ONCE = itertools.repeat(0.0)
LATER = itertools.count(0.0, 2 * SLICE_S)
"""Clocks by which there is time for every verdict, and for none without a pause."""


@pytest.mark.parametrize("clock", [AT_ONCE, LATER], ids=["at once", "later"])
@pytest.mark.parametrize("form", ["names", "nodes"])
async def test_only_pods_that_some_node_was_left_for_are_expected_to_take_devices(
    clock: Iterator[float], form: str
) -> None:
    with taking_turns(clock=clock.__next__):
        async with listening(Extender()) as extender:
            expected = []
            extender.answers.on_nodes_given(lambda ask, pod: expected.append(pod.metadata.name))
            extender.show(b.node("good", gpus=8), b.node("dead", gpus=8, own=b.health(0.1)))
            for pod, node in (("goes", "good"), ("waits", "dead")):
                items = [{"metadata": {"name": node}}]
                about = {"NodeNames": [node]} if form == "names" else {"Nodes": {"items": items}}
                status, _ = await extender.post("filter", {"Pod": b.gpu_pod(name=pod), **about})
                assert status == 200
            assert expected == ["goes"]


async def test_no_name_is_answered_that_was_not_asked_about(fleet: Extender) -> None:
    reply = await fleet.filter(POD, "good")
    assert reply["NodeNames"] == ["good"]
    assert reply["FailedAndUnresolvableNodes"] == {}


async def test_when_every_node_is_refused_the_list_of_names_is_empty_and_the_reason_is_there(
    fleet: Extender,
) -> None:
    reply = await fleet.filter(POD, "dead")
    assert reply["NodeNames"] == []
    assert reply["FailedAndUnresolvableNodes"] == {"dead": TEXT}


async def test_a_node_that_fettle_does_not_know_is_allowed(fleet: Extender) -> None:
    reply = await fleet.filter(POD, "brand-new")
    assert reply["NodeNames"] == ["brand-new"]
    assert reply["FailedAndUnresolvableNodes"] == {}


async def test_duplicate_names_are_answered_as_they_came(fleet: Extender) -> None:
    reply = await fleet.filter(POD, "good", "good")
    assert reply["NodeNames"] == ["good", "good"]


async def test_an_empty_list_is_answered_by_an_empty_list(fleet: Extender) -> None:
    reply = await fleet.filter(POD)
    assert (reply["NodeNames"], reply["FailedAndUnresolvableNodes"]) == ([], {})


async def test_whole_nodes_are_answered_with_whole_nodes(fleet: Extender) -> None:
    nodes = [{"metadata": {"name": n, "labels": {"x": n}}} for n in ("good", "dead")]
    body = {"Pod": POD, "Nodes": {"items": nodes}, "NodeNames": None}
    status, reply = await fleet.post("filter", body)
    assert (status, reply["NodeNames"]) == (200, None)
    assert reply["Nodes"]["items"] == nodes[:1]
    assert reply["FailedAndUnresolvableNodes"] == {"dead": TEXT}


# -- prioritize


def scored(reply: Any) -> dict[str, int]:
    return {entry["Host"]: entry["Score"] for entry in reply}


async def test_prioritize_gets_the_same_reply_whether_filter_came_before_or_not(
    fleet: Extender,
) -> None:
    body = {"Pod": POD, "NodeNames": ["good", "brand-new"]}
    _, alone = await fleet.post("prioritize", body)
    await fleet.filter(POD, "good", "dead", "brand-new")
    _, after = await fleet.post("prioritize", body)
    assert after == alone
    assert [entry["Host"] for entry in after] == ["good", "brand-new"]


async def test_prioritize_about_another_pod_than_filter_is_about_that_pod(
    extender: Extender,
) -> None:
    extender.show(b.node("n", gpus=8, own=b.health(0.9)))
    scavenger = b.gpu_pod(annotations={"fettle.dev/policy": "scavenger"})
    await extender.filter(POD, "n")
    _, reply = await extender.post("prioritize", {"Pod": scavenger, "NodeNames": ["n"]})
    assert scored(reply) == {"n": 2}


async def test_prioritize_after_a_newer_view_has_the_new_scores(extender: Extender) -> None:
    extender.show(b.node("n", gpus=8))
    await extender.filter(POD, "n")
    extender.show(b.node("n", gpus=8, own=b.health(0.9)))
    _, reply = await extender.post("prioritize", {"Pod": POD, "NodeNames": ["n"]})
    assert scored(reply) == {"n": 9}


# -- texts


async def test_the_text_is_one_and_the_same_whatever_the_reasons_and_the_window(
    extender: Extender,
) -> None:
    extender.show(
        b.node("hot", gpus=8, own=b.health(0.1, text="too hot")),
        b.node("xid", gpus=8, own=b.health(0.2, text="XID 79")),
        b.node("unit", gpus=1, units={"GPU-1": 0.05}),
    )
    texts = set()
    for window in (("hot", "xid", "unit"), ("unit", "hot"), ("xid",)):
        reply = await extender.filter(POD, *window)
        texts |= set(reply["FailedAndUnresolvableNodes"].values())
    assert texts == {TEXT}


async def test_a_new_view_does_not_change_the_text(fleet: Extender) -> None:
    before = await fleet.filter(POD, "dead")
    fleet.show(b.node("dead", gpus=8, own=b.health(0.05, text="something else")))
    after = await fleet.filter(POD, "dead")
    assert before == after


# -- errors


async def test_while_not_ready_filter_answers_an_error_and_refuses_nobody(
    fleet: Extender,
) -> None:
    fleet.problem = "Node is not synced"
    reply = await fleet.filter(POD, "good", "dead")
    assert reply["Error"] == "fettle: not ready: Node is not synced"
    assert reply["NodeNames"] is None
    assert reply["FailedAndUnresolvableNodes"] == {}


@pytest.mark.parametrize("verb", ["prioritize", "preempt"])
async def test_while_not_ready_the_verbs_without_an_error_field_answer_503(
    fleet: Extender, verb: str
) -> None:
    fleet.problem = "Node is not synced"
    body = {"Pod": POD, "NodeNames": ["good"], "NodeNameToMetaVictims": {}}
    status, reply = await fleet.post(verb, body)
    assert status == 503
    assert "not synced" in reply["error"]


async def test_a_reply_kept_from_before_is_not_given_while_not_ready(fleet: Extender) -> None:
    assert (await fleet.filter(POD, "dead"))["FailedAndUnresolvableNodes"]
    fleet.problem = "silent"
    assert (await fleet.filter(POD, "dead"))["Error"]


async def test_pods_without_devices_are_echoed_even_while_not_ready(fleet: Extender) -> None:
    fleet.problem = "Node is not synced"
    reply = await fleet.filter(PLAIN, "good", "dead")
    assert reply["NodeNames"] == ["good", "dead"]
    assert reply["Error"] == ""
    assert await fleet.prioritize(PLAIN, "good") == {"good": 0}


# -- preemption


def victims(*uids: str, violations: int = 0) -> dict[str, Any]:
    return {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}


async def test_a_victim_on_a_refused_node_is_spared(fleet: Extender) -> None:
    body = {
        "Pod": POD,
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {"good": victims("u1", violations=1), "dead": victims("u2")},
    }
    status, reply = await fleet.post("preempt", body)
    assert status == 200
    assert reply == {"NodeNameToMetaVictims": {"good": victims("u1", violations=1)}}


async def test_no_candidates_are_answered_by_none(fleet: Extender) -> None:
    body = {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": {}}
    assert (await fleet.post("preempt", body))[1] == {"NodeNameToMetaVictims": {}}


async def test_whole_victims_are_answered_in_meta_form(fleet: Extender) -> None:
    pods = [{"metadata": {"name": "v", "uid": "u1"}, "spec": {"containers": []}}]
    body = {"Pod": POD, "NodeNameToVictims": {"good": {"Pods": pods, "NumPDBViolations": 0}}}
    assert (await fleet.post("preempt", body))[1] == {
        "NodeNameToMetaVictims": {"good": victims("u1")}
    }


async def test_a_candidate_without_victims_is_left_out(fleet: Extender) -> None:
    body = {"Pod": POD, "NodeNameToMetaVictims": {"good": victims()}}
    assert (await fleet.post("preempt", body))[1] == {"NodeNameToMetaVictims": {}}


async def test_a_preemption_for_a_pod_without_devices_is_echoed(fleet: Extender) -> None:
    body = {"Pod": PLAIN, "NodeNameToMetaVictims": {"dead": victims("u")}}
    assert (await fleet.post("preempt", body))[1] == {
        "NodeNameToMetaVictims": {"dead": victims("u")}
    }


async def test_a_bad_unit_that_a_victim_holds_would_come_back_into_the_draw(
    extender: Extender,
) -> None:
    busy = frozenset({"GPU-1"})
    extender.show(b.node("n", gpus=1, units={"GPU-1": 0.1}, busy=busy))
    body = {"Pod": POD, "NodeNameToMetaVictims": {"n": victims("u")}}
    assert (await extender.post("preempt", body))[1] == {"NodeNameToMetaVictims": {}}


# -- keys


def lowered(value: Any) -> Any:
    return {k.lower(): v for k, v in value.items()}


async def test_keys_are_read_in_any_case(fleet: Extender) -> None:
    args = {"Pod": POD, "NodeNames": ["good", "dead"]}
    plain = await fleet.post("filter", args)
    assert await fleet.post("filter", lowered(args)) == plain
    assert await fleet.post("filter", {k.upper(): v for k, v in args.items()}) == plain
    metas = {"dead": lowered({**victims("u"), "Pods": [{"uid": "u"}]})}
    body = lowered({"Pod": POD, "NodeNameToMetaVictims": metas})
    assert (await fleet.post("preempt", body))[1] == {"NodeNameToMetaVictims": {}}


async def test_of_a_key_that_comes_twice_the_last_counts(fleet: Extender) -> None:
    for first in (b"nodenames", b"NodeNames"):
        body = b'{"Pod":{"metadata":{"name":"p"}},"%b":["dead"],"nodeNames":["good"]}' % first
        _, reply = await fleet.post("filter", body)
        assert reply["NodeNames"] == ["good"]


# -- answers follow the view


async def test_verdicts_follow_the_view(fleet: Extender) -> None:
    assert (await fleet.filter(POD, "dead"))["NodeNames"] == []
    fleet.show(b.node("dead", gpus=8))
    assert (await fleet.filter(POD, "dead"))["NodeNames"] == ["dead"]
    fleet.show(b.node("dead", gpus=8, own=b.health(0.1)))
    assert (await fleet.filter(POD, "dead"))["NodeNames"] == []


async def test_an_open_breaker_lets_pods_run_that_have_waited_and_closes_again(
    extender: Extender,
) -> None:
    def fleet(bad: int) -> list[Any]:
        return [
            b.node(f"n{i}", gpus=8, own=b.health(0.1) if i < bad else b.health(1))
            for i in range(20)
        ]

    names = [f"n{i}" for i in range(20)]
    old = copy.deepcopy(POD)
    old["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z", "uid": "old"}
    extender.show(*fleet(4))
    assert len((await extender.filter(old, *names))["NodeNames"]) == 16
    extender.show(*fleet(5))
    assert len((await extender.filter(old, *names))["NodeNames"]) == 20
    assert len((await extender.filter(POD, *names))["NodeNames"]) == 15
    extender.show(*fleet(3))
    assert len((await extender.filter(old, *names))["NodeNames"]) == 17


async def test_requests_are_counted_and_timed_by_verb(fleet: Extender) -> None:
    await fleet.filter(POD, "good")
    await fleet.filter(POD, "good", "dead")
    await fleet.filter(POD, "dead")
    decisions = "fettle_extender_decisions_total"
    for result in ("passed", "narrowed", "refused"):
        assert fleet.count(decisions, verb="filter", result=result) == 1
    assert fleet.count("fettle_extender_request_seconds_count", verb="filter") == 3


async def test_the_nodes_of_a_refusal_that_is_repeated_are_counted_each_time(
    fleet: Extender,
) -> None:
    for _ in range(3):
        await fleet.filter(POD, "dead")
    assert fleet.count("fettle_extender_decisions_total", verb="filter", result="refused") == 3
    assert fleet.count("fettle_extender_nodes_total", result="refused") == 3


async def test_nodes_that_the_scheduler_itself_refuses_are_not_counted_as_undecided(
    extender: Extender,
) -> None:
    cannot_read = msgspec.structs.replace(b.node("odd"), quarantined=("ResourceSlice x: wrong",))
    extender.show(b.node("good", gpus=8), b.node("none"), cannot_read)
    reply = await extender.filter(POD, "good", "none", "odd")
    assert reply["NodeNames"] == ["good", "none", "odd"]
    nodes = "fettle_extender_nodes_total"
    for result in ("allowed", "unfit", "undecided"):
        assert extender.count(nodes, result=result) == 1
    assert await extender.prioritize(POD, "none", "odd") == {"none": 5, "odd": 5}
