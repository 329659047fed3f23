"""Shared counters of partitionable devices during a search.

A port of `checkAvailableCounters` of k8s.io/dynamic-resource-allocation/structured. What is left of
a pool's counters is part of its view; this keeps what the search consumes. Amounts are in 1e-9.
"""

from collections.abc import Hashable, Mapping

from fettle.dra.allocator.features import Quirks
from fettle.dra.allocator.results import Unclear
from fettle.dra.pools import CounterId, DeviceView, PoolView
from fettle.model import reasons
from fettle.model.reasons import Unmodelled


class Counters:
    """What is left of the counters of each pool."""

    def __init__(self, quirks: Quirks) -> None:
        self._by_name = quirks.counters_by_pool_name
        self._uncharged = quirks.shares_uncharged
        self._of: dict[Hashable, _Left] = {}
        self._given: set[int] = set()

    def reserve(self, pool: PoolView, device: DeviceView) -> bool:
        """Consume what the device needs; false, and nothing is consumed, if that is not left.

        Every counter of the pool counts: one that is overdrawn already blocks all devices.
        Raises Unclear.
        """
        key = self._key(pool)
        if key not in self._of:
            self._of[key] = _Left(_uncharged(pool) if self._uncharged else pool.counters)
        left = self._of[key]
        left.take(device, 1)
        if left.overdrawn:
            left.take(device, -1)
            return False
        return True

    def release(self, pool: PoolView, device: DeviceView) -> None:
        self._of[self._key(pool)].take(device, -1)

    def suffice(self, pool: PoolView, device: DeviceView) -> bool:
        """Whether there is enough for a device before the search consumes anything.

        Also true if that is not certain: another share may have consumed it already, and a device
        with a negative consumption may add to a counter.
        """
        published = device.published
        if not published.consumes or published.multiple or published.unclear:
            return True
        if self._by_name or self._uncharged:
            return True
        if id(pool) in self._given:
            return True
        left = pool.counters
        return all(value <= left.get(counter, value) for counter, value in published.consumes)

    def note(self, pool: PoolView, device: DeviceView) -> None:
        """To be called with each device beforehand, since some may add to a counter."""
        if any(value < 0 for _, value in device.published.consumes):
            self._given.add(id(pool))

    def _key(self, pool: PoolView) -> Hashable:
        return pool.name if self._by_name else (pool.driver, pool.name)


class _Left:
    """The counters of a pool; `overdrawn` are those below zero, so that few need to be checked."""

    def __init__(self, counters: Mapping[CounterId, int]) -> None:
        self._amounts = dict(counters)
        self.overdrawn = {counter for counter, amount in counters.items() if amount < 0}

    def take(self, device: DeviceView, times: int) -> None:
        for counter, value in device.published.consumes:
            if counter in self._amounts:
                left = self._amounts[counter] = self._amounts[counter] - times * value
                (self.overdrawn.add if left < 0 else self.overdrawn.discard)(counter)


def _uncharged(pool: PoolView) -> Mapping[CounterId, int]:
    """What is left of the counters if devices that are only in use by shares do not count."""
    here, whole = pool.slices
    if here != whole:
        raise Unclear(reasons.NotModelled(Unmodelled.COUNTERS_BEFORE_1_36_2, pool=pool.ref))
    left = dict(pool.counters)
    for device in pool.devices:
        if device.shares and not device.allocated:
            for counter, value in device.published.consumes:
                left[counter] = left.get(counter, 0) + value
    return left
