"""Quantities of capacities and counters as whole numbers of 1e-9, ready to be added and compared.

`fettle/api/quantities.py` parses them as the API does; this module has what the allocator does with
them. Pure.
"""

from functools import lru_cache
from typing import NamedTuple

from fettle.api import quantities
from fettle.api.resource import Quantity

UNIT: int = 10**9
MAX_INT64 = 2**63 - 1

Written = tuple[int, int, str, str]
"""(value, scale, text, format): the fields of Kubernetes' own struct for a quantity."""


class Unreadable(Exception):
    """A quantity that cannot be parsed, or whose parsing is not modelled; `str()` says why."""


class Amount(NamedTuple):
    """`nano` is the value in 1e-9. In Go, amounts are only equal with `==` if they are `written` in
    the same way; None equals nothing."""

    nano: int
    written: Written | None = None

    def same(self, other: "Amount") -> bool:
        """Whether Go's `==` holds between the two."""
        return self.written is not None and self.written == other.written

    def ceil(self) -> int:
        """The whole number that `Quantity.Value()` returns."""
        return -(-self.nano // UNIT)


def amount(quantity: Quantity) -> Amount:
    """Raises Unreadable."""
    if isinstance(quantity, float):
        raise Unreadable(f"{quantity} is written as a fraction without quotes")
    return _amount(str(quantity).strip())


def nano(quantity: Quantity) -> int:
    """The value in 1e-9; raises Unreadable."""
    return amount(quantity).nano


def whole(value: int, format_: str) -> Amount:
    """As `resource.NewQuantity` returns it."""
    return Amount(value * UNIT, (value, 0, "", format_))


def milli(value: int, format_: str) -> Amount:
    """As `resource.NewMilliQuantity` returns it."""
    return Amount(value * (UNIT // 1000), (value, -3, "", format_))


def format_of(quantity: Quantity) -> str:
    """`BinarySI`, `DecimalSI` or `DecimalExponent`: how it was written; raises Unreadable."""
    return _read(str(quantity).strip()).format


@lru_cache(maxsize=4096)
def _amount(text: str) -> Amount:
    read = _read(text)
    written = (read.value, read.scale, read.text, read.format) if read.small else None
    return Amount(read.nano, written)


def _read(text: str) -> quantities.Quantity:
    try:
        return quantities.parse(text)
    except (ValueError, quantities.Unsure) as error:
        raise Unreadable(str(error)) from error
