"""Quantities of Kubernetes and their functions. `fettle.api.quantities` parses them."""

import math

from fettle.api import quantities
from fettle.api.quantities import Quantity
from fettle.cel.library.values import (
    BOOL,
    DOUBLE,
    INT,
    QUANTITY,
    STRING,
    CelError,
    Frame,
    Functions,
    Undecidable,
    comparisons,
    function,
    method,
)

_UNIT: int = 10**9
_INT64 = range(-(2**63), 2**63)


class MutableQuantity:
    """A quantity while an expression runs: comparing it may change how Kubernetes holds it.

    One that is `derived`, by `add` or `sub`, is an error on the right side of `==`.
    """

    __slots__ = ("derived", "nano", "scale", "small", "value")

    def __init__(self, quantity: Quantity, *, derived: bool = False) -> None:
        self.nano, self.value, self.scale, self.small = quantity[:4]
        self.derived = derived

    def compare(self, other: "MutableQuantity") -> int:
        if not other.small:
            self.small = False
        return (self.nano > other.nano) - (self.nano < other.nano)

    def integer(self) -> int | None:
        return Quantity(self.nano, self.value, self.scale, self.small).integer()

    def plus(self, other: "MutableQuantity", sign: int = 1) -> "MutableQuantity":
        """The sum; held as machine integers if both are, and the sum fits."""
        if sign < 0 and other.small and other.value == _INT64[0]:  # Go's negation overflows
            raise Undecidable("the least integer taken from a quantity")
        nano = self.nano + sign * other.nano
        if self.small and other.small and other.value == 0:
            return _derived(nano, self.value, self.scale, small=True)
        if self.small and other.small and self.value == 0:
            return _derived(nano, sign * other.value, other.scale, small=True)
        scale = min(self.scale, other.scale)
        if scale < -100 or max(self.scale, other.scale) > 100:
            raise Undecidable("a sum of quantities with extreme exponents")
        one = self.value * 10 ** (self.scale - scale)
        other_ = sign * other.value * 10 ** (other.scale - scale)
        fits = all(number in _INT64 for number in (one, other_, one + other_))
        small = self.small and other.small and fits
        return _derived(nano, one + other_, scale, small=small)


def _derived(nano: int, value: int, scale: int, *, small: bool) -> MutableQuantity:
    return MutableQuantity(Quantity(nano, value, scale, small), derived=True)


def quantity(frame: Frame, text: str) -> MutableQuantity:
    frame.read(text)
    try:
        return MutableQuantity(quantities.parse(text))
    except ValueError as error:
        raise CelError(str(error)) from error
    except quantities.Unsure as error:
        raise Undecidable(str(error)) from error


def _is_quantity(frame: Frame, text: str) -> bool:
    try:
        quantity(frame, text)
    except CelError:
        return False
    return True


def _integer(_frame: Frame, held: MutableQuantity) -> int:
    number = held.integer()
    if number is None:
        raise CelError("cannot convert value to integer")
    return number


def _is_integer(_frame: Frame, held: MutableQuantity) -> bool:
    return held.integer() is not None


def _float(_frame: Frame, held: MutableQuantity) -> float:
    try:
        base = float(held.value)
    except OverflowError:
        base = math.inf if held.value > 0 else -math.inf
    return base if held.scale == 0 else base * _power_of_ten(held.scale)


def _power_of_ten(exponent: int) -> float:
    """As Go's math.Pow10, which is not always the nearest double."""
    major, minor = divmod(abs(exponent), 32)
    if exponent < 0:
        return float(f"1e-{32 * major}") / float(f"1e{minor}")
    return float(f"1e{32 * major}") * float(f"1e{minor}")


def _sign(_frame: Frame, held: MutableQuantity) -> int:
    return (held.nano > 0) - (held.nano < 0)


def _add(_frame: Frame, left: MutableQuantity, right: MutableQuantity) -> MutableQuantity:
    return left.plus(right)


def _sub(_frame: Frame, left: MutableQuantity, right: MutableQuantity) -> MutableQuantity:
    return left.plus(right, -1)


def _add_int(_frame: Frame, left: MutableQuantity, right: int) -> MutableQuantity:
    return left.plus(_of_int(right))


def _sub_int(_frame: Frame, left: MutableQuantity, right: int) -> MutableQuantity:
    return left.plus(_of_int(right), -1)


def _of_int(number: int) -> MutableQuantity:
    return MutableQuantity(Quantity(number * _UNIT, number, 0, True))


def _compare(_frame: Frame, left: MutableQuantity, right: MutableQuantity) -> int:
    return left.compare(right)


FUNCTIONS: Functions = {
    "quantity": (function((STRING,), QUANTITY, quantity),),
    "isQuantity": (function((STRING,), BOOL, _is_quantity),),
    "sign": (function((QUANTITY,), INT, _sign),),
    "asInteger": (method((QUANTITY,), INT, _integer),),
    "isInteger": (method((QUANTITY,), BOOL, _is_integer),),
    "asApproximateFloat": (method((QUANTITY,), DOUBLE, _float),),
    "add": (
        method((QUANTITY, QUANTITY), QUANTITY, _add),
        method((QUANTITY, INT), QUANTITY, _add_int),
    ),
    "sub": (
        method((QUANTITY, QUANTITY), QUANTITY, _sub),
        method((QUANTITY, INT), QUANTITY, _sub_int),
    ),
    **comparisons(QUANTITY, _compare),
}
