"""The oracle is in the binary of the control plane; without Go, tests that need it are skipped."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.controlplane import building
from tests.controlplane.conftest import REQUIRED, SKIPPED
from tests.oracle.client import Oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    binary = building.binary()
    if binary is None:
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{REQUIRED}=1, but {building.GO_ABSENT}", pytrace=False)
        pytest.skip(f"{SKIPPED}: {building.GO_ABSENT}")
    with Oracle(binary) as running:
        yield running


@pytest.fixture
def seed() -> str:
    """Fresh in each run; `FETTLE_ORACLE_SEED` makes a run again."""
    return os.environ.get("FETTLE_ORACLE_SEED") or f"{random.SystemRandom().getrandbits(32):08x}"
