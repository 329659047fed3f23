"""Where evidence about named GPUs counts: on their devices, on the node, or nowhere."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds, resource
from fettle.cluster.inventory.units import place_units
from fettle.cluster.view import View
from fettle.dra import PublishedDevice
from fettle.dra.pools import read_slice
from fettle.model import State, UnitId
from tests.fettle.cluster.inventory.fleets import Fleet
from tests.fettle.cluster.inventory.saying import speaking

NVIDIA, AMD = "gpu.nvidia.com", "gpu.amd.com"
PCI = "resource.kubernetes.io/pciBusID"
FULL = "GPU:0 PCI:0000:c0:00.0 GPU_UUID:GPU-u0"
UUID = "GPU-b5f21324-f1f9-f1a4-1a37-1166234f6e4f"


def node(named: str = "", labels: Any = None, gpus: int = 0) -> dict[str, Any]:
    """A node of which NVSentinel says that a GPU's memory is bad, and maybe a device plugin."""
    message = f"ErrorCode:DCGM_FR_X {named} bad Recommended Action=COMPONENT_RESET;"
    bad = {"type": "GpuMemWatch", "status": "True", "reason": "x", "message": message}
    capacity = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "metadata": {"name": "n", "labels": labels},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [bad] if named else [],
        },
    }


def slice_(
    *devices: dict[str, Any], driver: str = NVIDIA, count: int = 1, generation: int = 1
) -> dict[str, Any]:
    """Devices of the node named gpu-0, gpu-1, … with these attributes."""
    pool = {"name": "n", "generation": generation, "resourceSliceCount": count}
    return {
        "metadata": {"name": f"n-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": "n",
            "pool": pool,
            "devices": [
                {
                    "name": f"gpu-{number}",
                    "attributes": {
                        name: {"int" if isinstance(value, int) else "string": value}
                        for name, value in attributes.items()
                    },
                }
                for number, attributes in enumerate(devices)
            ],
        },
    }


def gpu(number: int, **more: Any) -> dict[str, Any]:
    return {"uuid": f"GPU-u{number}", PCI: f"0000:c{number}:00.0", **more}


def mig(number: int, parent: int) -> dict[str, Any]:
    return {"type": "mig", "uuid": f"MIG-{number}", "parentUUID": f"GPU-u{parent}"}


def scores(view: View) -> tuple[float, dict[str, float]]:
    """The node's own, and each of its DRA devices'."""
    seen = view.nodes["n"]
    return seen.health.score, {
        d.id.device: d.health.score for pool in seen.pools for d in pool.devices
    }


def bad_ones(view: View) -> set[str]:
    """Node and devices with more than a trace of it."""
    own, by_device = scores(view)
    return {name for name, score in {"n": own, **by_device}.items() if score < 0.5}


@pytest.mark.parametrize(
    ("named", "devices", "bad"),
    [
        ("GPU_UUID:GPU-u0", [gpu(0), gpu(1)], {"gpu-0"}),
        (FULL, [gpu(1), gpu(0)], {"gpu-1"}),
        ("PCI:0000:C0:00", [gpu(0), gpu(1)], {"gpu-0"}),
        ("PCI:0000:c0:00.0", [{"pcieBusID": "00000000:C0:00.0"}, gpu(1)], {"gpu-0"}),
        ("GPU:1", [gpu(0, index=0), gpu(1, index=1)], {"gpu-1"}),
        # the address where the UUID is not known, the index where the address is not either
        (FULL, [{"uuid": "GPU-other", PCI: "0000:c0:00.0"}, gpu(1)], {"gpu-0"}),
        (FULL, [{"uuid": "GPU-other", "index": 0}, gpu(1, index=1)], {"gpu-0"}),
        # the best name counts, where another contradicts it
        (FULL, [gpu(0, index=1), gpu(1, index=0)], {"gpu-0"}),
        # parts of a GPU
        (FULL, [mig(1, 0), mig(2, 0), mig(3, 1)], {"gpu-0", "gpu-1"}),
        (FULL, [gpu(0), mig(1, 0), gpu(1), mig(3, 1)], {"gpu-0", "gpu-1"}),
        (FULL, [{"type": "mig", PCI: "0000:c0:00.0"}, gpu(1)], {"gpu-0"}),
        ("GPU:0", [gpu(0, index=0), mig(1, 0), mig(3, 1)], {"gpu-0", "gpu-1"}),
        ("GPU:0", [{"type": "mig", "parentIndex": 0, "index": 1}, gpu(1)], {"gpu-0"}),
        ("GPU_UUID:MIG-1", [gpu(0), mig(1, 0), mig(2, 0)], {"gpu-1"}),
        # a UUID in other case, of either side
        (f"GPU_UUID:{UUID.upper()}", [{"uuid": UUID}, gpu(1)], {"gpu-0"}),
        (f"GPU:{UUID.lower()}", [{"uuid": UUID}, gpu(1)], {"gpu-0"}),
        (f"GPU_UUID:{UUID}", [{"uuid": UUID.upper()}, gpu(1)], {"gpu-0"}),
        # several
        ("GPU:0 GPU_UUID:GPU-u0 GPU:1 GPU_UUID:GPU-u1", [gpu(0), gpu(1)], {"gpu-0", "gpu-1"}),
    ],
)
def test_every_name_of_a_gpu_is_tried_the_best_first(
    fleet: Fleet, named: str, devices: list[dict[str, Any]], bad: set[str]
) -> None:
    fleet.put(kinds.NODE, node(named))
    fleet.put(kinds.SLICE, slice_(*devices))
    own, by_device = scores(fleet.look())
    assert own == 1.0
    assert {name for name, score in by_device.items() if score < 1.0} == bad
    assert {by_device[name] for name in bad} == {0.25}  # once, though named three times


