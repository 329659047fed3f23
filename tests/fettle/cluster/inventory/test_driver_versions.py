"""Nodes whose driver is new there, and until when it is."""

from typing import Any

import pytest

from fettle.api import kinds
from fettle.cluster import NewDriver
from fettle.cluster.inventory.driver_versions import (
    EVERY_S,
    LONGEST,
    MOST_DRIVERS,
    PROVEN_BY,
)
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, node, slice_
from tests.fettle.cluster.inventory.test_device_healths import started, stored, uid

GFD = "nvidia.com/cuda.driver-version.full"
AMD = "amd.com/gpu.driver-version"
OLD, NEW = "570.133.20", "580.95.05"
DAY = 86_400.0
ROW_REMAP = {
    "type": "GpuMemWatch",
    "status": "True",
    "reason": "x",
    "message": "ErrorCode:DCGM_FR_ROW_REMAP_FAILURE GPU:0 x Recommended Action=RESTART_VM;",
}


def run(fleet: Fleet, version: str, name: str = "n", **more: Any) -> tuple[NewDriver, ...]:
    """What of the node is new once GPU Feature Discovery says that it runs this version."""
    fleet.put(kinds.NODE, uid(node(name, labels={GFD: version}, **more)))
    return fleet.look().nodes[name].new_drivers


def told(new: tuple[NewDriver, ...]) -> list[tuple[str, str, str]]:
    return [(one.name, one.version, one.former) for one in new]


def test_a_driver_whose_version_changed_is_new_for_a_day(fleet: Fleet) -> None:
    assert run(fleet, OLD) == ()
    (new,) = run(fleet, NEW)
    assert told((new,)) == [("nvidia.com/gpu", NEW, OLD)]
    assert (new.since, new.until) == (fleet.now, fleet.now + DAY)
    fleet.now += DAY - 1
    assert fleet.look().nodes["n"].new_drivers == (new,)
    fleet.now += 1
    assert fleet.look().nodes["n"].new_drivers == ()


def test_a_new_node_has_no_new_driver_nor_has_one_that_replaces_another(fleet: Fleet) -> None:
    assert run(fleet, OLD) == ()
    fleet.put(kinds.NODE, uid(node(labels={GFD: NEW}), "2"))
    assert fleet.look().nodes["n"].new_drivers == ()


def test_a_label_that_goes_while_the_driver_is_replaced_says_nothing(fleet: Fleet) -> None:
    run(fleet, OLD)
    fleet.put(kinds.NODE, uid(node()))
    assert fleet.look().nodes["n"].new_drivers == ()
    assert run(fleet, OLD) == ()
    fleet.put(kinds.NODE, uid(node()))
    fleet.look()
    assert told(run(fleet, NEW)) == [("nvidia.com/gpu", NEW, OLD)]


def test_a_release_of_the_discovery_that_writes_other_labels_makes_no_driver_new(
    fleet: Fleet,
) -> None:
    """Of three parts the last may be empty, as of 455.06."""
    parts = dict(zip(("major", "minor", "rev"), ("455", "06", ""), strict=True))
    labels = {f"nvidia.com/cuda.driver.{part}": value for part, value in parts.items()}
    fleet.put(kinds.NODE, uid(node(labels=labels)))
    fleet.look()
    assert run(fleet, "455.06") == ()
    assert told(run(fleet, "455.07")) == [("nvidia.com/gpu", "455.07", "455.06")]


def test_amds_label_and_the_attribute_of_dra_drivers_are_read(fleet: Fleet) -> None:
    def put(amd: str, *dra: str) -> list[tuple[str, str, str]]:
        fleet.put(kinds.NODE, uid(node(labels={AMD: amd})))
        raw = slice_(devices=len(dra))
        for device, version in zip(raw["spec"]["devices"], dra, strict=True):
            device["attributes"] = {"driverVersion": {"version": version}}
        fleet.put(kinds.SLICE, raw)
        return told(fleet.look().nodes["n"].new_drivers)

    assert put("6.12.12", "1.0.0", "1.0.0") == []
    assert put("6.12.12", "1.0.0", "1.1.0") == []  # devices that disagree: it is being replaced
    assert put("6.14.0", "1.1.0", "1.1.0") == [
        ("amd.com/gpu", "6.14.0", "6.12.12"),
        (b.DRIVER, "1.1.0", "1.0.0"),
    ]


