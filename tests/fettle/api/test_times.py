"""Times as people and the API read them."""

from datetime import UTC, datetime
from math import inf

import pytest

from fettle.explain.wording import text
from fettle.model import reasons, utc

LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize("seconds", [LAST.timestamp() + 7200, 1e18, inf])
def test_what_comes_after_the_last_time_that_can_be_written_is_that_time(seconds: float) -> None:
    assert utc(seconds) == LAST


def test_a_pod_of_the_year_9999_that_waits_is_told_until_when() -> None:
    waits = reasons.PatienceLasts(LAST.timestamp() + 7200)
    assert "until 9999-12-31 23:59:59 UTC" in text(waits)
