"""Allocations of network devices, which do not say for which node they were made."""

from typing import Any

import msgspec
import pytest

from fettle.api import core, resource
from fettle.scheduling.predictions import MAX_WAITING, Result
from tests.fettle import building as b
from tests.fettle.scheduling.test_predictions import POD, Cluster, claim


def network(device: str, **of: str) -> resource.ResourceClaim:
    """A claim that was given a device that several nodes can use."""
    return selected(
        claim(device, **of), {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    )


def selected(allocated: resource.ResourceClaim, *terms: dict[str, Any]) -> resource.ResourceClaim:
    """With another node selector."""
    raw = msgspec.to_builtins(allocated)
    raw["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": terms}
    return b.claim(raw)


def bound(node: str, **metadata: Any) -> core.Pod:
    named = {"name": "p", "namespace": "default", "uid": "1"} | metadata
    return b.pod({"metadata": named, "spec": {"nodeName": node}})


@pytest.mark.parametrize(
    "terms",
    [
        [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n"]}]}],
        [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
        ],
        [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n", "m"]}]}],
        [],
    ],
)
def test_an_allocation_of_which_the_node_cannot_be_told_waits_for_the_pod_to_be_bound(
    terms: list[Any],
) -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.put(selected(claim("b"), *terms))
    assert cluster.told == []
    cluster.predictions.put(POD)
    assert cluster.told == []
    cluster.predictions.put(bound("n"))
    assert cluster.told == [Result.OTHER_SOUND]


def test_the_pod_may_be_seen_to_be_bound_before_its_network_devices() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.put(bound("n"))
    cluster.predictions.put(network("a"))
    assert cluster.told == [Result.EXACT]


def test_network_devices_are_compared_with_what_was_predicted_when_they_were_allocated() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.put(network("a"))
    cluster.show(b.node("n", pools=(b.pool(b.device("a", allocated=True), b.device("b")),)))
    cluster.predictions.put(bound("n"))
    assert cluster.told == [Result.EXACT]


def test_a_claim_for_one_node_tells_where_the_network_devices_of_the_pod_went() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.put(network("b"))
    cluster.predictions.put(claim("a", claim_uid="another"))
    assert cluster.told == [Result.OTHER_SOUND, Result.EXACT]
    cluster.predictions.put(bound("n"))
    assert len(cluster.told) == 2


def test_a_prediction_is_stale_once_a_pod_on_another_node_got_some_of_the_network_devices() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.put(claim("a", node="m", pod="faster"))
    cluster.predictions.put(network("b"))
    cluster.predictions.put(bound("n"))
    assert cluster.told == [Result.STALE]


def test_what_was_allocated_from_other_pools_does_not_make_a_prediction_stale() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.put(claim("a", pod="faster", claim_uid="f", pool="of another node"))
    cluster.predictions.put(claim("b"))
    assert cluster.told == [Result.OTHER_SOUND]


@pytest.mark.parametrize(
    "other",
    [bound("n", uid="2"), bound("n", name="q"), bound("unknown")],
    ids=["of the same name", "another", "a node that nobody knows"],
)
def test_another_pod_that_is_bound_tells_nothing_of_network_devices(other: core.Pod) -> None:
    cluster = Cluster(b.device("a"))
    cluster.answer()
    cluster.predictions.put(network("a"))
    cluster.predictions.put(other)
    assert cluster.told == []


def test_a_pod_that_is_answered_again_is_compared_with_the_latest_answer_only() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.put(network("b"))
    cluster.answer()
    cluster.predictions.put(bound("n"))
    assert cluster.told == []


def test_however_many_pods_are_never_bound_the_records_of_few_are_kept() -> None:
    cluster = Cluster(b.device("a"))
    others = [f"p{number}" for number in range(MAX_WAITING)]
    cluster.answer()
    cluster.predictions.put(network("a"))
    for name in others:
        cluster.answer(name)
        cluster.predictions.put(network("a", pod=name, uid=name, claim_uid=name))
    cluster.predictions.put(bound("n"))
    assert cluster.told == []
    cluster.predictions.put(bound("n", name=others[-1], uid=others[-1]))
    assert cluster.told == [Result.EXACT]
