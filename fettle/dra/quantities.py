"""Quantities of capacities and counters as whole numbers of 1e-9, ready to be added and compared.

Pure. How the API reads a quantity is known to `selectors/quantities.py`; here stands what the
allocator does with them. May import `wire` and that module only.
"""

from functools import lru_cache
from typing import NamedTuple

from fettle.api import quantities
from fettle.api.resource import Quantity

UNIT: int = 10**9
MAX_INT64 = 2**63 - 1

Written = tuple[int, int, str, str]
"""(value, scale, text, format): the fields in which Kubernetes' own struct keeps a quantity."""


class Unreadable(Exception):
    """A quantity that cannot be read, or whose reading is not modelled; `str()` says why."""


class Amount(NamedTuple):
    """`nano` is the value in 1e-9. Amounts written alike compare equal in Go, others of the same
    value do not; `written` None equals nothing."""

    nano: int
    written: Written | None = None

    def same(self, other: "Amount") -> bool:
        """Whether Go's `==` holds between the two."""
        return self.written is not None and self.written == other.written

    def ceil(self) -> int:
        """The whole number that `Quantity.Value()` gives."""
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
    """What `resource.NewQuantity` makes of a whole number."""
    return Amount(value * UNIT, (value, 0, "", format_))


def milli(value: int, format_: str) -> Amount:
    """What `resource.NewMilliQuantity` makes of thousandths."""
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
