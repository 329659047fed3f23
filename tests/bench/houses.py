"""What sections run against, each made when first asked for and ended with the run: the binary of
the control plane, a control plane with the big fleet in it, Fettle on either source."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType

from tests.bench import fleets
from tests.controlplane import building, fleet, shipped
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.echo_extender import EchoExtender
from tests.controlplane.fettle_process import FettleProcess

READY_WITHIN_S = 120.0
"""Only a bound on how long a measurement may take, not its target."""


class House:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = AsyncExitStack()
        self._plane: ControlPlane | None = None
        self._started = 0

    async def __aenter__(self) -> House:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    @property
    def binary(self) -> Path:
        found = building.binary()
        if found is None:
            raise building.BuildFailed(building.GO_ABSENT)
        return found

    async def plane(self) -> ControlPlane:
        """etcd and API server, with 5000 nodes of a device plugin and as many slices, 8 devices
        each."""
        if self._plane is None:
            fresh = self.fresh_plane(fleets.NODES)
            self._plane = await self._stack.enter_async_context(fresh)
        return self._plane

    @asynccontextmanager
    async def fresh_plane(self, nodes: int) -> AsyncIterator[ControlPlane]:
        """A further one with so many nodes, and as many slices."""
        async with ControlPlane(self.binary, self._next("control-plane")) as plane:
            size = (f"--nodes={nodes}", f"--devices={fleets.GPUS}")
            await fleet.load(self.binary, plane.tester_kubeconfig, *size, "--slices")
            yield plane

    @asynccontextmanager
    async def fettle_on_snapshot(self, replies: str = "compact") -> AsyncIterator[FettleProcess]:
        """The extender on the fleet of `fleets.write_snapshot`, ready; its replies in this form."""
        snapshot = self.folder / "snapshot"
        if not snapshot.exists():
            fleets.write_snapshot(snapshot)
        settings = self.folder / f"{replies}.yaml"
        settings.write_text(f"extender: {{replies: {replies}}}\n")
        fettle = FettleProcess(
            self._next("fettle"),
            roles=["extender"],
            settings=settings,
            arguments=["--snapshot", snapshot],
        )
        try:
            await start(fettle, fleets.name_of(1))
            yield fettle
        finally:
            fettle.kill()

    async def fettle_on_plane(self, extender_port: int | None = None) -> FettleProcess:
        """All roles under the shipped RBAC, on the loaded control plane; not started."""
        return await self.fettle_on(await self.plane(), extender_port)

    async def fettle_on(
        self, plane: ControlPlane, extender_port: int | None = None
    ) -> FettleProcess:
        """The same on that control plane."""
        account = await shipped.account_for(plane.tester, ())
        kubeconfig = await plane.kubeconfig_for_service_account(account, shipped.NAMESPACE)
        folder = self._next("fettle")
        return FettleProcess(folder, kubeconfig=kubeconfig, extender_port=extender_port)

    @asynccontextmanager
    async def echo(self, port: int | None = None) -> AsyncIterator[EchoExtender]:
        echo = EchoExtender(self.binary, self._next("echo"), port)
        try:
            await echo.ready()
            yield echo
        finally:
            echo.stop()

    def _next(self, name: str) -> Path:
        self._started += 1
        return self.folder / f"{name}-{self._started}"


async def start(fettle: FettleProcess, node: str) -> float:
    """Seconds until it says that it is ready, and answers a filter call without an error."""
    began = time.monotonic()
    fettle.start()
    await fettle.ready(READY_WITHIN_S)
    asked = json.loads(fleets.body("first", [node]))
    while True:
        status, answer = await fettle.ask_extender("filter", asked)
        if status == 200 and not answer["Error"]:
            return time.monotonic() - began
        if time.monotonic() - began > READY_WITHIN_S:
            raise TimeoutError(f"Fettle is ready, but still answers {status} {answer}")
        await asyncio.sleep(0.01)
