"""What is said of a value that is none of those that there are."""

from enum import StrEnum
from typing import Any

import msgspec
import pytest

from fettle.api.decoding import describe_error


class Word(StrEnum):
    ALLOW = "Allow"
    REFUSE = "Refuse"


class Inner(msgspec.Struct, rename="camel"):
    said_so: Word = Word.ALLOW
    number: int = 0


class Outer(msgspec.Struct):
    one: Inner | None = None
    many: tuple[Inner, ...] = ()
    listed: list[Word] = []
    by_name: dict[str, Inner] = {}


@pytest.mark.parametrize(
    "given",
    [
        {"one": {"saidSo": "refuse"}},
        {"many": [{}, {"saidSo": ""}]},
        {"listed": ["Allow", "x - at `$`"]},
        {"by_name": {"a.b[c]": {"saidSo": "Refuse "}}},
    ],
)
def test_the_values_that_there_are_are_listed(given: Any) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(given, Outer)
    said = describe_error(raised.value, Outer)
    assert said == f"{raised.value}; expected one of Allow, Refuse"


@pytest.mark.parametrize("given", [{"one": {"number": "x"}}, {"many": 1}, []])
def test_other_errors_stay_as_they_are(given: Any) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(given, Outer)
    assert describe_error(raised.value, Outer) == str(raised.value)
