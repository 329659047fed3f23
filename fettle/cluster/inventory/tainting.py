"""DeviceTaintRules by what they select, so that a device's taints are eight look-ups. Pure."""

from collections import defaultdict

from fettle.api import resource
from fettle.cluster.inventory.pools import PoolId
from fettle.model import DeviceId

_Selector = tuple[str | None, str | None, str | None]


class Tainting:
    """Add and remove rules; ask what they do to a device. A rule without selector selects none."""

    def __init__(self) -> None:
        self._by_selector: dict[_Selector, dict[str, resource.DeviceTaintRule]] = defaultdict(dict)

    def add(self, rule: resource.DeviceTaintRule) -> None:
        if (selector := _selector(rule)) is not None:
            self._by_selector[selector][rule.metadata.name] = rule

    def remove(self, rule: resource.DeviceTaintRule) -> None:
        if (selector := _selector(rule)) is not None:
            self._by_selector[selector].pop(rule.metadata.name, None)
            if not self._by_selector[selector]:
                del self._by_selector[selector]

    def of(self, device: DeviceId) -> tuple[resource.DeviceTaint, ...]:
        """The taints that rules add to a device, by rule name."""
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


def _selector(rule: resource.DeviceTaintRule) -> _Selector | None:
    """None: the rule has no selector and selects nothing."""
    selector = rule.spec.device_selector
    return None if selector is None else (selector.driver, selector.pool, selector.device)
