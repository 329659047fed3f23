"""Nodes and devices that go and come back, and what others say of them meanwhile."""

from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from fettle.health.book import SWEEP_EVERY_S
from fettle.model import Health, State
from fettle.view import NodeView, View
from fettle.wire import kinds
from fettle.wire.kinds import Kind
from tests.fettle import building as b
from tests.fettle.inventory.fleets import Fleet, claim, node, slice_

Raw = dict[str, Any]


def unit_said_ill(name: str = "unit", on: str = "n") -> Raw:
    """A running pod, of which the kubelet says that its unit is ill."""
    return speaking(name, on, b.RESOURCE, "GPU-1")


def device_said_ill(name: str = "device", on: str = "n") -> Raw:
    """A running pod, of which the kubelet says that its DRA device is ill."""
    return speaking(name, on, "claim:c/r", f"{b.DRIVER}/{on}/gpu-0")


def speaking(name: str, on: str, said_as: str, id_: str) -> Raw:
    said = [{"name": said_as, "resources": [{"resourceID": id_, "health": "Unhealthy"}]}]
    pod = b.gpu_pod(name=name)
    pod["spec"]["nodeName"] = on
    pod["status"] = {"phase": "Running", "containerStatuses": [{"allocatedResourcesStatus": said}]}
    return pod


def refused(name: str = "refused", on: str = "n") -> Raw:
    """A pod that the kubelet refused, for a reason that only the node can bring about."""
    pod = b.gpu_pod(name=name)
    pod["spec"]["nodeName"] = on
    pod["status"] = {
        "phase": "Failed",
        "reason": "UnexpectedAdmissionError",
        "message": "Pod was rejected: Allocate failed due to GPU is lost, which is unexpected",
        "startTime": "1970-01-12T13:46:40Z",
    }
    return pod


def condition_of_claim(name: str = "c", on: str = "n") -> Raw:
    """A claim whose driver says that its device does not get ready."""
    device = {"driver": b.DRIVER, "pool": on, "device": "gpu-1"}
    condition = {
        "type": "Ready",
        "status": "False",
        "lastTransitionTime": "1970-01-12T13:46:40Z",
    }
    status = {
        "allocation": {"devices": {"results": [{"request": "r", **device}]}},
        "devices": [{**device, "conditions": [condition]}],
    }
    return {"metadata": {"name": name, "namespace": "d"}, "spec": {}, "status": status}


def rule(name: str = "rule") -> Raw:
    """A monitor's taint, whose key is known as a fault, on every `gpu-1`."""
    taint = {
        "key": "gaudi.intel.com/unhealthy",
        "value": "CriticalError",
        "effect": "NoExecute",
        "timeAdded": "1970-01-12T13:46:40Z",
    }
    selector = {"device": "gpu-1"}
    return {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}}


def ill(name: str = "n") -> Raw:
    """A node that says itself that all is not well with it."""
    restarts = {
        "type": "FrequentKubeletRestart",
        "status": "True",
        "lastTransitionTime": "1970-01-12T13:46:40Z",
    }
    said: Raw = node(name, status={"conditions": [restarts]})
    return said


def units(view: View, name: str = "n") -> dict[str, Health]:
    return {u.unit: u.health for u in view.nodes[name].plugins[b.RESOURCE].units}


def replaced(fleet: Fleet, raw: Raw, *, looking: bool = True) -> View:
    """The node is deleted, and one of the same name registers."""
    fleet.inventory.remove(kinds.NODE, raw["metadata"]["name"], fleet.now)
    if looking:
        fleet.look()
    fleet.put(kinds.NODE, raw)
    return fleet.look()


def test_what_a_pod_still_says_of_a_unit_is_there_again_with_its_node(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.POD, unit_said_ill())
    before = units(fleet.look())
    assert before["GPU-1"].state is State.UNHEALTHY
    assert units(replaced(fleet, node())) == before


