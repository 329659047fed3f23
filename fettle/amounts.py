"""Quantities of capacities and counters as whole numbers of 1e-9, ready to be added and compared.

Pure. How the API reads a quantity is known to `selectors/quantities.py`; here stands what the
allocator does with them. May import `wire` and that module only.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from fettle.selectors import quantities
from fettle.wire.resource import Quantity

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


@lru_cache(maxsize=4096)
def _amount(text: str) -> Amount:
    try:
        value = quantities.parse(text).nano
    except (ValueError, quantities.Unsure) as error:
        raise Unreadable(str(error)) from error
    return Amount(value, _written(text))


_PARTS = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?(.*)")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def format_of(text: Quantity) -> str:
    """`BinarySI`, `DecimalSI` or `DecimalExponent`: how a quantity was written."""
    match = _PARTS.fullmatch(str(text).strip())
    suffix = match[4] if match is not None else ""
    if suffix in _BINARY:
        return "BinarySI"
    return "DecimalSI" if suffix in _DECIMAL else "DecimalExponent"


def _written(text: str) -> Written | None:
    """The fields of Go's struct where it holds an int64, None where it holds a big decimal.

    A text in canonical form is kept, others are not: so `1Gi` and `1024Mi` differ.
    """
    if text == "0":
        return (0, 0, "0", "DecimalSI")
    match = _PARTS.fullmatch(text)
    assert match is not None  # it was parsed
    sign, number, fraction, suffix = match[1], match[2] or "0", match[3] or "", match[4]
    format_ = format_of(text)
    digits = number + fraction
    if format_ == "BinarySI":
        power = _BINARY[suffix]
        if fraction or 15 - len(number) - power * 3 // 10 - 1 < 0:
            return None
        scale, value, kept = 0, int(digits) << power, power % 10 == 0 and int(digits) & 7 != 0
    else:
        scale = (_DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])) - len(fraction)
        if len(digits) > 18 or scale < -9:
            return None
        value = int(digits)
        kept = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    if value > MAX_INT64:
        return None
    return (-value if sign == "-" else value, scale, text if kept else "", format_)
