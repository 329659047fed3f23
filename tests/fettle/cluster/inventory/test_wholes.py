"""What is said of a device counts for its parts too, by whatever way it is said, and for nothing
else."""

from __future__ import annotations

from typing import Any

import pytest

from fettle.api import kinds
from fettle.api.kinds import Kind
from fettle.api.resource import DeviceToleration
from fettle.cluster.view import View
from fettle.model import SOUND, Health, Placement, State
from fettle.scheduling.judge.acceptance import Acceptance
from tests.fettle.cluster.inventory.fleets import Fleet
from tests.fettle.cluster.inventory.saying import speaking
from tests.fettle.cluster.inventory.test_unit_placement import (
    AMD,
    NVIDIA,
    PCI,
    bad_ones,
    gpu,
    mig,
    scores,
    slice_,
)
from tests.fettle.health.signals.objects import stamp

MIG_NODE = (gpu(0, type="gpu"), gpu(1, type="gpu"), mig(2, 0), mig(3, 0), mig(4, 1))
"""gpu-0 and gpu-1, two parts of gpu-0 (gpu-2, gpu-3), and one of gpu-1 (gpu-4)."""
OF_GPU_0 = {"gpu-0", "gpu-2", "gpu-3"}


def tainted(number: int, key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, Any]:
    said = slice_(*MIG_NODE)
    taint = {"key": key, "value": value, "effect": effect}
    said["spec"]["devices"][number]["taints"] = [taint]
    return said


def rule(key: str, device: str = "gpu-0") -> dict[str, Any]:
    taint = {"key": key, "effect": "NoExecute"}
    selector = {"driver": NVIDIA, "pool": "n", "device": device}
    return {"metadata": {"name": "rule"}, "spec": {"deviceSelector": selector, "taint": taint}}


def annotated(key: str, value: str) -> dict[str, Any]:
    return {"metadata": {"name": "n", "annotations": {key: value}}}


def healths(view: View) -> dict[str, Health]:
    return {d.id.device: d.health for pool in view.nodes["n"].pools for d in pool.devices}


@pytest.fixture
def mig_fleet(fleet: Fleet) -> Fleet:
    fleet.put(kinds.NODE, {"metadata": {"name": "n"}})
    fleet.put(kinds.SLICE, slice_(*MIG_NODE))
    assert set(healths(fleet.look()).values()) == {SOUND}
    return fleet


@pytest.mark.parametrize(
    ("kind", "said", "score"),
    [
        (kinds.SLICE, tainted(0, "gpu.nvidia.com/xid", "79"), 0.0),
        (kinds.SLICE, tainted(0, "gpu.nvidia.com/gpu-lost"), 0.0),
        (kinds.SLICE, tainted(0, "gpu.nvidia.com/xid", "63", "None"), 0.9),
        (kinds.SLICE, tainted(0, "gpu.nvidia.com/unmonitored", "", "None"), 0.75),
        (kinds.SLICE, tainted(0, "example.com/odd"), 0.25),
        (kinds.TAINT_RULE, rule("example.com/broken"), 0.0),
        (kinds.POD, speaking("p", "n", "claim:c/r", f"{NVIDIA}/n/gpu-0"), 0.25),
        (kinds.NODE, annotated("fettle.dev/hold", f'{{"device": "{NVIDIA}/n/gpu-0"}}'), 0.0),
    ],
    ids=["xid", "lost", "mild", "unmonitored", "unknown key", "rule", "kubelet", "hold"],
)
def test_what_is_said_of_a_gpu_counts_for_its_parts_and_for_no_other_gpu(
    mig_fleet: Fleet, kind: Kind, said: dict[str, Any], score: float
) -> None:
    mig_fleet.put(kind, said)
    found = healths(mig_fleet.look())
    assert {name: health.score for name, health in found.items() if health is not SOUND} == (
        dict.fromkeys(OF_GPU_0, score)
    )
    text = found["gpu-2"].evidence[0].evidence.text
    assert text == f"of gpu-0, which it is part of: {found['gpu-0'].evidence[0].evidence.text}"


def test_a_claims_condition_about_a_gpu_counts_for_its_parts(mig_fleet: Fleet) -> None:
    device = {"driver": NVIDIA, "pool": "n", "device": "gpu-0"}
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-12T13:46:40Z"}
    status = {"devices": [{**device, "conditions": [ready]}]}
    mig_fleet.put(
        kinds.CLAIM, {"metadata": {"name": "c", "namespace": "d"}, "spec": {}, "status": status}
    )
    found = healths(mig_fleet.look())
    assert {name for name, health in found.items() if health.score == 0.65} == OF_GPU_0
    assert {found[name].proven for name in OF_GPU_0} == {1.0}, "a tenant could cause it"


