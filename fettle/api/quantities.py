"""Kubernetes quantities: an exact port of how the API reads them, odd corners included.

Values are whole numbers of 1e-9, since the API rounds finer values away from zero to that. Whether
a value "is an integer" depends on how it was written (`1` is one, `1.0` and `1.0Gi` are not), and
so does what Go's `==` says. So a Quantity also keeps how Kubernetes stores it.
"""

import re
from functools import lru_cache
from typing import NamedTuple

_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_PARTS = re.compile(
    r"(?P<sign>[+-]?)0*+(?P<number>[0-9]*+)(?:\.(?P<fraction>[0-9]*+))?"
    r"(?P<suffix>[eEinumkKMGTP]*+[+-]?[0-9]*+)",
)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
_MAX_INT = 2**63 - 1
_NANO = 9
_UNIT: int = 10**_NANO
_MAX_EXPONENT = 100
_SMALL_DIGITS = 18
_MAX_LENGTH = 1000


class Unsure(Exception):
    """How the API reads this quantity is not modelled; `str()` says why."""


class Quantity(NamedTuple):
    """`nano` is the value in units of 1e-9; it equals `value` · 10**`scale`.

    - `small`: Kubernetes stores it as such a pair of machine integers, not as a big decimal.
    - `format`: how it was written: `BinarySI`, `DecimalSI` or `DecimalExponent`.
    - `text`: the text that Kubernetes keeps beside a small value; "" if it was not canonical.
    """

    nano: int
    value: int = 0
    scale: int = 0
    small: bool = False
    format: str = "DecimalSI"
    text: str = ""

    def integer(self) -> int | None:
        """The value if the API calls it an integer, else None."""
        whole, rest = divmod(self.nano, _UNIT)
        if rest or not self.small or self.scale < 0 or not -_MAX_INT - 1 <= whole <= _MAX_INT:
            return None
        return whole


class _Text(NamedTuple):
    """A quantity's text in parts. `fraction` is "" both for `1` and for `1.`."""

    whole: str
    negative: bool
    number: str
    fraction: str
    has_digits: bool


@lru_cache(maxsize=4096)
def parse(text: str) -> Quantity:
    """The quantity as the API reads it. Raises ValueError, or Unsure where that is not modelled."""
    if not text:
        raise ValueError("a quantity cannot be empty")
    if text == "0":
        return Quantity(0, small=True, text="0")
    match = _PARTS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    if len(text) > _MAX_LENGTH:
        raise Unsure("a quantity of very many digits")
    number, fraction, suffix = match["number"], match["fraction"] or "", match["suffix"]
    parts = _Text(
        whole=text,
        negative=match["sign"] == "-",
        number=number or "0",
        fraction=fraction,
        has_digits=any(c.isdigit() for c in text[: len(text) - len(suffix)]),
    )
    if suffix in _BINARY:
        return _binary(parts, _BINARY[suffix])
    format_ = "DecimalSI" if suffix in _DECIMAL else "DecimalExponent"
    return _decimal(parts, _exponent(text, suffix), format_)


def _exponent(text: str, suffix: str) -> int:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise ValueError(f"{text!r} has no known suffix")
    if len(match[1]) > 10 or abs(int(match[1])) > _MAX_EXPONENT:
        raise Unsure(f"the exponent of {text!r} is beyond ±{_MAX_EXPONENT}")
    return int(match[1])


def _decimal(parts: _Text, exponent: int, format_: str) -> Quantity:
    digits = parts.number + parts.fraction
    scale = exponent - len(parts.fraction)
    if len(digits) <= _SMALL_DIGITS and scale >= -_NANO:
        canonical = scale % 3 == 0 and digits[0] != "0" and not digits.endswith("000")
        return _small(parts, int(digits), scale, format_, canonical=canonical)
    return _big(parts, int(digits), scale, format_)


def _binary(parts: _Text, exponent: int) -> Quantity:
    room = 15 - len(parts.number) - exponent * 3 // 10 - 1
    number = int(parts.number + parts.fraction)
    value = number * 2**exponent
    if not parts.fraction and room >= 0 and value <= _MAX_INT:
        return _small(parts, value, 0, "BinarySI", canonical=number % 8 != 0)
    if _nano(value, -len(parts.fraction)) > _MAX_INT * _UNIT:
        return _big(parts, _MAX_INT, 0, "BinarySI", rounded=True)
    return _big(parts, value, -len(parts.fraction), "BinarySI")


def _small(parts: _Text, value: int, scale: int, format_: str, *, canonical: bool) -> Quantity:
    sign = -1 if parts.negative else 1
    kept = parts.whole if canonical else ""
    return Quantity(sign * _nano(value, scale), sign * value, scale, True, format_, kept)


def _big(parts: _Text, value: int, scale: int, format_: str, *, rounded: bool = False) -> Quantity:
    """Big decimals are rounded to 1e-9, except zero, which keeps its digits."""
    if not parts.has_digits:
        raise ValueError(f"{parts.whole!r} has no digits")
    nano = _nano(value, scale)
    if value and not rounded:
        value, scale = nano, -_NANO
    sign = -1 if parts.negative else 1
    return Quantity(sign * nano, sign * value, scale, False, format_)


def _nano(value: int, scale: int) -> int:
    """`value · 10**scale` in units of 1e-9, rounded away from zero; `value` is not negative."""
    shift = scale + _NANO
    power: int = 10 ** abs(shift)
    return value * power if shift >= 0 else -(-value // power)
