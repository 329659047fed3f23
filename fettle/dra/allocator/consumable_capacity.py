"""Consumable capacity: how much of a device a request consumes, and whether that much is left.

A port of `consumable_capacity.go` of k8s.io/dynamic-resource-allocation/structured (incubating).
Sums are in 1e-9. Raises Aborted where Kubernetes returns an error.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from fettle.api.resource import DeviceCapacity, Quantity
from fettle.dra.allocator.results import Aborted
from fettle.dra.pools import PublishedCapacity, PublishedDevice, RequestPolicy, RequestPolicyRange
from fettle.dra.quantities import MAX_INT64, UNIT, Amount, Unreadable, amount, milli, nano, whole
from fettle.model import reasons

Requested = Mapping[str, Amount]

Used = Mapping[str, int]

_MILLI = UNIT // 1000


def fits_capacities(
    requested: Requested,
    capacities: Mapping[str, PublishedCapacity],
    used: Used,
    taking: Used,
    *,
    fractional: bool,
) -> bool:
    """Whether a request fits beside what is `used` and what this search is `taking`.

    Upstream's `CmpRequestOverCapacity`.
    """
    if any(name not in capacities for name in requested):
        return False
    consumed = consumed_capacities(requested, capacities, fractional=fractional)
    for name, value in consumed.items():
        if value.nano < 0:
            detail = f"the consumption of capacity {name} would be negative"
            raise Aborted(reasons.CapacityRequestInvalid(detail))
    for name, capacity in capacities.items():
        if capacity.policy is not None and _violates(
            consumed[name], capacity.policy, fractional=fractional
        ):
            return False
        total = used.get(name, 0) + consumed[name].nano + taking.get(name, 0)
        if total > capacity.value.nano:
            return False
    return True


def consumed_capacities(
    requested: Requested, capacities: Mapping[str, PublishedCapacity], *, fractional: bool
) -> dict[str, Amount]:
    """How much a request consumes of each capacity of a device; raises Aborted."""
    return {
        name: _consumed(requested.get(name), capacity, fractional=fractional)
        for name, capacity in capacities.items()
    }


def _consumed(requested: Amount | None, capacity: PublishedCapacity, *, fractional: bool) -> Amount:
    policy = capacity.policy
    if requested is None:
        default = policy.default if policy is not None else None
        return default if default is not None else capacity.value
    if policy is None:
        return requested
    if policy.range is not None and policy.range.min is not None:
        return _rounded_up(requested, policy.range.min, policy.range, fractional=fractional)
    if policy.values is not None:
        return next((v for v in policy.values if requested.nano <= v.nano), requested)
    return requested


def _rounded_up(
    requested: Amount, least: Amount, range_: RequestPolicyRange, *, fractional: bool
) -> Amount:
    """Rounded up to the next step of a range, counted from its minimum."""
    if requested.nano < least.nano:
        return least
    if range_.step is None:
        return requested
    if fractional and _in_thousandths(range_):
        if _milli(requested) is None:
            raise Aborted(
                reasons.CapacityRequestInvalid("a requested capacity is finer than thousandths")
            )
        value = _stepped(requested.nano // _MILLI, least.nano // _MILLI, range_.step.nano // _MILLI)
        if value % 1000 == 0:
            return whole(value // 1000, range_.format)
        return milli(value, range_.format)
    if requested.nano > MAX_INT64 * UNIT:
        raise Aborted(reasons.CapacityRequestInvalid("a requested capacity is beyond 64 bits"))
    value = _stepped(requested.ceil(), least.ceil(), range_.step.ceil())
    return whole(value, range_.format)


def _stepped(requested: int, least: int, step: int) -> int:
    value = least + step * -(-(requested - least) // step)
    if value > MAX_INT64:
        raise Aborted(
            reasons.CapacityRequestInvalid(
                "a requested capacity, rounded up to the next step, is beyond 64 bits"
            )
        )
    return value


def _violates(consumed: Amount, policy: RequestPolicy, *, fractional: bool) -> bool:
    if policy.default is not None and consumed.same(policy.default):
        return False
    if policy.range is not None:
        return _outside(consumed, policy.range, fractional=fractional)
    if policy.values:
        return all(consumed.nano != value.nano for value in policy.values)
    return False


def _outside(consumed: Amount, range_: RequestPolicyRange, *, fractional: bool) -> bool:
    if range_.max is not None and consumed.nano > range_.max.nano:
        return True
    if range_.step is None:
        return False
    assert range_.min is not None  # a step has a min
    if fractional and _in_thousandths(range_):
        if _milli(consumed) is None:
            return True
        return (consumed.nano - range_.min.nano) // _MILLI % (range_.step.nano // _MILLI) != 0
    return (consumed.ceil() - range_.min.ceil()) % range_.step.ceil() != 0


def _in_thousandths(range_: RequestPolicyRange) -> bool:
    limits = (range_.min, range_.max, range_.step)
    return all(limit is None or _milli(limit) is not None for limit in limits)


def _milli(amount: Amount) -> int | None:
    """The value in thousandths; None if it is no whole 64-bit number of them."""
    value, rest = divmod(amount.nano, _MILLI)
    return None if rest or abs(value) > MAX_INT64 else value


# What a requestPolicy offers

EITHER = (False, True)
"""If it is not known whether the gate DRAFractionalCapacityRange is on."""


class CapacityOffer(NamedTuple):
    """A capacity of a device as it is published, and as the allocator reads it."""

    wire: DeviceCapacity
    read: PublishedCapacity

    def gives(self, wanted: Amount, fractional: Collection[bool] = EITHER) -> bool:
        """Whether a request gets this much of a device that nobody else uses."""
        return any(_gives(self.read, wanted, fractional=way) for way in fractional)


def capacity_offer(device: PublishedDevice, name: str) -> CapacityOffer | None:
    """A device's capacity of this name; None if it has none."""
    found = (device.device.capacity or {}).get(name)
    return CapacityOffer(found, device.capacities[name]) if found is not None else None


def largest_amount(offers: Iterable[CapacityOffer], fractional: Collection[bool] = EITHER) -> str:
    """The largest amount that a device names and that a request can get; "" if there is none."""
    given = (
        quantity
        for offer in offers
        for quantity in _named(offer.wire)
        if (wanted := readable_amount(quantity)) is not None and offer.gives(wanted, fractional)
    )
    return str(max(given, key=nano, default=""))


def readable_amount(quantity: Quantity) -> Amount | None:
    """The amount; None if it cannot be read."""
    try:
        return amount(quantity)
    except Unreadable:
        return None


def _gives(capacity: PublishedCapacity, wanted: Amount, *, fractional: bool) -> bool:
    try:
        return fits_capacities({"": wanted}, {"": capacity}, {}, {}, fractional=fractional)
    except Aborted:
        return False


def _named(capacity: DeviceCapacity) -> Iterator[Quantity]:
    yield capacity.value
    if (policy := capacity.request_policy) is not None:
        yield from policy.valid_values or ()
        if policy.valid_range is not None and policy.valid_range.max is not None:
            yield policy.valid_range.max
