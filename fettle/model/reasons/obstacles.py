"""Obstacles: why one device that matches cannot be taken.

They are parts of sentences, as in "2 devices match: 1 allocated, 1 tainted (key)".
"""

from collections.abc import Iterable

import msgspec

from fettle.model.reasons.base import Reason
from fettle.model.subjects import PoolRef


class Obstacles(msgspec.Struct, frozen=True, gc=False):
    """How many devices the same obstacle keeps away."""

    obstacle: Reason
    devices: int


def counted(obstacles: Iterable[Obstacles], *, more: bool = False) -> str:
    """How many devices each keeps away; `more`: besides those that can be taken."""
    return ", ".join(
        f"{each.devices} {'more ' if more else ''}{each.obstacle}" for each in obstacles
    )


class DeviceAllocated(Reason, frozen=True, gc=False):
    """A claim holds it."""

    sentence = "allocated"


class CapacityMissing(Reason, frozen=True, gc=False):
    """It does not have a capacity that is requested."""

    sentence = "without capacity {capacity}"
    capacity: str


class CapacityTooSmall(Reason, frozen=True, gc=False):
    """It has less of a capacity than requested."""

    sentence = "with too little capacity"


class CapacityUsedUp(Reason, frozen=True, gc=False):
    """Others consume so much of it that too little is left."""

    sentence = "with too little capacity left"


class RequestPolicyGivesLess(Reason, frozen=True, gc=False):
    """Its request policy gives a request at most `largest` of a capacity."""

    sentence = "whose requestPolicy gives a request at most {largest} of {capacity}"
    capacity: str
    largest: str


class RequestPolicyRoundsUp(Reason, frozen=True, gc=False):
    """Its request policy rounds the request up to more than it gives."""

    sentence = "whose requestPolicy rounds the request up to more of {capacity} than it gives"
    capacity: str


class PartitionableDevicesOff(Reason, frozen=True, gc=False):
    """It consumes counters, and the feature gate DRAPartitionableDevices is off."""

    sentence = "of a kind that is disabled (DRAPartitionableDevices)"


class CountersExhausted(Reason, frozen=True, gc=False):
    """The counters of its pool do not suffice."""

    sentence = "for which the counters of {pool} do not suffice"
    pool: PoolRef


class Tainted(Reason, frozen=True, gc=False):
    """It has taints in its ResourceSlice that the request does not tolerate."""

    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"tainted ({', '.join(self.keys)})"


class TaintedByRule(Reason, frozen=True, gc=False):
    """A DeviceTaintRule taints it, and the request does not tolerate that."""

    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"tainted ({', '.join(self.keys)})"


class AttributeAbsent(Reason, frozen=True, gc=False):
    """It does not have the attribute that a constraint compares."""

    sentence = "without the attribute"
