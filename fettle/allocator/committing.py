"""What a node looks like after an allocation was made there: as if its claims held the devices."""

from collections.abc import Iterable, Sequence

import msgspec

from fettle.allocator.outcomes import Taken
from fettle.model import DeviceId
from fettle.view import DeviceView, PoolView


def after(pools: Sequence[PoolView], taken: Iterable[Taken]) -> tuple[PoolView, ...]:
    """The pools with these devices held; devices with admin access count as not held."""
    held: dict[DeviceId, list[Taken]] = {}
    for one in taken:
        if not one.admin_access:
            held.setdefault(one.device.id, []).append(one)
    concerned = {(id_.driver, id_.pool) for id_ in held}
    return tuple(
        _after(pool, held) if (pool.driver, pool.name) in concerned else pool for pool in pools
    )


def _after(pool: PoolView, held: dict[DeviceId, list[Taken]]) -> PoolView:
    counters = dict(pool.counters)
    for device in pool.devices:
        if device.id in held and not device.allocated and not device.shared:
            for counter, value in device.published.consumes:
                counters[counter] = counters.get(counter, 0) - value
    devices = tuple(_held(d, held[d.id]) if d.id in held else d for d in pool.devices)
    return msgspec.structs.replace(pool, devices=devices, counters=counters)


def _held(device: DeviceView, taken: Sequence[Taken]) -> DeviceView:
    if taken[0].consumed is None:
        return msgspec.structs.replace(device, allocated=True)
    consumed = dict(device.consumed)
    for one in taken:
        for name, value in one.consumed or ():
            consumed[name] = consumed.get(name, 0) + value
    return msgspec.structs.replace(device, shared=True, consumed=consumed)
