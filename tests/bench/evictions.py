"""How many pods a storm makes the steward mark and evict, as faults of a whole fleet come and go.
What is due is written as fast as the settings allow, and evicted pods end in half a minute."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from prometheus_client import CollectorRegistry

from fettle.api import kinds
from fettle.api.core import LOST
from fettle.api.meta import rfc3339_at
from fettle.client import EventRecorder, Session
from fettle.config import Settings
from fettle.observing import DecisionMetrics, StewardMetrics
from fettle.records import DecisionLog, Journal, Recorder
from fettle.scheduling.placed import AtRisk, FinishedPods, FreedPlaces, PodClaims
from fettle.steward import STEWARD, FailedDevices
from tests.bench import fleets, inventories
from tests.bench.figures import Figure
from tests.bench.houses import House
from tests.bench.storms import (
    CALM_S,
    LOOK_S,
    STORM_S,
    Storm,
    StormyFleet,
    with_bounds,
)
from tests.controlplane.api import Object
from tests.controlplane.objects import DRIVER

SETTINGS = msgspec.convert({"deviceFailures": {"allow": "Evict"}}, Settings)
PODS = 4
"""On each node; the other half of its devices is free."""
ENDS_AFTER_S = 30
OFTEN_S = 10
"""Between two looks during the storm: as long as between two evictions."""


class Acts(msgspec.Struct):
    """`writes`: marked, unmarked, evicted. `left`: pods that are marked in the end."""

    writes: Counter[str]
    left: int
    look_ms: float

    @property
    def total(self) -> int:
        return sum(self.writes.values())


async def measure(_: House) -> list[Figure]:
    found = []
    for what, storm, bound in STORMS:
        acts = await weather(storm, fleets.NODES)
        name = f"evictions: {fleets.NODES * PODS} pods, {what}"
        found += [
            Figure(f"{name}: marks", acts.total - acts.writes["evicted"], "writes", target=bound),
            Figure(f"{name}: evictions", acts.writes["evicted"], "writes", target=MOST_EVICTED),
            Figure(f"{name}: a look, the longest", acts.look_ms, "ms"),
        ]
    return found


MOST_MARKS = 6
"""How often a pod is marked or unmarked while its device comes and goes for five minutes."""
MOST_EVICTED = SETTINGS.device_failures.evictions_per_second * STORM_S
STORMS = with_bounds(0, MOST_MARKS * fleets.NODES / 50, 0, MOST_MARKS * fleets.NODES / 2)


async def weather(storm: Storm, nodes: int) -> Acts:
    """Let the storm pass over so many nodes."""
    fleet = _Fleet(nodes)
    look_ms = 0.0
    for at in (*range(0, STORM_S, OFTEN_S), *range(STORM_S, STORM_S + CALM_S, LOOK_S)):
        if at <= STORM_S:
            fleet.publish(storm, at)
        fleet.lose_nodes(storm, at)
        fleet.end_pods(at)
        fleet.look(inventories.NOW + at)
        began = time.process_time()
        await fleet.act(inventories.NOW + at)
        look_ms = max(look_ms, 1000 * (time.process_time() - began))
    return Acts(fleet.writes, fleet.marked(), look_ms)


class _Fleet(StormyFleet):
    """With pods on half of its devices, and the API server as far as the steward uses it."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes, SETTINGS)
        self.writes: Counter[str] = Counter()
        self._nodes = nodes
        self._lost: set[int] = set()
        self._ending: dict[str, int] = {}
        self._pods: dict[str, Object] = {}
        self._at = inventories.NOW
        template = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]}}
        metadata = {"name": "t", "namespace": "default"}
        self.put(kinds.CLASS, {"metadata": {"name": "any"}, "spec": {}}, self._at)
        self.put(kinds.TEMPLATE, {"metadata": metadata, "spec": {"spec": template}}, self._at)
        for number in range(nodes):
            for device in range(PODS):
                self._place(number, device, template)
        self.look(self._at)
        log, decided = DecisionLog(100, 2**20), DecisionMetrics(CollectorRegistry())
        session = cast(Session, self)
        self._steward = FailedDevices(
            session,
            self.answers,
            AtRisk(self.answers, now=lambda: self._at),
            FinishedPods(PodClaims(self.answers.publisher)),
            FreedPlaces(),
            SETTINGS,
            EventRecorder(session, STEWARD, "one"),
            Recorder(self.answers, log, Journal(None, 0), decided),
            StewardMetrics(CollectorRegistry()),
            clock=lambda: self._at,
            monotonic=lambda: self._at,
        )

    def _place(self, number: int, device: int, spec: Object) -> None:
        node, name = fleets.name_of(number), f"p-{number}-{device}"
        owner = {"kind": "Job", "name": "train", "uid": "j", "controller": True}
        said = {"type": "PodScheduled", "status": "True", "lastTransitionTime": _long_ago()}
        pod: Object = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "annotations": {"fettle.dev/on-device-failure": "Evict"},
                "ownerReferences": [owner],
            },
            "spec": {
                "nodeName": node,
                "containers": [],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
            },
            "status": {
                "phase": "Running",
                "conditions": [said],
                "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}],
            },
        }
        given = {"request": "r", "driver": DRIVER, "pool": node, "device": f"gpu-{device}"}
        of_pod = {"kind": "Pod", "name": name, "uid": name, "controller": True}
        claim = {
            "metadata": {"name": name, "namespace": "default", "ownerReferences": [of_pod]},
            "spec": spec,
            "status": {
                "allocation": {"devices": {"results": [given]}},
                "reservedFor": [{"resource": "pods", "name": name, "uid": name}],
            },
        }
        self.put(kinds.CLAIM, claim, self._at)
        self._pods[name] = pod
        self.put(kinds.POD, pod, self._at)

    def lose_nodes(self, storm: Storm, at: int) -> None:
        """Nodes that publish nothing are not ready."""
        lost = {n for n in range(self._nodes) if not storm(n, at)["spec"]["devices"]}
        for number in lost ^ self._lost:
            ready = {"type": "Ready", "status": "Unknown" if number in lost else "True"}
            taints = [{"key": LOST[1], "effect": "NoSchedule"}] if number in lost else []
            node = {
                "metadata": {"name": fleets.name_of(number)},
                "spec": {"taints": taints},
                "status": {"conditions": [ready]},
            }
            self.put(kinds.NODE, node, self._at)
        self._lost = lost

    def end_pods(self, at: int) -> None:
        for name, since in [*self._ending.items()]:
            if at >= since + ENDS_AFTER_S:
                del self._ending[name], self._pods[name]
                for kind in (kinds.POD, kinds.CLAIM):
                    self.remove(kind, f"default/{name}", self._at)

    async def act(self, now: float) -> None:
        self._at = now
        await self._steward.look()

    def marked(self) -> int:
        return sum(len(pod["status"]["conditions"]) > 1 for pod in self._pods.values())

    # --- the API server

    async def patch(self, path: str, body: Mapping[str, Any], **_: Any) -> bytes:
        name = path.split("/")[-2]
        (condition,) = body["status"]["conditions"]
        pod = copy.deepcopy(self._pods[name])
        scheduled, *_others = pod["status"]["conditions"]
        is_gone = "$patch" in condition
        pod["status"]["conditions"] = [scheduled] if is_gone else [scheduled, condition]
        self.writes["unmarked" if is_gone else "marked"] += 1
        self._pods[name] = pod
        self.put(kinds.POD, pod, self._at)
        return b""

    async def create(self, path: str, _: Mapping[str, Any], *, dry_run: bool = False) -> bytes:
        name = path.split("/")[-2]
        pod = copy.deepcopy(self._pods[name])
        pod["metadata"]["deletionTimestamp"] = rfc3339_at(self._at)
        self.writes["evicted"] += 1
        self._pods[name] = pod
        self._ending[name] = round(self._at - inventories.NOW)
        self.put(kinds.POD, pod, self._at)
        return b""


def _long_ago() -> str:
    return rfc3339_at(inventories.NOW - 3600)
