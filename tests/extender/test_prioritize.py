"""The scores of nodes, as prioritize answers them."""

from tests.extender.conftest import Extender
from tests.fettle import building as b

POD = b.gpu_pod()


async def test_scores_are_whole_numbers_for_every_host_that_was_asked_about(
    fleet: Extender,
) -> None:
    scores = await fleet.prioritize(POD, "good", "worn", "new")
    assert scores == {"good": 10, "worn": 6, "new": 8}
    assert all(type(score) is int for score in scores.values())


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
