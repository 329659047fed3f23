"""How much a request can get of a device's capacity, as far as that is for its `requestPolicy` to
say: for findings and explanations. Pure.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from fettle.api.resource import DeviceCapacity, Quantity
from fettle.dra.allocator.capacities import fits
from fettle.dra.allocator.outcomes import Aborted
from fettle.dra.quantities import Amount, Unreadable, amount, nano
from fettle.dra.slices import PublishedCapacity, PublishedDevice

EITHER = (False, True)
"""Where it is not known whether steps may be fractions of a unit, for which there is a gate."""


class Offer(NamedTuple):
    """A capacity of a device as it is published, and as the allocator reads it."""

    wire: DeviceCapacity
    read: PublishedCapacity

    def gives(self, wanted: Amount, fractional: Collection[bool] = EITHER) -> bool:
        """Whether a device that is not shared with others gives this much."""
        return any(_gives(self.read, wanted, fractional=way) for way in fractional)


def offer(device: PublishedDevice, name: str) -> Offer | None:
    """A capacity of a device that can be read; None where it has none of this name."""
    found = (device.device.capacity or {}).get(name)
    return Offer(found, device.capacities[name]) if found is not None else None


def most(offers: Iterable[Offer], fractional: Collection[bool] = EITHER) -> str:
    """The largest of the amounts that a device names and can give; "" if there is none."""
    given = (
        quantity
        for offer in offers
        for quantity in _named(offer.wire)
        if (wanted := read(quantity)) is not None and offer.gives(wanted, fractional)
    )
    return str(max(given, key=nano, default=""))


def read(quantity: Quantity) -> Amount | None:
    """As the allocator reads it; None where it cannot."""
    try:
        return amount(quantity)
    except Unreadable:
        return None


def _gives(capacity: PublishedCapacity, wanted: Amount, *, fractional: bool) -> bool:
    try:
        return fits({"": wanted}, {"": capacity}, {}, {}, fractional=fractional)
    except Aborted:
        return False


def _named(capacity: DeviceCapacity) -> Iterator[Quantity]:
    yield capacity.value
    if (policy := capacity.request_policy) is not None:
        yield from policy.valid_values or ()
        if policy.valid_range is not None and policy.valid_range.max is not None:
            yield policy.valid_range.max
