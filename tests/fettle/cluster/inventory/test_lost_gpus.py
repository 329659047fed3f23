"""A GPU that a monitor names and its driver publishes no longer, and what comes and goes then."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.model import State
from tests.fettle.cluster.inventory.fleets import Fleet
from tests.fettle.cluster.inventory.test_unit_placement import (
    FULL,
    HAMI,
    PCI,
    gpu,
    healthy,
    mig,
    node,
    scores,
    slice_,
)


@pytest.mark.parametrize("named", [FULL, "GPU_UUID:GPU-u0", "PCI:0000:c0:00.0"])
def test_a_fault_of_a_gpu_that_is_no_longer_published_does_not_count_against_the_others(
    fleet: Fleet, named: str
) -> None:
    fleet.put(kinds.NODE, node(named))
    fleet.put(kinds.SLICE, slice_(gpu(0), gpu(1), gpu(2)))
    assert scores(fleet.look()) == (1.0, {"gpu-0": 0.25, "gpu-1": 1.0, "gpu-2": 1.0})
    fleet.put(kinds.SLICE, slice_(gpu(1), gpu(2)))
    assert scores(fleet.look()) == (1.0, {"gpu-0": 1.0, "gpu-1": 1.0})
    seen = fleet.view.nodes["n"]
    assert {d.health.state for d in seen.pools[0].devices} == {State.HEALTHY}
    (said,) = seen.health.evidence
    assert said.weight == 0.0
    assert "a GPU that is no longer there: GpuMemWatch DCGM_FR_X: bad" in said.evidence.text
    fleet.put(kinds.SLICE, slice_(gpu(1), gpu(2), gpu(0)))
    assert scores(fleet.look()) == (1.0, {"gpu-0": 1.0, "gpu-1": 1.0, "gpu-2": 0.25})


def test_a_gpu_that_hamis_register_does_not_list_is_no_longer_there(fleet: Fleet) -> None:
    """It was replaced, and the condition is older."""
    ill = node("GPU:0 PCI:0000:c0:00.0 GPU_UUID:GPU-u0", gpus=8)
    for listed, states in (("GPU-u0", {State.UNHEALTHY}), ("GPU-u9", set[State]())):
        register = json.dumps([{"id": listed}, {"id": "GPU-u1", "index": 1}])
        fleet.put(kinds.NODE, {**ill, "metadata": {"name": "n", "annotations": {HAMI: register}}})
        seen = fleet.look().nodes["n"]
        assert {unit.health.state for unit in seen.plugins["nvidia.com/gpu"].units} == states
    (said,) = seen.health.evidence
    assert (said.weight, seen.health.state) == (0.0, State.HEALTHY)
    assert "a GPU that is no longer there" in said.evidence.text


def test_a_driver_of_the_vendor_that_publishes_no_gpus_does_not_hide_that_one_is_gone(
    fleet: Fleet,
) -> None:
    channels = slice_({"type": "channel", "id": 0}, driver="compute-domain.nvidia.com")
    channels["spec"]["pool"]["name"] = "channels"
    fleet.put(kinds.SLICE, channels)
    fleet.put(kinds.NODE, node(FULL))
    assert scores(fleet.look())[0] == 0.25
    fleet.put(kinds.SLICE, slice_(gpu(1), gpu(2)))
    assert scores(fleet.look())[0] == 1.0


@pytest.mark.parametrize(
    "left",
    [
        [gpu(1), {"index": 7}],
        [gpu(1), {"uuid": "GPU-of-another-form"}],
        [],
    ],
    ids=["of one the name is not known", "names of another kind", "nothing is published"],
)
def test_a_fault_of_a_gpu_that_any_published_device_may_be_counts_against_all(
    fleet: Fleet, left: list[dict[str, Any]]
) -> None:
    fleet.put(kinds.NODE, node("GPU_UUID:GPU-u0"))
    fleet.put(kinds.SLICE, slice_(*left))
    assert scores(fleet.look())[0] == 0.25


def test_devices_of_another_vendor_are_no_reason_to_think_that_a_gpu_is_gone(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("PCI:0000:c0:00.0"))
    fleet.put(kinds.SLICE, slice_({PCI: "0000:17:00.0"}, driver="dra.net"))
    assert scores(fleet.look()) == (0.25, {"gpu-0": 0.25})


def test_what_stops_being_about_a_device_leaves_no_state_behind(fleet: Fleet) -> None:
    """A slice with devices that could be the named one comes before the slice with that one."""
    fleet.put(kinds.NODE, node("GPU:0"))
    fleet.put(kinds.SLICE, slice_({"index": 2}, {"index": 1}))
    before = fleet.look().nodes["n"].pools[0].devices
    assert {d.health.state for d in before} == {State.UNHEALTHY}
    fleet.put(kinds.SLICE, slice_({"index": 2}, {"index": 1}, {"index": 0}))
    after = fleet.look().nodes["n"].pools[0].devices
    states = [d.health.state for d in after]
    assert states == [State.HEALTHY, State.HEALTHY, State.UNHEALTHY]


NAMED = ("", "GPU:0", "GPU:1", FULL, "GPU_UUID:GPU-u0", "GPU_UUID:GPU-u1", "PCI:0000:c1:00.0")
PUBLISHED: tuple[tuple[dict[str, Any], ...], ...] = (
    (),
    (gpu(0), gpu(1)),
    (gpu(1), gpu(0)),
    (gpu(0),),
    (gpu(1), gpu(2)),
    ({"index": 0}, {"index": 1}),
    ({"index": 1}, gpu(2)),
    (gpu(0), mig(1, 1), mig(2, 1)),
)
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(NAMED),
        st.sampled_from(PUBLISHED),
        st.sampled_from((0, 7, 8)),
        st.sampled_from((0.0, 1.0, 3600.0)),
    ),
    max_size=8,
)


@given(CHANGES)
def test_nothing_is_unhealthy_without_evidence(
    changes: list[tuple[str, tuple[dict[str, Any], ...], int, float]],
) -> None:
    """The monitor says of each GPU that it names no more that it is well."""
    fleet = Fleet()
    for named, devices, gpus, seconds in changes:
        if named:
            fleet.put(kinds.NODE, node(named, gpus=gpus))
        else:
            fleet.put(kinds.NODE, node(gpus=gpus) | {"status": {"conditions": [healthy()]}})
        fleet.put(kinds.SLICE, slice_(*devices))
        fleet.now += seconds
        seen = fleet.look().nodes["n"]
        devices_seen = [device.health for pool in seen.pools for device in pool.devices]
        units = [unit.health for plugin in seen.plugins.values() for unit in plugin.units]
        for health in (seen.health, *devices_seen, *units):
            assert health.state is State.HEALTHY or health.score < 0.9  # by traces, if need be
            if any(w.weight > 0.5 for w in health.evidence):
                assert health.state is State.UNHEALTHY