@pytest.mark.parametrize(("unsound", "is_new"), [(0, False), (1, True)])
def test_a_version_that_sound_nodes_have_run_for_long_is_new_nowhere(
    fleet: Fleet, unsound: int, is_new: bool
) -> None:
    """These are the canaries: what one of a few shows is not proven."""
    for i in range(PROVEN_BY + unsound):
        run(fleet, OLD, f"canary-{i}")
        bad = {"conditions": [ROW_REMAP] if i < unsound else []}
        assert run(fleet, NEW, f"canary-{i}", status=bad)
    run(fleet, OLD)
    fleet.now += DAY - 1
    assert run(fleet, NEW)
    fleet.now += 1
    assert bool(fleet.look().nodes["n"].new_drivers) == is_new
    assert run(fleet, OLD, "late") == ()
    assert bool(run(fleet, NEW, "late")) == is_new


def test_canaries_that_break_later_make_the_version_new_again(fleet: Fleet) -> None:
    for i in range(PROVEN_BY):
        run(fleet, NEW, f"canary-{i}")
    fleet.now += DAY
    run(fleet, OLD)
    fleet.look()
    assert run(fleet, NEW) == ()
    run(fleet, NEW, "canary-0", status={"conditions": [ROW_REMAP]})
    fleet.now += EVERY_S
    assert told(fleet.look().nodes["n"].new_drivers) == [("nvidia.com/gpu", NEW, OLD)]


def test_a_restart_forgets_neither_the_version_nor_since_when_it_is_new(fleet: Fleet) -> None:
    run(fleet, OLD)
    (new,) = run(fleet, NEW)
    now = uid(node(labels={GFD: NEW}))
    again = started(stored(fleet), (kinds.NODE, now))
    assert again.view.nodes["n"].new_drivers == (new,)
    # It was replaced while nobody looked.
    once_more = started(stored(fleet), (kinds.NODE, uid(node(labels={GFD: "580.105.08"}))))
    assert told(once_more.view.nodes["n"].new_drivers) == [("nvidia.com/gpu", "580.105.08", NEW)]
    other = started(stored(fleet), (kinds.NODE, uid(node(labels={GFD: NEW}), "2")))
    assert other.view.nodes["n"].new_drivers == ()


def test_a_clock_that_is_set_back_keeps_no_driver_new_for_longer(fleet: Fleet) -> None:
    run(fleet, OLD)
    run(fleet, NEW)
    fleet.now -= 10 * DAY
    run(fleet, NEW, annotations={"x": "y"})
    run(fleet, OLD, "other")
    fleet.look()
    fleet.now += DAY
    assert fleet.look().nodes["n"].new_drivers == ()


def test_of_many_or_long_versions_few_are_kept(fleet: Fleet) -> None:
    """A node's own driver writes its slices."""

    def put(version: str) -> tuple[NewDriver, ...]:
        for i in range(3 * MOST_DRIVERS):
            raw = slice_(devices=1)
            raw["metadata"]["name"] = raw["spec"]["driver"] = f"d{i}.example.com"
            raw["spec"]["devices"][0]["attributes"] = {"driverVersion": {"version": version}}
            fleet.put(kinds.SLICE, raw)
        fleet.put(kinds.NODE, uid(node()))
        return fleet.look().nodes["n"].new_drivers

    put("1.0.0")
    assert len(put("1.1.0")) == MOST_DRIVERS
    assert len(stored(fleet).status.drivers) == MOST_DRIVERS
    assert {one.version for one in put(f"1.0.{'9' * LONGEST}")} == {"1.1.0"}
