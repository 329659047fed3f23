"""What is said of nodes' scores: each in a short list, in a long one what differs from most."""

from fettle.cluster import NodeView
from fettle.scheduling import MANY
from tests.extender.conftest import Extender
from tests.fettle import building as b

POD = b.gpu_pod()
PLAIN = {"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "c"}]}}


async def test_scores_are_whole_numbers_for_every_host_that_was_asked_about(
    fleet: Extender,
) -> None:
    scores = await fleet.prioritize(POD, "good", "worn", "new")
    assert scores == {"good": 10, "worn": 6, "new": 8}
    assert all(type(score) is int for score in scores.values())


def many(extender: Extender, *others: NodeView) -> list[str]:
    """The names of more sound nodes than a list that is always given whole, and of these."""
    sound = [b.node(f"n{number}", gpus=8) for number in range(MANY + 1)]
    extender.show(*sound, *others)
    return [node.name for node in (*sound, *others)]


async def test_of_many_hosts_that_score_alike_none_is_listed_since_a_missing_one_has_0(
    extender: Extender,
) -> None:
    names = many(extender)
    assert await extender.prioritize(POD, *names) == {}
    assert (await extender.filter(POD, *names))["NodeNames"] == names
    assert await extender.prioritize(POD, *names) == {}
    assert await extender.prioritize(POD, *names[:MANY]) == dict.fromkeys(names[:MANY], 10)
    assert await extender.prioritize(PLAIN, *names) == {}


async def test_of_many_hosts_those_are_listed_that_differ_from_most_and_by_how_much(
    extender: Extender,
) -> None:
    names = many(extender, b.node("worn", gpus=8, own=b.health(0.9)))
    assert await extender.prioritize(POD, *names) == {"worn": -1}
    assert await extender.prioritize(POD, *names[:-1], "unheard") == {"unheard": -2}
    assert (await extender.filter(POD, *names))["NodeNames"] == names
    assert await extender.prioritize(POD, *names) == {"worn": -1}


async def test_of_many_hosts_of_which_most_differ_from_each_other_all_are_listed(
    extender: Extender,
) -> None:
    half = [b.node(f"w{i}", gpus=8, own=b.health(0.9 - i % 5 / 10)) for i in range(MANY + 2)]
    names = many(extender, *half)
    scores = await extender.prioritize(POD, *names)
    assert list(scores) == names
    assert scores["n0"] == 10
    assert scores["w0"] == 9
    assert await extender.prioritize(POD, *names[:-1]) == {
        name: score - 10 for name, score in scores.items() if score < 10 and name != names[-1]
    }


async def test_where_most_hosts_are_preferred_others_are_listed_below_them(
    extender: Extender,
) -> None:
    scavenger = b.gpu_pod(annotations={"fettle.dev/policy": "scavenger"})
    worn = [b.node(f"w{i}", gpus=8, own=b.health(0.9)) for i in range(2 * MANY + 1)]
    names = many(extender, *worn)
    scores = await extender.prioritize(scavenger, *names)
    assert scores == dict.fromkeys((name for name in names if name[0] == "n"), -1)


async def test_a_host_that_gets_worse_ends_that_all_score_alike(extender: Extender) -> None:
    names = many(extender, b.node("n", gpus=8))
    assert await extender.prioritize(POD, *names) == {}
    many(extender, b.node("n", gpus=8, own=b.health(0.9)))
    assert (await extender.prioritize(POD, *names))["n"] == -1


async def test_a_scavenger_sees_the_opposite_order(fleet: Extender) -> None:
    pod = b.gpu_pod(annotations={"fettle.dev/policy": "scavenger"})
    scores = await fleet.prioritize(pod, "good", "worn")
    assert scores["worn"] > scores["good"]


async def test_hosts_and_scores_are_spelled_as_go_writes_them(fleet: Extender) -> None:
    _, reply = await fleet.post("prioritize", {"Pod": POD, "NodeNames": ["good"]})
    assert reply == [{"Host": "good", "Score": 10}]


async def test_whole_nodes_are_scored_by_name(fleet: Extender) -> None:
    body = {"Pod": POD, "Nodes": {"items": [{"metadata": {"name": "worn"}}]}}
    _, reply = await fleet.post("prioritize", body)
    assert reply == [{"Host": "worn", "Score": 6}]
