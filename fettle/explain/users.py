"""Which pods use the devices of a view, so that their owners can be told of a fault. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from fettle.api import core, resource
from fettle.cluster import PluginView, UnitView, View
from fettle.dra import DeviceView, allocated_node, held_devices
from fettle.model import DeviceId
from fettle.pacing import pause
from fettle.scheduling import PluginUse, UnitUsers

CERTAIN, POSSIBLE, NOBODY = "certain", "possible", "nobody"
"""Values of `use`: some pod certainly holds it, some pod may hold it, or none can."""


class Users:
    """The users of devices in one view: pods, as `namespace/name`.

    A claim that no pod uses is named as `claim namespace/name`. A pod that only has admin access to
    a device does not use it. Who uses a part of a device uses the device.
    """

    def __init__(self, view: View) -> None:
        self._names: dict[str, str] = {}
        self._on_node: dict[str, list[core.Pod]] = defaultdict(list)
        self._of_device: dict[DeviceId, set[tuple[str, str]]] = defaultdict(set)
        self._plugins: dict[tuple[str, str], PluginUse] = {}
        for key, pod in view.pods.items():
            self._names[pod.metadata.uid] = key
            if pod.node_name:
                self._on_node[pod.node_name].append(pod)
            pause()
        for claim in view.claims.values():
            devices = {held.device for held in held_devices(claim) or ()}
            place = allocated_node(claim)
            users = [(user, place) for user in self._of_claim(claim)] if devices else ()
            for device in devices:
                self._of_device[device].update(users)
                pause()
            pause()
        self._parts: dict[DeviceId, set[DeviceId]] = defaultdict(set)
        for node in view.nodes.values():
            for part in (device for pool in node.pools for device in pool.devices):
                for whole in part.part_of:
                    self._parts[whole].add(part.id)
            pause()

    def on_node(self, node: str) -> list[str]:
        """The pods with devices that are bound to a node."""
        return sorted(pod.metadata.key for pod in self._on_node.get(node, ()))

    def of_device(self, device: DeviceView) -> UnitUsers:
        """A claim that is allocated to another node has another device of these names."""
        these, places = (device.id, *self._parts.get(device.id, ())), ("", device.published.local)
        users = {
            user
            for one in these
            for user, node in self._of_device.get(one, ())
            if node in places or not device.published.local
        }
        return UnitUsers(tuple(sorted(users)), in_use=bool(users))

    def of_unit(self, node: str, plugin: PluginView, unit: UnitView) -> UnitUsers:
        """The pods that hold a unit of it, or may hold one."""
        key = node, plugin.resource
        if key not in self._plugins:
            self._plugins[key] = PluginUse(plugin, self._on_node.get(node, ()))
        return self._plugins[key].of(unit)

    def _of_claim(self, claim: resource.ResourceClaim) -> Iterable[str]:
        pods = [self._names[uid] for uid in claim.reserved_for if uid in self._names]
        return pods or (f"claim {claim.metadata.key}",)


def plain_users(users: UnitUsers) -> dict[str, Any]:
    """For JSON: `use` is certain, possible or nobody, `usedBy` are the certain users.

    `possiblyUsedBy` are the others that may be. If `use` is certain and nobody is in `usedBy`, one
    of these uses it.
    """
    use = CERTAIN if users.in_use else POSSIBLE if users.possible else NOBODY
    return {
        # `certain`: some pod or claim holds it. `possible`: some pod may hold it. `nobody`: none
        # can.
        "use": use,
        # Those that certainly hold it, `namespace/name`; `claim namespace/name` where no pod has
        # the claim.
        "usedBy": [*users.certain],
        # Further pods that may hold it. If `use` is `certain` and `usedBy` is empty, one of them
        # does.
        "possiblyUsedBy": [*users.possible],
    }
