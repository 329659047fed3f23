"""Holds in views: what is held, and that each ends at its time."""

from __future__ import annotations

from typing import Any

import pytest

from fettle.api import kinds
from fettle.model import SOUND, DeviceId, NodeId, State
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, node, slice_
from tests.fettle.health.signals.objects import stamp

N = NodeId("n")
DEVICE = DeviceId(b.DRIVER, "n", "gpu-0")


def held(fleet: Fleet, **annotations: str) -> None:
    keys = {f"fettle.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    fleet.put(kinds.NODE, node(annotations=keys))


def until(at: float, **more: str) -> str:
    said = "".join(f', "{key}": "{value}"' for key, value in more.items())
    return f'{{"until": "{stamp(at)}"{said}}}'


def devices(fleet: Fleet) -> dict[str, Any]:
    (pool,) = fleet.view.nodes["n"].pools
    return {device.id.device: device.health for device in pool.devices}


def test_a_hold_ends_at_its_time_though_nothing_happens_and_others_stay() -> None:
    fleet = Fleet()
    held(fleet, hold=until(fleet.now + 60), hold_1=until(fleet.now + 120, by="bob"))
    assert fleet.look().nodes["n"].health.state is State.UNHEALTHY
    assert [hold.by for hold in fleet.view.holds[N]] == ["", "bob"]
    before = fleet.view
    fleet.now += 59
    assert fleet.look() is before
    fleet.now += 1
    assert [hold.by for hold in fleet.look().holds[N]] == ["bob"]
    assert fleet.view.nodes["n"].health.held
    fleet.now += 60
    view = fleet.look()
    assert view.holds == {}
    assert view.nodes["n"].health is SOUND
    assert view.basis > before.basis


def test_a_held_device_leaves_its_neighbours_and_its_node_alone() -> None:
    fleet = Fleet()
    fleet.put(kinds.SLICE, slice_("n"))
    held(fleet, hold=until(fleet.now + 60, device=str(DEVICE)))
    fleet.look()
    assert fleet.view.nodes["n"].health is SOUND
    found = devices(fleet)
    assert found.pop("gpu-0").held
    assert set(found.values()) == {SOUND}
    fleet.now += 60
    fleet.look()
    assert set(devices(fleet).values()) == {SOUND}


def test_a_device_that_comes_back_is_still_held() -> None:
    fleet = Fleet()
    fleet.put(kinds.SLICE, slice_("n"))
    held(fleet, hold=f'{{"device": "{DEVICE}"}}')
    fleet.look()
    fleet.inventory.remove(kinds.SLICE, fleet_slice_key(), fleet.now)
    assert DEVICE in fleet.look().holds
    fleet.put(kinds.SLICE, slice_("n"))
    fleet.look()
    assert devices(fleet)["gpu-0"].held


def fleet_slice_key() -> str:
    return str(slice_("n")["metadata"]["name"])


def test_a_slice_holds_its_devices_until_its_time() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node())
    raw: Any = slice_("n")
    raw["metadata"]["annotations"] = {"fettle.dev/hold": until(fleet.now + 60)}
    fleet.put(kinds.SLICE, raw)
    fleet.look()
    assert DEVICE in fleet.view.holds
    assert all(health.held for health in devices(fleet).values())
    # The last change of the pool concerned another slice.
    fleet.put(kinds.SLICE, other_driver())
    fleet.now += 60
    fleet.look()
    assert fleet.view.holds == {}
    assert not any(health.held for pool in fleet.view.nodes["n"].pools for health in healths(pool))


def other_driver() -> Any:
    raw: Any = slice_("n")
    raw["metadata"]["name"] = "second"
    for number, device in enumerate(raw["spec"]["devices"]):
        device["name"] = f"more-{number}"
    return raw


def healths(pool: Any) -> list[Any]:
    return [device.health for device in (*pool.devices, *pool.withheld)]


def test_a_node_that_goes_takes_its_holds_along() -> None:
    fleet = Fleet()
    fleet.put(kinds.SLICE, slice_("n"))
    held(fleet, hold="riser", hold_1=f'{{"device": "{DEVICE}"}}')
    assert len(fleet.look().holds) == 2
    fleet.inventory.remove(kinds.NODE, "n", fleet.now)
    assert fleet.look().holds == {}
    fleet.put(kinds.NODE, node(uid="another"))
    fleet.look()
    assert fleet.view.nodes["n"].health is SOUND
    assert not any(health.held for health in devices(fleet).values())


def test_the_taint_of_a_hold_is_no_evidence() -> None:
    fleet = Fleet()
    taint = {"key": "fettle.dev/hold", "value": "annotated", "effect": "NoSchedule"}
    fleet.put(kinds.NODE, {**node(), "spec": {"taints": [taint]}})
    fleet.put(kinds.SLICE, slice_("n"))
    rule = {"deviceSelector": {"driver": b.DRIVER, "pool": "n", "device": "gpu-0"}, "taint": taint}
    fleet.put(kinds.TAINT_RULE, {"metadata": {"name": "fettle-hold-1"}, "spec": rule})
    view = fleet.look()
    assert view.nodes["n"].health is SOUND
    assert set(devices(fleet).values()) == {SOUND}
    assert "fettle-hold-1" in view.taint_rules


def test_a_held_unit_is_bad_and_the_others_are_not() -> None:
    fleet = Fleet()
    held(fleet, hold=f'{{"device": "{b.RESOURCE} index:3"}}')
    plugin = fleet.look().nodes["n"].plugins[b.RESOURCE]
    (unit,) = plugin.units
    assert (unit.unit, unit.health.held, unit.withdrawn) == ("index:3", True, 0)
    assert fleet.view.nodes["n"].health is SOUND
    held(fleet)
    (unit,) = fleet.look().nodes["n"].plugins[b.RESOURCE].units
    assert not unit.health.held


def test_a_held_unit_is_not_taken_for_one_that_the_plugin_withdrew() -> None:
    fleet = Fleet()
    annotations = {"fettle.dev/hold": f'{{"device": "{b.RESOURCE} index:3"}}'}
    fleet.put(kinds.NODE, node(allocatable=7, annotations=annotations))
    (unit,) = fleet.look().nodes["n"].plugins[b.RESOURCE].units
    assert (unit.health.held, unit.withdrawn) == (True, 0)


@pytest.mark.parametrize("node_first", [True, False])
def test_a_node_holds_no_device_of_another(node_first: bool) -> None:
    """A kubelet may annotate its own Node, whoever has taken it over."""
    fleet = Fleet()
    annotations = {"fettle.dev/hold": f'{{"device": "{DEVICE}"}}'}
    puts = [(kinds.NODE, node("evil", annotations=annotations)), (kinds.SLICE, slice_("n"))]
    fleet.put(kinds.NODE, node())
    for kind, raw in puts if node_first else reversed(puts):
        fleet.put(kind, raw)
        fleet.look()
    assert fleet.view.holds == {}
    assert set(devices(fleet).values()) == {SOUND}
    held(fleet, hold=f'{{"device": "{DEVICE}"}}')
    assert DEVICE in fleet.look().holds
