"""All that runs: a control plane, two replicas of each part of Fettle, kubelets, and a Prometheus
where one is installed. Each Fettle has its own way to the API server, clock and settings, so that
an action can disturb one of them alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.controlplane import objects, shipped
from tests.controlplane.api import Api, ApiError
from tests.controlplane.clocks import Clock
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_gpu_nodes
from tests.controlplane.installed import until_trusted
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.processes import Process, ProcessFailed, free_port
from tests.controlplane.relay import Relay
from tests.prometheus.server import PROMETHEUS, Page, running

GPU_NODES = [f"gpu-{i}" for i in range(6)]
DRA_NODES = [f"dra-{i}" for i in range(4)]
DRA_GPUS = 4
FAILING_GPU, FAILING_DRA = ("gpu-0", "gpu-1", "gpu-2"), ("dra-0", "dra-1")
"""The others stay sound, so that there is always a place for work."""
ROLES = ("extender", "webhook", "steward")
OPTIONAL = shipped.DEPLOY / "rbac" / "optional"
RIGHTS = (
    "health-taints",
    "hold-taints",
    "node-marks",
    "pod-conditions",
    "pod-evictions",
    "suspend-jobs",
    "wake-preemptors",
)
EVERYDAY = (ApiError, aiohttp.ClientError, OSError, TimeoutError, LookupError, RuntimeError)
"""What calls meet while the API server is away, or what they are about is."""
SETTLED = {
    "mode": "enforce",
    "steward": {"leaseSeconds": 5},
    # So few that memory does not grow by them for hours.
    "records": {"maxDecisions": 1000},
}
ACTS: dict[str, Any] = {
    "deviceTaints": {"unhealthy": "NoSchedule", "confirmSeconds": 2},
    "nodeMarks": {
        "label": True,
        "condition": True,
        "cordon": "AnyDevice",
        "confirmSeconds": 2,
        "holdSeconds": 2,
    },
    "deviceFailures": {"allow": "Evict", "confirmSeconds": 3, "evictionsPerSecond": 1},
}
"""All that the steward may do."""


class Replica(NamedTuple):
    """One Fettle. The `spared` one of two is never killed or replaced: its memory shows leaks."""

    fettle: FettleProcess
    relay: Relay
    clock: Clock
    settings: Path
    more: dict[str, Any]
    spared: bool

    @property
    def name(self) -> str:
        return self.fettle.name

    def write_settings(self, *parts: dict[str, Any]) -> None:
        whole: dict[str, Any] = {}
        for part in (SETTLED, self.more, *parts):
            whole |= part
        beside = self.settings.with_suffix(".new")
        beside.write_text(json.dumps(whole))
        beside.replace(self.settings)


async def fetch(fettle: FettleProcess, path: str, **params: str) -> tuple[int, Any]:
    """What the browse listener answers: the status, and the JSON or else the text."""
    async with asyncio.timeout(10):
        return await fettle.browse(path, **params)


class Prometheus:
    """Behind a relay, so that its address stays the same over restarts."""

    def __init__(self, folder: Path, relay: Relay, page: Page) -> None:
        self._folder, self._relay, self._page = folder, relay, page
        self._running = ExitStack()

    def start(self) -> None:
        jobs = {"dcgm": [self._page.address]}
        url = self._running.enter_context(running(self._folder, jobs))
        self._relay.to_port = int(url.rpartition(":")[2])

    def kill(self) -> None:
        self._running.close()
        self._relay.cut()


class House:
    def __init__(self, plane: ControlPlane, api: Api, kubelet: Kubelet) -> None:
        self.plane, self.api, self.kubelet = plane, api, kubelet
        self.replicas: dict[str, Replica] = {}
        self.extender_url = ""
        self.webhook_port = free_port()
        self.alert_ports: list[int] = []
        self.prometheus: Prometheus | None = None
        self.tenant: Api | None = None
        self.down: Counter[str] = Counter()
        """Names of processes that an action has taken away, or replaces."""
        self.broken: dict[str, float] = {}
        """When each was last taken away or came back."""
        self.disturbing = 0
        self._calm_since = time.monotonic()
        self._mends: dict[str, tuple[asyncio.Task[None], Callable[[], Awaitable[object]]]] = {}

    # --- what is disturbed now

    @contextmanager
    def taken(self, *names: str) -> Iterator[None]:
        """These processes end or are replaced meanwhile."""
        for name in names:
            self.down[name] += 1
            self.broken[name] = time.time()
        try:
            yield
        finally:
            for name in names:
                self.down[name] -= 1
                self.broken[name] = time.time()

    @contextmanager
    def disturbed(self, calm_after_s: float = 0.0) -> Iterator[None]:
        """Pods may wait meanwhile, and so long after it."""
        self.disturbing += 1
        try:
            yield
        finally:
            self.disturbing -= 1
            calm_at = time.monotonic() + calm_after_s
            self._calm_since = max(self._calm_since, calm_at)

    @property
    def calm_since(self) -> float | None:
        """On the monotonic clock; None if it is not calm."""
        if self.disturbing or time.monotonic() < self._calm_since:
            return None
        return self._calm_since

    # --- what is to be mended

    def mend_later(self, key: str, after_s: float, mend: Callable[[], Awaitable[object]]) -> bool:
        """Mend what an action broke, as soon as the API server takes it; False if it is broken
        already, and the action has nothing to do."""
        if key in self._mends:
            return False

        async def wait() -> None:
            await asyncio.sleep(after_s)
            await insist(mend)
            del self._mends[key]

        self._mends[key] = asyncio.create_task(wait(), name=f"mend {key}"), mend
        return True

    async def mend_all(self) -> None:
        pending, self._mends = self._mends, {}
        for task, mend in pending.values():
            task.cancel()
            await insist(mend)

    # --- processes

    def processes(self) -> dict[str, Process]:
        found = {name: self.plane.process(name) for name in self.plane.pids()}
        return found | {name: one.fettle.process for name, one in self.replicas.items()}

    def of_role(self, role: str) -> list[Replica]:
        return [one for name, one in self.replicas.items() if name.startswith(role)]

    def ports(self) -> dict[str, int]:
        """Of every listener of Fettle."""
        found = {f"browse of {n}": r.fettle.browse_port for n, r in self.replicas.items()}
        found |= {f"alerts {i}": port for i, port in enumerate(self.alert_ports)}
        return found | {
            "extender": self.of_role("extender")[0].fettle.extender_port,
            "webhook": self.webhook_port,
        }

    async def start_scheduler(self) -> None:
        configuration = shipped.scheduler_configuration(self.extender_url)
        # Else a pod may wait ten seconds more before the scheduler looks at it again.
        configuration |= {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
        await self.plane.start_scheduler(configuration)

    async def start_replica(self, replica: Replica) -> None:
        replica.fettle.start()
        await replica.fettle.ready(120)


async def insist(call: Callable[[], Awaitable[object]], for_s: float = 60.0) -> None:
    """Call until it is taken; what is not there any more needs no mending."""
    deadline = time.monotonic() + for_s
    while True:
        try:
            async with asyncio.timeout(15):
                await call()
            return
        except ApiError as error:
            if error.code == 404:
                return
            if time.monotonic() > deadline:
                raise
        except EVERYDAY:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.3)


@asynccontextmanager
async def running_house(binary: Path, folder: Path) -> AsyncIterator[House]:
    """Everything started and ready, and ended with the context."""
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(ControlPlane(binary, folder / "control-plane"))
        api = await stack.enter_async_context(plane.api_as_user("soak", "system:masters"))
        await plane.start_controller_manager()
        kubelet = Kubelet(api)
        kubelet.start()
        stack.push_async_callback(kubelet.stop)
        house = House(plane, api, kubelet)
        await _make_fleet(api)
        more = await _start_prometheus(house, folder, stack)
        await _start_fettle(house, folder, more, stack)
        await house.start_scheduler()
        yield house


async def _make_fleet(api: Api) -> None:
    await shipped.apply(api, shipped.manifests(shipped.DEPLOY / "crds"))
    await create_gpu_nodes(api, *GPU_NODES)
    for name in DRA_NODES:
        await create_dra_node(api, name, DRA_GPUS)
    await api.create(objects.claim_template("one-gpu"))


async def _start_prometheus(house: House, folder: Path, stack: AsyncExitStack) -> dict[str, Any]:
    """The settings that name it; none where it is not installed."""
    if PROMETHEUS is None:
        return {}
    page, relay = Page(), await stack.enter_async_context(Relay(1))
    stack.callback(page.close)
    # Of a GPU that is well, for the rules to have something to read.
    labels = 'Hostname="gpu-5",gpu="0",UUID="GPU-5",namespace="gpu-operator"'
    page.text = f"DCGM_FI_DEV_XID_ERRORS{{{labels}}} 0\n"
    house.prometheus = Prometheus(folder / "prometheus", relay, page)
    house.prometheus.start()
    stack.callback(house.prometheus.kill)
    url = f"http://127.0.0.1:{relay.port}"
    return {"prometheus": {"url": url, "intervalSeconds": 2, "timeoutSeconds": 1}}


async def _start_fettle(
    house: House, folder: Path, more: dict[str, Any], stack: AsyncExitStack
) -> None:
    await shipped.apply_rbac(house.api)
    for rights in RIGHTS:
        await shipped.apply(house.api, shipped.manifests(OPTIONAL / f"{rights}.yaml"))
    extender_port = free_port()
    house.extender_url = f"http://127.0.0.1:{extender_port}"
    for role in ROLES:
        await shipped.account_for(house.api, [role])
        for letter in "ab":
            name = f"{role}-{letter}"
            own = folder / name
            (own / "records").mkdir(parents=True)
            relay = await stack.enter_async_context(Relay(house.plane.ports.api_server))
            clock = Clock(own)
            fettle = FettleProcess(
                own,
                roles=[role],
                kubeconfig=own / "kubeconfig",
                settings=own / "settings.yaml",
                env={**clock.env, "FETTLE_RECORDS": str(own / "records")},
                name=name,
                extender_port=extender_port,
                webhook_port=house.webhook_port,
            )
            its = dict(more)
            if role == "steward":
                house.alert_ports.append(free_port())
                its["alertmanager"] = {"listen": f"127.0.0.1:{house.alert_ports[-1]}"}
            replica = Replica(fettle, relay, clock, own / "settings.yaml", its, letter == "b")
            house.replicas[name] = replica
            replica.write_settings(ACTS)
            await write_kubeconfig(house, replica)
            fettle.start()
            stack.callback(fettle.kill)
    await shipped.apply(house.api, shipped.webhook_configurations(house.webhook_port))
    await asyncio.gather(*(one.fettle.ready(120) for one in house.replicas.values()))
    await until_trusted(house.api)


async def write_kubeconfig(house: House, replica: Replica) -> None:
    """With a new token, and led over the replica's relay."""
    role = replica.name.partition("-")[0]
    direct = await house.plane.kubeconfig_for_service_account(
        f"fettle-{role}", shipped.NAMESPACE, lifetime_s=2 * 86400
    )
    ports = (f":{house.plane.ports.api_server}", f":{replica.relay.port}")
    made = replica.fettle.folder / ".kubeconfig"
    made.write_text(direct.read_text().replace(*ports))
    made.replace(replica.fettle.folder / "kubeconfig")


async def leader(house: House) -> Replica | None:
    """The steward that says that it leads."""
    for one in house.of_role("steward"):
        with contextlib.suppress(*EVERYDAY, ProcessFailed):
            _, text = await fetch(one.fettle, "/metrics")
            if "\nfettle_steward_leader 1.0" in text:
                return one
    return None
