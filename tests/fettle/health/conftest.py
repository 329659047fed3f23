"""A health book for each test."""

import pytest

from fettle.config import HealthSettings
from fettle.health import HealthBook
from tests.fettle.health.incidents import RULES


@pytest.fixture
def book() -> HealthBook:
    return HealthBook(HealthSettings(), RULES)
