"""Fingerprints: pools with equal digests offer the same to a demand."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import fields, replace

from fettle.api import kinds
from fettle.api.kinds import Kind
from fettle.api.resource import Device
from fettle.cel import AttributeRead
from fettle.cluster.inventory.fingerprints import (
    EVERYTHING,
    attribute_digests,
    attributes_read,
    with_fingerprints,
)
from fettle.cluster.inventory.inventory import Inventory
from fettle.cluster.view import EMPTY, NodeView
from fettle.config import HealthSettings
from fettle.health import HealthBook, load_rules
from fettle.model import Health, State

TABLE = load_rules()


def node(name: str, devices: list[dict[str, Any]], *, busy: str = "", **spec: Any) -> NodeView:
    """A node whose pool has its name, as the inventory makes it."""
    inventory = Inventory(HealthBook(HealthSettings(), TABLE), TABLE)
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    content = {"driver": "d", "nodeName": name, "pool": pool, "devices": devices, **spec}
    put(inventory, kinds.NODE, {"metadata": {"name": name}})
    put(inventory, kinds.SLICE, {"metadata": {"name": f"s-{name}"}, "spec": content})
    if busy:
        result = {"request": "r", "driver": "d", "pool": name, "device": busy}
        status = {"allocation": {"devices": {"results": [result]}}}
        put(inventory, kinds.CLAIM, {"metadata": {"name": "c"}, "spec": {}, "status": status})
    for _ in inventory.refresh(0.0):
        pass
    view = inventory.view(EMPTY, synced=True, served={})
    assert view is not None
    return view.nodes[name]


def put(inventory: Inventory, kind: Kind, raw: dict[str, Any]) -> None:
    inventory.put(kind, kind.decode(msgspec.json.encode(raw)), 0.0)


def gpu(name: str, **attributes: str) -> dict[str, Any]:
    return {"name": name, "attributes": {k: {"string": v} for k, v in attributes.items()}}


def look(node: NodeView, *attributes: str) -> tuple[object, ...]:
    (pool,) = node.pools
    return (
        pool.fingerprint,
        *[pool.attribute_fingerprints.get(("d", name)) for name in attributes],
    )


FIRST = node("n1", [gpu("a", model="x", uuid="1"), gpu("b", model="y", uuid="2")])


def test_names_of_nodes_pools_and_devices_do_not_matter() -> None:
    other = node("n2", [gpu("c", model="x", uuid="1"), gpu("d", model="y", uuid="2")])
    assert look(other, "model", "uuid") == look(FIRST, "model", "uuid")


def test_an_attribute_matters_only_to_those_who_read_it() -> None:
    other = node("n2", [gpu("a", model="x", uuid="3"), gpu("b", model="y", uuid="4")])
    assert look(other, "model") == look(FIRST, "model")
    assert look(other, "uuid") != look(FIRST, "uuid")


def test_which_device_has_a_value_matters() -> None:
    other = node("n2", [gpu("a", model="y", uuid="1"), gpu("b", model="x", uuid="2")])
    assert look(other, "model") != look(FIRST, "model")


@pytest.mark.parametrize(
    "other",
    [
        node("n2", [gpu("a", model="x", uuid="1")]),
        node("n2", [gpu("a", model="x", uuid="1"), gpu("b", model="y", uuid="2")], busy="a"),
        node("n2", [gpu("a") | {"capacity": {"m": {"value": "1"}}}, gpu("b")]),
        node("n2", [gpu("a") | {"taints": [{"key": "k", "effect": "NoSchedule"}]}, gpu("b")]),
        node("n2", [gpu("a") | {"allowMultipleAllocations": True}, gpu("b")]),
        node("n2", [gpu("a"), gpu("a")]),
        node("n2", [gpu("a"), gpu("b")], pool={"name": "n2", "resourceSliceCount": 2}),
        node("n2", [gpu("a"), gpu("b")], driver="e"),
    ],
    ids=["fewer", "in use", "capacity", "taint", "shared", "invalid", "incomplete", "driver"],
)
def test_what_decides_allocations_matters(other: NodeView) -> None:
    assert look(other) != look(FIRST)


DEVICE: dict[str, Any] = {
    "attributes": {"model": {"string": "z"}},
    "capacity": {"m": {"value": "1"}},
    "taints": [{"key": "k", "effect": "NoSchedule"}],
    "allowMultipleAllocations": True,
    "consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "0"}}}],
    "bindsToNode": True,
    "bindingConditions": ["ready"],
    "nodeName": "elsewhere",
    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": []}, {"matchFields": []}]},
    "allNodes": False,
}
NOT_READ = {"name", "bindingFailureConditions", "nodeAllocatableResources"}


@pytest.mark.parametrize(
    "field", [f.encode_name for f in fields(Device) if f.encode_name not in NOT_READ]
)
def test_every_field_of_a_device_that_allocating_reads_matters(field: str) -> None:
    here = {"allNodes": True}

    def seen_of(changed: dict[str, Any]) -> object:
        devices = [gpu("a") | here, gpu("b") | here | changed]
        (pool,) = node("n", devices, nodeName=None, perDeviceNodeSelection=True).pools
        return pool.fingerprint, pool.attribute_fingerprints[EVERYTHING]

    assert seen_of({field: DEVICE[field]}) != seen_of({})


HEALTH: dict[str, Any] = {
    "score": 0.5,
    "state": State.UNKNOWN,
    "held": True,
    "tenant_caused": 0.1,
    "suspected": 2,
}


@pytest.mark.parametrize(
    "field", [f.name for f in fields(Health) if f.name not in ("since", "evidence", "kept")]
)
def test_every_field_of_health_that_counts_matters(field: str) -> None:
    (pool,) = FIRST.pools
    first, *others = pool.devices
    ill = Health(0.9, State.DEGRADED)

    def seen_of(health: Health) -> bytes:
        devices = (replace(first, health=health), *others)
        return with_fingerprints(
            replace(pool, devices=devices), pool.fingerprint, pool.attribute_fingerprints
        ).fingerprint

    assert seen_of(replace(ill, **{field: HEALTH[field]})) != seen_of(ill)


def test_full_names_and_bare_ones_are_told_apart_since_constraints_do() -> None:
    bare, full = node("n1", [gpu("a", model="x")]), node("n2", [gpu("a", **{"d/model": "x"})])
    assert look(bare, "model") != look(full, "model")
    assert None not in (*look(bare, "model"), *look(full, "model"))


def test_a_name_without_a_domain_is_looked_for_among_the_driver_s_attributes() -> None:
    (pool,) = node("n1", [gpu("a", model="x", **{"other/model": "y"})]).pools
    assert attribute_digests(pool, [("", "model")]) == attribute_digests(pool, [("d", "model")])
    assert attribute_digests(pool, [("other", "model")]) not in (
        [None],
        attribute_digests(pool, [("d", "model")]),
    )
    assert attribute_digests(pool, [("", "other")]) == [None]
    assert attribute_digests(pool, [EVERYTHING]) == [pool.attribute_fingerprints[EVERYTHING]]


def test_selectors_read_attributes() -> None:
    reads = (AttributeRead("attributes", "d", "model"), AttributeRead("capacity", "d", "memory"))
    assert attributes_read([reads]) == (("d", "model"),)


def test_a_selector_that_may_read_anything_depends_on_all_attributes() -> None:
    assert attributes_read([None]) == (EVERYTHING,)
    assert attributes_read([(AttributeRead("attributes", "d", ""),)]) == (EVERYTHING,)
    assert (
        FIRST.pools[0].attribute_fingerprints[EVERYTHING]
        != node("n2", [gpu("a")]).pools[0].attribute_fingerprints[EVERYTHING]
    )


def test_amounts_beyond_64_bits_are_looked_at_too() -> None:
    counters = {"m": {"value": "9000000000000000000"}}
    pool = {"name": "n2", "generation": 1, "resourceSliceCount": 1}
    huge = node("n2", [], pool=pool, sharedCounters=[{"name": "s", "counters": counters}])
    assert huge.pools[0].fingerprint != FIRST.pools[0].fingerprint


@pytest.mark.parametrize("number", [2**64, -(10**30)])
def test_a_number_beyond_64_bits_is_told_apart_like_any_other(number: int) -> None:
    def attribute_fingerprints(number: int) -> Any:
        device = {"name": "gpu-0", "attributes": {"serial": {"int": number}}}
        return node("n", [device]).pools[0].attribute_fingerprints

    assert attribute_fingerprints(number) == attribute_fingerprints(number)
    assert attribute_fingerprints(number) != attribute_fingerprints(number + 1)
