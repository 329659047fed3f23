"""A pod's scores differ from those of its demand by its gang, and by where its like ran before."""

from typing import Any

import msgspec
import pytest

from extender.http.replies import SHORT, Replies
from fettle.api import core, kinds
from fettle.cluster import NodeView
from fettle.model import Degraded, GangDegraded, Placement, Policy, PreviousNode, State
from fettle.scheduling import Leaning, Leanings
from fettle.scheduling.former_nodes import KEEP_S, FormerStay
from fettle.scheduling.gangs import SlowestMember
from fettle.scheduling.judge.verdicts import LAST_SCORE
from tests.extender.conftest import Extender
from tests.fettle import building as b
from tests.fettle.browse.showing import known, told

PLAIN = Policy(name="plain", placement=Placement())
STRICT = Policy(
    name="strict",
    placement=Placement(gang_degraded=GangDegraded.REFUSE, patience="1h"),
)
STICKY = Policy(name="sticky", placement=Placement(previous_node=PreviousNode.PREFER))
IMPATIENT = Policy(
    name="impatient",
    placement=Placement(degraded=Degraded.REFUSE, patience="1m", previous_node=PreviousNode.PREFER),
)
LEAVING = Policy(name="leaving", placement=Placement(degraded=Degraded.PREFER))
POLICIES = {policy.name: policy for policy in (PLAIN, STRICT, STICKY, IMPATIENT, LEAVING)}


def member(
    name: str, node: str | None = None, *, policy: str = "plain", phase: str = "Running"
) -> dict[str, Any]:
    pod = b.gpu_pod(name=name, count=8)
    pod["metadata"] |= {
        "uid": f"{name}-{node}",
        "annotations": {"fettle.dev/policy": policy},
        "ownerReferences": [
            {"kind": "PyTorchJob", "name": "j", "uid": "j", "controller": True},
        ],
    }
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": phase if node else "Pending"}
    return pod


def read(pod: dict[str, Any]) -> core.Pod:
    found = kinds.POD.decode(msgspec.json.encode(pod))
    assert isinstance(found, core.Pod)
    return found


def show(extender: Extender, *pods: dict[str, Any], **healths: float) -> None:
    """Nodes with these healths, and these pods."""
    nodes = [b.node(name, gpus=8, own=b.health(health)) for name, health in healths.items()]
    known = {one.metadata.key: one for one in map(read, pods)}
    extender.show(*nodes, pods=known, policies=POLICIES)
    for pod in known.values():
        extender.former.observe(pod)


async def scores(extender: Extender, pod: dict[str, Any], *names: str) -> dict[str, int]:
    """As prioritize answers, before and after filter, and as is recorded."""
    first = await extender.prioritize(pod, *names)
    assert (await extender.filter(pod, *names))["NodeNames"] == [*names]
    assert await extender.prioritize(pod, *names) == first
    (decision,) = extender.recorder.select(0.0, pod=f"default/{pod['metadata']['name']}")[:1]
    best = max(first.values())
    assert decision.preferred
    assert decision.preferred.items() <= {n: s for n, s in first.items() if s == best}.items()
    return first


async def explained(extender: Extender, pod: dict[str, Any]) -> dict[str, tuple[int, list[str]]]:
    """Each node's score and the codes of its notes."""
    extender.recent[f"default/{pod['metadata']['name']}"] = read(pod)
    leanings = Leanings(extender.answers, extender.refusals, extender.former)
    shown = known(extender.answers, recent=extender.recent, leanings=leanings)
    _, explained = await told(shown, f"/explain?pod=default/{pod['metadata']['name']}")
    return {
        name: (node["score"], [note["code"] for note in node["reasons"]["notes"]])
        for name, node in explained["nodes"].items()
    }


GANG = {"slow": 0.5, "worn": 0.9, "good": 1.0, "full": 1.0}


