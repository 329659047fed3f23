"""One immutable snapshot of inventory and health, and the reference that a new one is swapped into.

Handlers read `Publisher.view` without locks; the one writer task publishes. A view shares every
record that did not change with the view before it, and says which nodes did change, so that what
was computed for an older view can be kept for all others.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

import msgspec

from fettle.api import core, nvidia, resource
from fettle.dra import PoolView
from fettle.model import Health, Policy, Unheard


class UnitView(msgspec.Struct, frozen=True, gc=False):
    """A device of a device plugin that some evidence names.

    It is `count` units of the resource (several of a GPU that is shared or divided); live pods are
    known to hold `allocated` of them, and the device plugin has withdrawn `withdrawn`: those are
    not handed out, though a pod that got one earlier may hold it still. Where it may as well be of
    other resources, those are the `alternatives`, and `count` is what to expect.
    """

    unit: str
    health: Health
    allocated: int = 0
    count: int = 1
    withdrawn: int = 0
    alternatives: tuple[str, ...] = ()

    @property
    def left(self) -> int:
        """How many units of it can be handed out, or are."""
        return self.count - self.withdrawn


class PluginView(msgspec.Struct, frozen=True, gc=False):
    """An extended resource on a node, in units: how many there are, how many may be allocated.

    `units` are only those with an identity that something is known about.
    """

    resource: str
    capacity: int
    allocatable: int
    units: tuple[UnitView, ...] = ()

    @property
    def withdrawn(self) -> int:
        """How many units the device plugin has withdrawn, known by name or not."""
        return max(0, self.capacity - self.allocatable)

    @property
    def counts_withdrawn(self) -> bool:
        """Whether its capacity counts the units that are withdrawn by name: a device plugin that
        started anew without a lost GPU has less of it."""
        return sum(unit.withdrawn for unit in self.units) <= self.withdrawn


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """A node: its own health (every device on it inherits that), its pools and plugin resources.

    `pools` are in the order in which the allocator walks them; `malformed` says why it cannot
    gather any of them ("" if it can). `quarantined` are sentences about objects of this node that
    could not be read; `unread`: the Node itself never could as a whole, so that its labels and
    resources may be other than they seem. `taints` are the node's own, `kubelet` its version.
    `unheard` are conditions that no rule names.
    """

    name: str
    labels: Mapping[str, str]
    health: Health
    plugins: Mapping[str, PluginView]
    pools: tuple[PoolView, ...]
    quarantined: tuple[str, ...] = ()
    unread: bool = False
    malformed: str = ""
    taints: tuple[core.Taint, ...] = ()
    kubelet: str = ""
    unheard: tuple[Unheard, ...] = ()


class SourceStatus(NamedTuple):
    """How fresh one source is: `contact_at` is the last event or bookmark, in seconds of
    `time.monotonic`, as the wall clock may be set meanwhile.

    Without one that is not `needed` there are views all the same.
    """

    name: str
    synced: bool
    served: bool
    contact_at: float
    note: str = ""
    needed: bool = True


class View(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The cluster as Fettle knows it at one moment.

    `generation` counts every view; `basis` only those in which something changed that verdicts
    rest on (nodes, devices, health, claims, templates, classes, namespaces, policies, which of them
    cannot be read, and which breakers are open), not mere pods.
    Mappings are by name (`namespace/name` where namespaced); `pods` holds only pods that use
    devices; `extended_claims` are those of `claims` that the scheduler made for extended resources,
    by the UID of their pod; `served` says by kind whether the cluster serves it.
    `quotas` are by namespace, `compute_domains` by UID; None where they are not read.
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
    extended_claims: Mapping[str, resource.ResourceClaim] = {}
    policies: Mapping[str, Policy] = {}
    quarantined: Mapping[str, str] = {}
    served: Mapping[str, bool] = {}
    quotas: Mapping[str, tuple[core.ResourceQuota, ...]] | None = None
    compute_domains: Mapping[str, nvidia.ComputeDomain] | None = None


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
        self.sources: dict[str, SourceStatus] = {}
        self._changes: deque[tuple[int, frozenset[str]]] = deque(maxlen=_REMEMBERED)
        self._published = asyncio.Event()

    def publish(self, view: View, changed_nodes: frozenset[str]) -> None:
        """Swap in a newer view; `changed_nodes` are those whose record differs from before."""
        assert view.generation > self.view.generation
        if view.basis != self.view.basis:
            self._changes.append((view.basis, changed_nodes))
        self.view = view
        published, self._published = self._published, asyncio.Event()
        published.set()

    def republish(self) -> None:
        """Publish the newest view once more, since what verdicts rest on beside it changed."""
        view = self.view
        again = msgspec.structs.replace(view, generation=view.generation + 1, basis=view.basis + 1)
        self.publish(again, frozenset())

    def changed_since(self, basis: int) -> frozenset[str] | None:
        """Names of the nodes that changed after that basis; None: too long ago to say."""
        if basis == self.view.basis:
            return frozenset()
        newer = list(islice(reversed(self._changes), self.view.basis - basis))
        if not newer or newer[-1][0] != basis + 1:
            return None
        return frozenset().union(*(names for _, names in newer))

    async def newer_than(self, generation: int, until: float | None = None) -> View:
        """The newest view once it is newer than `generation`, or at a time of the loop as it is
        then."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self.view.generation <= generation:
                    await self._published.wait()
        return self.view
