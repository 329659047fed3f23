"""Which devices the claims of a cluster hold, alone or in shares. Pure."""

from collections.abc import Mapping
from typing import Any

from fettle.asks.claims import Held
from fettle.model import DeviceId

_NOTHING: Mapping[str, int] = {}


class Holdings:
    """Hold and release; ask what is left to others."""

    def __init__(self) -> None:
        self._alone: dict[DeviceId, set[str]] = {}
        self._shares: dict[DeviceId, set[tuple[str, Held]]] = {}
        self._consumed: dict[DeviceId, dict[str, int]] = {}

    def hold(self, held: Held, claim: str) -> None:
        if not held.share:
            self._alone.setdefault(held.device, set()).add(claim)
            return
        self._shares.setdefault(held.device, set()).add((claim, held))
        self._count(held.device)

    def release(self, held: Held, claim: str) -> None:
        if not held.share:
            _discard(self._alone, held.device, claim)
            return
        _discard(self._shares, held.device, (claim, held))
        self._count(held.device)

    def alone(self, device: DeviceId) -> bool:
        """Whether a claim holds it, and not as a share."""
        return device in self._alone

    def shared(self, device: DeviceId) -> bool:
        return device in self._shares

    def consumed(self, device: DeviceId) -> Mapping[str, int]:
        """What all shares take of its capacities, in 1e-9."""
        return self._consumed.get(device, _NOTHING)

    def _count(self, device: DeviceId) -> None:
        total: dict[str, int] = {}
        for _, held in self._shares.get(device, ()):
            for name, value in held.consumed:
                total[name] = total.get(name, 0) + value
        if total:
            self._consumed[device] = total
        else:
            self._consumed.pop(device, None)


def _discard(sets: dict[DeviceId, set[Any]], key: DeviceId, value: object) -> None:
    values = sets.get(key, set())
    values.discard(value)
    if not values:
        sets.pop(key, None)
