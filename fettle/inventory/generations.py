"""Which slices of a pool speak for its devices, while its driver replaces them by newer ones.

The allocator takes nothing from a pool that is not whole; but the devices are there, and claims
hold them. Stands between published slices and pools; pure.
"""

from collections.abc import Container, Iterable
from itertools import groupby

from fettle.affinity import Place
from fettle.model import DeviceId
from fettle.published import Published, Slice


def standing(slices: Iterable[Slice]) -> list[tuple[Slice, tuple[Published, ...]]]:
    """The slices of a pool, newest generation first, each with the devices that it speaks for.

    While a generation lacks slices, older ones still speak for the devices that it does not name.
    """
    found: list[tuple[Slice, tuple[Published, ...]]] = []
    named: set[DeviceId] = set()
    is_replaced = False
    for _, alike in groupby(sorted(slices, key=_age), key=_age):
        generation = list(alike)
        for slice_ in generation:
            left = () if is_replaced else tuple(p for p in slice_.devices if p.id not in named)
            found.append((slice_, left))
        named.update(p.id for slice_ in generation for p in slice_.devices)
        wanted = max(slice_.raw.spec.pool.resource_slice_count for slice_ in generation)
        is_replaced = is_replaced or len(generation) >= wanted
    return found


def left_out(
    slices: Iterable[Slice], place: Place, gathered: Container[DeviceId]
) -> tuple[Published, ...]:
    """Devices that slices publish for this node, each once, but for those that were `gathered`."""
    found: dict[DeviceId, Published] = {}
    for slice_, devices in standing(slices):
        for published in devices:
            target = slice_.target or published.target
            is_here = target is not None and not target.problem and target.includes(place)
            if is_here and published.id not in gathered:
                found.setdefault(published.id, published)
    return tuple(found.values())


def _age(slice_: Slice) -> int:
    return -slice_.generation
