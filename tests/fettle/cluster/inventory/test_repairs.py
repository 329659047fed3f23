"""Repairs in views: what a Node's annotation says was mended."""

from __future__ import annotations

from typing import Any

import pytest

from fettle.api import kinds
from fettle.model import DeviceId, Health, State
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, node, slice_
from tests.fettle.health.signals.objects import condition, stamp

DEVICE = DeviceId(b.DRIVER, "n", "gpu-0")


def tainted() -> Any:
    raw: Any = slice_("n")
    taint = {"key": "gpu.nvidia.com/xid", "value": "74", "effect": "NoSchedule"}
    raw["spec"]["devices"][0]["taints"] = [taint]
    return raw


def that_kept_failing(fleet: Fleet) -> Health:
    """The driver taints a device three times within an hour, and takes each taint back."""
    fleet.put(kinds.NODE, node())
    for _ in range(3):
        fleet.put(kinds.SLICE, tainted())
        fleet.look()
        fleet.now += 600
        fleet.put(kinds.SLICE, slice_("n"))
        fleet.look()
        fleet.now += 600
    return seen(fleet)


def seen(fleet: Fleet) -> Health:
    (pool,) = fleet.look().nodes["n"].pools
    return next(device.health for device in pool.devices if device.id == DEVICE)


@pytest.mark.parametrize("about", ["the node", "the device"])
def test_a_devices_repair_is_stated_on_its_node(about: str) -> None:
    fleet = Fleet()
    assert that_kept_failing(fleet).state is not State.HEALTHY
    at = stamp(fleet.now)
    value = at if about == "the node" else f'{{"at": "{at}", "device": "{DEVICE}"}}'
    fleet.put(kinds.NODE, node(annotations={"fettle.dev/repaired": value}))
    assert (seen(fleet).state, seen(fleet).score) == (State.HEALTHY, 0.95)


def test_a_reboot_of_its_node_mends_a_device() -> None:
    fleet = Fleet()
    assert that_kept_failing(fleet).state is not State.HEALTHY
    for boot in ("one", "two"):
        raw: Any = node()
        raw["status"]["nodeInfo"] = {"bootID": boot}
        fleet.put(kinds.NODE, raw)
    assert seen(fleet).state is State.HEALTHY


def test_a_kubelet_states_no_repair_of_another_nodes_device() -> None:
    fleet = Fleet()
    before = that_kept_failing(fleet)
    value = f'{{"at": "{stamp(fleet.now)}", "device": "{DEVICE}"}}'
    fleet.put(kinds.NODE, node("other", annotations={"fettle.dev/repaired": value}))
    assert seen(fleet) == before


def test_a_repair_that_is_taken_back_counts_no_more() -> None:
    fleet = Fleet()
    before = that_kept_failing(fleet)
    fleet.put(kinds.NODE, node(annotations={"fettle.dev/repaired": stamp(fleet.now)}))
    fleet.look()
    fleet.put(kinds.NODE, node())
    assert seen(fleet).score == before.score


@pytest.mark.parametrize("ends", ["", "; no longer reported, latched until it is cleared"])
def test_whatever_a_monitors_message_ends_with_a_fault_that_it_reports_is_not_repaired(
    ends: str,
) -> None:
    fleet = Fleet()
    lost = condition("XIDError79", "True", "Lost", f"GPU is lost{ends}", fleet.now)
    status = {"conditions": [lost]}
    fleet.put(kinds.NODE, node(status=status))
    fleet.now += 60
    fleet.put(
        kinds.NODE, node(status=status, annotations={"fettle.dev/repaired": stamp(fleet.now)})
    )
    assert fleet.look().nodes["n"].health.state is State.UNHEALTHY
