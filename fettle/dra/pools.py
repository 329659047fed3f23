"""A DRA pool and its devices as one node sees them: what the allocator chooses from.

`cluster/inventory` builds them from slices, taints, claims and health. Pure values.
"""

from collections.abc import Mapping

import msgspec

from fettle.api import resource
from fettle.dra.slices import CounterId, PublishedDevice
from fettle.model import DeviceId, Health, PoolRef


class DeviceView(msgspec.Struct, frozen=True, gc=False):
    """A published DRA device. `taints` are the slice's own, then those of DeviceTaintRules.

    `allocated`: a claim holds it alone. `shares` is how many shares of it claims hold; `consumed`
    is what those consume of its capacities, in 1e-9. `here` is false if the device's own node
    selection excludes this node; `misplaced` is why that is unknown ("" if it is known). `part_of`:
    the devices of which it is a part. `alias`: what it is known as, if its names mean another
    node's device. `ambiguous`: its names mean another node's device, or may, so that nothing may be
    written by them.
    """

    published: PublishedDevice
    taints: tuple[resource.DeviceTaint, ...]
    health: Health
    allocated: bool = False
    shares: int = 0
    consumed: Mapping[str, int] = {}
    here: bool = True
    misplaced: str = ""
    part_of: tuple[DeviceId, ...] = ()
    alias: DeviceId | None = None
    ambiguous: bool = False

    @property
    def id(self) -> DeviceId:
        """Its names, as the allocator and claims use them."""
        return self.published.id

    @property
    def subject(self) -> DeviceId:
        """What evidence and holds are about."""
        return self.alias or self.published.id

    @property
    def device(self) -> resource.Device:
        return self.published.device


class PoolView(msgspec.Struct, frozen=True, gc=False):
    """One DRA pool as a node sees it. Devices are in the allocator's order.

    An `incomplete` pool lacks slices of its generation; `invalid` is what contradicts itself in it;
    both as upstream judges. `unclear` is what is not known about it. `slices`: how many are for
    this node, and how many there are; for an incomplete pool, how many it has and should have.
    `rivals` are the nodes that contradict each other about it: each one's slices count for itself.
    `withheld` are devices of this node that are published but cannot be allocated now; a claim may
    hold them. `counters` is what is left of its shared counters, in 1e-9. `fingerprint`
    and `attribute_fingerprints` are its digests (`fingerprints.py`).
    """

    driver: str
    name: str
    devices: tuple[DeviceView, ...] = ()
    withheld: tuple[DeviceView, ...] = ()
    counters: Mapping[CounterId, int] = {}
    incomplete: bool = False
    slices: tuple[int, int] = (0, 0)
    invalid: str = ""
    unclear: str = ""
    rivals: tuple[str, ...] = ()
    fingerprint: bytes = b""
    attribute_fingerprints: Mapping[tuple[str, str], bytes] = {}

    @property
    def ref(self) -> PoolRef:
        return PoolRef(self.driver, self.name)

    @property
    def flaw(self) -> str:
        """Why the allocator ignores its devices, such as "incomplete: 1 of 2 slices"; "" if it
        does not."""
        if self.invalid:
            return f"invalid: {self.invalid}"
        seen, wanted = self.slices
        return f"incomplete: {seen} of {wanted} slices" if self.incomplete else ""
