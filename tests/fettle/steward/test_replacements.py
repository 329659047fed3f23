"""A pod on a failed device is evicted only where its replacement would be better off."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fettle.api import core, resource
from fettle.cluster import NodeView
from fettle.dra import DeviceView, PoolView
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import claim_view
from tests.fettle.scheduling.placed.builders import claim, placed
from tests.fettle.steward.failing import (
    BAD,
    DEAD,
    FAILED,
    FREE,
    Fleet,
    Raw,
    on,
)

DAEMON = [{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]


@pytest.mark.parametrize(
    ("node", "others", "pod", "reason"),
    [
        pytest.param(BAD, (), on(), "NoOtherNodeForReplacement", id="no other node"),
        pytest.param(
            BAD,
            (b.node("busy", gpus=1),),
            on(),
            "NoBetterNodeForReplacement",
            id="the other node is full",
        ),
        pytest.param(
            DEAD, (b.node("busy", gpus=1),), on(), None, id="dead, so nothing is lost by waiting"
        ),
        pytest.param(DEAD, (), on(), "NoOtherNodeForReplacement", id="dead, and no other node"),
        pytest.param(
            DEAD,
            (b.node("empty"), b.node("other", pools=(b.pool(b.device("gpu-0")),))),
            on(),
            "NoOtherNodeForReplacement",
            id="dead, and no other node has such devices",
        ),
        pytest.param(
            b.node(gpus=2, units={"gpu": 0.0}, busy=frozenset({"gpu"})),
            (b.node("small", gpus=1),),
            on(gpus=2),
            "NoOtherNodeForReplacement",
            id="dead, and no other node has as many",
        ),
        pytest.param(BAD, (FREE,), on(ownerReferences=[]), "NothingReplacesThePod", id="alone"),
        pytest.param(
            BAD, (FREE,), on(ownerReferences=DAEMON), "NothingReplacesThePod", id="daemon"
        ),
    ],
)
async def test_a_pod_is_evicted_only_where_its_replacement_would_be_better_off(
    fleet: Fleet, node: NodeView, others: tuple[NodeView, ...], pod: Raw, reason: str | None
) -> None:
    taken = tuple(on(f"on-{n.name}", n.name) for n in others if n.name == "busy")
    await fleet.look(node, *others, pods=(pod, *taken), looks=4)
    assert fleet.evicted() == ([] if reason else ["p"])
    assert fleet.marks() == {"p": reason or "DeviceUnhealthy"}


def pinned(**spec: Any) -> Raw:
    pod = on()
    pod["spec"] |= spec
    return pod


def affinity(key: str, *values: str, fields: bool = False) -> Raw:
    one = {"key": key, "operator": "In", "values": list(values)}
    term = {"matchFields" if fields else "matchExpressions": [one]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def tainted(node: NodeView, key: str, effect: str = "NoSchedule") -> NodeView:
    return msgspec.structs.replace(node, taints=(core.Taint(key=key, value="a", effect=effect),))


def labelled(node: NodeView, **labels: str) -> NodeView:
    return msgspec.structs.replace(node, labels=labels)


NOBODY, NOWHERE = "NoOtherNodeForReplacement", "NoBetterNodeForReplacement"
TEAM = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("node", "others", "pod", "reason"),
    [
        pytest.param(BAD, (FREE,), pinned(nodeSelector={"a": "b"}), NOBODY, id="selector"),
        pytest.param(DEAD, (FREE,), pinned(nodeSelector={"a": "b"}), NOBODY, id="even if dead"),
        pytest.param(
            BAD, (labelled(FREE, a="b"),), pinned(nodeSelector={"a": "b"}), None, id="selected"
        ),
        pytest.param(
            BAD,
            (labelled(b.node("ill", gpus=1, own=b.health(0.1)), a="b"), FREE),
            pinned(nodeSelector={"a": "b"}),
            NOWHERE,
            id="the selected ones are no better",
        ),
        pytest.param(BAD, (FREE,), pinned(**affinity("zone", "x")), NOBODY, id="affinity"),
        pytest.param(
            BAD, (labelled(FREE, zone="x"),), pinned(**affinity("zone", "x")), None, id="has it"
        ),
        pytest.param(
            BAD,
            (FREE,),
            pinned(**affinity("metadata.name", "n", fields=True)),
            NOBODY,
            id="affinity to its node by name",
        ),
        pytest.param(BAD, (tainted(FREE, "team"),), on(), NOBODY, id="a taint"),
        pytest.param(BAD, (tainted(FREE, "team", "PreferNoSchedule"),), on(), None, id="soft"),
        pytest.param(
            BAD, (tainted(FREE, "team"),), pinned(tolerations=[TEAM]), None, id="a toleration"
        ),
        pytest.param(
            BAD,
            (msgspec.structs.replace(FREE, unschedulable=True),),
            on(),
            NOBODY,
            id="the other node is cordoned",
        ),
        pytest.param(
            BAD,
            (tainted(FREE, core.LOST[0]),),
            pinned(tolerations=[{"key": core.LOST[0], "operator": "Exists"}]),
            NOBODY,
            id="not ready",
        ),
    ],
)
async def test_a_pod_is_evicted_only_if_its_own_manifest_lets_it_go_elsewhere(
    fleet: Fleet, node: NodeView, others: tuple[NodeView, ...], pod: Raw, reason: str | None
) -> None:
    await fleet.look(node, *others, pods=(pod,), looks=4)
    assert fleet.evicted() == ([] if reason else ["p"])
    assert fleet.marks() == {"p": reason or "DeviceUnhealthy"}


KEEPS_OFF = resource.DeviceTaint(key="xid", effect="NoSchedule")


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        pytest.param(
            (b.device("gpu-0", 0.0, taints=(KEEPS_OFF,)), b.device("gpu-1")), None, id="tainted"
        ),
        pytest.param(
            (b.device("gpu-0", 0.2, taints=(KEEPS_OFF,)), b.device("gpu-1")), None, id="not dead"
        ),
        pytest.param((b.device("gpu-0", 0.2), b.device("gpu-1")), NOBODY, id="given again"),
        pytest.param(
            (b.device("gpu-0", 0.2, taints=(KEEPS_OFF,)), b.device("gpu-1", allocated=True)),
            NOBODY,
            id="the sound one is in use",
        ),
        pytest.param(
            (b.device("gpu-0", 0.2, taints=(KEEPS_OFF,)), b.device("gpu-1", 0.2)),
            NOBODY,
            id="the other one is as bad",
        ),
    ],
)
@pytest.mark.parametrize("entry", ["resourceClaimTemplateName", "resourceClaimName"])
async def test_a_pod_is_evicted_if_its_own_node_would_give_it_a_sound_device_instead(
    fleet: Fleet, entry: str, devices: tuple[DeviceView, ...], reason: str | None
) -> None:
    """By a claim that is made for it, or one that is its own."""
    first, *rest = devices
    held = msgspec.structs.replace(first, allocated=True)
    pod = on(gpus=0)
    of_template = entry == "resourceClaimTemplateName"
    pod["spec"]["resourceClaims"] = [{"name": "gpu", entry: "t" if of_template else "c-p"}]
    if of_template:
        pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "c-p"}]
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": b.DRIVER}}]}}
    given = {**claim("p", "gpu-0"), "spec": spec}
    if of_template:
        owner = {"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
        given["metadata"]["ownerReferences"] = [owner]
    node = b.node(pools=(b.pool(held, *rest),))
    made_from = claim_view() | {"classes": {b.DRIVER: b.device_class(selectors=[])}}
    await fleet.look(node, pods=(pod,), looks=4, claims=[given], **made_from)
    assert fleet.evicted() == ([] if reason else ["p"])
    assert fleet.marks() == {"p": reason or "DeviceUnhealthy"}


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        pytest.param(b.DRIVER, None, id="such a device, in use"),
        pytest.param("nic.example.com", NOBODY, id="a device of another kind"),
    ],
)
async def test_a_pod_with_a_dead_device_is_evicted_if_another_node_has_such_a_device(
    fleet: Fleet, driver: str, reason: str | None
) -> None:
    pod = on(gpus=0)
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c-p"}]
    given = claim("p", "gpu-0")
    request = {"name": "r", "exactly": {"deviceClassName": b.DRIVER}}
    given["spec"] = {"devices": {"requests": [request]}}
    dead = b.node(pools=(b.pool(b.device("gpu-0", 0.0, allocated=True)),))
    device = b.device("dev-0", driver=driver, allocated=True)
    other = b.node("other", pools=(PoolView(driver, "n", (device,)),))
    await fleet.engine.start()
    try:
        await fleet.look(dead, other, pods=(pod,), looks=4, claims=[given], **claim_view())
    finally:
        await fleet.engine.close()
    assert fleet.evicted() == ([] if reason else ["p"])
    assert fleet.marks() == {"p": reason or "DeviceUnhealthy"}


async def test_pods_that_share_a_claim_stay_and_are_told_so(fleet: Fleet) -> None:
    pods = []
    for name in ("p", "q"):
        pods.append(on(name, gpus=0))
        pods[-1]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c-p"}]
    given = claim("p", "gpu-0")
    given["status"]["reservedFor"].append({"resource": "pods", "name": "q", "uid": "uid-q"})
    dead = b.node(pools=(b.pool(b.device("gpu-0", 0.0, allocated=True)),))
    free = b.node("free", pools=(b.pool(b.device("gpu-1")),))
    await fleet.look(dead, free, pods=tuple(pods), looks=4, claims=[given], **claim_view())
    assert fleet.evicted() == []
    assert fleet.marks() == {"p": "ClaimIsShared", "q": "ClaimIsShared"}
    (said,) = {
        one["message"].partition("; ")[2]
        for pod in fleet.api.objects["pods"].values()
        for one in pod["status"]["conditions"]
        if one["type"] == FAILED
    }
    assert said.startswith("not evicted yet: other pods use the same claim")


def holding(unit: str) -> Raw:
    """The pod, and what its kubelet says that it holds."""
    pod = on()
    allocated = {"name": b.RESOURCE, "resources": [{"resourceID": unit, "health": "Unhealthy"}]}
    pod["status"]["containerStatuses"] = [{"name": "c", "allocatedResourcesStatus": [allocated]}]
    return pod


@pytest.mark.parametrize(
    ("withdrawn", "others", "reason"),
    [
        pytest.param(True, (), None, id="withdrawn"),
        pytest.param(False, (), NOBODY, id="it may be given again"),
        pytest.param(True, (placed("other", gpus=1),), NOBODY, id="the sound one is in use"),
    ],
)
async def test_a_unit_that_its_plugin_has_withdrawn_is_not_given_again(
    fleet: Fleet, others: tuple[Raw, ...], reason: str | None, *, withdrawn: bool
) -> None:
    gone = frozenset({"gpu"} if withdrawn else ())
    node = b.node(gpus=2 - len(gone), units={"gpu": 0.1}, busy=frozenset({"gpu"}), withdrawn=gone)
    await fleet.look(node, pods=(holding("gpu"), *others), looks=4)
    assert fleet.evicted() == ([] if reason else ["p"])
