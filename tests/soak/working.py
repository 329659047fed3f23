"""The normal work beside which all else happens: pods with devices that come, run and go."""

from __future__ import annotations

import asyncio
import contextlib
import time
from random import Random

from tests.controlplane import objects
from tests.controlplane.api import Object
from tests.controlplane.waiting import node_of
from tests.soak.house import EVERYDAY, FAILING_GPU, House, insist

EVERY_S = 0.8
PATIENCE_S = 45.0
LIVES_S = (4.0, 14.0)
MOST = 32
"""Fewer than there are devices on nodes that never fail, so nothing waits for want of devices."""
WORK = {"work": "soak"}
POLICIES = ("training", "inference", "inference", "scavenger")


class Work:
    def __init__(self, house: House, seed: str) -> None:
        self._house = house
        self._random = Random(seed)
        self._living: set[asyncio.Task[None]] = set()
        self.begun = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            if len(self._living) < MOST:
                self.begun += 1
                task = asyncio.create_task(self._live(self._next(), self._random.uniform(*LIVES_S)))
                self._living.add(task)
                task.add_done_callback(self._living.discard)

    async def stop(self) -> None:
        """Delete what is left of it, and whatever made pods."""
        for task in tuple(self._living):
            task.cancel()
        for resource in ("jobs", "pods"):
            for one in await self._house.api.list(resource, "default"):
                name = one["metadata"]["name"]
                await insist(lambda r=resource, n=name: self._house.api.delete(r, n))  # type: ignore[misc]

    def _next(self) -> Object:
        name, chance = f"w{self.begun}", self._random.random()
        annotations = {"fettle.dev/policy": self._random.choice(POLICIES)}
        if chance < 0.3:
            templates = {"gpu": "one-gpu"}
            return objects.pod(name, annotations=annotations, labels=WORK, templates=templates)
        gpus = self._random.choice((1, 1, 1, 2))
        if chance > 0.85:  # it waits while that node is bad
            there = {"kubernetes.io/hostname": self._random.choice(FAILING_GPU)}
            return objects.pod(
                name, annotations=annotations, labels=WORK, gpus=gpus, node_selector=there
            )
        if chance < 0.4:
            return objects.job(name, annotations=annotations, labels=WORK, gpus=gpus)
        return objects.pod(name, annotations=annotations, labels=WORK, gpus=gpus)

    async def _live(self, manifest: Object, for_s: float) -> None:
        api, resource = self._house.api, f"{manifest['kind'].lower()}s"
        try:
            async with asyncio.timeout(15):
                await api.create(manifest)
        except EVERYDAY:
            return  # as a user who tries again with the next one
        await self._placed(manifest["metadata"]["name"])
        await asyncio.sleep(for_s)
        with contextlib.suppress(*EVERYDAY):
            await insist(lambda: api.delete(resource, manifest["metadata"]["name"]))

    async def _placed(self, name: str) -> None:
        """Wait until a node has it, as long as a patient user would."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            await asyncio.sleep(1)
            with contextlib.suppress(*EVERYDAY):
                pods = await self._house.api.list("pods", "default", labels=f"job-name={name}")
                pods = pods or [await self._house.api.get("pods", name)]
                if all(node_of(pod) for pod in pods):
                    return
