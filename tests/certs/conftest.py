"""The store and the clock of a rotation."""

import pytest

from tests.certs.replicas import Clock, Shared


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shared() -> Shared:
    return Shared()
