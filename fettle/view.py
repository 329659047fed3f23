"""One immutable snapshot of inventory and health, and the reference that a new one is swapped into.

Handlers read `Publisher.view` without locks; the one writer task publishes. A view shares every
record that did not change with the view before it, and says which nodes did change, so that what
was computed for an older view can be kept for all others.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from fettle.model import DeviceId, Health
from fettle.wire import core, resource


class DeviceView(msgspec.Struct, frozen=True):
    """A published DRA device: `taints` are the slice's own, then those of DeviceTaintRules.

    `unsupported` names what in its description is not modelled ("" if nothing).
    """

    id: DeviceId
    device: resource.Device
    taints: tuple[resource.DeviceTaint, ...]
    health: Health
    allocated: bool
    unsupported: str = ""


class PoolView(msgspec.Struct, frozen=True):
    """One DRA pool on a node; `complete` as upstream judges it. Devices in allocator order."""

    driver: str
    name: str
    complete: bool
    devices: tuple[DeviceView, ...]


class UnitView(msgspec.Struct, frozen=True):
    """A device-plugin unit that some evidence names; `allocated` where a live pod holds it."""

    unit: str
    health: Health
    allocated: bool


class PluginView(msgspec.Struct, frozen=True):
    """An extended resource on a node, in units: how many there are, how many may be allocated.

    `units` are only those with an identity that something is known about.
    """

    resource: str
    capacity: int
    allocatable: int
    units: tuple[UnitView, ...] = ()


class NodeView(msgspec.Struct, frozen=True):
    """A node: its own health (every device on it inherits that), its pools and plugin resources.

    `pools` are sorted by driver and name, as the allocator walks them. `quarantined` are sentences
    about objects of this node that could not be read.
    """

    name: str
    labels: Mapping[str, str]
    health: Health
    plugins: Mapping[str, PluginView]
    pools: tuple[PoolView, ...]
    quarantined: tuple[str, ...] = ()


class Source(NamedTuple):
    """How fresh one source is: `contact_at` is the last event or bookmark, Unix seconds."""

    name: str
    synced: bool
    served: bool
    contact_at: float
    note: str = ""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster as Fettle knows it at one moment.

    `generation` counts every view; `basis` only those in which something changed that verdicts
    rest on (nodes, devices, health, claims, templates, classes, namespaces), not mere pods.
    Mappings are by name (`namespace/name` where namespaced); `pods` holds only pods that use
    devices; `served` says by kind whether the cluster serves it.
    """

    generation: int
    basis: int
    synced: bool
    nodes: Mapping[str, NodeView]
    classes: Mapping[str, resource.DeviceClass]
    claims: Mapping[str, resource.ResourceClaim]
    templates: Mapping[str, resource.ResourceClaimTemplate]
    namespaces: Mapping[str, Mapping[str, str]]
    pods: Mapping[str, core.Pod]
    quarantined: Mapping[str, str] = {}
    served: Mapping[str, bool] = {}


EMPTY = View(
    generation=0,
    basis=0,
    synced=False,
    nodes={},
    classes={},
    claims={},
    templates={},
    namespaces={},
    pods={},
)

_REMEMBERED = 256


class Publisher:
    """Holds the newest view; the writer swaps it, anyone reads it or waits for a newer one."""

    def __init__(self) -> None:
        self.view: View = EMPTY
        self.sources: dict[str, Source] = {}
        self._changes: deque[tuple[int, frozenset[str]]] = deque(maxlen=_REMEMBERED)
        self._turned = asyncio.Event()

    def publish(self, view: View, changed_nodes: frozenset[str]) -> None:
        """Swap in a newer view; `changed_nodes` are those whose record differs from before."""
        assert view.generation > self.view.generation
        if view.basis != self.view.basis:
            self._changes.append((view.basis, changed_nodes))
        self.view = view
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    def changed_since(self, basis: int) -> frozenset[str] | None:
        """Names of the nodes that changed after that basis; None: too long ago to say."""
        if basis == self.view.basis:
            return frozenset()
        newer = [names for since, names in self._changes if since > basis]
        if len(newer) != self.view.basis - basis:
            return None
        return frozenset().union(*newer)

    async def newer_than(self, generation: int) -> View:
        """The newest view once it is newer than `generation`."""
        while self.view.generation <= generation:
            await self._turned.wait()
        return self.view