async def test_while_a_gang_is_on_sound_nodes_the_loss_on_a_slower_one_counts_twice(
    extender: Extender,
) -> None:
    waits = member("waits")
    names = ("slow", "worn", "good")
    show(extender, waits, **GANG)
    assert await scores(extender, waits, *names) == {"slow": 5, "worn": 9, "good": 10}
    show(extender, waits, member("a", "full"), **GANG)
    assert await scores(extender, waits, *names) == {"slow": 0, "worn": 8, "good": 10}
    found = await explained(extender, waits)
    assert found["slow"] == (0, ["SlowsGang"])
    assert found["good"] == (10, [])


async def test_the_first_of_a_gang_avoids_a_node_that_is_worse_than_the_rest_needs(
    extender: Extender,
) -> None:
    first, second = member("first"), member("second")
    show(extender, first, second, **GANG)
    alike = {"slow": 0, "worn": 8, "good": 10, "full": 10}
    assert await scores(extender, first, *alike) == alike
    found = await explained(extender, first)
    assert found["slow"] == (0, ["SlowsRestOfGang"])
    assert found["full"] == (10, [])
    # The first one was answered, and has taken a node since that no name is of any more.
    assert await scores(extender, second, "slow", "worn", "good") == {
        "slow": 0,
        "worn": 8,
        "good": 10,
    }


async def test_what_all_of_a_gang_cannot_have_is_not_missed_by_the_first(
    extender: Extender,
) -> None:
    first = member("first")
    show(extender, first, *map(member, "abc"), **GANG)
    names = ("slow", "worn", "good", "full")
    assert await scores(extender, first, *names) == {"slow": 5, "worn": 9, "good": 10, "full": 10}
    show(extender, first, *map(member, "ab"), **GANG)
    assert await scores(extender, first, *names) == {"slow": 1, "worn": 9, "good": 10, "full": 10}


async def test_where_a_member_is_slow_already_a_perfect_node_gains_the_gang_little(
    extender: Extender,
) -> None:
    waits = member("waits")
    show(extender, waits, member("a", "full"), member("b", "ill"), **GANG, ill=0.5, bad=0.4)
    found = await scores(extender, waits, "bad", "slow", "worn", "good")
    assert found == {"bad": 3, "slow": 5, "worn": 6, "good": 6}
    told = await explained(extender, waits)
    assert told["good"] == (6, ["GangIsSlow"])
    assert told["bad"] == (3, ["SlowsGang"])


async def test_in_a_gang_the_slowest_device_counts_whatever_the_policy_says(
    extender: Extender,
) -> None:
    pod = member("waits")
    show(extender, pod, member("other"), n=1.0)
    demand = extender.answers.demand(read(pod))
    alone = extender.answers.demand(read(b.gpu_pod(count=8)))
    assert demand is not None
    assert alone is not None
    assert demand.policy.placement.aggregate == "Min"
    assert alone.policy.placement.aggregate == "Mean"


async def test_with_gang_degraded_refuse_nobody_becomes_the_only_one_on_a_degraded_device(
    extender: Extender,
) -> None:
    waits, other = member("waits", policy="strict"), member("other", policy="strict")
    waits["metadata"]["creationTimestamp"] = "2100-01-01T00:00:00Z"
    show(extender, waits, other, **GANG)
    assert (await extender.filter(waits, "slow", "good"))["NodeNames"] == ["good"]
    show(extender, waits, member("other", "full", policy="strict"), **GANG)
    assert (await extender.filter(waits, "slow", "good"))["NodeNames"] == ["good"]
    show(extender, waits, member("other", "ill", policy="strict"), **GANG, ill=0.5)
    assert (await extender.filter(waits, "slow", "good"))["NodeNames"] == ["slow", "good"]
    show(extender, waits, **GANG)  # alone
    assert (await extender.filter(waits, "slow", "good"))["NodeNames"] == ["slow", "good"]
    waits["metadata"]["creationTimestamp"] = "2000-01-01T00:00:00Z"  # its patience is over
    show(extender, waits, other, **GANG)
    assert (await extender.filter(waits, "slow", "good"))["NodeNames"] == ["slow", "good"]


