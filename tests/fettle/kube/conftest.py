"""A fake API server, and a session to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fettle.kube.session import Session
from tests.fettle.kube.fake_api import FakeApi, fake_api


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as server:
        yield server


@pytest.fixture
async def session(api: FakeApi, tmp_path: Path) -> AsyncIterator[Session]:
    async with await Session.open(api.kubeconfig(tmp_path)) as opened:
        yield opened
