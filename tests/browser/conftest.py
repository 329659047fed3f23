"""A Fettle on its real listener, whose objects hold an attack in each text that a tenant can write,
and a tab to look at it."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from fettle.api import kinds
from fettle.api.kinds import Kind
from fettle.api.meta import rfc3339
from fettle.browse import Known, by_token, make_browse_app, screened
from fettle.browse.access import Access
from fettle.cel import SelectorEngine
from fettle.cluster import Publisher
from fettle.config import ListenAddress, Settings
from fettle.model import utc
from fettle.observing import DecisionMetrics, LastRequests
from fettle.records import Became, Decided, DecisionLog, Journal, Placed, Recorder
from fettle.scheduling import Answers
from fettle.serve.listening import AppListener
from tests.browser.chromium import Tab, browser
from tests.controlplane.processes import free_port
from tests.fettle import building as b
from tests.fettle.browse.showing import known
from tests.fettle.cluster.inventory import fleets
from tests.fettle.records.building import decision

TOKEN = "a-token-of-letters"
ATTACK = "<img src=x onerror=alert(1)>"
SCRIPT = "\"'><script>alert(2)</script>javascript:alert(3)"
UUID = "GPU-01c3f2aa-9e1d-4a54-b1d4-6a50c1d2e9f7"
NAMED = f"p{ATTACK}"
GPU = "nvidia.com/gpu"
PICTURES = os.environ.get("FETTLE_PICTURES", "")


MEMORY = "ErrorCode:DCGM_FR_X GPU-1a2b bad Recommended Action=COMPONENT_RESET;"


def lately() -> LastRequests:
    """A scheduler has asked three seconds ago, but never about preemption."""
    last = LastRequests("extender", ("filter", "prioritize", "preempt"), "never")
    last.at |= dict.fromkeys(("filter", "prioritize"), time.perf_counter() - 3)
    return last


class Shown:
    """A Fettle that browsers can reach, and what is in it."""

    def __init__(self, fleet: fleets.Fleet, access: Access | None = None) -> None:
        self.fleet = fleet
        self.publisher, self.registry = Publisher(), CollectorRegistry()
        self.publisher.publish(fleet.look(), frozenset())
        self.answers = Answers(self.publisher, SelectorEngine(), Settings())
        metrics = DecisionMetrics(self.registry)
        self.recorder = Recorder(
            self.answers, DecisionLog(100, 2**20), Journal(None, 2**20), metrics
        )
        self.known: Known = known(
            self.answers,
            registry=self.registry,
            recorder=self.recorder,
            recoveries=fleet.inventory,
            last_requests=lambda: {"extender": lately()},
            caller_notes=lambda: [f"extender: refused {ATTACK}"],
        )
        self.asked: list[str] = []

        @web.middleware
        async def noting(request: web.Request, handler: Any) -> web.StreamResponse:
            reply: web.StreamResponse = await handler(request)
            self.asked.append(f"{request.path_qs} {reply.status}")
            return reply

        self.port = free_port()
        app = make_browse_app(self.known, access or by_token(TOKEN), screened([]), noting)
        self.listener = AppListener("browse", ListenAddress("127.0.0.1", self.port), None, app)

    token = TOKEN

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/#{TOKEN}"

    def at(self, view: str) -> str:
        return f"http://127.0.0.1:{self.port}/#/{view}"

    def heal(self, name: str) -> None:
        """What was said of this node is no longer said."""
        self._say(name, "")

    def hurt(self, name: str) -> None:
        """A fault is said of this node."""
        self._say(name, MEMORY)

    def _say(self, name: str, message: str) -> None:
        self.put(kinds.NODE, node(name, message, rack="r1"), 1e6)

    def put(self, kind: Kind, raw: dict[str, Any], after_s: float = 0.0) -> None:
        """What is so for so long."""
        self.fleet.put(kind, raw)
        self.fleet.now += after_s
        self.fleet.look()
        self.publisher.publish(self.fleet.view, self.fleet.changed)


def node(name: str, message: str = "", rack: str = "r1", **more: Any) -> Any:
    labels = {"nvidia.com/gpu.product": "H100", "network.topology.nvidia.com/leaf": rack}
    since = rfc3339(utc(time.time() - 7200))
    said = {
        "type": "GpuMemWatch",
        "status": "True",
        "message": message,
        "lastTransitionTime": since,
    }
    raw = fleets.node(name, labels=labels, status={"conditions": [said] if message else []}, **more)
    for field in ("capacity", "allocatable"):
        raw["status"][field] = {GPU: "8"}
    return raw


def attacked() -> fleets.Fleet:
    """Eight nodes with eight GPUs each. What tenants and monitors say of them is an attack."""
    fleet = fleets.Fleet()
    fleet.now = time.time()
    memory = f"ErrorCode:DCGM_FR_X GPU-1a2b {ATTACK}{SCRIPT} Recommended Action=COMPONENT_RESET;"
    lost = (
        f"ErrorCode:79 GPU:6 PCI:0000:db:00.0 GPU_UUID:{UUID} NVRM: Xid (PCI:0000:db:00): 79, "
        f"{ATTACK}{SCRIPT} Recommended Action=RESTART_BM;"
    )
    for number in range(8):
        name, said = f"gpu-{number:02}", {2: memory, 5: lost}.get(number, "")
        fleet.put(kinds.NODE, node(name, said, rack=f"r{number // 4}"))
    held = node("gpu-07", rack="r1")
    held["metadata"]["annotations"] = {"fettle.dev/hold": f"{ATTACK}{SCRIPT}"}
    fleet.put(kinds.NODE, held)
    fleet.put(kinds.SLICE, fleets.slice_("gpu-06", devices=4))
    fleet.put(
        kinds.NAMESPACE,
        {"metadata": {"name": "ours", "labels": {"fettle.dev/policy": "training"}}},
    )
    for name, on in ((NAMED, ""), ("runs", "gpu-02"), ("waits", "")):
        pod = b.gpu_pod(name=name)
        pod["metadata"] |= {
            "namespace": "ours",
            "uid": f"uid-{name}",
            "annotations": {"fettle.dev/policy": "training", "note": f"{ATTACK}{SCRIPT}"},
            "labels": {"app": f"{ATTACK}{SCRIPT}"},
            "creationTimestamp": rfc3339(utc(fleet.now - 3600)),
        }
        pod["spec"]["nodeName"] = on
        for container in pod["spec"]["containers"]:
            container["resources"] = {"limits": {GPU: "8"}, "requests": {GPU: "8"}}
        fleet.put(kinds.POD, pod)
    return fleet


def remember(shown: Shown) -> None:
    """What was decided in the last days, with attacks in its words."""
    why, now = f"{ATTACK}{SCRIPT}", time.time()
    log = shown.recorder.log
    refused: dict[str, Any] = {"nodes": 8, "refused": 8, "reasons": {"ScoreTooLow": 8}}
    for name in (NAMED, "waits"):
        about: dict[str, Any] = {
            "key": f"ours/{name}",
            "uid": f"uid-{name}",
            "owner": f"Job/{ATTACK}",
        }
        log.note(decision(at=now - 1800, why=why, waits_until=now + 3600, **about, **refused))
    for number in range(6):
        at, key = now - 86_400 * (number % 5) - 4000, f"ours/old-{number}"
        placed = Placed(node="gpu-02", at=at, why=why, reasons=("ScoreTooLow",), devices=8)
        log.note(
            decision(
                decided=Decided.NARROWED,
                at=at,
                key=key,
                uid=key,
                nodes=8,
                refused=2,
                reasons={"ScoreTooLow": 2},
                why=why,
                placed=placed if number % 2 else None,
                became=Became.FAILED if number % 2 else Became.SUCCEEDED,
                became_at=at + 3000,
                end=why,
            )
        )


def all_words() -> dict[str, Any]:
    """A pod in which each field that its owner words, and the API server lets be, is an attack."""
    attack = f"{ATTACK}{SCRIPT}"
    pod: dict[str, Any] = b.gpu_pod(name="all-words")
    pod["metadata"] |= {
        "namespace": "ours",
        "uid": "uid-all-words",
        "annotations": {"fettle.dev/policy": attack, "fettle.dev/mode": attack},
        "ownerReferences": [
            {"kind": attack, "name": attack, "uid": "x", "apiVersion": attack, "controller": True}
        ],
        "creationTimestamp": rfc3339(utc(time.time() - 3600)),
    }
    pod["spec"] |= {
        "schedulerName": attack,
        "schedulingGates": [{"name": attack}],
        "nodeSelector": {attack: attack},
        "resourceClaims": [{"name": attack, "resourceClaimName": attack}],
    }
    return pod


@pytest.fixture
async def shown() -> AsyncIterator[Shown]:
    found = Shown(attacked())
    remember(found)
    await found.listener.start()
    yield found
    await found.listener.stop()


@pytest.fixture
async def large() -> AsyncIterator[Shown]:
    """5000 nodes with 8 GPUs each."""
    async with _of_nodes(5000) as found:
        yield found


@pytest.fixture
async def usual() -> AsyncIterator[Shown]:
    """320 nodes with 8 GPUs each."""
    async with _of_nodes(320) as found:
        yield found


@asynccontextmanager
async def _of_nodes(count: int) -> AsyncIterator[Shown]:
    fleet = fleets.Fleet()
    fleet.now = time.time()
    for number in range(count):
        bad = MEMORY if number % 37 == 0 else ""
        fleet.put(kinds.NODE, node(f"node-{number:04}", bad, rack=f"r{number // 16:03}"))
    found = Shown(fleet)
    await found.listener.start()
    yield found
    await found.listener.stop()


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browser(tmp_path / "browser") as found:
        await found.look()
        yield found