async def test_where_degraded_devices_come_first_a_gang_changes_nothing(
    extender: Extender,
) -> None:
    waits = member("waits", policy="leaving")
    names = ("slow", "worn", "good")
    show(extender, waits, **GANG)
    alone = await scores(extender, waits, *names)
    show(extender, waits, member("a", "full", policy="leaving"), **GANG)
    assert await scores(extender, waits, *names) == alone


async def test_a_pod_that_comes_back_prefers_where_it_ran_while_that_is_sound(
    extender: Extender,
) -> None:
    back = member("a", policy="sticky")
    show(extender, member("a", "old", policy="sticky"), old=1.0, new=1.0)
    show(extender, back, old=1.0, new=1.0)
    assert await scores(extender, back, "old", "new") == {"old": 12, "new": 10}
    assert (await explained(extender, back))["old"] == (12, ["RanHere"])
    show(extender, back, old=0.7, new=1.0)
    assert await scores(extender, back, "old", "new") == {"old": 7, "new": 10}
    show(extender, back, old=1.0, new=1.0)
    show(extender, back, old=1.0, new=1.0)
    indifferent = member("a")
    assert await scores(extender, indifferent, "old", "new") == {"old": 10, "new": 10}


async def test_a_node_that_is_the_last_choice_stays_that_for_who_comes_back(
    extender: Extender,
) -> None:
    impatient = member("a", policy="impatient")
    impatient["metadata"]["creationTimestamp"] = "2000-01-01T00:00:00Z"
    extender.former.observe(read(member("a", "old", policy="impatient")))
    kept = msgspec.structs.replace(b.health(0.85), state=State.DEGRADED)
    extender.show(b.node("old", gpus=8, own=kept), b.node("new", gpus=8), policies=POLICIES)
    assert await scores(extender, impatient, "old", "new") == {"old": LAST_SCORE, "new": 10}


async def test_a_pod_that_comes_back_avoids_where_it_failed_for_a_while(
    extender: Extender,
) -> None:
    back = member("a", policy="sticky")
    extender.former.observe(read(member("a", "old", policy="sticky", phase="Failed")))
    show(extender, back, old=1.0, new=1.0)
    assert await scores(extender, back, "old", "new") == {"old": 0, "new": 10}
    assert (await explained(extender, back))["old"] == (0, ["FailedHere"])
    assert await scores(extender, back, "old") == {"old": 10}  # nowhere else to go
    extender.ahead_s = 601
    assert (await scores(extender, back, "old", "new"))["old"] == 5
    extender.ahead_s = KEEP_S + 1
    assert (await scores(extender, back, "old", "new"))["old"] == 10


@pytest.mark.parametrize(("worst", "unplaced"), [(3, 0), (10, 0), (0, 20), (0, 190)])
async def test_long_replies_leave_out_the_same_as_without_a_leaning(
    extender: Extender, worst: int, unplaced: int
) -> None:
    healths = {f"n{number}": (number % 4 == 0 and 0.5) or 1.0 for number in range(2 * SHORT)}
    show(extender, member("waits"), **healths)
    demand = extender.answers.demand(read(member("waits")))
    assert demand is not None
    table = await extender.answers.judged(demand)
    stay = FormerStay("default/a", "u", 0.0)
    slowest = SlowestMember("default/b", "n0", b.health(worst / 10))
    leaning = Leaning(
        {"n1": 0.5, "n3": 0.0},
        {"n5": stay, "n8": stay, "elsewhere": stay},
        sound=0.8,
        slowest=None if unplaced else slowest,
        worst=worst,
        unplaced=unplaced,
    )
    names = [*healths]
    whole, short = (
        {
            entry["Host"]: entry["Score"]
            for entry in msgspec.json.decode(Replies(form, str).scores(table, names, leaning))
        }
        for form in ("full", "compact")
    )
    assert len(short) < len(whole) == len(names)
    assert len({whole[name] - short.get(name, 0) for name in names}) == 1