@pytest.mark.parametrize(
    ("named", "devices"),
    [
        ("GPU:0", [gpu(0), gpu(1)]),  # as gpu.nvidia.com publishes them today
        ("GPU:1", [{"type": "mig", "index": 1, "parentIndex": 0}]),
        (FULL, [{"uuid": "GPU-other"}]),
        (FULL, []),
    ],
)
def test_a_gpu_that_nothing_on_the_node_is_counts_against_all_of_it(
    fleet: Fleet, named: str, devices: list[dict[str, Any]]
) -> None:
    fleet.put(kinds.NODE, node(named))
    fleet.put(kinds.SLICE, slice_(*devices))
    own, by_device = scores(fleet.look())
    assert own == 0.25
    assert set(by_device.values()) <= {0.25}
    seen = fleet.view.nodes["n"]
    for health in (seen.health, *(d.health for pool in seen.pools for d in pool.devices)):
        (said,) = health.evidence
        assert "which is not a known device: GpuMemWatch DCGM_FR_X: bad" in said.evidence.text
        assert said.evidence.text.startswith("nvidia.com/gpu ")


def test_an_index_that_two_uuids_claim_is_taken_for_neither() -> None:
    """A third finding names it alone: by what the driver publishes, it is of the first."""
    claims = [UnitId("n", "nvidia.com/gpu", f"GPU-u{i}", ("index:0",)) for i in (0, 1)]
    third = UnitId("n", "nvidia.com/gpu", "index:0")
    placed = place_units("n", [*claims, third], [claims], {"nvidia.com/gpu"}, ())
    assert sorted(placed.gpus) == sorted([(claims[0],), (claims[1],), (third,)])
    fleet = [published("a", uuid="GPU-u0", index=0), published("b", uuid="GPU-u1", index=1)]
    placed = place_units("n", [*claims, third], [claims], {"nvidia.com/gpu"}, fleet)
    first = next(gpu for id_, gpu in placed.by_device.items() if id_.device == "a")
    assert third in first
    assert claims[1] not in first


