"""Claims that are allocated already: their devices are judged by what is published of them."""

from typing import Any

import pytest

from fettle.api import kinds
from fettle.cel.runtime.protocol import MATCH
from fettle.dra import Profile
from fettle.dra.allocator.features import Quirks
from fettle.explain.wording import text, texts
from fettle.model import BUILT_IN, Policies, State, reasons
from fettle.scheduling.demand import demand_of
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.claims import Allocator
from fettle.scheduling.judge.verdicts import Verdict, judge
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet

Raw = dict[str, Any]
DEAD = [{"key": "example.com/dead", "value": "x", "effect": "NoExecute"}]
CONSUMES = [{"counterSet": "none", "counters": {"m": {"value": "1"}}}]
ODD = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Near"}]}]}
POD = b.pod(
    {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
    }
)


def device(name: str, **more: Any) -> Raw:
    return {"name": name, **more}


def slice_(
    name: str, *devices: Raw, generation: int = 1, count: int = 1, pool: str = "n", **place: Any
) -> Raw:
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": b.DRIVER,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "devices": devices,
            **(place or {"nodeName": "n"}),
        },
    }


def holding(*devices: str) -> Raw:
    """The claim `c`, allocated to devices of the pool `n`."""
    names = {"request": "r", "driver": b.DRIVER, "pool": "n"}
    results = [{**names, "device": name} for name in devices]
    allocation = {"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": results}}
    metadata = {"name": "c", "namespace": "default"}
    return {"metadata": metadata, "spec": {}, "status": {"allocation": allocation}}


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    for name in ("n", "other"):
        fleet.put(kinds.NODE, {"metadata": {"name": name}})
    return fleet


def verdict(fleet: Fleet, *slices: Raw, policy: str = "inference") -> Verdict:
    """The verdict on the node `n` for a pod with the claim, once these slices are published."""
    for slice_ in slices:
        fleet.put(kinds.SLICE, slice_)
    view = fleet.look()
    demand = demand_of(POD, view, Policies())
    assert demand is not None
    acceptance = Acceptance(BUILT_IN[policy].placement)
    return judge(demand, view.nodes["n"], acceptance, Allocator(lambda *_: MATCH))


ODD_SELECTOR = slice_("z", device("x"), pool="z", nodeSelector=ODD)
IN_TROUBLE = {
    "incomplete": [slice_("s", device("a", taints=DEAD), device("b"), count=2)],
    "a name comes twice": [slice_("s", device("a", taints=DEAD), device("b"), device("b"))],
    "no such counter": [
        slice_("s", device("a", taints=DEAD), device("b", consumesCounters=CONSUMES))
    ],
    "a malformed selector elsewhere": [
        slice_("s", device("a", taints=DEAD), device("b")),
        ODD_SELECTOR,
    ],
    "a malformed selector in its own pool": [
        slice_("s", device("a", taints=DEAD), device("b"), count=2),
        slice_("z", device("x"), count=2, nodeSelector=ODD),
    ],
    "another node is ahead": [
        slice_("s", device("a", taints=DEAD), device("b"), count=2),
        slice_("t", device("x"), count=2, generation=2, nodeName="other"),
    ],
}


@pytest.mark.parametrize("slices", IN_TROUBLE.values(), ids=IN_TROUBLE)
def test_an_allocated_device_is_judged_whatever_is_wrong_with_its_pool(
    fleet: Fleet, slices: list[Raw]
) -> None:
    fleet.put(kinds.CLAIM, holding("a", "b"))
    answer = verdict(fleet, *slices)
    assert not answer.fits
    assert answer.notes == ()
    states = {choice.device.device: choice.health.state for choice in answer.devices}
    assert states == {"a": State.UNHEALTHY, "b": State.HEALTHY}
    assert answer.devices[0].health.evidence


@pytest.mark.parametrize("slices", IN_TROUBLE.values(), ids=IN_TROUBLE)
def test_an_allocated_device_that_no_slice_publishes_is_unknown(
    fleet: Fleet, slices: list[Raw]
) -> None:
    fleet.put(kinds.CLAIM, holding("c"))
    answer = verdict(fleet, *slices)
    assert tuple(texts(answer.notes)) == (
        f"claim gpu holds {b.DRIVER}/n/c, which is not published for this node",
    )
    assert [choice.health.state for choice in answer.devices] == [State.UNKNOWN]


