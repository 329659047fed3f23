"""Pods on failed devices, the fake API server that has them, and the steward that looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from fettle.api import core, kinds
from fettle.client import EventRecorder, Session
from fettle.cluster import NodeView
from fettle.config import DeviceFailureSettings, Settings, StewardSettings
from fettle.model import (
    Mode,
)
from fettle.observing import DecisionMetrics, StewardMetrics
from fettle.records import DecisionLog, Journal, Recorder
from fettle.scheduling.placed import FinishedPods, FreedPlaces, PodClaims
from fettle.steward import STEWARD, FailedDevices
from tests.fettle import building as b
from tests.fettle.client.fake_api import FakeApi
from tests.fettle.scheduling.placed.builders import Watched, placed

Raw = dict[str, Any]
FAILED = "fettle.dev/DeviceFailed"
JOB = [{"kind": "Job", "name": "train", "uid": "j", "controller": True}]
BAD, DEAD = b.node(gpus=1, units={"gpu": 0.1}), b.node(gpus=1, units={"gpu": 0.0})
FREE = b.node("free", gpus=1)


def would_evict(fleet: Fleet) -> list[str]:
    return [key for key, what, _ in fleet.recorded() if what == "EvictedFromFailedDevice"]


def on(name: str = "p", node: str = "n", wish: str = "Evict", *, gpus: int = 1, **meta: Any) -> Raw:
    pod = placed(name, node, gpus=gpus)
    pod["metadata"]["annotations"]["fettle.dev/on-device-failure"] = wish
    pod["metadata"] = {"ownerReferences": JOB, **pod["metadata"], **meta}
    return pod


def condition(message: str = "fettle: before", reason: str = "DeviceUnhealthy") -> Raw:
    return {"type": FAILED, "status": "True", "reason": reason, "message": message}


def having(pod: Raw, *conditions: Raw) -> Raw:
    pod["status"]["conditions"] += conditions
    return pod


class Fleet(Watched):
    """A cluster whose pods are those of a fake API server, and the steward."""

    def __init__(self, api: FakeApi, session: Session) -> None:
        super().__init__()
        self.api = api
        self.session = session
        self.finished = FinishedPods(PodClaims(self.publisher))
        self.freed = FreedPlaces()
        self.told: list[tuple[str, str]] = []
        self.passed_s = 0.0
        self.each_look_s = 0.0
        """How much later it is at each look, by the clock that nobody sets."""
        self.steward = self.led()

    def led(self, mode: Mode = Mode.ENFORCE, *, dry_run: bool = False, **how: Any) -> FailedDevices:
        """By a steward that starts with these settings."""
        failures = DeviceFailureSettings(
            **{"allow": "Evict", "confirm_seconds": 60.0, "evictions_per_second": 100.0, **how}
        )
        steward = StewardSettings(dry_run=dry_run)
        self.events = EventRecorder(self.session, STEWARD, "one")
        settings = Settings(mode=mode, device_failures=failures, steward=steward)
        self.answers.policies = settings.all_policies()
        self.log = DecisionLog(100, 2**20)
        metrics = DecisionMetrics(CollectorRegistry())
        self.steward = FailedDevices(
            self.session,
            self.answers,
            self.at_risk,
            self.finished,
            self.freed,
            settings,
            self.events,
            Recorder(self.answers, self.log, Journal(None, 2**20), metrics),
            StewardMetrics(CollectorRegistry()),
            clock=lambda: self.now,
            monotonic=lambda: time.monotonic() + self.passed_s,
        )
        return self.steward

    async def look(
        self, *nodes: NodeView, pods: tuple[Raw, ...] = (), looks: int = 2, **fields: Any
    ) -> None:
        """The steward looks, and again at what it wrote. `fields` are the view's."""
        for pod in pods:
            self.api.put("pods", pod)
        for _ in range(looks):
            known = self.api.objects.get("pods", {}).values()
            self.pods = {}
            await self.see(*nodes, pods=tuple(known), **fields)
            await self.steward.look()
            self.passed_s += self.each_look_s

    async def look_until(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not seen():
                await self.look()
        await self.look()

    def marks(self) -> dict[str, str]:
        """By pod, the reason of its condition."""
        return {
            pod["metadata"]["name"]: one["reason"]
            for pod in self.api.objects.get("pods", {}).values()
            for one in pod["status"]["conditions"]
            if one["type"] == FAILED
        }

    def evicted(self) -> list[str]:
        return [one["metadata"]["name"] for one in self.api.objects.get("evictions", {}).values()]

    def recorded(self) -> list[tuple[str, str, str]]:
        return [(one.key, " ".join(one.reasons), str(one.decided)) for one in self.log]


REFUSED = "0/4 nodes are available: 4 fettle: no sound devices (nvidia.com/gpu). preemption: none."


def pod(
    message: str = REFUSED, *, node: str = "", phase: str = "Pending", status: str = "False"
) -> core.Pod:
    condition = {"type": "PodScheduled", "status": status, "message": message}
    whole = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": [condition]},
    }
    read = kinds.POD.decode(msgspec.json.encode(whole))
    assert isinstance(read, core.Pod)
    return read
