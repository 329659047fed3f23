"""The pools of one node as the allocator gathers them: generations, completeness, validity, order.

A port of `GatherPools` of k8s.io/dynamic-resource-allocation/structured (incubating), one pool at a
time. Stands between published slices and views.
"""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import groupby

import msgspec

from fettle.api import resource
from fettle.dra import (
    CounterId,
    Features,
    MalformedNodeSelector,
    NodeTarget,
    PublishedDevice,
    PublishedSlice,
    Target,
)
from fettle.model import DeviceId
from fettle.pacing import pause


def current_devices(
    slices: Iterable[PublishedSlice],
) -> list[tuple[PublishedSlice, tuple[PublishedDevice, ...]]]:
    """The slices of a pool, newest generation first, each with the devices that it speaks for.

    A slice speaks for the devices that no newer generation names, whether or not that generation is
    complete: the allocator takes nothing from an incomplete pool, but the devices exist and claims
    hold them. A node that sees no slice of the newer generation keeps the devices of the older one:
    newer slices of another node take nothing from it.
    """
    by_node: dict[str, list[PublishedSlice]] = defaultdict(list)
    for slice_ in slices:
        by_node[slice_.node].append(slice_)
    shared = by_node.pop("", [])
    found = _of_one_node(shared)
    for own in by_node.values():
        found += [one for one in _of_one_node([*own, *shared]) if one[0].node]
    return found


def _of_one_node(
    slices: Iterable[PublishedSlice],
) -> list[tuple[PublishedSlice, tuple[PublishedDevice, ...]]]:
    """Of slices that one node sees."""
    newest, *older = _generations(slices) or [[]]
    found = [(slice_, slice_.devices) for slice_ in newest]
    named: set[DeviceId] = set()
    for before, generation in zip([newest, *older], older, strict=False):
        named.update(p.id for slice_ in before for p in slice_.devices)
        found += [(s, tuple(p for p in s.devices if p.id not in named)) for s in generation]
    return found


def ungathered_devices(
    slices: Iterable[PublishedSlice], place: NodeTarget, gathered: Container[DeviceId]
) -> tuple[PublishedDevice, ...]:
    """Devices that slices publish for this node, each once, except those in `gathered`."""
    found: dict[DeviceId, PublishedDevice] = {}
    for slice_, devices in current_devices(_current_slices(slices)):
        for published in devices:
            target = slice_.target or published.target
            if target is not None and target.includes(place) and published.id not in gathered:
                found.setdefault(published.id, published)
    return tuple(found.values())


def _current_slices(slices: Iterable[PublishedSlice]) -> list[PublishedSlice]:
    """Slices of the newest generation, and of older ones as long as the newer ones are
    incomplete."""
    found: list[PublishedSlice] = []
    for generation in _generations(slices):
        found += generation
        if len(generation) >= max(s.raw.spec.pool.resource_slice_count for s in generation):
            break
    return found


def _generations(slices: Iterable[PublishedSlice]) -> list[list[PublishedSlice]]:
    """Newest first."""
    return [list(alike) for _, alike in groupby(sorted(slices, key=_age), key=_age)]


def _age(slice_: PublishedSlice) -> int:
    return -slice_.generation


class PoolId(msgspec.Struct, frozen=True, order=True, gc=False):
    driver: str
    pool: str


