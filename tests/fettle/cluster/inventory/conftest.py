"""An inventory for each test."""

import pytest

from tests.fettle.cluster.inventory.fleets import Fleet


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()
