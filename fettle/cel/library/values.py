"""CEL values at run time, and one evaluation's frame.

Runs in the worker. Values are Python's own bool, int, float, str, bytes, None and list, the
containers of `containers`, and the classes here. `CelError` is an error of CEL, which `||` and
`&&` may absorb; `Undecidable` never is: it ends the evaluation without a decision.
"""

import ipaddress
from collections.abc import Callable
from typing import Any, NamedTuple

Value = Any

MAX_SIZE = 20_000
"""Longest string or list that an evaluation may make."""

COST_LIMIT = 1_000_000
"""`CELSelectorExpressionMaxCost`: where Kubernetes ends an evaluation."""
_MAX_COST = 100_000
"""Far below that limit, since not all that counts there counts here: but a tenth of it does."""


class CelError(Exception):
    """An error of CEL itself; where it reaches the top, the scheduler's attempt ends."""


class Ended(Exception):
    """An internal error of Kubernetes' evaluator, which ends the evaluation: nothing absorbs it."""


class Undecidable(Exception):
    """Something whose outcome is not surely known here; `str()` says what."""


def whole(digits: str, base: int = 10) -> int:
    """The number; a very long one only as something that fits no 64 bits."""
    significant = digits.lstrip("0")
    return int(significant or "0", base) if len(significant) < _LONG else 2**64


_LONG = 30
NO_OVERLOAD = "no such overload"


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class Duration(NamedTuple):
    nanos: int


class Timestamp(NamedTuple):
    """`nanos` since 1970 in UTC; `offset` is the zone it was written in, in seconds."""

    nanos: int
    offset: int = 0


class Address(NamedTuple):
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address


class Network(NamedTuple):
    """`address` may have bits beyond the prefix."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    bits: int


class Optional(NamedTuple):
    """`values` holds one value or none."""

    values: tuple[Value, ...] = ()


NOTHING = Optional()


class Format(NamedTuple):
    """A named format; `problems` are the reasons that a text has for not being of it."""

    name: str
    problems: Callable[[str], list[str]]


class Frame:
    """One evaluation: the device, the variables of macros, and what it may still cost."""

    __slots__ = ("cost", "device", "slots", "sure")

    def __init__(self, device: Value, slots: int) -> None:
        self.device = device
        self.slots: list[Value] = [None] * slots
        self.cost = 0
        self.sure = 0

    def spend(self, cost: int, sure: int = 0) -> None:
        """Count work that repeats or grows, at a tenth of what Kubernetes counts or more.

        `sure`: what it counts at least; beyond its limit, nothing absorbs that.
        """
        self.cost += cost
        if sure:
            self.sure += sure
            if self.sure > COST_LIMIT:
                raise Ended("actual cost limit exceeded")
        if self.cost > _MAX_COST:
            raise Undecidable("it takes too many steps")

    def read(self, *texts: str) -> None:
        """Count the work of reading texts once."""
        self.spend(1 + sum(map(len, texts)) // 10)


Run = Callable[[Frame], Value]
"""A compiled part of an expression."""
