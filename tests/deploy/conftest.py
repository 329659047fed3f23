"""Helm for the tests of the chart."""

import os
from pathlib import Path

import pytest

from tests.deploy import charting

REQUIRED = "FETTLE_REQUIRE_CONTROLPLANE"


@pytest.fixture(scope="session")
def helm() -> Path:
    """Built now if need be, which takes minutes on a machine that never built it."""
    if found := charting.binary():
        return found
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED}=1, but {charting.SKIPPED}", pytrace=False)
    pytest.skip(charting.SKIPPED)