def test_an_index_is_that_of_its_vendors_driver_only(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU:0"))
    fleet.put(kinds.SLICE, slice_({"index": 0}, driver="dra.net"))
    assert scores(fleet.look())[0] == 0.25
    fleet.put(kinds.SLICE, slice_({"index": 1}, {"index": 0}))
    assert scores(fleet.look())[0] == 1.0


def test_a_bad_amd_gpu_counts_though_its_driver_publishes_no_index(fleet: Fleet) -> None:
    labels = {"metricsexporter.amd.com.gpu.0.state": "unhealthy"}
    fleet.put(kinds.NODE, node(labels=labels))
    fleet.put(kinds.SLICE, slice_({PCI: "0000:c0:00.0"}, driver=AMD))
    own, by_device = scores(fleet.look())
    assert (own, by_device) == (0.25, {"gpu-0": 0.25})
    (said,) = fleet.view.nodes["n"].health.evidence
    assert "amd.com/gpu index:0" in said.evidence.text


def test_evidence_follows_its_device_as_that_comes_and_goes(fleet: Fleet) -> None:
    """And leaves no state behind, though the fault is younger than any state's least stay."""
    fleet.put(kinds.NODE, node("GPU:0"))
    fleet.put(kinds.SLICE, slice_({"index": 1}))
    assert scores(fleet.look()) == (0.25, {"gpu-0": 0.25})
    fleet.put(kinds.SLICE, slice_({"index": 1}, {"index": 0}))
    assert scores(fleet.look()) == (1.0, {"gpu-0": 1.0, "gpu-1": 0.25})
    seen = fleet.view.nodes["n"]
    assert seen.health.state is State.HEALTHY
    assert seen.pools[0].devices[0].health.state is State.HEALTHY
    fleet.put(kinds.SLICE, slice_({"index": 1}))
    assert scores(fleet.look()) == (0.25, {"gpu-0": 0.25})
    fleet.inventory.remove(kinds.SLICE, f"n-{NVIDIA}", fleet.now)
    assert scores(fleet.look()) == (0.25, {})


def test_a_pool_that_is_not_complete_yet_does_not_make_its_devices_unknown(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node(FULL))
    fleet.put(kinds.SLICE, slice_(gpu(0), count=2))
    assert scores(fleet.look()) == (1.0, {})


def test_a_fault_that_is_over_leaves_the_node(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU:0"))
    fleet.put(kinds.SLICE, slice_(gpu(0)))
    fleet.look()
    fleet.put(kinds.NODE, {"metadata": {"name": "n"}, "status": {"conditions": [healthy()]}})
    own, _ = scores(fleet.look())
    assert own > 0.8
    assert fleet.view.nodes["n"].health.state is State.HEALTHY
    fleet.now += 60 * 24 * 3600
    assert scores(fleet.look()) == (1.0, {"gpu-0": 1.0})


def healthy() -> dict[str, Any]:
    return {"type": "GpuMemWatch", "status": "False", "message": "No Health Failures"}


@pytest.mark.parametrize("named", [FULL, "GPU:0", "PCI:0000:c0:00.0"])
def test_where_a_device_plugin_has_the_gpus_it_is_one_of_its_units(
    fleet: Fleet, named: str
) -> None:
    fleet.put(kinds.NODE, node(named, gpus=8))
    seen = fleet.look().nodes["n"]
    (unit,) = seen.plugins["nvidia.com/gpu"].units
    assert (unit.health.score, seen.health.score) == (0.25, 1.0)


def test_one_gpu_that_two_objects_name_is_one_unit(fleet: Fleet) -> None:
    """The kubelet knows its UUID only, the monitor more; what they say of it adds up as it would
    for one name."""
    said = {
        "name": "nvidia.com/gpu",
        "resources": [{"resourceID": "GPU-u0", "health": "Unhealthy"}],
    }
    fleet.put(kinds.NODE, node(FULL, gpus=8))
    fleet.put(
        kinds.POD,
        {
            "metadata": {"name": "p", "namespace": "d", "uid": "p"},
            "spec": {
                "nodeName": "n",
                "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            },
            "status": {
                "phase": "Running",
                "containerStatuses": [{"allocatedResourcesStatus": [said]}],
            },
        },
    )
    (unit,) = fleet.look().nodes["n"].plugins["nvidia.com/gpu"].units
    assert (unit.unit, unit.allocated) == ("GPU-u0", True)
    assert unit.health.score == pytest.approx(0.25 * 0.25)
    assert len(unit.health.evidence) == 2
    fleet.put(kinds.SLICE, slice_(gpu(0), gpu(1)))
    own, by_device = scores(fleet.look())
    assert own == 1.0
    assert by_device == {"gpu-0": pytest.approx(0.25 * 0.25), "gpu-1": 1.0}


HAMI = "hami.io/node-nvidia-register"
IN_JSON = [{"id": "GPU-u1"}, {"id": "GPU-u0", "index": 1, "health": True}]
IN_TEXT = "GPU-u1,10,98304,100,NVIDIA-H20,0,true,0,mig:GPU-u0,10,98304,100,NVIDIA-H20,0,true,1,mig:"


@pytest.mark.parametrize(
    ("register", "units"),
    [
        (json.dumps(IN_JSON), {"GPU-u0"}),
        (IN_TEXT, {"GPU-u0"}),
        # which is which is not clear
        (json.dumps([{"id": "GPU-u0"}, {"id": "GPU-u1"}]), {"GPU-u0", "index:1"}),
        ("GPU-u1,10,98304,100,NVIDIA-H20,0,true:GPU-u0,10", {"GPU-u0", "index:1"}),
        ("[{", {"GPU-u0", "index:1"}),
        ('[7, {"id": 7}, {"id": "GPU-u0", "index": "1"}]', {"GPU-u0", "index:1"}),
        ("", {"GPU-u0", "index:1"}),
    ],
)
def test_hamis_register_tells_which_index_a_uuid_has(
    fleet: Fleet, register: str, units: set[str]
) -> None:
    said = node("GPU:1", gpus=8)
    said["metadata"]["annotations"] = {HAMI: register}
    fleet.put(kinds.NODE, said)
    fleet.put(kinds.POD, speaking("p", "n", "nvidia.com/gpu", "GPU-u0"))
    found = fleet.look().nodes["n"].plugins["nvidia.com/gpu"].units
    assert {unit.unit for unit in found} == units
    assert len({unit.health.score for unit in found}) == 1  # 0.25, or both together
    assert found[0].health.score == pytest.approx(0.25 if len(units) > 1 else 0.25 * 0.25)


def test_a_driver_that_publishes_index_and_uuid_joins_units_of_a_device_plugin(
    fleet: Fleet,
) -> None:
    fleet.put(kinds.SLICE, slice_(gpu(0, index=0), gpu(1, index=1)))
    fleet.put(kinds.NODE, node("GPU:1", gpus=8))
    fleet.put(kinds.POD, speaking("p", "n", "nvidia.com/gpu", "GPU-u1"))
    (unit,) = fleet.look().nodes["n"].plugins["nvidia.com/gpu"].units
    assert unit.unit == "GPU-u1"
    assert unit.health.score == pytest.approx(0.25 * 0.25)


def test_a_unit_is_found_by_the_other_names_that_its_node_gives_it(fleet: Fleet) -> None:
    """The kubelet knows only its UUID, the driver only its address, the monitor both."""
    fleet.put(kinds.SLICE, slice_({PCI: "0000:c0:00.0"}, {PCI: "0000:c1:00.0"}))
    fleet.put(kinds.NODE, node("PCI:0000:c0:00.0 GPU_UUID:GPU-u0"))
    fleet.put(kinds.POD, speaking("p", "n", "nvidia.com/gpu", "GPU-u0"))
    assert scores(fleet.look()) == (1.0, {"gpu-0": pytest.approx(0.25 * 0.25), "gpu-1": 1.0})


@pytest.mark.parametrize("looking", [True, False])
@pytest.mark.parametrize(
    ("earlier", "now", "bad"),
    [
        # the address still tells, the index alone does not
        (FULL, "GPU:0 PCI:0000:c0:00.0", {"gpu-0"}),
        (FULL, "GPU:0", {"n", "gpu-0", "gpu-1"}),
        ("PCI:0000:c9:00.0 GPU_UUID:GPU-u0", "PCI:0000:c9:00.0", set()),
    ],
)
def test_names_that_a_node_gave_a_gpu_earlier_are_forgotten_as_by_a_restart(
    fleet: Fleet, looking: bool, earlier: str, now: str, bad: set[str]
) -> None:
    """An index, or an address, may be another GPU's by now."""
    fleet.put(kinds.SLICE, slice_(gpu(0), gpu(1)))
    fleet.put(kinds.NODE, node(earlier))
    if looking:
        assert scores(fleet.look()) == (1.0, {"gpu-0": 0.25, "gpu-1": 1.0})
    fleet.put(kinds.NODE, node(now))
    assert bad_ones(fleet.look()) == bad
    restarted = Fleet()
    restarted.put(kinds.SLICE, slice_(gpu(0), gpu(1)))
    restarted.put(kinds.NODE, node(now))
    assert bad_ones(restarted.look()) == bad


def test_a_gpu_that_a_node_names_afresh_is_not_what_bore_its_address_before(fleet: Fleet) -> None:
    """Of the one that was taken out, no more than a trace is left, and on nothing that is there."""
    fleet.put(kinds.NODE, node("PCI:0000:c0:00.0 GPU_UUID:GPU-old", gpus=8))
    fleet.look()
    fleet.put(kinds.NODE, node("PCI:0000:c0:00.0 GPU_UUID:GPU-new", gpus=8))
    units = {u.unit: u.health for u in fleet.look().nodes["n"].plugins["nvidia.com/gpu"].units}
    assert units["GPU-new"].score == 0.25
    assert [w.evidence.subject for w in units["GPU-new"].evidence] == [
        UnitId("n", "nvidia.com/gpu", "GPU-new", ("pci:0000:c0:00.0",))
    ]


def test_a_device_plugin_that_has_left_no_units_takes_no_evidence(fleet: Fleet) -> None:
    """The kubelet keeps a capacity of 0 for a resource whose plugin is gone."""
    gone = node("GPU:0")
    gone["status"]["capacity"] = gone["status"]["allocatable"] = {"nvidia.com/gpu": "0"}
    fleet.put(kinds.NODE, gone)
    fleet.put(kinds.SLICE, slice_(gpu(0)))
    assert scores(fleet.look()) == (0.25, {"gpu-0": 0.25})


def apart(units: list[UnitId]) -> set[UnitId]:
    """Those that share no name with one before them."""
    kept: list[UnitId] = []
    for unit in units:
        if not any({*unit.names} & {*other.names} for other in kept):
            kept.append(unit)
    return {*kept}


NAMES = st.sampled_from(["GPU-a", "GPU-b", "pci:0000:c0:00.0", "pci:0000:c1:00.0", "index:0"])
UNITS = st.builds(
    lambda names: UnitId("n", "nvidia.com/gpu", names[0], tuple(names[1:])),
    st.lists(NAMES, min_size=1, unique_by=lambda name: name[:3]),
)
"""A unit has one UUID, one address and one index."""
NAMED = st.lists(UNITS).map(apart)
"""What one source says: no two units have a name in common."""


@given(st.sets(UNITS), st.sets(UNITS), NAMED, st.booleans())
def test_a_unit_that_is_no_longer_named_leaves_other_units_unchanged(
    units: set[UnitId], gone: set[UnitId], named: set[UnitId], plugin: bool
) -> None:
    resources = {"nvidia.com/gpu"} if plugin else set()
    fleet = [published("a", uuid="GPU-a"), published("b", **{PCI: "0000:c0:00.0"}, index=0)]

    def placed(about: set[UnitId]) -> tuple[object, ...]:
        """Of `units`, where each counts, and with which it is one."""
        found = place_units("n", about, (named,), resources, fleet)
        gpus = [frozenset(units.intersection(gpu)) for gpu in found.gpus]
        devices = {id_: units.intersection(gpu) for id_, gpu in found.by_device.items()}
        return (
            {gpu for gpu in gpus if gpu},
            {id_: gpu for id_, gpu in devices.items() if gpu},
            units.intersection(found.unplaced),
        )

    assert placed(units | gone) == placed(units)


def published(name: str, **attributes: Any) -> PublishedDevice:
    raw = slice_(attributes)
    raw["spec"]["devices"][0]["name"] = name
    decoded = kinds.SLICE.decode(msgspec.json.encode(raw))
    assert isinstance(decoded, resource.ResourceSlice)
    (device,) = read_slice(decoded).devices
    return device


@given(st.sets(UNITS), st.sets(UNITS), st.booleans())
def test_no_unit_is_lost_and_none_is_two_gpus(
    units: set[UnitId], named: set[UnitId], plugin: bool
) -> None:
    resources = {"nvidia.com/gpu"} if plugin else set()
    placed = place_units("n", units, (named,), resources, ())
    assert sorted(u for gpu in placed.gpus for u in gpu) == sorted(units)
    counted = [u for gpu in placed.by_resource.get("nvidia.com/gpu", ()) for u in gpu]
    assert sorted([*counted, *placed.unplaced]) == sorted(units)


def test_many_devices_of_one_resource_hide_none_of_another() -> None:
    many = [UnitId("n", "smarter-devices/fuse", f"fuse_{i}") for i in range(2000)]
    gpu = UnitId("n", "nvidia.com/gpu", "GPU-1")
    placed = place_units("n", [*many, gpu], (), {"nvidia.com/gpu", "smarter-devices/fuse"}, ())
    assert placed.by_resource["nvidia.com/gpu"] == ((gpu,),)
    assert len(placed.by_resource["smarter-devices/fuse"]) == 128
    assert placed.left_out == 2000 - 128
