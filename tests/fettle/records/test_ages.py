import pytest

from fettle.model import BadInput
from fettle.records import seconds_of


@pytest.mark.parametrize(
    ("age", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("1h", 3600),
        ("1.5h", 5400),
        ("7d", 604800),
        (" 2w ", 1209600),
        ("1d12h", 129600),
    ],
)
def test_an_age_is_numbers_and_units(age: str, seconds: float) -> None:
    assert seconds_of(age) == seconds


@pytest.mark.parametrize(
    "age", ["", "1", "h", "-1h", "0s", "1y", "1 h", "9" * 30 + "d", "١h", "nan", "1h30"]
)
def test_anything_else_is_told_what_is_accepted(age: str) -> None:
    with pytest.raises(BadInput, match="write a number and a unit, such as 90s, 30m, 1h or 7d"):
        seconds_of(age)
