"""Which pods that do not start on their node are evicted, and which are not. What becomes of them
is tested on the control plane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fettle.api import core, known_as
from fettle.api.meta import rfc3339_at
from fettle.client import Session
from fettle.health import FailedStart
from fettle.model import Failure, Mode, Policy
from fettle.scheduling.placed import FreedPlaces
from tests.fettle import building as b
from tests.fettle.client.fake_api import fake_api
from tests.fettle.scheduling.placed.builders import BOUND_S, CREATING, failed, placed, waiting
from tests.fettle.steward.failing import Fleet

Raw = dict[str, Any]
GONE = "DRA driver gpu.example.com is not registered"
SAID_AT = BOUND_S + 10.0
DUE_AT = SAID_AT + 300.0
HERE, FREE = b.node(gpus=8), b.node("free", gpus=8)
OWNER = {"apiVersion": "apps/v1", "controller": True}
SET = [{**OWNER, "kind": "StatefulSet", "name": "web", "uid": "s"}]
OWN = Policy(name="own", failure=Failure(start_deadline="5m"))


def unstarted(name: str = "web-0", node: str = "n", **meta: Any) -> Raw:
    """A pod of a StatefulSet, whose container is not created."""
    pod = placed(name, node, gpus=1, policy="own")
    pod["metadata"] |= {"ownerReferences": SET, **meta}
    pod["status"]["phase"] = "Pending"
    pod["status"]["containerStatuses"] = [{"name": "main", "state": CREATING}]
    return pod


def start(raw: Raw, message: str = GONE, *blamed: str, at: float = SAID_AT) -> FailedStart:
    pod = b.pod(raw)
    return FailedStart(pod=pod, workload=known_as(pod), message=message, at=at, blamed=blamed)


def starts(*found: FailedStart) -> dict[str, Any]:
    """The fields of a view with these failed starts, and the policy of the pods."""
    return {
        "failed_starts": {one.pod.metadata.key: one for one in found},
        "policies": {"own": OWN},
    }


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        fleet = Fleet(api, session)
        fleet.now = DUE_AT
        yield fleet


async def test_a_pod_that_does_not_start_is_evicted_at_its_deadline_as_it_is_then(
    fleet: Fleet,
) -> None:
    pod = unstarted()
    fleet.now = DUE_AT - 1.0
    await fleet.look(HERE, FREE, pods=(pod,), **starts(start(pod)))
    assert (fleet.marks(), fleet.evicted()) == ({}, [])
    fleet.now = DUE_AT
    await fleet.look(HERE, FREE, looks=1, **starts(start(pod)))
    assert (fleet.marks(), fleet.evicted()) == ({"web-0": "PodDoesNotStart"}, [])
    (seen,) = fleet.api.objects["pods"].values()
    await fleet.look(HERE, FREE, looks=3, **starts(start(pod)))
    (eviction,) = fleet.api.objects["evictions"].values()
    assert eviction["deleteOptions"]["preconditions"] == {
        "uid": "uid-web-0",
        "resourceVersion": seen["metadata"]["resourceVersion"],
    }
    assert sorted(fleet.recorded()) == [
        ("default/web-0", "EvictedNotStarted", "wrote"),
        ("default/web-0", "NotStarted", "wrote"),
    ]


async def test_without_a_deadline_or_the_setting_no_pod_is_evicted_for_not_starting(
    fleet: Fleet,
) -> None:
    pod = unstarted()
    without = starts(start(pod)) | {"policies": {"own": Policy(name="own")}}
    await fleet.look(HERE, FREE, pods=(pod,), looks=3, **without)
    fleet.led(allow="Mark")
    await fleet.look(HERE, FREE, looks=3, **starts(start(pod)))
    assert (fleet.marks(), fleet.evicted()) == ({}, [])


async def test_a_dry_run_says_what_would_be(fleet: Fleet) -> None:
    pod = unstarted()
    fleet.led(Mode.OBSERVE)
    await fleet.look(HERE, FREE, pods=(pod,), looks=3, **starts(start(pod)))
    assert (fleet.marks(), fleet.evicted()) == ({}, [])
    assert sorted(fleet.recorded()) == [
        ("default/web-0", "EvictedNotStarted", "wouldWrite"),
        ("default/web-0", "NotStarted", "wouldWrite"),
    ]


RAN = {"name": "main", "state": {"running": {}}}
ENDED = {"name": "main", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
LOOPS = {**waiting({"waiting": {"reason": "CrashLoopBackOff"}})["containerStatuses"][0]}


@pytest.mark.parametrize("status", [RAN, ENDED, LOOPS | {"lastState": ENDED["state"]}])
async def test_a_pod_of_which_a_container_has_run_did_start(fleet: Fleet, status: Raw) -> None:
    pod = unstarted()
    pod["status"]["containerStatuses"].append(status)
    await fleet.look(HERE, FREE, pods=(pod,), looks=3, **starts(start(pod)))
    assert not fleet.evicted()


@pytest.mark.parametrize(("ready_s", "did_start"), [(0.0, False), (60.0, True)])
async def test_a_pod_that_was_ready_did_start_though_its_containers_cannot_start_again(
    fleet: Fleet, ready_s: float, did_start: bool
) -> None:
    """A container's status tells of its last run alone."""
    pod = unstarted()
    pod["status"]["conditions"] += [
        {"type": "Initialized", "status": "True", "lastTransitionTime": rfc3339_at(0.0)},
        {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339_at(ready_s)},
    ]
    await fleet.look(HERE, FREE, pods=(pod,), looks=3, **starts(start(pod)))
    assert bool(fleet.evicted()) is not did_start


