"""A health book for each test."""

import pytest

from fettle.health import HealthBook
from fettle.settings import HealthSettings
from tests.fettle.health.incidents import RULES


@pytest.fixture
def book() -> HealthBook:
    return HealthBook(HealthSettings(), RULES)
