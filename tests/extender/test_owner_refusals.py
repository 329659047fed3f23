"""Pods go elsewhere than where a kubelet refused an earlier pod of their owner."""

import asyncio
from typing import Any

import msgspec
import pytest

from fettle.api import core, kinds
from fettle.cluster import NodeView
from fettle.scheduling.owner_refusals import KEEP_S
from tests.extender.conftest import Extender
from tests.fettle import building as b
from tests.fettle.browse.showing import known, told
from tests.fettle.others import settled


def owned(name: str = "p", *, owner: str = "job-1", uid: str = "") -> dict[str, Any]:
    pod = b.gpu_pod(name=name)
    pod["metadata"]["uid"] = uid or name
    pod["metadata"]["ownerReferences"] = [
        {"kind": "Job", "name": "train", "uid": owner, "controller": True}
    ]
    return pod


def read(pod: dict[str, Any]) -> core.Pod:
    found = kinds.POD.decode(msgspec.json.encode(pod))
    assert isinstance(found, core.Pod)
    return found


def refused_on(node: str, *, owner: str = "job-1") -> core.Pod:
    pod = owned("lost", owner=owner)
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    pod["metadata"]["creationTimestamp"] = "2100-01-01T00:00:00Z"  # never too long ago
    return read(pod)


@pytest.fixture
def three(extender: Extender) -> Extender:
    extender.show(*(b.node(name, gpus=8) for name in "abc"))
    return extender


async def test_only_pods_of_the_owner_whose_pod_was_refused_go_elsewhere(three: Extender) -> None:
    three.refusals.observe(refused_on("a"))
    reply = await three.filter(owned(), *"abc")
    assert reply["NodeNames"] == ["b", "c"]
    assert list(reply["FailedAndUnresolvableNodes"]) == ["a"]
    for other in (owned(owner="job-2"), b.gpu_pod()):
        assert (await three.filter(other, *"abc"))["NodeNames"] == ["a", "b", "c"]
    assert (await three.prioritize(owned(), *"abc")) == {"a": 0, "b": 10, "c": 10}
    assert (await three.prioritize(owned(owner="job-2"), *"abc")) == {"a": 10, "b": 10, "c": 10}


async def test_an_owner_is_refused_no_node_if_no_other_is_left(three: Extender) -> None:
    for node in "ab":
        three.refusals.observe(refused_on(node))
    assert (await three.filter(owned(), *"ab"))["NodeNames"] == ["a", "b"]
    assert (await three.prioritize(owned(), *"ab")) == {"a": 10, "b": 10}
    three.show(b.node("a", gpus=8), b.node("b", gpus=8), b.node("c", gpus=8, own=b.health(0.1)))
    assert (await three.filter(owned("q"), *"abc"))["NodeNames"] == ["a", "b"]


async def test_a_node_that_refused_a_pod_of_the_owner_a_while_ago_is_only_scored_lower(
    three: Extender,
) -> None:
    three.refusals.observe(refused_on("a"))
    three.ahead_s = KEEP_S + 1
    assert (await three.filter(owned(), *"abc"))["NodeNames"] == ["a", "b", "c"]
    assert (await three.prioritize(owned(), *"abc")) == {"a": 5, "b": 10, "c": 10}
    assert (await three.prioritize(owned(owner="job-2"), *"abc"))["a"] == 10


async def test_whole_nodes_are_answered_alike(three: Extender) -> None:
    three.refusals.observe(refused_on("a"))
    nodes = [{"metadata": {"name": name}} for name in "abc"]
    _, reply = await three.post("filter", {"Pod": owned(), "Nodes": {"items": nodes}})
    assert [node["metadata"]["name"] for node in reply["Nodes"]["items"]] == ["b", "c"]


async def decided(extender: Extender) -> tuple[dict[str, int], tuple[str, ...], str]:
    """Why how many nodes were refused, which ones, and the reason in words."""
    await settled()
    (one, *_) = extender.recorder.select(0.0)
    return one.reasons, one.refused_nodes, one.why


@pytest.mark.parametrize("mode", ["enforce", "steer", "observe"])
async def test_the_decision_says_that_a_node_was_left_out_or_would_have_been(
    extender: Extender, mode: str
) -> None:
    bad = b.node("bad", gpus=8, own=b.health(0.0, held=True))
    nodes = (bad, *(b.node(name, gpus=8) for name in "ab"))
    extender.show(*nodes, namespaces={"default": {"fettle.dev/mode": mode}})
    extender.refusals.observe(refused_on("a"))
    await extender.filter(owned(), "a", "b")
    reasons, refused, why = await decided(extender)
    assert (reasons, refused) == ({"KubeletRefusedWorkload": 1}, ("a",))
    assert why.startswith("its kubelet refused a pod of Job/train at ")
    await extender.filter(owned("q"), "bad", "a", "b")
    reasons, refused, _ = await decided(extender)
    assert reasons == {"NodeHeld": 1, "TooFewAcceptableUnits": 1, "KubeletRefusedWorkload": 1}
    assert refused == ("bad", "a")