def test_an_attribute_of_a_whole_counts_for_its_parts(fleet: Fleet) -> None:
    intel = "gpu.intel.com"
    whole = {"type": "pf", "pciAddress": "0000:c0:00.0", "health": "Unhealthy"}
    part = {"type": "vf", "parentPciAddr": "0000:c0:00.0", "health": "Healthy"}
    fleet.put(kinds.NODE, {"metadata": {"name": "n"}})
    fleet.put(kinds.SLICE, slice_(whole, part, driver=intel))
    assert bad_ones(fleet.look()) == {"gpu-0", "gpu-1"}


def test_a_hold_on_a_gpu_holds_its_parts_until_it_ends(mig_fleet: Fleet) -> None:
    held = annotated("fettle.dev/hold", f'{{"device": "{NVIDIA}/n/gpu-0"}}')
    mig_fleet.put(kinds.NODE, held)
    assert {n for n, health in healths(mig_fleet.look()).items() if health.held} == OF_GPU_0
    mig_fleet.put(kinds.NODE, {"metadata": {"name": "n"}})
    assert set(healths(mig_fleet.look()).values()) == {SOUND}


@pytest.mark.parametrize("part", [2, 4])
def test_a_fault_of_a_part_is_neither_one_of_its_siblings_nor_of_its_gpu(
    mig_fleet: Fleet, part: int
) -> None:
    mig_fleet.put(kinds.SLICE, tainted(part, "gpu.nvidia.com/xid", "95"))
    assert bad_ones(mig_fleet.look()) == {f"gpu-{part}"}


def test_a_part_is_well_at_once_when_its_gpu_is(mig_fleet: Fleet) -> None:
    mig_fleet.put(kinds.SLICE, tainted(0, "gpu.nvidia.com/xid", "79"))
    assert healths(mig_fleet.look())["gpu-2"].state is State.UNHEALTHY
    mig_fleet.now += 60
    mig_fleet.put(kinds.SLICE, slice_(*MIG_NODE))
    found = healths(mig_fleet.look())
    assert {found[name].state for name in OF_GPU_0} == {State.HEALTHY}
    assert {found[name].score for name in OF_GPU_0} == {0.88}, "a light trace is left"


def test_a_part_that_comes_later_is_as_ill_as_its_gpu(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, {"metadata": {"name": "n"}})
    fleet.put(kinds.SLICE, slice_(gpu(0, type="gpu")))
    fleet.put(kinds.TAINT_RULE, rule("example.com/broken"))
    assert bad_ones(fleet.look()) == {"gpu-0"}
    fleet.put(kinds.SLICE, slice_(gpu(0, type="gpu"), mig(1, 0)))
    assert bad_ones(fleet.look()) == {"gpu-0", "gpu-1"}


def test_who_tolerates_the_taint_of_a_gpu_tolerates_it_of_its_parts(mig_fleet: Fleet) -> None:
    mig_fleet.put(kinds.SLICE, tainted(0, "gpu.nvidia.com/xid", "79"))
    part = healths(mig_fleet.look())["gpu-2"]
    tolerates = DeviceToleration(key="gpu.nvidia.com/xid", operator="Exists")
    accepts = Acceptance(Placement()).tolerating(part, [tolerates])
    assert accepts.health is SOUND
    assert [str(taint) for taint in accepts.taints] == ["gpu.nvidia.com/xid=79:NoSchedule"]


def test_a_repair_of_a_gpu_mends_its_parts(mig_fleet: Fleet) -> None:
    mig_fleet.put(kinds.SLICE, tainted(0, "gpu.nvidia.com/xid", "79"))
    mig_fleet.look()
    mig_fleet.now += 600
    mig_fleet.put(kinds.SLICE, slice_(*MIG_NODE))
    mig_fleet.look()
    mig_fleet.now += 600
    said = f'{{"at": "{stamp(mig_fleet.now)}", "device": "{NVIDIA}/n/gpu-0"}}'
    mig_fleet.put(kinds.NODE, annotated("fettle.dev/repaired", said))
    found = healths(mig_fleet.look())
    assert {found[name].score for name in OF_GPU_0} == {0.95}


def counted(name: str, amount: int, **more: Any) -> dict[str, Any]:
    counters = {"memory": {"value": str(amount)}}
    return {"name": name, "consumesCounters": [{"counterSet": "a", "counters": counters}], **more}


def partitioned(*devices: dict[str, Any], node: str | None = "n") -> list[dict[str, Any]]:
    """Two slices of one pool: the counters, and the devices that draw on them."""
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    where = {"nodeName": node} if node else {"allNodes": True}
    spec = {"driver": "gpu.example.com", "pool": pool, **where}
    totals = [{"name": "a", "counters": {"memory": {"value": "8"}}}]
    return [
        {"metadata": {"name": "counters"}, "spec": {**spec, "sharedCounters": totals}},
        {"metadata": {"name": "devices"}, "spec": {**spec, "devices": list(devices)}},
    ]


ILL = {"taints": [{"key": "gpu.example.com/unhealthy", "effect": "NoSchedule"}]}


