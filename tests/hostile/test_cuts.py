"""What is too long to be read whole makes nothing bad look sound."""

import asyncio
import time
from typing import Any

import msgspec
import pytest

from fettle.api import kinds
from fettle.api.kinds import Kind
from fettle.api.meta import rfc3339_at
from fettle.cluster import NodeView
from fettle.model import State
from tests.hostile.house import House

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1"
HOLD = {"fettle.dev/hold": "broken"}
MANY = {f"a{i:05}": "x" for i in range(1100)}
VERY_MANY = {f"a{i:05}": "x" for i in range(30_000)}


def condition(type_: str, message: str = "x", status: str = "True") -> dict[str, str]:
    at = rfc3339_at(time.time())
    said = {"type": type_, "status": status, "reason": "x", "message": message}
    return said | {"lastTransitionTime": at, "lastHeartbeatTime": at}


OTHERS = [condition(f"T{i}", status="False") for i in range(256)]


def node(*conditions: dict[str, str], **metadata: Any) -> tuple[Kind, dict[str, Any]]:
    amounts = {"nvidia.com/gpu": "8"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    return kinds.NODE, {"metadata": {"name": "n", "uid": "n", **metadata}, "status": status}


async def seen(*written: tuple[Kind, dict[str, Any]]) -> NodeView:
    house = House()
    task = asyncio.create_task(house.writer.run())
    try:
        await house.sync()
        for kind, made in written:
            line = b'{"type":"ADDED","object":%b}' % msgspec.json.encode(made)
            await house.take(kind, line)
        return house.publisher.view.nodes["n"]
    finally:
        task.cancel()


@pytest.mark.parametrize("others", [MANY, VERY_MANY], ids=["many", "very many"])
async def test_a_hold_behind_other_annotations_is_in_force(others: dict[str, str]) -> None:
    held = await seen(node(annotations=HOLD), node(annotations=others | HOLD))
    assert held.health.held


async def test_a_node_whose_conditions_are_not_all_read_is_unknown_and_says_why() -> None:
    health = (await seen(node(*OTHERS, condition("Bad", XID)))).health
    assert health.state is State.UNKNOWN
    assert [weighed.evidence.text for weighed in health.evidence] == [
        "the Node is too long to be read whole: "
        "status.conditions: only the first 256 entries are read"
    ]


async def test_a_node_is_known_again_once_all_of_it_is_read() -> None:
    health = (await seen(node(*OTHERS, condition("X")), node(*OTHERS))).health
    assert health.state is State.HEALTHY


async def test_a_fault_behind_other_conditions_goes_on() -> None:
    bad = condition("KernelDeadlock", XID)
    view = await seen(node(bad), node(*OTHERS, bad))
    assert view.health.state is State.UNHEALTHY


@pytest.mark.parametrize("type_", ["Unlisted", "XidCriticalError"])
async def test_a_fault_that_the_cut_message_may_still_tell_of_goes_on(type_: str) -> None:
    before, after = (node(condition(type_, "a" * length + f" {XID}")) for length in (1, 9000))
    short, long = await seen(before), await seen(before, after)
    assert [unit.health.state for unit in long.plugins["nvidia.com/gpu"].units] == [
        unit.health.state for unit in short.plugins["nvidia.com/gpu"].units
    ]
    assert long.health.state is short.health.state


@pytest.mark.parametrize("label", [{"autopilot.ibm.com/gpuhealth": "EVICT"}])
async def test_a_fault_behind_other_labels_goes_on(label: dict[str, str]) -> None:
    health = (await seen(node(labels=label), node(labels=MANY | label))).health
    assert health.state is (await seen(node(labels=label))).health.state
    assert health.state is not State.HEALTHY


@pytest.mark.parametrize("per_device", [False, True], ids=["slice", "device"])
async def test_a_pool_is_unclear_where_its_cut_selector_may_match(per_device: bool) -> None:
    values = [*(f"machine-{i}" for i in range(1500)), "n"]
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": values}
    selector = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    spec: dict[str, Any] = {
        "driver": "net.example.com",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d", **(selector if per_device else {})}],
    }
    spec |= {"perDeviceNodeSelection": True} if per_device else selector
    written = kinds.SLICE, {"metadata": {"name": "s", "uid": "s"}, "spec": spec}
    (pool,) = (await seen(node(labels={"kubernetes.io/hostname": "n"}), written)).pools
    assert "values: only the first 1024 entries are read" in pool.unclear
