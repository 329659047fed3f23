"""Which slices of a pool speak for its devices, while its driver replaces them by newer ones.

The allocator takes nothing from a pool that is not whole; but the devices are there, and claims
hold them. Stands between published slices and pools; pure.
"""

from collections.abc import Container, Iterable
from itertools import groupby

from fettle.dra import NodeTarget, PublishedDevice, PublishedSlice
from fettle.model import DeviceId


def standing(
    slices: Iterable[PublishedSlice],
) -> list[tuple[PublishedSlice, tuple[PublishedDevice, ...]]]:
    """The slices of a pool, newest generation first, each with the devices that it speaks for.

    These are all that no newer one names, whether or not that is whole: a node that sees none of
    its slices takes devices of the older as before.
    """
    newest, *older = _generations(slices) or [[]]
    found = [(slice_, slice_.devices) for slice_ in newest]
    named: set[DeviceId] = set()
    for before, generation in zip([newest, *older], older, strict=False):
        named.update(p.id for slice_ in before for p in slice_.devices)
        found += [(s, tuple(p for p in s.devices if p.id not in named)) for s in generation]
    return found


def left_out(
    slices: Iterable[PublishedSlice], place: NodeTarget, gathered: Container[DeviceId]
) -> tuple[PublishedDevice, ...]:
    """Devices that slices publish for this node, each once, but for those that were `gathered`."""
    found: dict[DeviceId, PublishedDevice] = {}
    for slice_, devices in standing(_current(slices)):
        for published in devices:
            target = slice_.target or published.target
            if target is not None and target.includes(place) and published.id not in gathered:
                found.setdefault(published.id, published)
    return tuple(found.values())


def _current(slices: Iterable[PublishedSlice]) -> list[PublishedSlice]:
    """Those of the newest generation, and of older ones as long as newer ones lack slices."""
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
