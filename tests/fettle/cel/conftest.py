"""Expressions may be nested in tests as deeply as in the worker."""

import sys
from collections.abc import Iterator

import pytest

from fettle.cel.runtime.limits import RECURSION_LIMIT


@pytest.fixture(autouse=True)
def _recursion_limit() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION_LIMIT))
    yield
    sys.setrecursionlimit(before)
