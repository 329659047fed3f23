"""A fleet whose steward looks at pods on failed devices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fettle.client import Session
from tests.fettle.client.fake_api import fake_api
from tests.fettle.steward.failing import (
    Fleet,
)


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with (
        fake_api() as api,
        await Session.open(api.kubeconfig(tmp_path)) as session,
    ):
        yield Fleet(api, session)