def test_refusals_of_pods_that_are_still_there_count_again_with_their_node(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    for i in range(3):
        fleet.put(kinds.POD, refused(f"p{i}"))
    before = fleet.look().nodes["n"].health
    assert before.score == 0.05
    assert replaced(fleet, node()).nodes["n"].health == before
    fleet.inventory.remove(kinds.POD, "default/p0", fleet.now)
    fleet.look()
    again = replaced(fleet, node()).nodes["n"].health
    assert again.score == 0.2  # those of pods that are gone went with the node


def test_what_a_node_said_of_itself_is_gone_with_it(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, ill())
    assert fleet.look().nodes["n"].health.state is State.DEGRADED
    assert replaced(fleet, node()).nodes["n"].health.score == 1.0


def test_what_it_held_its_devices_in_is_gone_with_it(fleet: Fleet) -> None:
    """Its slices outlive the Node object for a moment, and are judged afresh."""
    fleet.put(kinds.NODE, ill())
    fleet.put(kinds.SLICE, slice_())
    (device, _) = fleet.look().nodes["n"].pools[0].devices
    assert device.health.state is State.DEGRADED
    (device, _) = replaced(fleet, node()).nodes["n"].pools[0].devices
    assert (device.health.state, device.health.score) == (State.HEALTHY, 1.0)


def test_a_node_that_is_another_under_the_same_name_was_deleted_in_between(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, {**ill(), "metadata": {"name": "n", "uid": "one"}})
    fleet.put(kinds.POD, unit_said_ill())
    fleet.look()
    fleet.put(kinds.NODE, {**node(), "metadata": {"name": "n", "uid": "two"}})
    view = fleet.look()
    assert view.nodes["n"].health.score == 1.0
    assert units(view)["GPU-1"].state is State.UNHEALTHY


def test_a_pod_that_ends_while_its_node_is_gone_haunts_no_other(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    for raw in (unit_said_ill(), refused()):
        fleet.put(kinds.POD, raw)
    fleet.look()
    fleet.inventory.remove(kinds.NODE, "n", fleet.now)
    fleet.look()
    for name in ("unit", "refused"):
        fleet.inventory.remove(kinds.POD, f"default/{name}", fleet.now)
    fleet.put(kinds.NODE, node())
    view = fleet.look()
    assert view.nodes["n"].health.score == 1.0
    assert units(view) == {}


def test_a_slice_published_again_shows_what_others_say_of_its_devices(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, slice_())
    fleet.put(kinds.POD, device_said_ill())
    fleet.put(kinds.CLAIM, condition_of_claim())
    fleet.put(kinds.TAINT_RULE, rule())
    before = fleet.look().nodes["n"]
    assert [d.health.state for d in before.pools[0].devices] == [State.UNHEALTHY] * 2
    fleet.inventory.remove(kinds.SLICE, "n-slice", fleet.now)
    assert fleet.look().nodes["n"].pools == ()
    fleet.put(kinds.SLICE, slice_())
    assert healths(fleet.look().nodes["n"]) == healths(before)


def test_a_device_left_out_by_one_generation_and_back_in_the_next_is_as_others_say(
    fleet: Fleet,
) -> None:
    fleet.put(kinds.NODE, node())
    fleet.put(kinds.SLICE, slice_())
    fleet.put(kinds.CLAIM, condition_of_claim())
    before = fleet.look().nodes["n"]
    fleet.put(kinds.SLICE, slice_(devices=1, generation=2))
    assert len(fleet.look().nodes["n"].pools[0].devices) == 1
    fleet.put(kinds.SLICE, slice_(generation=3))
    assert healths(fleet.look().nodes["n"]) == healths(before)


def healths(record: NodeView) -> dict[str, object]:
    """What is known of a node and all that is on it; when a state began is a matter of order."""
    found = {"node": record.health}
    for plugin in record.plugins.values():
        found |= {unit.unit: unit.health for unit in plugin.units}
    for pool in record.pools:
        found |= {str(device.id): device.health for device in pool.devices}
    return {
        name: (
            health.score,
            health.state,
            health.held,
            frozenset(msgspec.json.encode(w) for w in health.evidence),
        )
        for name, health in found.items()
    }


OBJECTS: dict[str, tuple[Kind, Raw]] = {
    "node": (kinds.NODE, ill()),
    "slice": (kinds.SLICE, slice_()),
    "rule": (kinds.TAINT_RULE, rule()),
    "claim": (kinds.CLAIM, condition_of_claim()),
    "unit": (kinds.POD, unit_said_ill()),
    "device": (kinds.POD, device_said_ill()),
    "refused": (kinds.POD, refused()),
    "refused too": (kinds.POD, refused("too")),
}
COMING_AND_GOING = ("node", "slice")
"""What may be deleted at any time; of the others, deletion is told by what fades."""

steps = st.lists(
    st.sampled_from([*OBJECTS, *(f"gone {name}" for name in COMING_AND_GOING), "look"]),
    max_size=30,
)


@given(steps)
@example(["node", "unit", "refused", "look", "gone node", "look", "node", "look"])
@example(["slice", "rule", "device", "claim", "look", "gone slice", "look", "slice", "look"])
@example(["node", "slice", "look", "gone node", "look", "node", "look"])
def test_whatever_came_and_went_what_stands_is_as_if_read_in_one_go(steps: list[str]) -> None:
    lived, there = Fleet(), set()
    for step in steps:
        if step == "look":
            lived.look()
        elif step.startswith("gone "):
            name = step.removeprefix("gone ")
            kind, raw = OBJECTS[name]
            lived.inventory.remove(kind, raw["metadata"]["name"], lived.now)
            there.discard(name)
        else:
            lived.put(*OBJECTS[step])
            there.add(step)
    started = Fleet()
    for name, (kind, raw) in OBJECTS.items():
        if name in there:
            started.put(kind, raw)
    expected = {name: healths(record) for name, record in started.look().nodes.items()}
    assert {name: healths(record) for name, record in lived.look().nodes.items()} == expected


GPU, PLUGIN_S, LONG_S = "nvidia.com/gpu", {"nvidia.com/gpu": "8"}, 60 * 86_400.0


def naming(*gpus: str, plugin: bool = False, name: str = "n") -> Raw:
    """A node of which a monitor says that these GPUs' memory is bad."""
    said = [f"ErrorCode:DCGM_FR_X {gpu} bad Recommended Action=COMPONENT_RESET;" for gpu in gpus]
    bad = {
        "type": "GpuMemWatch",
        "status": "True" if gpus else "False",
        "message": "".join(said) or "No Health Failures",
    }
    made: Raw = node(name, status={"conditions": [bad]} if gpus or plugin else {})
    for field in ("capacity", "allocatable"):
        made["status"][field] = PLUGIN_S if plugin else {}
    return made


def publishing(name: str, generation: int, *, pool: str = "n", of: int = 1, **more: Any) -> Raw:
    """A slice of this node with one GPU, by its UUID or its address."""
    attributes = {"uuid": {"string": f"GPU-{of}"}}
    if of == 1:
        attributes = {"resource.kubernetes.io/pciBusID": {"string": "0000:c1:00.0"}}
    made: Raw = slice_(devices=1, generation=generation, attributes=attributes, **more)
    made["metadata"] = {"name": name}
    made["spec"]["pool"]["name"] = pool
    made["spec"]["driver"] = "gpu.nvidia.com"
    made["spec"]["devices"][0]["name"] = f"gpu-{of}"
    return made


def held(raw: Raw) -> Raw:
    metadata = {**raw["metadata"], "annotations": {"fettle.dev/hold": "why"}}
    return {**raw, "metadata": metadata}


def having(raw: Raw, health: str | None, phase: str = "Running") -> Raw:
    """A pod that says another health, or nothing of its device any more."""
    (container,) = raw["status"]["containerStatuses"]
    (said,) = container["allocatedResourcesStatus"]
    (resource,) = said["resources"]
    resources = [{**resource, "health": health}]
    statuses = [{"allocatedResourcesStatus": [{**said, "resources": resources}]}]
    return {
        **raw,
        "status": {"phase": phase, "containerStatuses": statuses if health else None},
    }


def lives(pod: Raw) -> tuple[Raw, ...]:
    """What the status of one pod may come to, in any order."""
    alive = tuple(having(pod, health) for health in ("Unhealthy", "Healthy", "Unknown", None))
    return (
        *alive,
        having(pod, "Unhealthy", "Failed"),
        having(pod, "Healthy", "Succeeded"),
        having(pod, None, "Succeeded"),
        {**pod, "spec": {"containers": []}, "status": {"phase": "Running"}},
    )


def claim_on(device: str | None, pool: str) -> Raw:
    made: Raw = claim("c", device, pool)
    made["metadata"]["namespace"] = "default"
    for result in made["status"].get("allocation", {}).get("devices", {}).get("results", ()):
        result["driver"] = "gpu.nvidia.com"
    return made


TAINT = {"key": "gpu.nvidia.com/xid", "value": "13", "effect": "None"}
GPU_1, GPU_2 = "PCI:0000:c1:00.0 GPU_UUID:GPU-1", "PCI:0000:c2:00.0 GPU_UUID:GPU-2"

OF_CLAIM = speaking("of-claim", "n", "claim:g/r", "k8s.gpu.nvidia.com/claim=of-a-cdi-device")
OF_CLAIM["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "c"}]

VERSIONS: dict[str, tuple[Kind, str, tuple[Raw, ...]]] = {
    "node": (
        kinds.NODE,
        "n",
        (
            node(),
            ill(),
            naming(),
            naming(plugin=True),
            *(
                naming(*gpus, plugin=plugin)
                for plugin in (False, True)
                for gpus in (
                    (f"GPU:1 {GPU_1}",),
                    (GPU_1, GPU_2),
                    ("GPU:1 PCI:0000:c1:00.0",),
                    ("GPU:1", "GPU:2"),
                    ("GPU_UUID:GPU-2", "GPU:1 PCI:0000:c2:00.0"),
                    ("PCI:0000:c1:00.0 GPU_UUID:GPU-other",),
                )
            ),
        ),
    ),
    "first": (
        kinds.SLICE,
        "first",
        (
            publishing("first", 1),
            held(publishing("first", 1)),
            publishing("first", 1, taints=[TAINT]),
            publishing("first", 2, pool="other", taints=[TAINT]),
        ),
    ),
    "second": (
        kinds.SLICE,
        "second",
        (
            publishing("second", 1, of=2),
            publishing("second", 2, of=2),
            held(publishing("second", 2, pool="other", of=2)),
            publishing("second", 1, pool="other", of=2),
        ),
    ),
    "rule": (kinds.TAINT_RULE, "rule", (rule(),)),
    "one": (kinds.POD, "default/one", lives(speaking("one", "n", GPU, "GPU-1"))),
    "two": (kinds.POD, "default/two", lives(speaking("two", "n", GPU, "GPU-1"))),
    "device": (
        kinds.POD,
        "default/device",
        lives(speaking("device", "n", "claim:c/r", "gpu.nvidia.com/n/gpu-1")),
    ),
    "claim": (
        kinds.CLAIM,
        "default/c",
        tuple(
            claim_on(device, pool)
            for device, pool in ((None, "n"), ("gpu-1", "n"), ("gpu-2", "other"))
        ),
    ),
    "of claim": (kinds.POD, "default/of-claim", lives(OF_CLAIM)),
}
"""By name: the kind and key of an object, and what it may be like."""

changes = st.lists(
    st.one_of(
        st.just(("look", None)),
        *(
            st.tuples(st.just(name), st.none() | st.sampled_from(range(len(versions))))
            for name, (_, _, versions) in VERSIONS.items()
        ),
    ),
    max_size=25,
)
"""Objects become another version, or are deleted (None)."""


@given(changes)
@example([("node", 3), ("one", 0), ("look", None), ("one", 3)])
@example([("node", 3), ("one", 0), ("look", None), ("one", 6), ("two", 1)])
@example([("node", 3), ("one", 0), ("look", None), ("one", 7)])
@example([("node", 0), ("first", 1), ("second", 1), ("look", None), ("second", 2)])
@example([("node", 4), ("first", 0), ("look", None), ("node", 7)])
@example([("node", 5), ("look", None), ("node", 8)])
@example([("node", 0), ("rule", 0), ("look", None), ("first", 0)])
@example([("node", 0), ("first", 0), ("of claim", 0), ("look", None), ("claim", 1)])
@example([("node", 0), ("first", 0), ("claim", 1), ("of claim", 0), ("claim", 0)])
def test_once_what_fades_has_faded_all_is_as_if_read_in_one_go(
    steps: list[tuple[str, int | None]],
) -> None:
    lived, latest = Fleet(), dict[str, int]()
    for name, version in steps:
        if name == "look":
            lived.look()
        elif version is None:
            kind, key, _ = VERSIONS[name]
            lived.inventory.remove(kind, key, lived.now)
            latest.pop(name, None)
        else:
            kind, _, versions = VERSIONS[name]
            lived.put(kind, versions[version])
            latest[name] = version
    started = Fleet()
    for name, version in latest.items():
        kind, _, versions = VERSIONS[name]
        started.put(kind, versions[version])
    assert faded(lived) == faded(started)


def faded(fleet: Fleet) -> dict[str, object]:
    """What is known of each node when all that fades has."""
    for wait in (0.0, LONG_S, SWEEP_EVERY_S, SWEEP_EVERY_S):
        fleet.now += wait
        fleet.look()
    return {
        name: (
            healths(record),
            {(u.unit, u.allocated) for plugin in record.plugins.values() for u in plugin.units},
        )
        for name, record in fleet.view.nodes.items()
    }
