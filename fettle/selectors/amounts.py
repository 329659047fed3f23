"""The functions on quantities and semantic versions.

Runs in the worker; how both are read is known to `quantities` and `versions`.
"""

from collections.abc import Callable

from fettle.selectors import quantities, versions
from fettle.selectors.quantities import Quantity
from fettle.selectors.values import CelError, Frame, Undecidable
from fettle.selectors.versions import Version


def quantity(frame: Frame, text: str) -> Quantity:
    frame.read(text)
    try:
        return quantities.parse(text)
    except ValueError as error:
        raise CelError(str(error)) from error
    except quantities.Unsure as error:
        raise Undecidable(str(error)) from error


def is_quantity(frame: Frame, text: str) -> bool:
    try:
        quantity(frame, text)
    except CelError:
        return False
    return True


def integer(frame: Frame, quantity: Quantity) -> int:
    number = _plain(quantity).integer()
    if number is None:
        raise CelError("cannot convert value to integer")
    return number


def is_integer(frame: Frame, quantity: Quantity) -> bool:
    return _plain(quantity).integer() is not None


def _plain(quantity: Quantity) -> Quantity:
    if quantity.derived:
        raise Undecidable("whether a sum of quantities is an integer")
    return quantity


def sign(frame: Frame, quantity: Quantity) -> int:
    return (quantity.nano > 0) - (quantity.nano < 0)


def add_quantity(frame: Frame, left: Quantity, right: Quantity) -> Quantity:
    return _derived(left.nano + right.nano)


def add_int(frame: Frame, left: Quantity, right: int) -> Quantity:
    return _derived(left.nano + right * 10**9)


def sub_quantity(frame: Frame, left: Quantity, right: Quantity) -> Quantity:
    return _derived(left.nano - right.nano)


def sub_int(frame: Frame, left: Quantity, right: int) -> Quantity:
    return _derived(left.nano - right * 10**9)


def _derived(nano: int) -> Quantity:
    if abs(nano) >= 2**62 * 10**9:
        raise Undecidable("a sum of quantities that is very large")
    return Quantity(nano, integral=False, derived=True)


def compare_quantities(frame: Frame, left: Quantity, right: Quantity) -> int:
    return (left.nano > right.nano) - (left.nano < right.nano)


def semver(frame: Frame, text: str, normalize: bool = False) -> Version:
    frame.read(text)
    if not text.isascii():
        raise Undecidable("a version that is not ASCII")
    try:
        return versions.parse_normalized(text) if normalize else versions.parse(text)
    except ValueError as error:
        raise CelError(str(error)) from error


def is_semver(frame: Frame, text: str, normalize: bool = False) -> bool:
    try:
        semver(frame, text, normalize)
    except CelError:
        return False
    return True


def compare_versions(frame: Frame, left: Version, right: Version) -> int:
    return versions.compare(left, right)


def number(part: str) -> Callable[[Frame, Version], int]:
    def number(frame: Frame, version: Version) -> int:
        value: int = getattr(version, part)
        if value >= 2**63:
            raise Undecidable("a version's number beyond 63 bits")
        return value

    return number
