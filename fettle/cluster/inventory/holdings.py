"""What is said of DRA devices by their names, whatever is published of them: the rules that taint
them, and which claims hold them, alone or as shares."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from fettle.api import resource
from fettle.cluster.inventory.gathered_pools import PoolId
from fettle.dra import AllocatedDevice
from fettle.model import DeviceId

_Selector = tuple[str | None, str | None, str | None]


class TaintRules:
    """DeviceTaintRules by what they select, so a device's taints cost eight look-ups.

    A rule without a selector selects nothing.
    """

    def __init__(self) -> None:
        self._by_selector: dict[_Selector, dict[str, resource.DeviceTaintRule]] = defaultdict(dict)

    def add(self, rule: resource.DeviceTaintRule) -> None:
        if (selector := _rule_selector(rule)) is not None:
            self._by_selector[selector][rule.metadata.name] = rule

    def remove(self, rule: resource.DeviceTaintRule) -> None:
        if (selector := _rule_selector(rule)) is not None:
            self._by_selector[selector].pop(rule.metadata.name, None)
            if not self._by_selector[selector]:
                del self._by_selector[selector]

    def of(self, device: DeviceId) -> tuple[resource.DeviceTaint, ...]:
        """The taints that rules add to a device, in the order of the rules' names."""
        if not self._by_selector:
            return ()
        found = {
            name: rule.spec.taint
            for driver in (None, device.driver)
            for pool in (None, device.pool)
            for name_ in (None, device.device)
            for name, rule in self._by_selector.get((driver, pool, name_), {}).items()
        }
        return tuple(found[name] for name in sorted(found))

    def rules_for(self, pool: PoolId) -> set[str]:
        """Names of the rules that may select a device of this pool."""
        return {
            name
            for (driver, pool_name, _), rules in self._by_selector.items()
            if driver in (None, pool.driver) and pool_name in (None, pool.pool)
            for name in rules
        }


def _rule_selector(rule: resource.DeviceTaintRule) -> _Selector | None:
    """None: the rule has no selector and selects nothing."""
    selector = rule.spec.device_selector
    return None if selector is None else (selector.driver, selector.pool, selector.device)


_NO_AMOUNTS: Mapping[str, int] = {}
_NO_SHARES: Counter[tuple[str, AllocatedDevice]] = Counter()


class Holdings:
    """Which devices the claims of a cluster hold, alone or as shares."""

    def __init__(self, *, shares: bool = True) -> None:
        """Without `shares` (the gate DRAConsumableCapacity), a claim that holds a share holds the
        whole device."""
        self._knows_shares = shares
        self._by_claim: dict[str, tuple[AllocatedDevice, ...]] = {}
        self._alone: dict[DeviceId, Counter[str]] = {}
        self._shares: dict[DeviceId, Counter[tuple[str, AllocatedDevice]]] = {}
        self._consumed: dict[DeviceId, dict[str, int]] = {}

    def put(self, claim: str, held: Iterable[AllocatedDevice]) -> set[DeviceId]:
        """What a claim holds from now on: one entry per result of its allocation, even if results
        are equal. Returns the devices for which that changed."""
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
        """Whether a claim holds the whole device."""
        return device in self._alone

    def shares(self, device: DeviceId) -> int:
        """How many shares of it claims hold."""
        return self._shares.get(device, _NO_SHARES).total()

    def consumed(self, device: DeviceId) -> Mapping[str, int]:
        """What all shares take of its capacities, in 1e-9."""
        return self._consumed.get(device, _NO_AMOUNTS)

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
        for (_, held), times in self._shares.get(device, _NO_SHARES).items():
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
