"""What is gone leaves nothing behind, however many names come and go."""

import gc
from typing import Any

import pytest

from fettle.api import kinds
from fettle.api.kinds import Kind
from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.health.book import SWEEP_EVERY_S
from fettle.health.signals.pods import report_of_pod
from fettle.health.signals.rule_tables import SignalRules
from fettle.model.policy import TRAINING
from tests.fettle import building as b
from tests.fettle.cluster.inventory import saying
from tests.fettle.cluster.inventory.fleets import RULES, Fleet, claim, node, slice_
from tests.fettle.scheduling.census import BreakerWithCensus

LONG_S = 30 * 86_400.0


def held_by(root: object) -> int:
    """How many objects are kept by one, those of its class and of the rules apart."""
    assert isinstance(RULES, SignalRules)
    seen = {id(RULES)}
    waiting, count = [root], 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        count += 1
        waiting.extend(gc.get_referents(one))
    return count


def seen_by_selector(name: str, others: str = "another") -> Any:
    """A slice of the network, of which each node sees what its name lets it see."""
    slice_of_network: Any = slice_(name)
    del slice_of_network["spec"]["nodeName"]
    unlike = {"key": "metadata.name", "operator": "NotIn", "values": [others]}
    slice_of_network["spec"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [unlike]}]}
    return slice_of_network


def come_and_go(fleet: Fleet, name: str) -> None:
    """Objects of every kind that have something to say come, are looked at, and go."""
    network: Any = slice_(f"net-{name}")
    del network["spec"]["nodeName"]
    network["spec"]["allNodes"] = True
    lost = b.gpu_pod(name=f"lost-{name}")
    lost["spec"]["nodeName"] = f"nowhere-{name}"
    come: list[tuple[Kind, Any]] = [
        (kinds.NODE, saying.ill(name)),
        (kinds.SLICE, slice_(name)),
        (kinds.SLICE, network),
        (kinds.SLICE, seen_by_selector(f"region-{name}", f"a-{name}")),
        (kinds.SLICE, seen_by_selector(f"region-{name}", f"b-{name}")),
        (kinds.POD, saying.unit_said_ill(f"unit-{name}", name)),
        (kinds.POD, saying.device_said_ill(f"device-{name}", name)),
        (kinds.POD, saying.refused(f"refused-{name}", name)),
        (kinds.POD, lost),
        (kinds.CLAIM, claim(f"claim-{name}", "gpu-0", name)),
        (kinds.CLAIM, saying.condition_of_claim(f"condition-{name}", name)),
        (kinds.TAINT_RULE, saying.rule(f"rule-{name}")),
    ]
    for kind, raw in come:
        fleet.put(kind, raw)
        fleet.look()
    fleet.put(kinds.NODE, node(name))  # the all-clear
    fleet.look()
    fleet.put(kinds.NODE, saying.naming("GPU:0 GPU_UUID:GPU-0", name=name))
    fleet.look()
    fleet.put(kinds.NODE, node(name, status={"conditions": [{"type": "Odd", "status": "True"}]}))
    fleet.look()
    for kind, raw in come:
        metadata = raw["metadata"]
        place = f"{metadata['namespace']}/" if "namespace" in metadata else ""
        fleet.inventory.remove(kind, place + metadata["name"], fleet.now)
        fleet.look()
    fleet.now += LONG_S
    fleet.look()
    fleet.now += SWEEP_EVERY_S
    fleet.look()


@pytest.mark.long
def test_nothing_is_left_of_what_came_and_went(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("stays"))
    fleet.put(kinds.SLICE, seen_by_selector("stays-too"))
    for number in range(3):
        come_and_go(fleet, f"early-{number}")
    before = held_by(fleet)
    for number in range(10):
        come_and_go(fleet, f"later-{number}")
    assert held_by(fleet) <= before


@pytest.mark.long
def test_nothing_is_left_of_units_that_were_ill_on_a_node_that_still_is(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, saying.ill("n"))
    fleet.put(kinds.SLICE, slice_("n"))

    def falls_ill_and_goes(resource: str, unit: str) -> None:
        fleet.put(kinds.POD, saying.speaking("p", "n", resource, unit))
        fleet.look()
        fleet.inventory.remove(kinds.POD, "default/p", fleet.now)
        for wait in (0.0, LONG_S, SWEEP_EVERY_S, SWEEP_EVERY_S):
            fleet.now += wait
            fleet.look()

    for resource in (b.RESOURCE, "nvidia.com/gpu"):  # the one its plugin's, the other nobody's
        for number in range(2):  # the first one shares its times with the node
            falls_ill_and_goes(resource, f"GPU-{number}")
        before = held_by(fleet)
        for number in range(2, 10):
            falls_ill_and_goes(resource, f"GPU-{number}")
        assert held_by(fleet) <= before


@pytest.mark.long
def test_nothing_is_left_of_devices_whose_pool_was_newer_elsewhere(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("n"))
    newer: Any = slice_("other", generation=2)
    newer["spec"]["pool"]["name"] = "n"
    fleet.put(kinds.SLICE, newer)

    def falls_ill_and_goes(device: str) -> None:
        older: Any = slice_("n", devices=1)
        older["spec"]["devices"][0]["name"] = device
        ill = saying.speaking("p", "n", "claim:c/r", f"{b.DRIVER}/n/{device}")
        fleet.put(kinds.SLICE, older)
        fleet.put(kinds.POD, ill)
        (shown,) = fleet.look().nodes["n"].pools[0].devices
        assert shown.health.score < 1.0
        fleet.inventory.remove(kinds.SLICE, "n-slice", fleet.now)
        fleet.inventory.remove(kinds.POD, "default/p", fleet.now)
        for wait in (0.0, LONG_S, SWEEP_EVERY_S, SWEEP_EVERY_S):
            fleet.now += wait
            fleet.look()

    for number in range(3):
        falls_ill_and_goes(f"early-{number}")
    before = held_by(fleet)
    for number in range(8):
        falls_ill_and_goes(f"later-{number}")
    assert held_by(fleet) <= before


def test_pods_that_say_nothing_of_their_devices_are_no_reporters() -> None:
    book = HealthBook(HealthSettings(), RULES)
    before = held_by(book)
    for number in range(100):
        said = report_of_pod(b.pod(b.gpu_pod(name=f"p{number}")), RULES, 0.0, lambda _: None)
        book.ledger.report(said, 0.0)
    assert held_by(book) == before


def test_the_breaker_forgets_devices_of_the_network_that_are_gone() -> None:
    breaker = BreakerWithCensus(TRAINING.placement)

    def turn(name: str) -> int:
        fabric = b.pool(b.device(f"fab-{name}", 0.5, local=""))
        breaker.update({"n"}, {"n": b.node("n", pools=(fabric,))})
        return held_by(breaker)

    first = turn("0")
    assert max(turn(str(i)) for i in range(1, 20)) - first < 5
