"""When waiting pods are woken because their patience is over."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from fettle.cel import SelectorEngine
from fettle.cluster import Publisher, View
from fettle.config import Settings
from fettle.model import BUILT_IN, ClusterError, Mode
from fettle.observing import StewardMetrics
from fettle.scheduling import Answers
from fettle.steward import AllowedNodes, PatienceEnds
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import kept
from tests.fettle.steward.failing import REFUSED
from tests.waiting import until

TRAINING = BUILT_IN["training"]


def policies(patience: str | None) -> dict[str, Any]:
    placement = msgspec.structs.replace(TRAINING.placement, patience=patience, gang_patience=None)
    return {"training": msgspec.structs.replace(TRAINING, placement=placement)}


class Waking:
    """A view with one node and one pod that Fettle refused, which was created just now."""

    def __init__(self, score: float, patience: str | None, mode: Mode = Mode.ENFORCE) -> None:
        self.woken: list[float] = []
        self.fails = 0
        raw = b.gpu_pod(annotations={"fettle.dev/policy": "training"})
        now = datetime.fromtimestamp(time.time(), UTC).isoformat()
        raw["metadata"] |= {"uid": "u", "creationTimestamp": now}
        said = {"type": "PodScheduled", "status": "False", "message": REFUSED}
        raw["status"] = {"conditions": [said]}
        pod = b.pod(raw)
        self.began = time.time()
        view = b.view(b.node(gpus=1, own=b.health(score)), policies=policies(patience))
        view = msgspec.structs.replace(view, pods={pod.metadata.key: pod})
        self.publisher = Publisher()
        self.publisher.publish(view, frozenset(view.nodes))
        answers = Answers(self.publisher, SelectorEngine(), Settings(mode=mode))
        self.ends = PatienceEnds(
            answers,
            self.publisher,
            AllowedNodes(answers).find,
            self.wake,
            StewardMetrics(CollectorRegistry()),
            every_s=0.01,
            retry_s=0.02,
        )

    async def wake(self, _view: View, now: float) -> None:
        if self.fails:
            self.fails -= 1
            raise ClusterError("forbidden")
        self.woken.append(now - self.began)


async def test_a_pod_is_woken_once_when_its_patience_ends_though_no_view_comes() -> None:
    waking = Waking(0.5, "1s")
    async with kept(waking.ends.keep()):
        await until(lambda: bool(waking.woken))
        await asyncio.sleep(0.5)
    (after_s,) = waking.woken
    assert after_s >= 1.0


async def test_a_wake_up_that_cannot_be_written_is_tried_again() -> None:
    waking = Waking(0.5, "0s")
    waking.fails = 3
    async with kept(waking.ends.keep()):
        await until(lambda: bool(waking.woken))
        await asyncio.sleep(0.5)
    assert len(waking.woken) == 1


@pytest.mark.parametrize(
    ("score", "patience", "mode"),
    [
        (0.1, "0s", Mode.ENFORCE),  # no node would be allowed then either
        (0.5, None, Mode.ENFORCE),  # it waits without end
        (0.5, "1h", Mode.ENFORCE),
        (0.5, "0s", Mode.STEER),  # it is refused nothing
        (0.5, "0s", Mode.OBSERVE),
    ],
)
async def test_nobody_is_woken_in_vain(score: float, patience: str | None, mode: Mode) -> None:
    waking = Waking(score, patience, mode)
    async with kept(waking.ends.keep()):
        await asyncio.sleep(0.6)
    assert waking.woken == []
