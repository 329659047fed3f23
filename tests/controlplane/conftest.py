"""Fixtures of the tests on the real control plane. Each test gets an etcd and an API server that
nobody else has, and starts what else it needs on them, which ends with the test. Where a test left
these two alone, they are cleared for the next one; else others start, from a copy of what a new
cluster's etcd holds."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.controlplane import building, shipped
from tests.controlplane.api import Api
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.echo_extender import EchoExtender
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.kubelet import Kubelet

StartFettle = Callable[..., Awaitable[FettleProcess]]
StartEcho = Callable[[], Awaitable[EchoExtender]]

HERE = Path(__file__).parent
REQUIRED = "FETTLE_REQUIRE_CONTROLPLANE"
COLLECT_RARELY = {"GOGC": "400"}
"""A fifth less processor time until the API server is ready, for 75 MB more. Not for benchmarks."""
FAILED, LAST = pytest.StashKey[bool](), pytest.StashKey[bool]()
"""Whether a test failed, and whether one follows it that needs no control plane."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "controlplane: runs on a real Kubernetes control plane")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.controlplane)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    item.stash[LAST] = nextitem is None or HERE not in nextitem.path.parents


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the end of each log of its control plane."""
    report = yield
    plane = getattr(item, "funcargs", {}).get("control_plane")
    if report.when == "call" and report.failed and isinstance(plane, ControlPlane):
        item.stash[FAILED] = True
        for name, log in plane.logs().items():
            lines = log.read_text(errors="replace").splitlines()[-15:]
            text = "\n".join(line[:300] for line in lines)
            report.sections.append((f"{name}: last lines of {log}", text))
    return report


@pytest.fixture(scope="session")
def controlplane_binary() -> Path:
    """Built now if need be, which takes minutes on a machine that never built it."""
    if found := building.binary():
        return found
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED}=1, but {building.GO_ABSENT}", pytrace=False)
    pytest.skip(building.SKIPPED)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def new_cluster(controlplane_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What etcd holds once an API server has made all that it makes by itself."""
    folder = tmp_path_factory.mktemp("new-cluster")
    async with ControlPlane(controlplane_binary, folder / "control-plane") as plane:
        await plane.leave(folder / "data")
    return folder / "data"


@pytest.fixture(scope="session")
def cleared() -> Iterator[list[ControlPlane]]:
    """The control plane that waits for the next test, if there is one."""
    waiting: list[ControlPlane] = []
    yield waiting
    for plane in waiting:
        plane.kill()


@pytest.fixture
async def control_plane(
    request: pytest.FixtureRequest,
    controlplane_binary: Path,
    new_cluster: Path,
    cleared: list[ControlPlane],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[ControlPlane]:
    """etcd and API server; the test starts controller-manager and scheduler if it needs them."""
    if cleared:
        plane = cleared.pop()
        plane.move(tmp_path / "control-plane")
    else:
        home = tmp_path_factory.mktemp("api-server")
        plane = ControlPlane(
            controlplane_binary, home, data=new_cluster, environment=COLLECT_RARELY
        )
        plane.move(tmp_path / "control-plane")
        await plane.start()
    yield plane
    stash = request.node.stash
    if FAILED not in stash and not stash[LAST] and await plane.clear():
        cleared.append(plane)
    else:
        await plane.stop()


@pytest.fixture
def api(control_plane: ControlPlane) -> Api:
    """An administrator's client."""
    return control_plane.tester


@pytest.fixture
async def kubelet(control_plane: ControlPlane) -> AsyncIterator[Kubelet]:
    """Runs every pod that gets bound."""
    kubelet = Kubelet(control_plane.tester)
    kubelet.start()
    yield kubelet
    await kubelet.stop()


@pytest.fixture
async def start_echo_extender(control_plane: ControlPlane) -> AsyncIterator[StartEcho]:
    started: list[EchoExtender] = []

    async def start() -> EchoExtender:
        echo = EchoExtender(control_plane.binary, control_plane.folder)
        started.append(echo)
        await echo.ready()
        return echo

    yield start
    for echo in started:
        echo.stop()


@pytest.fixture
async def start_fettle(control_plane: ControlPlane) -> AsyncIterator[StartFettle]:
    """`await start_fettle("extender", settings=path, ...)`: applies deploy/rbac, starts Fettle
    under the service account of its roles and, unless `wait=False`, waits until it is ready. If no
    settings are given, they say `mode: enforce`, as a user's who enforces. What else it takes is
    what FettleProcess takes; an own `kubeconfig` leaves deploy/rbac alone."""
    started: list[FettleProcess] = []

    async def start(
        *roles: str, kubeconfig: Path | None = None, wait: bool = True, **how: Any
    ) -> FettleProcess:
        if kubeconfig is None:
            account = await shipped.account_for(control_plane.tester, roles)
            kubeconfig = await control_plane.kubeconfig_for_service_account(
                account, shipped.NAMESPACE
            )
        if "settings" not in how:
            how["settings"] = control_plane.folder / "enforcing.yaml"
            how["settings"].write_text("mode: enforce\n")
        how.setdefault("name", f"fettle-{len(started)}" if started else "fettle")
        fettle = FettleProcess(
            control_plane.folder, roles=list(roles), kubeconfig=kubeconfig, **how
        )
        started.append(fettle)
        fettle.start()
        if wait:
            await fettle.ready()
        return fettle

    yield start
    for fettle in started:
        fettle.kill()
