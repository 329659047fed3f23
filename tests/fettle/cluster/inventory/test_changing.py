"""Objects that change: in the end, what stands is as if it had been read in one go."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.api.kinds import Kind
from fettle.health.book import SWEEP_EVERY_S
from tests.fettle.cluster.inventory.fleets import Fleet, claim, node, slice_
from tests.fettle.cluster.inventory.saying import Raw, healths, ill, naming, rule, speaking

GPU, PLUGIN_S, LONG_S = "nvidia.com/gpu", {"nvidia.com/gpu": "8"}, 60 * 86_400.0


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
@example([("node", 4), ("node", 12), ("first", 0)])
@example([("node", 0), ("rule", 0), ("look", None), ("first", 0)])
@example([("node", 0), ("first", 0), ("of claim", 0), ("look", None), ("claim", 1)])
@example([("node", 0), ("first", 0), ("claim", 1), ("of claim", 0), ("claim", 0)])
def test_once_all_has_faded_the_inventory_is_as_if_read_at_once(
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
