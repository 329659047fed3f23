"""DRA pools: a ResourceSlice parsed once for all views, with quantities as numbers and node
selectors ready to match; and a pool and its devices as one node sees them, from which the allocator
chooses.

What cannot be parsed is reported, never guessed. `cluster/inventory` builds pools from slices,
taints, claims and health. Pure values.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from fettle.api import core, resource
from fettle.cel import semver as versions
from fettle.dra.node_selectors import MalformedNodeSelector, NodeTarget, ParsedNodeSelector
from fettle.dra.quantities import MAX_INT64, UNIT, Amount, Unreadable, amount, format_of, nano
from fettle.model import DeviceId, Health, PoolRef
from fettle.pacing import pause

CounterId = tuple[str, str]
"""(counter set, counter)."""


class RequestPolicyRange(NamedTuple):
    """`validRange` of a request policy; `format` is the format of its step."""

    min: Amount | None
    max: Amount | None
    step: Amount | None
    format: str


class RequestPolicy(NamedTuple):
    """How much of a capacity a request consumes."""

    default: Amount | None
    range: RequestPolicyRange | None
    values: tuple[Amount, ...] | None


class PublishedCapacity(msgspec.Struct, frozen=True, gc=False):
    value: Amount
    policy: RequestPolicy | None


class Target:
    """Which nodes a slice or device is for: one by `name`, all, or those that a selector matches.

    The first of these that is set counts, as in the API. Comparable and hashable.
    """

    __slots__ = ("_hash", "_said", "_selector", "name", "problem")

    def __init__(
        self, name: str | None, all_nodes: bool | None, selector: core.NodeSelector | None
    ) -> None:
        self.name = name or ""
        everywhere = bool(all_nodes) and not self.name
        selects = selector if not self.name and not everywhere else None
        self._said = (self.name, everywhere, selects)
        self._hash = hash(self._said)
        self._selector: ParsedNodeSelector | None = None
        self.problem = ""
        if selects is not None:
            try:
                self._selector = ParsedNodeSelector(selects)
            except MalformedNodeSelector as error:
                self.problem = f"the node selector cannot be parsed: {error}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._said == other._said

    def __hash__(self) -> int:
        return self._hash

    def includes(self, place: NodeTarget) -> bool:
        if self.name:
            return place.name == self.name
        return self.is_everywhere or (self._selector is not None and self._selector.matches(place))

    @property
    def is_everywhere(self) -> bool:
        return self._said[1]


class PublishedDevice(msgspec.Struct, frozen=True, gc=False):
    """One device of a slice.

    `consumes` is in 1e-9. `abort` is why any selector on it ends the scheduler's attempt; `unclear`
    is what about it is not modelled or cannot be parsed; both are "" if there is nothing. `target`
    is set if the slice has a node selection per device. `local` is the node of its slice, "" for a
    network-attached device. `plain`: a request without capacity always fits. `skips`: its slice
    skips node operations. `pins`: the allocation is bound to the node; otherwise `terms` counts the
    terms of the node selector that goes into the allocation.
    """

    id: DeviceId
    device: resource.Device
    consumes: tuple[tuple[CounterId, int], ...] = ()
    capacities: Mapping[str, PublishedCapacity] = {}
    abort: str = ""
    unclear: str = ""
    target: Target | None = None
    local: str = ""
    plain: bool = True
    skips: bool = False
    pins: bool = False
    terms: int = 0

    @property
    def multiple(self) -> bool:
        return bool(self.device.allow_multiple_allocations)


class PublishedSlice(msgspec.Struct, frozen=True, gc=False):
    """`target` is None if the slice has a node selection per device, or none of a known form.

    `counters` are its counter sets as published, in 1e-9. `grouped`: it uses compatibility groups.
    """

    raw: resource.ResourceSlice
    devices: tuple[PublishedDevice, ...]
    target: Target | None
    counters: tuple[tuple[str, Mapping[str, int]], ...]
    grouped: bool
    unclear: str = ""

    @property
    def name(self) -> str:
        return self.raw.metadata.name

    @property
    def node(self) -> str:
        return self.raw.spec.node_name or ""

    @property
    def generation(self) -> int:
        return self.raw.spec.pool.generation

    @property
    def per_device(self) -> bool:
        return bool(self.raw.spec.per_device_node_selection)


def read_slice(slice_: resource.ResourceSlice) -> PublishedSlice:
    """Parse a slice. Never raises, whatever is in it."""
    spec = slice_.spec
    target = None
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        target = _target(slice_, spec)
    unclear = ""
    counters: list[tuple[str, Mapping[str, int]]] = []
    try:
        for set_ in spec.shared_counters or ():
            values = {name: nano(c.value) for name, c in (set_.counters or {}).items()}
            counters.append((set_.name, values))
    except Unreadable as error:
        unclear = f"slice {slice_.metadata.name}: a shared counter cannot be read: {error}"
    kept: dict[Any, Any] = {}
    devices = tuple(_published(slice_, device, kept) for device in spec.devices or ())
    grouped = any(
        consumption.compatibility_groups
        for device in spec.devices or ()
        for consumption in device.consumes_counters or ()
    )
    return PublishedSlice(slice_, devices, target, tuple(counters), grouped, unclear)


def _target(
    slice_: resource.ResourceSlice, of: resource.ResourceSliceSpec | resource.Device
) -> Target:
    """Any node, if not all of a selector was read or understood: the pool is unclear there."""
    if resource.NODE_SELECTOR in slice_.spec.unknown:
        return Target(None, True, None)
    return Target(of.node_name, of.all_nodes, of.node_selector)


def _published(
    slice_: resource.ResourceSlice, device: resource.Device, kept: dict[Any, Any]
) -> PublishedDevice:
    """`kept` interns parts that are equal in several devices of the slice."""
    pause()
    spec = slice_.spec
    consumes: list[tuple[CounterId, int]] = []
    capacities: dict[str, PublishedCapacity] = {}
    unclear = ""
    try:
        for taken in device.consumes_counters or ():
            for name, counter in (taken.counters or {}).items():
                draw = (taken.counter_set, name), nano(counter.value)
                consumes.append(kept.setdefault(draw, draw))
        capacities = {
            name: kept.setdefault(read := _capacity(c), read)
            for name, c in (device.capacity or {}).items()
        }
    except Unreadable as error:
        unclear = f"a quantity cannot be read: {error}"
    per_device = spec.per_device_node_selection
    of = device if per_device else spec
    terms = of.node_selector.node_selector_terms if of.node_selector is not None else None
    return PublishedDevice(
        id=DeviceId(spec.driver, spec.pool.name, device.name),
        device=device,
        consumes=tuple(consumes),
        capacities=capacities,
        abort=_conversion_error(device),
        unclear=unclear,
        target=_target(slice_, device) if per_device else None,
        local=spec.node_name or "",
        plain=not unclear
        and all(c.policy is None and c.value.nano >= 0 for c in capacities.values()),
        skips=bool(spec.skip_node_operations),
        pins=of.node_name is not None or bool(device.binds_to_node),
        terms=len(terms or ()),
    )


def _capacity(capacity: resource.DeviceCapacity) -> PublishedCapacity:
    policy = capacity.request_policy
    return PublishedCapacity(
        amount(capacity.value), _policy(policy) if policy is not None else None
    )


def _policy(policy: resource.CapacityRequestPolicy) -> RequestPolicy:
    values = policy.valid_values
    return RequestPolicy(
        default=_optional(policy.default),
        range=_range(policy.valid_range) if policy.valid_range is not None else None,
        values=tuple(amount(v) for v in values) if values is not None else None,
    )


def _range(range_: resource.CapacityRequestPolicyRange) -> RequestPolicyRange:
    read = RequestPolicyRange(
        _optional(range_.min),
        _optional(range_.max),
        _optional(range_.step),
        format_of(range_.step) if range_.step is not None else "",
    )
    if read.step is not None:
        if read.min is None:
            raise Unreadable("a validRange has a step and no min")
        for limit in (read.min, read.step):
            if not 0 <= limit.nano <= MAX_INT64 * UNIT:
                raise Unreadable("a validRange is beyond 64 bits")
        if read.step.nano == 0:
            raise Unreadable("the step of a validRange is 0")
    return read


def _optional(quantity: resource.Quantity | None) -> Amount | None:
    return amount(quantity) if quantity is not None else None


def _conversion_error(device: resource.Device) -> str:
    """Why no selector can be evaluated on a device, which ends the scheduler's attempt; "" if any
    can. Kubernetes reads lists first, then single values, and only the first that is set.
    """
    for name, value in (device.attributes or {}).items():
        if value.versions is None and (
            value.string is not None or value.int_ is not None or value.bool_ is not None
        ):
            continue  # nearly all attributes are of one of these types, and always valid
        if value.ints is not None or value.bools is not None or value.strings is not None:
            continue
        read: tuple[str, ...] = ()
        if value.versions is not None:
            read = value.versions
        elif value.version is None:
            return f"attribute {name} has no value"
        else:
            read = (value.version,)
        for version in read:
            if not versions.is_version(version):
                return f"attribute {name}: {version!r} is not a semantic version"
    return ""


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
