"""What all tests share: a bound on each, a fake API server and a session to it; no property test is
timed, since machines are shared and slow at times, and a fixture is made once for all examples."""

import gc
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from fettle.client import Session
from tests import prometheus
from tests.controlplane.building import SKIPPED
from tests.deploy import charting
from tests.fettle.client.fake_api import FakeApi, fake_api
from tests.hanging import (
    pytest_exception_interact,
    pytest_runtest_protocol,
    pytest_timeout_set_timer,
)

__all__ = [
    "pytest_exception_interact",
    "pytest_runtest_protocol",
    "pytest_timeout_set_timer",
]

# Each session and each process would read all authorities of the machine, which takes 20 ms, where
# this names them in one file. Whom tests trust they say.
os.environ["SSL_CERT_FILE"] = os.devnull

settings.register_profile(
    "fettle",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("quick", settings.get_profile("fettle"), max_examples=10)
settings.load_profile("fettle")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests come first where there are several workers, so that none is left with one."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays until the end, and is no garbage that each search goes through."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """After pytest's own summary, where nobody overlooks it. This is here and not beside the suite
    because the process that reports for parallel workers loads only this conftest."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    for reason in (SKIPPED, charting.SKIPPED, prometheus.SKIPPED):
        if any(reason in str(report.longrepr) for report in skipped):
            terminalreporter.write_line(reason, yellow=True)


@pytest.fixture(autouse=True)
def logs_as_ever() -> Iterator[None]:
    """A command that was run in this process leaves no level of its own to the tests after it."""
    yield
    if "structlog" in sys.modules and sys.modules["structlog"].is_configured():
        sys.modules["structlog"].reset_defaults()


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as server:
        yield server


@pytest.fixture
async def session(api: FakeApi, tmp_path: Path) -> AsyncIterator[Session]:
    async with await Session.open(api.kubeconfig(tmp_path)) as opened:
        yield opened
