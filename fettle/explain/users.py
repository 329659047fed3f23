"""Which pods use the devices of a view, so that their owners can be told of a fault. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from fettle.api import core, resource
from fettle.cluster import UnitView, View, whole_device
from fettle.dra import held_devices
from fettle.model import DeviceId, UnitId
from fettle.pacing import pause


class Users:
    """The users of devices in one view: pods, as `namespace/name`.

    A claim that no pod uses is named as `claim namespace/name`. A pod that only has admin access to
    a device does not use it.
    """

    def __init__(self, view: View) -> None:
        self._names: dict[str, str] = {}
        self._on_node: dict[str, list[core.Pod]] = defaultdict(list)
        self._of_device: dict[DeviceId, set[str]] = defaultdict(set)
        for key, pod in view.pods.items():
            self._names[pod.metadata.uid] = key
            if pod.node_name:
                self._on_node[pod.node_name].append(pod)
            pause()
        for claim in view.claims.values():
            devices = {held.device for held in held_devices(claim) or ()}
            users = self._of_claim(claim) if devices else ()
            for device in devices:
                self._of_device[device].update(users)
                pause()
            pause()

    def on_node(self, node: str) -> list[str]:
        """The pods with devices that are bound to a node."""
        return sorted(pod.metadata.key for pod in self._on_node.get(node, ()))

    def of_device(self, device: DeviceId) -> list[str]:
        return sorted(self._of_device.get(device, ()))

    def of_unit(self, node: str, resource_name: str, unit: UnitView) -> list[str]:
        """The pods that hold a unit of it, as the kubelet reports."""
        names = {unit.unit, *_other_names(unit)}
        return sorted(
            pod.metadata.key
            for pod in self._on_node.get(node, ())
            if any(whole_device(id_) in names for id_ in _held(pod, resource_name))
        )

    def _of_claim(self, claim: resource.ResourceClaim) -> Iterable[str]:
        pods = [self._names[uid] for uid in claim.reserved_for if uid in self._names]
        return pods or (f"claim {claim.metadata.key}",)


def _other_names(unit: UnitView) -> Iterator[str]:
    """The names that evidence uses for a unit."""
    for weighed in unit.health.evidence:
        if isinstance(subject := weighed.evidence.subject, UnitId):
            yield from map(whole_device, subject.names)


def _held(pod: core.Pod, resource_name: str) -> Iterator[str]:
    """The ids of a resource's units that a pod's containers hold, as the kubelet reports."""
    for status in pod.container_statuses():
        for allocated in status.allocated_resources_status or ():
            if allocated.name == resource_name:
                yield from (one.resource_id for one in allocated.resources or ())
