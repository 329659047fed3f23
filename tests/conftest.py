"""What all tests share: a fake API server and a session to it; no property test is timed, since
machines are shared and slow at times, and a fixture is made once for all examples."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fettle.client import Session
from tests.fettle.client.fake_api import FakeApi, fake_api

settings.register_profile(
    "fettle",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("fettle")


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as server:
        yield server


@pytest.fixture
async def session(api: FakeApi, tmp_path: Path) -> AsyncIterator[Session]:
    async with await Session.open(api.kubeconfig(tmp_path)) as opened:
        yield opened
