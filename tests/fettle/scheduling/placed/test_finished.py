"""What is remembered of pods that have ended."""

from typing import Any

from fettle.cluster import Publisher
from fettle.scheduling.placed import FinishedPods, PodClaims
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import Cluster
from tests.fettle.scheduling.placed.builders import claim, claimed, placed


def ended(pod: dict[str, Any]) -> Any:
    return b.pod({**pod, "status": {"phase": "Succeeded"}})


def test_what_a_pod_held_is_remembered_though_its_claims_go_before_it_does() -> None:
    cluster, held = Cluster(), b.claim(claim("p", "gpu-0"))
    cluster.show({}, claims={held.metadata.key: held})
    pods = FinishedPods(PodClaims(cluster.publisher))
    pods.observe(ended(claimed("p")))
    cluster.show({})
    pods.observe(ended(claimed("p")))
    found = pods.get("default/p")
    assert found is not None
    assert [one.device.device for bound in found.claims for one in bound.held] == ["gpu-0"]


def test_what_a_pod_held_is_known_though_its_claims_go_before_its_end_is_seen() -> None:
    cluster, held = Cluster(), b.claim(claim("p", "gpu-0"))
    claims = PodClaims(cluster.publisher)
    cluster.show({}, claims={held.metadata.key: held})
    before = cluster.publisher.view
    cluster.show({})
    claims.observe_view(before, cluster.publisher.view)
    pods = FinishedPods(claims)
    pods.observe(ended(claimed("p")))
    found = pods.get("default/p")
    assert found is not None
    assert [one.device.device for bound in found.claims for one in bound.held] == ["gpu-0"]


def test_only_the_newest_are_remembered() -> None:
    pods = FinishedPods(PodClaims(Publisher()), most=2)
    for name in ("a", "b", "c"):
        pods.observe(ended(placed(name, gpus=1)))
    assert pods.get("default/a") is None
    assert pods.get("default/b") is not None
    assert pods.get("default/c") is not None
