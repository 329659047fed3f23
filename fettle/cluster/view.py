"""The view: one immutable snapshot of inventory and health, and the publisher that swaps in a new
one.

The one writer task publishes; handlers read `Publisher.view` without locks. A view shares every
record that did not change with the view before it. The publisher knows which nodes did change, so
what was computed for all others stays valid.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import msgspec

from fettle.api import DeviceHealth, core, resource
from fettle.dra import PoolView
from fettle.model import Health, Hold, Inherited, Policy, Subject, UnknownSignal
from fettle.pacing import keep

if TYPE_CHECKING:
    from fettle.health import FailedStart


class UnitView(msgspec.Struct, frozen=True, gc=False):
    """A device of a device plugin that some evidence names.

    - `count`: how many units of the resource it provides (several for a shared or divided GPU).
    - `allocated`: how many of them live pods are known to hold.
    - `withdrawn`: how many the device plugin no longer offers, though a pod may still hold one.
    - `alternatives`: other resources that it may belong to; then `count` is an expected value.
    - `others`: its other names, as far as anything tells.
    """

    unit: str
    health: Health
    allocated: int = 0
    count: int = 1
    withdrawn: int = 0
    alternatives: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def left(self) -> int:
        """How many of its units are in use or can be allocated."""
        return self.count - self.withdrawn


class PluginView(msgspec.Struct, frozen=True, gc=False):
    """An extended resource on a node: how many units exist, and how many may be allocated.

    `units` are only the devices with an identity that some evidence names. If there are any,
    `others_held` is how many other units live pods are known to hold. `fewer`: how many more units
    most nodes of its kind have.
    """

    resource: str
    capacity: int
    allocatable: int
    units: tuple[UnitView, ...] = ()
    others_held: int = 0
    fewer: int = 0

    @property
    def withdrawn(self) -> int:
        """How many units the device plugin has withdrawn, whether Fettle knows their names or
        not."""
        return max(0, self.capacity - self.allocatable)

    @property
    def counts_withdrawn(self) -> bool:
        """Whether its capacity includes the units that are withdrawn by name. A device plugin that
        restarted without a lost GPU reports a smaller capacity."""
        return sum(unit.withdrawn for unit in self.units) <= self.withdrawn


class Shortage(msgspec.Struct, frozen=True, gc=False):
    """A node has fewer devices than expected: units of a resource that are offered, or devices of a
    DRA driver; `name` is either's.

    - `source` says who expects them. `since`, `lost_at`: when this was first seen, and from when on
      they count as lost, in Unix seconds; None and never if one look cannot tell.
    """

    name: str
    expected: int
    found: int
    source: str
    since: float | None
    lost_at: float

    @property
    def number(self) -> int:
        return self.expected - self.found


class NewDriver(msgspec.Struct, frozen=True, gc=False):
    """A node runs another version of a driver than before, and is on probation for it.

    - `name`: of the resource or DRA driver whose devices it drives. `former`: the version before.
    - `since`, `until`: when it was first seen, and how long it is new, in Unix seconds.
    """

    name: str
    version: str
    former: str
    since: float
    until: float


class NodeMarks(msgspec.Struct, frozen=True, gc=False):
    """What Fettle has written on a Node, or would; "" where there is nothing.

    - `tier`: the label. `score`, `reason`: the annotation beside it, where the score is the worst
      device's. `labels`: those beside it, each with its value.
    - `status`, `cause`, `message`: of the condition.
    - `cordon`: the annotation that says that Fettle cordoned it, and why.
    """

    tier: str = ""
    reason: str = ""
    status: str = ""
    cause: str = ""
    message: str = ""
    cordon: str = ""
    score: float | None = None
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def annotation(self) -> str:
        """Such as `0.2: 1 Unhealthy of 8 devices`."""
        return self.reason if self.score is None else f"{self.score:.1f}: {self.reason}"


UNMARKED = NodeMarks()


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """A node: its own health, which applies to every device on it, its pools and its plugin
    resources.

    - `pools`: in the order in which the allocator walks them. `malformed`: why it cannot gather any
      of them; "" if it can.
    - `quarantined`: sentences about objects of this node that cannot be read.
    - `unread`: the Node itself was never readable as a whole, so its labels and resources may
      differ from what they seem.
    - `taints`: the node's own. `kubelet`: its version.
    - `unknown_signals`: what the Node says that no rule names.
    - `missing`: what it has fewer of than expected. No verdict depends on it.
    - `new_drivers`: by which it is on probation, for policies that say so.
    - `unschedulable`: it is cordoned, whoever did it. `marks`: what Fettle has written on it, which
      says nothing about its health.
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
    unknown_signals: tuple[UnknownSignal, ...] = ()
    missing: tuple[Shortage, ...] = ()
    new_drivers: tuple[NewDriver, ...] = ()
    unschedulable: bool = False
    marks: NodeMarks = UNMARKED


class SourceStatus(NamedTuple):
    """How fresh one source is.

    `contact_at` is the last event or bookmark, in seconds of `time.monotonic`, since the wall clock
    may be set meanwhile. Views are published even without a source that is not `needed`.
    `cut`: how many of its objects since the start were too long to be read whole, and `last_cut`
    the latest of them, with what was left out.
    """

    name: str
    synced: bool
    served: bool
    contact_at: float
    note: str = ""
    needed: bool = True
    cut: int = 0
    last_cut: str = ""


