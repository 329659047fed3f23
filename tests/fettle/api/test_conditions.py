"""What the API requires of a condition is written."""

import msgspec
import pytest

from fettle.api.meta import Condition


@pytest.mark.parametrize("status", ["Unknown", "True"])
def test_a_conditions_status_is_always_written(status: str) -> None:
    written = msgspec.json.decode(msgspec.json.encode(Condition(type="Sound", status=status)))
    assert written == {"type": "Sound", "status": status}


def test_a_condition_without_a_status_is_unknown() -> None:
    assert msgspec.json.decode(b'{"type": "Sound"}', type=Condition).status == "Unknown"
