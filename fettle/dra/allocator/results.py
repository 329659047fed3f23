"""The outcome of an allocation, the pools of a node after it or after claims have released their
devices, and the exceptions that end a search early. Pure."""

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from fettle.dra.claims import AllocatedDevice
from fettle.dra.pools import DeviceView, PoolView
from fettle.model import DeviceId, reasons
from fettle.model.reasons import Reason

NOTHING = reasons.NothingFits()
"""The reason if a search found nothing and knows no more."""


class AllocationStatus(StrEnum):
    FITS = "fits"
    NONE = "none"
    ERROR = "error"
    UNDECIDED = "undecided"


class DeviceResult(msgspec.Struct, frozen=True, gc=False):
    """One device of an allocation, for a request of a claim (its index in the demand).

    `consumed` is what a share consumes of each capacity, in 1e-9; None if it is not a share.
    """

    claim: int
    request: str
    device: DeviceView
    admin_access: bool = False
    consumed: tuple[tuple[str, int], ...] | None = None


class AllocationOutcome(msgspec.Struct, frozen=True, gc=False):
    """`devices` in the order of allocation, claim by claim; `reasons` for all but FITS.

    ERROR ends the scheduler's whole attempt for the pod; with `on_node`, only this node fails.
    `steps` counts the calls that Kubernetes' allocator would make. `bounded`: the outcome is
    undecided, but no devices other than the candidates could be allocated.
    """

    found: AllocationStatus
    devices: tuple[DeviceResult, ...] = ()
    reasons: tuple[Reason, ...] = ()
    on_node: bool = False
    steps: int = 0
    bounded: bool = False


class Budget(msgspec.Struct, frozen=True):
    """How far one search may go: upstream's steps, and seconds of work of any kind.

    After `prune_after` devices were rolled back, it is checked whether the search can succeed at
    all; None: never.
    """

    steps: int = 20_000
    seconds: float = 0.25
    prune_after: int | None = 16


AMPLE = Budget()


class Aborted(Exception):
    """A hard error of Kubernetes' allocator."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Unclear(Exception):
    """Something came up in the search that cannot be decided."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Unfinished(Exception):
    """The search exceeded its budget."""

    def __init__(self, reason: reasons.SearchTookTooLong) -> None:
        super().__init__(reason)
        self.reason = reason


class DeviceIndices(NamedTuple):
    """The arguments of a call: allocate device `nth` of a request, from candidate `start` on, and
    then all that follows. `alternative` is None until one of a `firstAvailable` list is chosen.
    """

    claim: int
    request: int
    alternative: int | None = None
    nth: int = 0
    start: int = 0


def with_allocated(
    pools: Sequence[PoolView], taken: Iterable[DeviceResult]
) -> tuple[PoolView, ...]:
    """The pools with these devices allocated; adminAccess allocates nothing."""
    held: dict[DeviceId, list[DeviceResult]] = {}
    for one in taken:
        if not one.admin_access:
            held.setdefault(one.device.id, []).append(one)
    return tuple(_allocated(pool, held) if _has_any(held, pool) else pool for pool in pools)


def with_released(
    pools: Sequence[PoolView], released: Iterable[AllocatedDevice]
) -> tuple[PoolView, ...]:
    """The pools once claims have released these devices, which they hold now."""
    held: dict[DeviceId, list[AllocatedDevice]] = {}
    for one in released:
        held.setdefault(one.device, []).append(one)
    return tuple(_with_less(pool, held) if _has_any(held, pool) else pool for pool in pools)


def with_unreleased(
    pools: Sequence[PoolView], before: Sequence[PoolView]
) -> tuple[PoolView, ...] | None:
    """The pools if whatever was released since `before` were still held; None if nothing was."""
    held = {device.id: device for pool in before for device in pool.devices if _in_use(device)}
    found = tuple(_with_devices(p, tuple(_unreleased(d, held) for d in p.devices)) for p in pools)
    unchanged = all(new.devices == old.devices for new, old in zip(found, pools, strict=True))
    return None if unchanged else found


def _has_any(devices: Collection[DeviceId], pool: PoolView) -> bool:
    return any((id_.driver, id_.pool) == (pool.driver, pool.name) for id_ in devices)


def _allocated(pool: PoolView, held: dict[DeviceId, list[DeviceResult]]) -> PoolView:
    devices = tuple(_held(d, held[d.id]) if d.id in held else d for d in pool.devices)
    return _with_devices(pool, devices)


def _with_less(pool: PoolView, held: dict[DeviceId, list[AllocatedDevice]]) -> PoolView:
    devices = tuple(_released(d, held[d.id]) if d.id in held else d for d in pool.devices)
    return _with_devices(pool, devices)


def _with_devices(pool: PoolView, devices: tuple[DeviceView, ...]) -> PoolView:
    """With these devices instead. A device consumes counters once, however many hold it."""
    counters = dict(pool.counters)
    for before, now in zip(pool.devices, devices, strict=True):
        if change := _in_use(now) - _in_use(before):
            for counter, value in now.published.consumes:
                counters[counter] = counters.get(counter, 0) - change * value
    return msgspec.structs.replace(pool, devices=devices, counters=counters)


def _in_use(device: DeviceView) -> bool:
    return device.allocated or device.shares > 0


def _held(device: DeviceView, taken: Sequence[DeviceResult]) -> DeviceView:
    if taken[0].consumed is None:
        return msgspec.structs.replace(device, allocated=True)
    consumed = dict(device.consumed)
    for one in taken:
        for name, value in one.consumed or ():
            consumed[name] = consumed.get(name, 0) + value
    shares = device.shares + len(taken)
    return msgspec.structs.replace(device, shares=shares, consumed=consumed)


def _released(device: DeviceView, released: Sequence[AllocatedDevice]) -> DeviceView:
    """If there are no shares because a gate is off, whoever has a share holds the device alone."""
    shares = [one for one in released if one.share and device.shares]
    alone = device.allocated and len(shares) == len(released)
    left = device.shares - len(shares)
    consumed = dict(device.consumed)
    for one in shares:
        for name, value in one.consumed:
            consumed[name] = consumed.get(name, 0) - value
    return msgspec.structs.replace(
        device, allocated=alone, shares=left, consumed=consumed if left else {}
    )


def _unreleased(device: DeviceView, held: dict[DeviceId, DeviceView]) -> DeviceView:
    before = held.get(device.id)
    if before is None or (before.allocated <= device.allocated and before.shares <= device.shares):
        return device
    return msgspec.structs.replace(
        device, allocated=before.allocated, shares=before.shares, consumed=before.consumed
    )