def replaced(policy: str, **changes: Any) -> dict[str, Any]:
    """A ReplicaSet's pod of one unit, or the one that comes after it."""
    pod = b.gpu_pod(name=changes.pop("name", "new"))
    owner = {"kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}
    pod["metadata"] |= {
        "uid": changes.pop("uid", "new"),
        "generateName": "rs-",
        "annotations": {"fettle.dev/policy": policy},
        "ownerReferences": [owner],
    }
    return pod | {"status": {"phase": "Pending"}} | changes


def without_unit(node: NodeView) -> NodeView:
    """The node, once its device plugin has withdrawn the bad unit."""
    plugin = node.plugins[b.RESOURCE]
    units = tuple(msgspec.structs.replace(unit, withdrawn=1) for unit in plugin.units)
    plugin = msgspec.structs.replace(plugin, allocatable=plugin.capacity - 1, units=units)
    return msgspec.structs.replace(node, plugins={b.RESOURCE: plugin})


@pytest.mark.parametrize("policy", ["plain", "sticky", "inference", "training"])
@pytest.mark.parametrize("withdrawn", [0, 1])
async def test_an_evicted_pod_goes_elsewhere_while_anything_else_is_left(
    extender: Extender, policy: str, withdrawn: int
) -> None:
    """Also where its old node has sound devices left, and packing it would be thrifty."""
    mark = {"type": "fettle.dev/DeviceFailed", "status": "True"}
    old = replaced(policy, name="old", uid="old", status={"phase": "Running", "conditions": [mark]})
    old["metadata"]["deletionTimestamp"] = "2026-11-28T10:00:00Z"
    old["spec"]["nodeName"] = "ill"
    ill = b.node("ill", gpus=8, units={"GPU-a": 0.1})
    extender.show(
        without_unit(ill) if withdrawn else ill, b.node("idle", gpus=8), policies=POLICIES
    )
    extender.former.observe(read(old))
    found = await extender.prioritize(replaced(policy), "ill", "idle")
    assert found["ill"] == 0
    assert found["idle"] == 10
    # It goes back where nothing else is left, rather than nowhere.
    alone = await extender.filter(replaced(policy), "ill")
    assert alone["NodeNames"] == ["ill"] or policy == "training"


@pytest.mark.parametrize("score", [0.1, 0.5, 0.79])
@pytest.mark.parametrize("gpus", [8, 16, 64])
async def test_no_bonus_lifts_a_node_with_a_bad_device_above_a_sound_one_for_who_may_draw_it(
    extender: Extender, score: float, gpus: int
) -> None:
    """To have run there, and to leave whole nodes to others, are bonuses for sound devices."""
    ran = replaced("inference", name="old", uid="old", status={"phase": "Running"})
    ran["spec"]["nodeName"] = "ill"
    ill = b.node("ill", gpus=gpus, units={"GPU-a": score})
    extender.show(ill, b.node("idle", gpus=gpus), policies=POLICIES)
    extender.former.observe(read(ran))
    found = await extender.prioritize(replaced("inference"), "ill", "idle")
    assert found["ill"] <= found["idle"]


async def test_on_a_node_whose_bad_device_is_withdrawn_bonuses_count_together(
    extender: Extender,
) -> None:
    """The pod cannot draw it: 10, 2 for what is left over, and 2 for having run there."""
    ran = replaced("inference", name="old", uid="old", status={"phase": "Running"})
    ran["spec"]["nodeName"] = "part"
    part = b.node("part", gpus=8, units={"GPU-a": 0.1})
    extender.show(without_unit(part), b.node("idle", gpus=8), policies=POLICIES)
    extender.former.observe(read(ran))
    found = await extender.prioritize(replaced("inference"), "part", "idle")
    assert found == {"part": 14, "idle": 10}