class Gathered(msgspec.Struct, frozen=True, gc=False):
    """A pool as one node sees it.

    - `devices`: those of slices for this node, in the allocator's order, each with whether it is
      for this node (False only where devices have node selectors themselves) or why that is
      unknown.
    - `others`: devices elsewhere that draw on the same counters. `counters`: the totals, in 1e-9.
    - `slices`: how many slices are for this node and how many there are; of an incomplete pool, how
      many it has and should have. Incomplete and invalid pools have no devices; `invalid` says why.
    - `malformed`: why the allocator can gather no pool of the node at all; "" if it can.
    - `withheld`: other devices that slices publish for this node and that cannot be taken now.
    - `binds`: a device has binding conditions. Such pools come after all others.
    - `unclear`: what about the pool is not modelled or cannot be read; "" if nothing.
    - `fingerprint`, `attribute_fingerprints`: digests of what slices say (`fingerprints.py`).
    """

    id: PoolId
    devices: tuple[tuple[PublishedDevice, bool, str], ...] = ()
    others: tuple[PublishedDevice, ...] = ()
    counters: Mapping[CounterId, int] = {}
    incomplete: bool = False
    slices: tuple[int, int] = (0, 0)
    invalid: str = ""
    malformed: str = ""
    withheld: tuple[PublishedDevice, ...] = ()
    binds: bool = False
    unclear: str = ""
    fingerprint: bytes = b""
    attribute_fingerprints: Mapping[tuple[str, str], bytes] = {}

    @property
    def depends_on_other_nodes(self) -> bool:
        """Whether slices for other nodes decide what this node sees. The allocator looks for them
        if those for this node alone do not complete the pool."""
        return bool(self.invalid) or self.slices[0] != self.slices[1]

    @property
    def order(self) -> tuple[bool, PoolId]:
        """The allocator's sort key for pools."""
        return (self.binds, self.id)


def pool_of(slice_: resource.ResourceSlice) -> PoolId:
    return PoolId(slice_.spec.driver, slice_.spec.pool.name)


def gather(
    pool: PoolId, published: Sequence[PublishedSlice], place: NodeTarget, features: Features
) -> Gathered | None:
    """The pool as `place` sees it, from all slices that carry its name; None if it has nothing for
    it."""
    try:
        found = _gather(pool, published, place, features)
    except MalformedNodeSelector as error:
        found = Gathered(pool, malformed=str(error))
    withheld = _withheld(published, place, found)
    if found is None and not withheld:
        return None
    found = found or Gathered(pool)
    binds = any(p.device.binding_conditions is not None for p, _, _ in found.devices)
    return msgspec.structs.replace(found, withheld=withheld, binds=binds)


def _withheld(
    published: Sequence[PublishedSlice], place: NodeTarget, found: Gathered | None
) -> tuple[PublishedDevice, ...]:
    """Returns at once for a pool without flaws, so ordinary pools cost nothing."""
    is_odd = found is not None and (found.incomplete or found.invalid or found.malformed)
    if not is_odd and len({s.generation for s in published}) < 2:
        return ()
    gathered = found.devices if found is not None else ()
    seen = (slice_ for slice_ in published if slice_.node in ("", place.name))
    return ungathered_devices(seen, place, {p.id for p, _, _ in gathered})


def _gather(
    pool: PoolId, published: Sequence[PublishedSlice], place: NodeTarget, features: Features
) -> Gathered | None:
    """As the allocator gathers it. MalformedNodeSelector fails the whole node there."""
    local = [s for s in published if s.node == place.name]
    shared = [s for s in published if not s.node]
    relevant = _newest(
        s for s in (*local, *shared) if _visible(s, features) and _relevant(s, place)
    )
    if not relevant:
        return None
    if unclear := _contradiction(relevant) or _unknown_field(relevant):
        return Gathered(pool, _devices(relevant, place, features), unclear=unclear)
    first = relevant[0].raw.spec.pool
    whole: Sequence[PublishedSlice] = relevant
    if len(relevant) != first.resource_slice_count:
        if any(s.raw.spec.pool.generation > first.generation for s in published):
            return None  # the driver is replacing this generation
        whole = [s for s in published if s.raw.spec.pool.generation == first.generation]
        if not features.compatibility_groups:
            whole = [s for s in whole if not s.grouped]
        if len(whole) != first.resource_slice_count:
            return Gathered(pool, incomplete=True, slices=(len(whole), first.resource_slice_count))
    return _build(pool, relevant, whole, place, features)


def _visible(slice_: PublishedSlice, features: Features) -> bool:
    spec = slice_.raw.spec
    if not features.partitionable_devices and (
        spec.per_device_node_selection is not None or spec.shared_counters
    ):
        return False
    return features.compatibility_groups or not slice_.grouped


