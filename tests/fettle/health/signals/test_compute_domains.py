"""What ComputeDomains say of the nodes that they join."""

from __future__ import annotations

from typing import Any

from fettle.api import kinds
from fettle.model import SOUND, State
from tests.fettle.cluster.inventory.fleets import Fleet, node


def domain(**statuses: str) -> dict[str, Any]:
    """A ComputeDomain with these nodes, as NVIDIA's driver writes it."""
    nodes = [
        {"name": name, "ipAddress": "10.0.0.1", "cliqueID": "c.1", "index": 0, "status": status}
        for name, status in statuses.items()
    ]
    return {
        "metadata": {"name": "train", "namespace": "ml", "uid": "u"},
        "spec": {"numNodes": len(nodes)},
        "status": {"status": "NotReady", "nodes": nodes},
    }


def test_a_node_that_is_not_ready_in_its_domain_is_marked_mildly_until_it_is() -> None:
    fleet = Fleet()
    for name in ("a", "b", "c"):
        fleet.put(kinds.NODE, node(name))
    fleet.put(kinds.COMPUTE_DOMAIN, domain(a="NotReady", b="Ready", c=""))
    seen = fleet.look().nodes
    assert [seen[name].health.score for name in "abc"] == [0.9, 1.0, 1.0]
    ill = seen["a"].health
    assert (ill.state, ill.proven) == (State.HEALTHY, 1.0), "a tenant can bring it about"
    assert ill.evidence[0].evidence.text == "not ready in ComputeDomain ml/train"
    fleet.put(kinds.COMPUTE_DOMAIN, domain(a="Ready", b="Ready", c="Ready"))
    assert fleet.look().nodes["a"].health.score > 0.97


def test_what_a_domain_said_goes_with_it() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node("a"))
    fleet.put(kinds.COMPUTE_DOMAIN, domain(a="NotReady"))
    assert fleet.look().nodes["a"].health.score == 0.9
    fleet.inventory.remove(kinds.COMPUTE_DOMAIN, "ml/train", fleet.now)
    assert fleet.look().nodes["a"].health.score > 0.97


def test_a_domain_without_a_status_says_nothing() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node("a"))
    bare = domain()
    del bare["status"]
    fleet.put(kinds.COMPUTE_DOMAIN, bare)
    assert fleet.look().nodes["a"].health is SOUND
