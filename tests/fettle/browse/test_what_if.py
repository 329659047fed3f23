"""What would become of a pod: by another policy, a mended device, a cordoned node."""

from typing import Any

import msgspec
import pytest

from fettle.api import resource
from fettle.cel import SelectorEngine
from fettle.cluster import NodeView, Publisher
from fettle.config import Settings
from fettle.scheduling import Answers
from tests.fettle import building as b
from tests.fettle.browse.showing import known, told


async def asked(
    query: str,
    *nodes: NodeView,
    pod: str = "default/p",
    raw: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[int, Any]:
    publisher = Publisher()
    pods = {"default/p": b.pod(raw or b.gpu_pod())}
    publisher.publish(b.view(*nodes, pods=pods, **more), frozenset())
    shown = known(Answers(publisher, SelectorEngine(), Settings()))
    return await told(shown, f"/what-if?pod={pod}&{query}")


def fleet() -> tuple[NodeView, ...]:
    degraded = b.health(0.75)
    return b.node("n1", gpus=1), b.node("n2", gpus=1, own=degraded), b.node("n3")


async def test_a_stricter_policy_refuses_more_and_only_what_changes_is_listed() -> None:
    _, said = await asked("policy=training", *fleet())
    assert said["change"] == "its policy were training"
    assert (said["before"]["fit"], said["after"]["fit"]) == (2, 1)
    changed = {
        one["node"]: (one["before"]["verdict"], one["after"]["verdict"]) for one in said["nodes"]
    }
    assert changed["n2"] == ("fits", "refused")
    assert "n3" not in changed  # it has no such device, then as now


async def test_a_cordoned_node_is_excluded() -> None:
    _, said = await asked("cordon=n1", *fleet())
    assert (said["before"]["fit"], said["after"]["fit"]) == (2, 1)
    assert [(one["node"], one["after"]["reason"]) for one in said["nodes"]] == [("n1", "a cordon")]


async def test_a_mended_node_fits() -> None:
    sick = b.node("n1", gpus=1, own=b.health(0.1))
    _, said = await asked("mend=n1", sick)
    assert (said["before"]["fit"], said["after"]["fit"]) == (0, 1)
    assert said["nodes"][0]["before"]["verdict"] == "refused"
    assert said["nodes"][0]["after"]["verdict"] == "fits"


@pytest.mark.parametrize(
    ("sick", "units"),
    [
        (b.node("n1", gpus=1, units={"GPU-1": 0.1}, own=b.health(0.1)), 1),
        (b.node("n1", gpus=1, units={"GPU-1": 0.1}), 1),
        (b.node("n1", gpus=1, units={"GPU-1": 0.1}, withdrawn=frozenset({"GPU-1"})), 2),
    ],
    ids=["it and its device", "its device alone", "its device withdrawn"],
)
async def test_a_mended_node_has_sound_devices(sick: NodeView, units: int) -> None:
    _, said = await asked("mend=n1", sick, raw=b.gpu_pod(units))
    assert said["change"] == "node n1 and its devices were sound, without taints on them"
    assert (said["before"]["fit"], said["after"]["fit"]) == (0, 1)


async def test_a_mended_node_has_sound_dra_devices_without_taints() -> None:
    taint = resource.DeviceTaint(key="example.com/broken", effect="NoSchedule")
    bad = b.device("gpu-0", 0.1, pool="n1", local="n1", taints=(taint,))
    sick = b.node("n1", pools=(b.pool(bad, name="n1"),))
    raw = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "containers": [{"name": "c"}],
            "resourceClaims": [{"name": "g", "resourceClaimName": "g"}],
        },
    }
    exactly = {"deviceClassName": b.DRIVER, "allocationMode": "ExactCount", "count": 1}
    claim = {
        "metadata": {"name": "g", "namespace": "default", "uid": "g"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }
    any_device = msgspec.structs.replace(b.device_class(), spec=resource.DeviceClassSpec())
    more: dict[str, Any] = {
        "claims": {"default/g": b.claim(claim)},
        "classes": {b.DRIVER: any_device},
    }
    _, said = await asked("mend=n1", sick, raw=raw, **more)
    assert (said["before"]["fit"], said["after"]["fit"]) == (0, 1)


async def test_a_node_with_its_only_bad_unit_mended_fits() -> None:
    bad = b.node("n1", gpus=1, units={"GPU-1": 0.1})
    _, said = await asked("mend=GPU-1", bad)
    assert said["change"] == f"n1/{b.RESOURCE}/GPU-1 were sound, without taints"
    assert (said["before"]["fit"], said["after"]["fit"]) == (0, 1)


async def test_nothing_is_kept_of_what_was_supposed() -> None:
    publisher = Publisher()
    view = b.view(*fleet(), pods={"default/p": b.pod(b.gpu_pod())})
    publisher.publish(view, frozenset())
    shown = known(Answers(publisher, SelectorEngine(), Settings()))
    _, before = await told(shown, "/explain?pod=default/p")
    await told(shown, "/what-if?pod=default/p&cordon=n1")
    await told(shown, "/what-if?pod=default/p&policy=training")
    _, after = await told(shown, "/explain?pod=default/p")
    assert msgspec.json.encode(before) == msgspec.json.encode(after)


@pytest.mark.parametrize(
    ("query", "status", "why"),
    [
        ("policy=nope", 404, "there is no policy 'nope'; known: "),
        ("cordon=nope", 404, "there is no node 'nope'"),
        ("mend=nope", 404, "there is no device 'nope'"),
        ("", 400, "write /what-if?pod=NAMESPACE/NAME with one of"),
        ("cordon=n1&mend=n1", 400, "write /what-if?pod=NAMESPACE/NAME with one of"),
    ],
)
async def test_what_cannot_be_supposed_is_said(query: str, status: int, why: str) -> None:
    code, said = await asked(query, *fleet())
    assert (code, said["error"].startswith(why)) == (status, True), said