@pytest.mark.parametrize(
    ("devices", "bad"),
    [
        ((counted("all", 8, **ILL), counted("half", 4), counted("other", 4)), "all half other"),
        ((counted("all", 8), counted("half", 4, **ILL), counted("other", 4)), "half"),
        ((counted("most", 7, **ILL), counted("half", 4)), "most"),
        ((counted("all", 8, **ILL), {"name": "apart"}), "all"),
    ],
    ids=["whole", "part", "no whole is published", "one that takes nothing"],
)
def test_without_names_shared_counters_say_what_is_part_of_what(
    fleet: Fleet, devices: tuple[dict[str, Any], ...], bad: str
) -> None:
    fleet.put(kinds.NODE, {"metadata": {"name": "n"}})
    for raw in partitioned(*devices):
        fleet.put(kinds.SLICE, raw)
    assert bad_ones(fleet.look()) == set(bad.split())


def test_counters_of_the_network_do_not_make_one_device_of_many_nodes(fleet: Fleet) -> None:
    """A slice of TPUs over many nodes that is ill says nothing of each smaller one."""
    fleet.put(kinds.NODE, {"metadata": {"name": "n"}})
    for raw in partitioned(counted("all", 8, **ILL), counted("half", 4), node=None):
        fleet.put(kinds.SLICE, raw)
    assert bad_ones(fleet.look()) == {"all"}


@pytest.mark.parametrize(
    ("driver", "devices", "bad"),
    [
        # AMD names the parent by its address
        (AMD, [{"type": "amdgpu", "pciAddr": "0000:01:00.0"},
               {"type": "amdgpu-partition", "parentPciAddr": "0000:01:00.0"},
               {"type": "amdgpu-partition", "parentPciAddr": "0000:02:00.0"}], {"gpu-0", "gpu-1"}),
        # the address where the part names no UUID, the index where it has no address either
        (NVIDIA, [gpu(0), {"type": "mig", PCI: "0000:c0:00.0"}, mig(1, 1)], {"gpu-0", "gpu-1"}),
        (NVIDIA, [gpu(0, index=5), {"type": "mig", "parentIndex": 5, "index": 0}],
         {"gpu-0", "gpu-1"}),
        # the better name tells them apart
        (NVIDIA, [gpu(0), {**mig(1, 7), PCI: "0000:c0:00.0"}], {"gpu-0"}),
        (NVIDIA, [gpu(0, index=5), {"type": "mig", "parentIndex": 5, PCI: "0000:c9:00.0"}],
         {"gpu-0"}),
        # the same GPU, passed to a virtual machine as a whole
        (NVIDIA, [gpu(0, type="gpu"), {"type": "vfio", "uuid": "5b1c", PCI: "0000:c0:00.0"},
                  gpu(1, type="gpu")], {"gpu-0", "gpu-1"}),
        # devices of one type are not the same, whatever a simulated driver publishes
        (NVIDIA, [{"type": "gpu", PCI: "0000:00:00.0"}, {"type": "gpu", PCI: "0000:00:00.0"}],
         {"gpu-0"}),
        (NVIDIA, [{"type": "gpu", "index": 0}, {"type": "vfio", "index": 0}], {"gpu-0"}),
    ],
)  # fmt: skip
def test_attributes_say_what_is_part_of_what(
    fleet: Fleet, driver: str, devices: list[dict[str, Any]], bad: set[str]
) -> None:
    raw = slice_(*devices, driver=driver)
    raw["spec"]["devices"][0]["taints"] = [{"key": "example.com/ill", "effect": "NoSchedule"}]
    fleet.put(kinds.NODE, {"metadata": {"name": "n"}})
    fleet.put(kinds.SLICE, raw)
    assert bad_ones(fleet.look()) == bad


def test_a_part_is_found_in_another_slice_of_the_pool(fleet: Fleet) -> None:
    first, second = slice_(gpu(0, type="gpu"), count=2), slice_(mig(1, 0), count=2)
    second["metadata"]["name"] = "n-more"
    second["spec"]["devices"][0]["name"] = "mig"
    fleet.put(kinds.NODE, {"metadata": {"name": "n"}})
    fleet.put(kinds.SLICE, second)
    fleet.put(kinds.SLICE, first)
    fleet.put(kinds.TAINT_RULE, rule("example.com/broken"))
    assert bad_ones(fleet.look()) == {"gpu-0", "mig"}


def test_what_is_said_of_a_gpu_is_forgotten_of_its_parts_when_it_is_gone(mig_fleet: Fleet) -> None:
    mig_fleet.put(kinds.SLICE, tainted(0, "gpu.nvidia.com/xid", "79"))
    mig_fleet.look()
    left = slice_(*MIG_NODE)
    del left["spec"]["devices"][0]
    mig_fleet.put(kinds.SLICE, left)
    assert healths(mig_fleet.look())["gpu-2"] is SOUND
    assert scores(mig_fleet.view)[0] == 1.0