class View(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The cluster as Fettle knows it at one moment.

    - `generation` counts every view. `basis` counts only those in which something changed that
      verdicts depend on: nodes, devices, health, claims, templates, classes, namespaces, policies,
      which of them cannot be read, what pods inherit, and open breakers; but not mere pods.
    - Mappings are by name (`namespace/name` where namespaced). `pods` has only pods that use
      devices.
    - `extended_claims`: those of `claims` that the scheduler made for extended resources, by the
      identity of their pod.
    - `served`: by kind, whether the cluster serves it.
    - `holds`: what operators hold now. `taint_rules` are by name.
    - `device_healths` are as stored, which may be older than the nodes' health here.
    - `failed_starts`: by pod, which need not be in `pods` any more.
    - `inherited`: what pods inherit from their workloads that name no policy themselves, by the
      identity of their controller. What is not there was not asked for yet.
    - `quotas` are by namespace, `compute_domains` by UID; None where they are not read.
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
    holds: Mapping[Subject, tuple[Hold, ...]] = {}
    taint_rules: Mapping[str, resource.DeviceTaintRule] = {}
    quotas: Mapping[str, tuple[core.ResourceQuota, ...]] | None = None
    compute_domains: Mapping[str, resource.ComputeDomain] | None = None
    device_healths: Mapping[str, DeviceHealth] = {}
    failed_starts: Mapping[str, "FailedStart"] = {}
    inherited: Mapping[str, Inherited] = {}


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
"""Views whose changes are kept. Who comes with an older one looks at all nodes."""
_FORMER_S = 1.0
"""For whoever asks what nodes were a moment ago, as the scheduler may still see them
(`extender/freshness.py`)."""


class Publisher:
    """Holds the newest view. The writer swaps it; anyone can read it or wait for a newer one.

    `clock` is in seconds and never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.view: View = EMPTY
        self.sources: dict[str, SourceStatus] = {}
        self._changes: deque[tuple[int, frozenset[str]]] = deque(maxlen=_REMEMBERED)
        self._former: deque[tuple[float, NodeView]] = deque()
        self._published = asyncio.Event()

    def publish(self, view: View, changed_nodes: frozenset[str]) -> None:
        """Swap in a newer view. `changed_nodes` are the nodes whose record changed."""
        assert view.generation > self.view.generation
        if view.basis != self.view.basis:
            self._changes.append((view.basis, changed_nodes))
            self._keep_former(view, changed_nodes)
        self.view = view
        published, self._published = self._published, asyncio.Event()
        published.set()

    def _keep_former(self, view: View, changed_nodes: frozenset[str]) -> None:
        now = self._clock()
        while self._former and self._former[0][0] < now - _FORMER_S:
            self._former.popleft()
        for name in changed_nodes:
            before, after = self.view.nodes.get(name), view.nodes.get(name)
            if before is not None and after is not None and before.pools is not after.pools:
                self._former.append((now, before))

    def former(self, within_s: float) -> Mapping[str, NodeView]:
        """The nodes whose pools changed within the last `within_s` seconds, at most one, by name,
        each as it was before that."""
        if not self._former:
            return {}
        since = self._clock() - within_s
        # The oldest record of a node is the last one put in.
        return {node.name: node for at, node in reversed(self._former) if at >= since}

    def republish(self) -> None:
        """Publish the newest view again, because something outside it changed that verdicts depend
        on."""
        view = self.view
        again = msgspec.structs.replace(view, generation=view.generation + 1, basis=view.basis + 1)
        self.publish(again, frozenset())

    def changed_since(self, basis: int) -> frozenset[str] | None:
        """Names of the nodes that changed after that basis; None if that was too long ago."""
        if basis == self.view.basis:
            return frozenset()
        newer = list(islice(reversed(self._changes), self.view.basis - basis))
        if not newer or newer[-1][0] != basis + 1:
            return None
        return frozenset().union(*(names for _, names in newer))

    async def newer_than(self, generation: int, until: float | None = None) -> View:
        """The newest view once it is newer than `generation`, or at the loop time `until`,
        whichever comes first."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self.view.generation <= generation:
                    await self._published.wait()
        return self.view

    async def keep_looking(
        self,
        name: str,
        look: Callable[[View], Awaitable[float | None]],
        *,
        every_s: float = 0.0,
        rest: float = 0.0,
    ) -> NoReturn:
        """As `keep`: have `look` see each complete view, but for those that are over meanwhile; and
        again after so many seconds as it returns, even if no view is newer."""
        seen, until = EMPTY.generation, None
        now = asyncio.get_running_loop().time

        async def newer() -> None:
            await self.newer_than(seen, until)

        async def look_at_newest() -> None:
            nonlocal seen, until
            view = self.view
            again_s = await look(view) if view.synced else None
            seen, until = view.generation, None if again_s is None else now() + again_s

        await keep(name, look_at_newest, when=newer, every_s=every_s, rest=rest)
