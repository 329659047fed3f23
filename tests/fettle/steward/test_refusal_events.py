"""A pod that Fettle refuses everywhere is told why, once for each set of reasons."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from fettle.api import core
from fettle.api.meta import OwnerReference
from fettle.cel import SelectorEngine
from fettle.client import Event
from fettle.cluster import NodeView
from fettle.config import Settings
from fettle.model import Mode
from fettle.scheduling import Answers, OwnerRefusals
from fettle.steward import RefusalEvents
from tests.fettle import building as b
from tests.fettle.others import WatchedPublisher

BAD = b.node("bad", gpus=1, own=b.health(0.0))
HELD = b.node("bad", gpus=1, own=b.health(0.0, held=True))

LATER = datetime(2100, 1, 1, tzinfo=UTC)


def waiting(message: str = "0/1 nodes: fettle: no sound devices") -> core.Pod:
    raw = b.gpu_pod()
    raw["metadata"]["uid"] = "u"
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    raw["status"] = {"phase": "Pending", "conditions": [condition]}
    return b.pod(raw)


class Told:
    def __init__(self, mode: Mode = Mode.ENFORCE) -> None:
        self.publisher = WatchedPublisher()
        answers = Answers(self.publisher, SelectorEngine(), Settings(mode=mode))
        self.events: list[Event] = []
        self.full = False
        self.refusals = OwnerRefusals()
        self._steward = RefusalEvents(answers, self.publisher, self._record, self.refusals)

    def _record(self, event: Event) -> bool:
        if not self.full:
            self.events.append(event)
        return not self.full

    async def look(self, *nodes: NodeView, **pods: Any) -> None:
        before = self.publisher.view
        view = b.view(*nodes, pods=pods or {"default/p": waiting()})
        after = msgspec.structs.replace(
            view, generation=before.generation + 1, basis=before.basis + 1
        )
        self.publisher.publish(after, frozenset(node.name for node in nodes))
        await self._steward.record()


async def test_it_is_told_once_and_again_when_the_reasons_change() -> None:
    told = Told()
    await told.look(BAD)
    await told.look(BAD)
    (event,) = told.events
    assert (event.regarding.name, event.regarding.uid) == ("p", "u")
    assert event.note.startswith("Fettle refuses 1 of 1 nodes: ")
    assert "NodeUnhealthy ×1" in event.note
    await told.look(HELD)
    assert len(told.events) == 2
    assert "NodeHeld ×1" in told.events[1].note


async def test_beside_other_reasons_nodes_count_whose_kubelets_refused_pods_of_the_owner() -> None:
    told = Told()
    owner = (OwnerReference(kind="Job", name="train", uid="o", controller=True),)
    metadata = msgspec.structs.replace(waiting().metadata, owner_references=owner)
    pod = msgspec.structs.replace(waiting(), metadata=metadata)
    lost = core.PodStatus(phase="Failed", reason="UnexpectedAdmissionError", start_time=LATER)
    spec = core.PodSpec(node_name="swallows")
    told.refusals.observe(msgspec.structs.replace(pod, spec=spec, status=lost))
    swallows, good = b.node("swallows", gpus=1), b.node("good", gpus=1)
    await told.look(BAD, swallows, **{"default/p": pod})
    assert "KubeletRefusedWorkload" not in told.events.pop().note
    await told.look(BAD, swallows, good, **{"default/p": pod})
    (event,) = told.events
    assert event.note.startswith("Fettle refuses 2 of 3 nodes: ")
    assert "KubeletRefusedWorkload ×1" in event.note


async def test_nodes_are_told_apart_that_have_no_room_for_the_pod_anyway() -> None:
    told = Told()
    await told.look(BAD, *(b.node(name, own=b.health(0.0)) for name in ("x", "y")))
    (event,) = told.events
    said = "Fettle refuses 3 of 3 nodes (2 of them have no room for it anyway): NodeUnhealthy ×3"
    assert event.note.startswith(said)


async def test_what_is_held_back_is_tried_again() -> None:
    told = Told()
    told.full = True
    await told.look(BAD)
    told.full = False
    await told.look(BAD)
    assert len(told.events) == 1


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.STEER])
async def test_nothing_is_told_where_nothing_is_refused(mode: Mode) -> None:
    told = Told(mode)
    await told.look(BAD)
    assert told.events == []


async def test_pods_that_wait_for_something_else_are_not_told() -> None:
    told = Told()
    await told.look(BAD, **{"default/p": waiting("0/1 nodes: Insufficient cpu")})
    await told.look(b.node("good", gpus=1))
    assert told.events == []