async def test_a_pod_that_changed_meanwhile_is_looked_at_again_before_it_is_evicted(
    fleet: Fleet,
) -> None:
    pod = unstarted()
    await fleet.look(HERE, FREE, pods=(pod,), looks=1, **starts(start(pod)))
    await fleet.see(pods=tuple(fleet.api.objects["pods"].values()), **starts(start(pod)))
    (there,) = fleet.api.objects["pods"].values()
    fleet.api.put("pods", there)
    await fleet.steward.look()
    assert not fleet.evicted()
    assert "EvictedNotStarted" not in str(fleet.recorded())
    await fleet.look(HERE, FREE, looks=1, **starts(start(pod)))
    assert fleet.evicted() == ["web-0"]


async def test_no_pod_is_evicted_for_what_others_meet_on_its_node(fleet: Fleet) -> None:
    """Whoever may create pods in another namespace can make these fail."""
    victim = unstarted()
    others = [
        start(unstarted("x", namespace=namespace, uid=f"{namespace}-x")) for namespace in "abc"
    ]
    for only_waits in ([], [start(victim, message="")]):
        await fleet.look(HERE, FREE, pods=(victim,), looks=3, **starts(*others, *only_waits))
    assert (fleet.marks(), fleet.evicted()) == ({}, [])


async def test_a_pod_on_a_device_with_a_proven_fault_needs_nobodys_word(fleet: Fleet) -> None:
    ill = msgspec.structs.replace(b.node(gpus=1), health=failed(at=SAID_AT))
    pod = unstarted()
    pod["status"] = waiting(CREATING, ready="False") | {"phase": "Pending"}
    fleet.now = BOUND_S + 329.0  # it is being made ready since half a minute
    await fleet.look(ill, FREE, pods=(pod,), looks=3, **starts())
    assert not fleet.evicted()
    fleet.now = BOUND_S + 330.0
    await fleet.look(ill, FREE, looks=3, **starts())
    assert fleet.evicted() == ["web-0"]


async def test_a_pod_whose_workload_is_to_blame_stays_and_is_not_marked(fleet: Fleet) -> None:
    pod = unstarted()
    await fleet.look(HERE, FREE, pods=(pod,), looks=3, **starts(start(pod, GONE, "m", "n")))
    assert (fleet.marks(), fleet.evicted()) == ({}, [])


@pytest.mark.parametrize(
    "owners", [[], [{**OWNER, "kind": "DaemonSet", "name": "d", "uid": "d"}]], ids=str
)
async def test_a_pod_that_nothing_replaces_elsewhere_is_told_and_stays(
    fleet: Fleet, owners: list[Raw]
) -> None:
    pod = unstarted(ownerReferences=owners)
    await fleet.look(HERE, FREE, pods=(pod,), looks=3, **starts(start(pod)))
    assert (fleet.marks(), fleet.evicted()) == ({"web-0": "NothingReplacesThePod"}, [])


