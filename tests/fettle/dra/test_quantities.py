import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.dra.quantities import UNIT, Unreadable, amount, milli, whole


@pytest.mark.parametrize(
    ("written", "nano"),
    [
        ("1", UNIT),
        ("1500m", 3 * UNIT // 2),
        ("80Gi", 80 * 2**30 * UNIT),
        (5, 5 * UNIT),
        ("-2", -2 * UNIT),
    ],
)
def test_quantities_are_parsed_exactly(written: str | int, nano: int) -> None:
    assert amount(written).nano == nano


@pytest.mark.parametrize("written", ["", "much", "1.5.2", 0.5])
def test_a_quantity_that_cannot_be_parsed_says_why(written: str | float) -> None:
    with pytest.raises(Unreadable):
        amount(written)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1Gi", "1Gi", True),
        ("1Gi", "1024Mi", False),  # one keeps its text, which Go compares, the other does not
        ("1024Mi", "1048576Ki", True),
        ("1000", "1k", False),
        ("2", "2.0", False),
        ("100000000000000000000000", "100000000000000000000000", False),  # compared by address
    ],
)
def test_equal_values_are_only_equal_in_go_if_their_structs_are(
    one: str, other: str, same: bool
) -> None:
    assert amount(one).same(amount(other)) is same


def test_a_rounded_amount_has_no_text() -> None:
    assert whole(2**30, "BinarySI").same(amount("1024Mi"))
    assert not whole(2**30, "BinarySI").same(amount("1Gi"))
    assert milli(1500, "DecimalSI").nano == amount("1500m").nano


@pytest.mark.parametrize(("written", "whole"), [("1500m", 2), ("-1500m", -1), ("3", 3)])
def test_a_fraction_is_rounded_up(written: str, whole: int) -> None:
    assert amount(written).ceil() == whole


@given(st.text(alphabet="0123456789.+-eEmkKMGTPinu", max_size=12))
def test_any_text_is_parsed_or_unreadable(text: str) -> None:
    try:
        read = amount(text)
    except Unreadable:
        return
    assert isinstance(read.nano, int)
