"""Quantities are read, compared and called integers as the Kubernetes API does."""

from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api.quantities import Quantity, Unsure, parse

SUFFIXES = {
    "n": "1e-9",
    "u": "1e-6",
    "m": "1e-3",
    "": "1",
    "k": "1e3",
    "M": "1e6",
    "G": "1e9",
    "T": "1e12",
    "P": "1e15",
    "E": "1e18",
    "e3": "1e3",
    "E-2": "1e-2",
    "Ki": "1024",
    "Mi": "1048576",
    "Gi": "1073741824",
}


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0),
        ("1", 10**9),
        ("-1.5", -15 * 10**8),
        ("+2k", 2000 * 10**9),
        ("100m", 10**8),
        ("80Gi", 80 * 2**30 * 10**9),
        ("0.5Ki", 512 * 10**9),
        ("1e3", 1000 * 10**9),
        ("1E", 10**27),
        ("12e-3", 12 * 10**6),
        (".5", 5 * 10**8),
        ("1.", 10**9),
        ("Ki", 0),  # no digits at all are a zero, to the API
        (".", 0),
        ("0.0000000001", 1),  # finer than 1e-9 is rounded away from zero
        ("-0.0000000001", -1),
        ("9000000000Gi", (2**63 - 1) * 10**9),  # binary ones are capped
    ],
)
def test_texts_have_the_value_that_the_api_reads(text: str, nano: int) -> None:
    assert parse(text).nano == nano


@pytest.mark.parametrize("text", ["", "abc", "1ki", "1 Gi", "1Gi ", "0x1", "1e", "1_000", "Ei"])
def test_what_the_api_refuses_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"quantity|suffix|digits|empty"):
        parse(text)


def test_an_enormous_exponent_is_not_computed() -> None:
    with pytest.raises(Unsure):
        parse("1e2000000000")


@pytest.mark.parametrize(
    ("text", "integer"),
    [("132", 132), ("2k", 2000), ("1Gi", 2**30), ("1.0", None), ("1.0Gi", None), ("1000m", None)],
)
def test_whether_it_is_an_integer_depends_on_how_it_was_written(
    text: str, integer: int | None
) -> None:
    assert parse(text).integer() == integer


@given(
    st.decimals(min_value=-(10**6), max_value=10**6, places=6),
    st.sampled_from(sorted(SUFFIXES)),
)
def test_a_number_with_a_suffix_is_their_product(number: Decimal, suffix: str) -> None:
    exact = number * Decimal(SUFFIXES[suffix]) * 10**9
    assert abs(parse(f"{number:f}{suffix}").nano - exact) < 1


@given(st.text(max_size=30) | st.text(alphabet="0123456789.+-eEinumkKMGTP", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError, Unsure):
        assert isinstance(parse(text), Quantity)


@given(
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    st.sampled_from(["m", "", "k", "Ki", "Gi"]),
)
def test_quantities_of_one_suffix_are_ordered_as_their_numbers(
    left: int, right: int, suffix: str
) -> None:
    one, other = parse(f"{left}{suffix}").nano, parse(f"{right}{suffix}").nano
    if max(one, other) < (2**63 - 1) * 10**9:
        assert (one < other) == (left < right)