async def test_a_pod_stays_where_its_replacement_would_not_start_either(fleet: Fleet) -> None:
    """As while a driver is away everywhere."""
    pod = unstarted()
    other = start(unstarted("y", node="free", namespace="other", uid="y", ownerReferences=[]))
    await fleet.look(HERE, FREE, pods=(pod,), looks=3, **starts(start(pod), other))
    assert (fleet.marks(), fleet.evicted()) == ({"web-0": "NoBetterNodeForReplacement"}, [])


EVICTED_AT, LATER = "2026-01-01T00:05:10Z", "2026-01-01T00:05:11Z"


def evicted(raw: Raw) -> core.Pod:
    """As the API server shows it after the eviction."""
    raw["status"]["conditions"] += [
        {"type": "fettle.dev/DeviceFailed", "status": "True"},
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "lastTransitionTime": EVICTED_AT,
        },
    ]
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:05:40Z"
    return b.pod(raw)


async def test_what_comes_after_a_freed_pod_and_does_not_start_either_stays_and_all_are_told(
    fleet: Fleet,
) -> None:
    fleet.freed.observe(evicted(unstarted()))
    second = unstarted(node="m", uid="uid-second", creationTimestamp=LATER)
    there = b.node("m", gpus=8)
    await fleet.look(HERE, there, FREE, pods=(second,), looks=3, **starts(start(second)))
    assert (fleet.marks(), fleet.evicted()) == ({"web-0": "ReplacementDoesNotStartEither"}, [])
    await fleet.events.write()
    told = {
        (one["regarding"]["kind"], one["reason"]) for one in fleet.api.objects["events"].values()
    }
    assert told == {
        ("Pod", "NotStarted"),
        ("Pod", "EvictionWaits"),
        ("StatefulSet", "WorkloadDoesNotStart"),
    }


def freed_by(*pods: core.Pod) -> FreedPlaces:
    freed = FreedPlaces()
    for pod in pods:
        freed.observe(pod)
    return freed


def running(name: str = "web-0", created: str = LATER, **meta: Any) -> core.Pod:
    pod = unstarted(name, uid=f"uid-{name}-{created}", creationTimestamp=created, **meta)
    pod["status"]["containerStatuses"] = [RAN]
    return b.pod(pod)


def next_pod(name: str = "web-0", created: str = LATER, **meta: Any) -> core.Pod:
    return b.pod(unstarted(name, uid="uid-next", creationTimestamp=created, **meta))


def test_a_place_is_free_to_be_freed_again_once_a_pod_that_came_later_has_run() -> None:
    assert freed_by(evicted(unstarted())).is_freed(next_pod())
    assert freed_by(evicted(unstarted()), running("web-1")).is_freed(next_pod())
    assert not freed_by(evicted(unstarted()), running()).is_freed(next_pod())


def test_of_a_replica_set_only_what_came_after_the_eviction_comes_in_its_place() -> None:
    owner = [{**OWNER, "kind": "ReplicaSet", "name": "web", "uid": "r"}]
    meta: Raw = {"generateName": "web-", "ownerReferences": owner}
    early = "2026-01-01T00:00:00Z"
    freed = freed_by(evicted(unstarted("web-a", **meta)), running("web-b", early, **meta))
    assert freed.is_freed(next_pod("web-d", **meta))
    assert not freed.is_freed(next_pod("web-c", early, **meta))
    freed.observe(running("web-e", **meta))
    assert not freed.is_freed(next_pod("web-d", **meta))


def test_the_pods_of_another_namespace_neither_free_a_place_nor_fill_it() -> None:
    elsewhere = evicted(unstarted(namespace="theirs", uid="uid-theirs"))
    assert not freed_by(elsewhere).is_freed(next_pod())
    theirs = running(namespace="theirs")
    assert freed_by(evicted(unstarted()), theirs).is_freed(next_pod())


@pytest.mark.parametrize("missing", ["fettle.dev/DeviceFailed", "DisruptionTarget"])
def test_a_pod_that_somebody_else_ended_frees_no_place(missing: str) -> None:
    raw = unstarted()
    evicted(raw)
    kept = [one for one in raw["status"]["conditions"] if one["type"] != missing]
    raw["status"]["conditions"] = kept
    assert not freed_by(b.pod(raw)).is_freed(next_pod())