def _relevant(slice_: PublishedSlice, place: NodeTarget) -> bool:
    if slice_.target is not None:
        return _includes(slice_.target, place)
    if not slice_.per_device:
        return False  # a field of a newer Kubernetes says where
    return any(_includes(p.target, place) for p in slice_.devices if p.target is not None)


def _includes(target: Target, place: NodeTarget) -> bool:
    if target.problem:
        raise MalformedNodeSelector(target.problem)
    return target.includes(place)


def _newest(slices: Iterable[PublishedSlice]) -> list[PublishedSlice]:
    newest: list[PublishedSlice] = []
    for slice_ in slices:
        generation = slice_.raw.spec.pool.generation
        kept = newest[0].raw.spec.pool.generation if newest else generation
        if generation > kept:
            newest = [slice_]
        elif generation == kept:
            newest.append(slice_)
    return newest


def _build(
    pool: PoolId,
    relevant: Sequence[PublishedSlice],
    whole: Sequence[PublishedSlice],
    place: NodeTarget,
    features: Features,
) -> Gathered:
    devices = _devices(relevant, place, features)
    if twice := _first_repeated(p.device.name for p, _, _ in devices):
        return Gathered(pool, invalid=f"duplicate device name {twice}")
    if not features.partitionable_devices:
        return Gathered(pool, devices, slices=(len(relevant), len(whole)))
    names = {s.name for s in relevant}
    elsewhere = [s for s in whole if s.name not in names]
    sets = [c for s in (*relevant, *elsewhere) for c in s.counters]
    if twice := _first_repeated(name for name, _ in sets):
        return Gathered(pool, invalid=f"duplicate counter set name {twice}")
    if unclear := next((s.unclear for s in whole if s.unclear), "") or _unknown_field(whole):
        return Gathered(pool, devices, unclear=unclear)
    counters = {(name, c): value for name, values in sets for c, value in values.items()}
    others = tuple(p for s in elsewhere if not s.raw.spec.shared_counters for p in s.devices)
    published = (*(p for p, _, _ in devices), *others)
    if missing := _missing(published, {name for name, _ in sets}, counters):
        return Gathered(pool, invalid=missing)
    return Gathered(pool, devices, others, counters, slices=(len(relevant), len(whole)))


def _devices(
    relevant: Sequence[PublishedSlice], place: NodeTarget, features: Features
) -> tuple[tuple[PublishedDevice, bool, str], ...]:
    """The devices that may be taken, in order. Slices with counters have none."""
    return tuple(
        (published, *_here(published, place))
        for slice_ in sorted(relevant, key=lambda s: s.name)
        if not (features.partitionable_devices and slice_.raw.spec.shared_counters)
        for published in slice_.devices
    )


def _unknown_field(slices: Sequence[PublishedSlice]) -> str:
    """A field that Fettle does not know, from a newer Kubernetes; "" if there is none."""
    return next((s.raw.spec.unknown for s in slices if s.raw.spec.unknown), "")


def _here(published: PublishedDevice, place: NodeTarget) -> tuple[bool, str]:
    target = published.target
    if target is None:
        return True, ""
    return (False, target.problem) if target.problem else (target.includes(place), "")


def _first_repeated(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _missing(
    devices: Iterable[PublishedDevice], sets: Collection[str], counters: Mapping[CounterId, int]
) -> str:
    for published in devices:
        pause()
        for taken in published.device.consumes_counters or ():
            if taken.counter_set not in sets:
                return f"counter set {taken.counter_set} not found"
            for counter in taken.counters or ():
                if (taken.counter_set, counter) not in counters:
                    return f"counter {counter} not found in counter set {taken.counter_set}"
    return ""


def _contradiction(slices: Sequence[PublishedSlice]) -> str:
    """How slices of one generation contradict each other about their number; "" if they agree.

    Which slice upstream believes depends on the order in which it sees them.
    """
    counts = {s.raw.spec.pool.resource_slice_count for s in slices}
    if len(counts) < 2:
        return ""
    return f"its slices disagree on how many there are: {', '.join(map(str, sorted(counts)))}"
