"""ResourceSlices to pools: newest generation, completeness, and the allocator's order. Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fettle.wire import resource


class PoolId(NamedTuple):
    driver: str
    pool: str


class PoolDevices(NamedTuple):
    """The devices of one pool's newest generation, in the order the allocator walks them.

    `complete` as upstream judges it: all slices of the generation are there and no device name
    repeats. `nodes` are the nodes that its slices name; `network` is true where a slice is not
    local to one node.
    """

    id: PoolId
    complete: bool
    devices: tuple[tuple[resource.ResourceSlice, resource.Device], ...]
    nodes: frozenset[str]
    network: bool


def pool_of(slice_: resource.ResourceSlice) -> PoolId:
    return PoolId(slice_.spec.driver, slice_.spec.pool.name)


def assemble(pool: PoolId, slices: Iterable[resource.ResourceSlice]) -> PoolDevices | None:
    """One pool from all slices that carry its name; None where there are none."""
    published = list(slices)
    if not published:
        return None
    generation = max(s.spec.pool.generation for s in published)
    newest = sorted(
        (s for s in published if s.spec.pool.generation == generation),
        key=lambda s: s.metadata.name,
    )
    devices = tuple((s, d) for s in newest for d in s.spec.devices or ())
    unique = len({d.name for _, d in devices}) == len(devices)
    return PoolDevices(
        id=pool,
        complete=unique and len(newest) == newest[0].spec.pool.resource_slice_count,
        devices=devices,
        nodes=frozenset(s.spec.node_name for s in newest if s.spec.node_name),
        network=any(not s.spec.node_name for s in newest),
    )


def unsupported(slice_: resource.ResourceSlice, device: resource.Device) -> str:
    """What about a device is not modelled yet; "" if nothing."""
    if not slice_.spec.node_name:
        return "devices that are not local to one node are not modelled"
    if device.consumes_counters:
        return "shared counters are not modelled"
    if device.allow_multiple_allocations:
        return "devices with multiple allocations are not modelled"
    if device.binding_conditions:
        return "binding conditions are not modelled"
    return ""


_ALIASES = (("uuid", ""), ("pciBusID", "pci:"), ("index", "index:"))


def aliases(device: resource.Device) -> Iterator[str]:
    """Unit ids by which monitors and device plugins may name this DRA device (see `UnitId`)."""
    for name, value in (device.attributes or {}).items():
        bare = name.rpartition("/")[2]
        for attribute, prefix in _ALIASES:
            if bare == attribute and (text := value.string or value.int_) is not None:
                yield f"{prefix}{text}"