def test_allocated_devices_are_judged_as_before_while_their_pool_is_updated(
    fleet: Fleet,
) -> None:
    fleet.put(kinds.CLAIM, holding("a", "b"))

    def explained(generation: int, name: str, **more: Any) -> list[tuple[State, float]]:
        raw = slice_(f"s-{name}", device(name, **more), generation=generation, count=2)
        answer = verdict(fleet, raw)
        assert not answer.undecided
        return [(choice.health.state, choice.health.since) for choice in answer.devices]

    explained(1, "a")
    before = explained(1, "b", taints=DEAD)
    assert [state for state, _ in before] == [State.HEALTHY, State.UNHEALTHY]
    fleet.now += 60
    assert explained(2, "a") == before
    assert explained(2, "b", taints=DEAD) == before


def test_the_newest_pool_generation_counts_for_a_device_before_it_is_complete(
    fleet: Fleet,
) -> None:
    fleet.put(kinds.CLAIM, holding("a"))
    assert not verdict(fleet, slice_("old", device("a", taints=DEAD))).fits
    newer = verdict(fleet, slice_("new", device("a"), generation=2, count=2))
    assert newer.fits
    assert newer.devices[0].health.score > 0.8  # a trace is left


def test_older_pool_generations_publish_nothing_once_the_newest_is_complete(fleet: Fleet) -> None:
    fleet.put(kinds.CLAIM, holding("a"))
    verdict(fleet, slice_("old", device("a")))
    answer = verdict(fleet, slice_("new", device("b"), generation=2))
    assert "not published for this node" in text(answer.notes[0])


def test_an_incomplete_or_invalid_pool_has_no_devices_for_new_claims(fleet: Fleet) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": b.DRIVER}}
    spec = {"devices": {"requests": [request]}}
    class_ = {"metadata": {"name": b.DRIVER}, "spec": {}}
    fleet.put(kinds.CLASS, class_)
    fleet.put(kinds.CLAIM, {"metadata": {"name": "c", "namespace": "default"}, "spec": spec})
    for slices in IN_TROUBLE.values():
        assert verdict(fleet, *slices).rejected
        for raw in slices:
            fleet.inventory.remove(kinds.SLICE, raw["metadata"]["name"], fleet.now)


def test_a_complete_pool_keeps_no_device_besides_those_that_can_be_allocated(fleet: Fleet) -> None:
    fleet.put(kinds.CLAIM, holding("a"))
    verdict(fleet, slice_("s", device("a"), device("b")))
    (pool,) = fleet.view.nodes["n"].pools
    assert pool.withheld == ()


def test_the_search_for_acceptable_devices_ignores_defects_of_old_kubernetes_versions(
    fleet: Fleet,
) -> None:
    """Old versions keep the counters of a device that they passed over, and run out of them."""
    lost = [{"key": "gpu.nvidia.com/gpu-lost", "value": "x", "effect": "None"}]
    takes = [{"counterSet": "gpu", "counters": {"slices": {"value": "3"}}}]
    dead = device("a", consumesCounters=takes, taints=lost)
    sound = device("b", consumesCounters=takes)
    counters = slice_("s", count=2)
    sets = [{"name": "gpu", "counters": {"slices": {"value": "4"}}}]
    counters["spec"] |= {"sharedCounters": sets, "devices": None}
    for each in (counters, slice_("t", dead, sound, count=2)):
        fleet.put(kinds.SLICE, each)
    fleet.put(kinds.CLASS, {"metadata": {"name": "gpu"}, "spec": {}})
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    fleet.put(kinds.CLAIM, {"metadata": {"name": "c", "namespace": "default"}, "spec": spec})
    view = fleet.look()
    demand = demand_of(POD, view, Policies())
    assert demand is not None
    allocator = Allocator(lambda *_: MATCH, Profile(quirks=Quirks(undoes_in_part=True)))
    answer = judge(demand, view.nodes["n"], Acceptance(BUILT_IN["inference"].placement), allocator)
    assert [choice.device.device for choice in answer.devices] == ["a"]
    (refusal,) = answer.refusals
    assert isinstance(refusal, reasons.DeviceUnhealthy)
    assert refusal.passed_over
