"""Shared counters of partitionable devices while devices are taken and given back.

What is left of a pool's counters is part of its view; here stands what the search takes of it.
Amounts are in 1e-9.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping

from fettle.allocator.outcomes import Unclear
from fettle.allocator.profiles import Quirks
from fettle.published import CounterId
from fettle.view import DeviceView, PoolView


class Counters:
    """Reserve and release what devices consume, by pool."""

    def __init__(self, quirks: Quirks) -> None:
        self._by_name = quirks.counters_by_pool_name
        self._uncharged = quirks.shares_uncharged
        self._left: dict[Hashable, Mapping[CounterId, int]] = {}
        self._taken: dict[Hashable, dict[CounterId, int]] = defaultdict(dict)

    def reserve(self, pool: PoolView, device: DeviceView) -> bool:
        """Take what the device consumes; false, and nothing is taken, where that is not left.

        Every counter of the pool is looked at: one that is overdrawn already blocks all devices.
        Raises Unclear.
        """
        key = self._key(pool)
        if key not in self._left:
            self._left[key] = _uncharged(pool) if self._uncharged else pool.counters
        left = self._left[key]
        taken = self._taken[key]
        for counter, value in device.published.consumes:
            taken[counter] = taken.get(counter, 0) + value
        for counter, value in left.items():
            if value < taken.get(counter, 0):
                self.release(pool, device)
                return False
        return True

    def release(self, pool: PoolView, device: DeviceView) -> None:
        taken = self._taken[self._key(pool)]
        for counter, value in device.published.consumes:
            taken[counter] -= value

    def _key(self, pool: PoolView) -> Hashable:
        return pool.name if self._by_name else (pool.driver, pool.name)


def _uncharged(pool: PoolView) -> Mapping[CounterId, int]:
    """What is left of the counters where devices in use by shares alone are charged nothing."""
    here, whole = pool.slices
    if here != whole:
        raise Unclear(
            f"pool {pool.name}: before Kubernetes 1.36.2, devices in shared use draw nothing on "
            "counters, and which ones on other nodes are is not known here"
        )
    left = dict(pool.counters)
    for device in pool.devices:
        if device.shared and not device.allocated:
            for counter, value in device.published.consumes:
                left[counter] = left.get(counter, 0) + value
    return left
