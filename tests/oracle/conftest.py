"""The oracle is in the binary of the control plane; without Go, tests that need it are skipped."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import building
from tests.controlplane.conftest import REQUIRED
from tests.oracle.client import Oracle

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.oracle)


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    binary = building.binary()
    if binary is None:
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{REQUIRED}=1, but {building.GO_ABSENT}", pytrace=False)
        pytest.skip(building.SKIPPED)
    with Oracle(binary) as running:
        yield running


@pytest.fixture
def seed() -> str:
    """Fresh in each run; `FETTLE_ORACLE_SEED` makes a run again."""
    return os.environ.get("FETTLE_ORACLE_SEED") or f"{random.SystemRandom().getrandbits(32):08x}"