async def explained(extender: Extender, *nodes: NodeView, owner: str = "job-1") -> dict[str, Any]:
    pod = read(owned(owner=owner))
    extender.show(*nodes, pods={"default/p": pod})
    shown = known(extender.answers, refusals=extender.refusals)
    found: dict[str, Any] = (await told(shown, "/explain?pod=default/p"))[1]["nodes"]
    return found


async def test_explain_says_which_node_is_left_out_for_the_pods_owner(three: Extender) -> None:
    three.refusals.observe(refused_on("a"))
    nodes = [b.node("a", gpus=8), b.node("b", gpus=8)]
    found = await explained(three, *nodes)
    assert (found["a"]["allowed"], found["a"]["score"], found["b"]["allowed"]) == (False, 0, True)
    (reason,) = found["a"]["reasons"]["refusals"]
    assert (reason["code"], reason["workload"]) == ("KubeletRefusedWorkload", "Job/train")
    assert reason["until"] == reason["at"] + 600
    assert (await explained(three, *nodes, owner="job-2"))["a"]["allowed"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(b.node("b", gpus=8, own=b.health(0.1)), id="refused"),
        pytest.param(b.node("b", gpus=0), id="without devices"),
    ],
)
async def test_explain_allows_that_node_while_no_other_is_left_and_notes_the_refusal(
    three: Extender, other: NodeView
) -> None:
    three.refusals.observe(refused_on("a"))
    node = (await explained(three, b.node("a", gpus=8), other))["a"]
    assert (node["allowed"], node["refusals"]) == (True, [])
    assert [note["code"] for note in node["reasons"]["notes"]] == ["KubeletRefusedWorkload"]


@pytest.mark.parametrize(("mode", "others"), [("steer", 10), ("observe", 0)])
async def test_where_nothing_may_be_refused_such_a_node_passes_and_steer_ranks_it_last(
    three: Extender, mode: str, others: int
) -> None:
    nodes = three.publisher.view.nodes.values()
    three.show(*nodes, namespaces={"default": {"fettle.dev/mode": mode}})
    three.refusals.observe(refused_on("a"))
    assert (await three.filter(owned(), *"abc"))["NodeNames"] == ["a", "b", "c"]
    assert await three.prioritize(owned(), *"abc") == {"a": 0, "b": others, "c": others}


async def test_the_scores_after_filter_are_of_the_nodes_that_are_left(three: Extender) -> None:
    three.refusals.observe(refused_on("a"))
    assert (await three.filter(owned(), *"abc"))["NodeNames"] == ["b", "c"]
    assert await three.prioritize(owned(), *"bc") == {"b": 10, "c": 10}


@pytest.mark.parametrize("arrived", [True, False], ids=["it has arrived", "it arrives later"])
async def test_a_refusal_that_no_view_shows_is_awaited_if_the_owners_last_pod_was_just_answered(
    three: Extender, arrived: bool
) -> None:
    three.waits.newer_view_s = 30.0
    assert (await three.filter(owned("first"), *"abc"))["NodeNames"] == ["a", "b", "c"]

    def show() -> None:
        """The refusal, and then the pod that replaces the refused one."""
        three.refusals.observe(refused_on("a"))
        pods = {"default/second": read(owned("second"))}
        three.show(*three.publisher.view.nodes.values(), pods=pods)

    if arrived:
        three.arrivals.show = show
    asking = asyncio.create_task(three.filter(owned("second"), *"abc"))
    if not arrived:
        await three.publisher.is_waited_for()
        show()
    async with asyncio.timeout(20):
        assert (await asking)["NodeNames"] == ["b", "c"]


async def test_a_pod_that_no_view_ever_shows_is_awaited_once_and_not_for_long(
    three: Extender,
) -> None:
    three.waits.newer_view_s = 0.01
    for name in ("first", "second", "third"):
        assert (await three.filter(owned(name), *"abc"))["NodeNames"] == ["a", "b", "c"]
    assert three.count("fettle_extender_waits_total", result="in_vain") == 1


async def test_the_first_pod_of_an_owner_and_one_that_a_view_shows_wait_for_nothing(
    three: Extender,
) -> None:
    three.waits.newer_view_s = 60.0
    names = ("first", "second")
    pods = {f"default/{name}": read(owned(name)) for name in names}
    await three.filter(owned("alone", owner="job-2"), *"abc")
    three.show(*three.publisher.view.nodes.values(), pods=pods)
    for name in names:
        await three.filter(owned(name), *"abc")
    assert three.count("fettle_extender_waits_total", result="in_vain") == 0
    assert three.count("fettle_extender_waits_total", result="caught_up") == 0
