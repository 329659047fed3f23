"""Which devices the claims of a cluster hold, alone or in shares. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from fettle.dra import AllocatedDevice
from fettle.model import DeviceId

_NOTHING: Mapping[str, int] = {}
_NONE: Counter[tuple[str, AllocatedDevice]] = Counter()


class Holdings:
    """Put what a claim holds; ask what is left to others."""

    def __init__(self, *, shares: bool = True) -> None:
        """Without `shares` (the gate DRAConsumableCapacity), whoever holds one holds the device."""
        self._knows_shares = shares
        self._by_claim: dict[str, tuple[AllocatedDevice, ...]] = {}
        self._alone: dict[DeviceId, Counter[str]] = {}
        self._shares: dict[DeviceId, Counter[tuple[str, AllocatedDevice]]] = {}
        self._consumed: dict[DeviceId, dict[str, int]] = {}

    def put(self, claim: str, held: Iterable[AllocatedDevice]) -> set[DeviceId]:
        """What a claim holds from now on: each result of its allocation once, however alike they
        are. Returns the devices of which it did not hold the same before."""
        held = tuple(held)
        before, after = Counter(self._by_claim.get(claim, ())), Counter(held)
        gone, come = before - after, after - before
        for one in gone.elements():
            self._release(one, claim)
        for one in come.elements():
            self._hold(one, claim)
        if held:
            self._by_claim[claim] = held
        else:
            self._by_claim.pop(claim, None)
        return {one.device for one in (*gone, *come)}

    def alone(self, device: DeviceId) -> bool:
        """Whether a claim holds it, and not as a share."""
        return device in self._alone

    def shares(self, device: DeviceId) -> int:
        """How many shares of it claims hold."""
        return self._shares.get(device, _NONE).total()

    def consumed(self, device: DeviceId) -> Mapping[str, int]:
        """What all shares take of its capacities, in 1e-9."""
        return self._consumed.get(device, _NOTHING)

    def _hold(self, held: AllocatedDevice, claim: str) -> None:
        if self._is_share(held):
            _add(self._shares, held.device, (claim, held))
            self._count(held.device)
        else:
            _add(self._alone, held.device, claim)

    def _release(self, held: AllocatedDevice, claim: str) -> None:
        if self._is_share(held):
            _discard(self._shares, held.device, (claim, held))
            self._count(held.device)
        else:
            _discard(self._alone, held.device, claim)

    def _is_share(self, held: AllocatedDevice) -> bool:
        return bool(held.share) and self._knows_shares

    def _count(self, device: DeviceId) -> None:
        total: dict[str, int] = {}
        for (_, held), times in self._shares.get(device, _NONE).items():
            for name, value in held.consumed:
                total[name] = total.get(name, 0) + times * value
        if total:
            self._consumed[device] = total
        else:
            self._consumed.pop(device, None)


def _add(counts: dict[DeviceId, Counter[Any]], key: DeviceId, value: object) -> None:
    counts.setdefault(key, Counter())[value] += 1


def _discard(counts: dict[DeviceId, Counter[Any]], key: DeviceId, value: object) -> None:
    left = counts.get(key, Counter())
    left[value] -= 1
    if left[value] <= 0:
        del left[value]
    if not left:
        counts.pop(key, None)
