"""Whether the devices that pods get are those that were predicted: Fettle's check on itself.

When a pod is answered its ask is remembered; when one of its claims is seen to be allocated, the
node's record from before, which is still in the newest view, says what was predicted. An allocation
of network devices does not say for which of their nodes it was made: it waits, with the records of
its moment, until the pod is bound. Core: what is made of the results is the caller's. Fed by the
writer, which knows claims and pods first.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec
from cachetools import LRUCache

from fettle.api import core, resource
from fettle.api.kinds import WireObject
from fettle.api.meta import OwnerReference
from fettle.cluster import NodeView
from fettle.dra import (
    EXTENDED_RESOURCE_CLAIM,
    AllocatedDevice,
    Budget,
    DeviceView,
    allocated_devices,
)
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.claimed import chosen
from fettle.scheduling.judge.verdicts import EXTENDED_RESOURCES, Verdict, judge

REMEMBERED = 2000
MAX_WAITING = 50
"""Pods whose allocations wait for them to be bound; each may hold on to the records of a view."""
BRIEF = Budget(steps=2000)
"""The writer waits for the prediction."""
_Pool = tuple[str, str]
"""Its driver and its name."""


class Result(StrEnum):
    """The outcome of a prediction.

    REFUSED_DEVICE: the policy refuses one of the devices, whatever was predicted. EXACT: these
    very devices. UNDECIDED: others, after none could be predicted. STALE: others, and the node or
    what the pod asks for had changed since it was answered, or the node is not known to offer one
    of them. OTHER_SOUND: others, with no such excuse; also if none were available. The first that
    applies.
    """

    REFUSED_DEVICE = "refused_device"
    EXACT = "exact"
    UNDECIDED = "undecided"
    STALE = "stale"
    OTHER_SOUND = "other_sound"


class _Allocation(NamedTuple):
    """What one claim of a pod was given, and what was known just before: the nodes, the names of
    those that had changed since the pod was answered (None: any may have), and the pools that lost
    devices to other claims since the records were made.

    `entry`: what the pod calls the claim. `asks_else`: the pod asked for something else by then, as
    where a class was changed.
    """

    entry: str
    asks_else: bool
    held: Sequence[AllocatedDevice]
    nodes: Mapping[str, NodeView]
    changed: frozenset[str] | None
    unshown: frozenset[_Pool]

    def stale(self, node: NodeView) -> bool:
        if self.asks_else or self.changed is None or node.name in self.changed:
            return True
        return any((pool.driver, pool.name) in self.unshown for pool in node.pools)


class _Answered:
    """A pod that was answered on the view of `basis`.

    `node`: where it goes, "" until that is seen; `waiting`: what it was given before that;
    `predicted`: by node, once needed, and whether the node's record was stale.
    """

    def __init__(self, demand: Demand, pod: core.Pod, basis: int) -> None:
        self.demand = demand
        self.pod = pod
        self.basis = basis
        self.node = ""
        self.waiting: list[_Allocation] = []
        self.predicted: dict[str, tuple[Verdict, bool]] = {}


class _Unshown:
    """What the view of `basis` does not show yet: the names of classes that changed, and
    allocations: of which pools, and of each claim the latest."""

    def __init__(self, basis: int) -> None:
        self.basis = basis
        self.classes: set[str] = set()
        self.pools: set[_Pool] = set()
        self._latest: LRUCache[tuple[str, str], resource.AllocationResult] = LRUCache(REMEMBERED)

    def note(self, claim: resource.ResourceClaim) -> bool:
        """False if this allocation was noted before: whoever writes a claim sends it all."""
        assert claim.allocation is not None
        of_claim = (claim.metadata.key, claim.metadata.uid)
        before = self._latest.get(of_claim)
        self._latest[of_claim] = claim.allocation
        return before != claim.allocation


class Predictions:
    """`told` hears of each allocation of a pod that was answered before."""

    def __init__(self, answers: Answers, told: Callable[[Result], None]) -> None:
        self._answers = answers
        self._told = told
        self._answered: OrderedDict[str, _Answered] = OrderedDict()
        self._waiting: OrderedDict[str, _Answered] = OrderedDict()
        self._unshown = _Unshown(-1)

    def answered(self, demand: Demand, pod: core.Pod) -> None:
        """The pod was told of nodes that suit it."""
        if not demand.allocates:
            return
        key = pod.metadata.key
        self._waiting.pop(key, None)
        self._answered[key] = _Answered(demand, pod, self._answers.view.basis)
        self._answered.move_to_end(key)
        if len(self._answered) > REMEMBERED:
            self._answered.popitem(last=False)

    def put(self, new: WireObject) -> None:
        """An object as it is now; the newest view still has it as it was before."""
        if isinstance(new, resource.ResourceClaim):
            self._claim(new)
        elif isinstance(new, core.Pod):
            self._pod(new)
        elif isinstance(new, resource.DeviceClass):
            self._class(new)

    def _claim(self, new: resource.ResourceClaim) -> None:
        view = self._answers.view
        before = view.claims.get(new.metadata.key)
        held = allocated_devices(new)
        if held is None or (before is not None and allocated_devices(before) is not None):
            return
        self._forget_what_is_shown()
        if not self._unshown.note(new):
            return
        if (answered := self._for(new)) is not None:
            changed = self._answers.publisher.changed_since(answered.basis)
            entry, unshown = _entry(new, answered.pod), frozenset(self._unshown.pools)
            asks_else = self._asks_else(answered)
            answered.waiting.append(
                _Allocation(entry, asks_else, held, view.nodes, changed, unshown)
            )
            answered.node = _node(new) or answered.node
            self._compare(answered)
        self._unshown.pools.update((h.device.driver, h.device.pool) for h in held)

    def _class(self, new: resource.DeviceClass) -> None:
        before = self._answers.view.classes.get(new.metadata.name)
        if before is None or before.spec != new.spec:
            self._forget_what_is_shown()
            self._unshown.classes.add(new.metadata.name)

    def _forget_what_is_shown(self) -> None:
        basis = self._answers.view.basis
        if self._unshown.basis != basis:
            self._unshown = _Unshown(basis)

    def _asks_else(self, answered: _Answered) -> bool:
        """Whether a pod that is still to be given devices asks for others than it was answered for,
        by the newest view and by classes that this does not show yet."""
        then, now = answered.demand, self._answers.demand(answered.pod)
        if now is None or now.units != then.units or not {*now.claims} <= {*then.claims}:
            return True
        return any(each.class_name in self._unshown.classes for each in then.alternatives())

    def _pod(self, new: core.Pod) -> None:
        answered = self._answered.get(new.metadata.key)
        if answered is None or answered.pod.metadata.uid != new.metadata.uid:
            return
        if new.node_name:
            answered.node = new.node_name
            self._compare(answered)

    def _compare(self, answered: _Answered) -> None:
        """What the pod was given, once it is known where."""
        key = answered.pod.metadata.key
        if not answered.node:
            self._waiting[key] = answered
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popitem(last=False)[1].waiting.clear()
            return
        self._waiting.pop(key, None)
        for allocation in answered.waiting:
            if (node := allocation.nodes.get(answered.node)) is not None:
                self._told(self._result(answered, node, allocation))
        answered.waiting.clear()

    def _for(self, claim: resource.ResourceClaim) -> _Answered | None:
        """The pod that a claim was allocated for: its owner, or the latest of those that name it,
        and for which it is reserved where that is told."""
        namespace = claim.metadata.namespace
        if owner := _owner(claim):
            answered = self._answered.get(f"{namespace}/{owner.name}")
            return answered if answered and answered.pod.metadata.uid == owner.uid else None
        consumers = claim.reserved_for
        for answered in reversed(self._answered.values()):
            pod = answered.pod
            names = pod.metadata.namespace == namespace and _entry(claim, pod)
            if names and (not consumers or pod.metadata.uid in consumers):
                return answered
        return None

    def _result(self, answered: _Answered, node: NodeView, given: _Allocation) -> Result:
        verdict, stale = self._predicted(answered, node, given)
        offered = {device.id: device for pool in node.pools for device in pool.devices}
        withheld = {device.id: device for pool in node.pools for device in pool.withheld}
        published = withheld | offered
        acceptance = self._answers.table(answered.demand).acceptance
        if any(
            _refuses(acceptance, published[held.device], held)
            for held in given.held
            if held.device in published
        ):
            return Result.REFUSED_DEVICE
        of_entry = f"{given.entry}/"
        predicted = Counter(c.device for c in verdict.devices if c.request.startswith(of_entry))
        if predicted == Counter(held.device for held in given.held):
            return Result.EXACT
        if verdict.undecided:
            return Result.UNDECIDED
        known = all(held.device in offered for held in given.held)
        return Result.STALE if stale or not known else Result.OTHER_SOUND

    def _predicted(
        self, answered: _Answered, node: NodeView, given: _Allocation
    ) -> tuple[Verdict, bool]:
        """The verdict, and whether the node's record was stale.

        Kept for the pod's other claims: they were allocated in the same moment.
        """
        if (kept := answered.predicted.get(node.name)) is None:
            answers = self._answers
            acceptance = answers.table(answered.demand).acceptance
            allocator = answers.matching().allocator(answers.profile, BRIEF)
            alone = msgspec.structs.replace(answered.demand, in_flight=0)
            kept = judge(alone, node, acceptance, allocator), given.stale(node)
            answered.predicted[node.name] = kept
        return kept


def _refuses(acceptance: Acceptance, device: DeviceView, held: AllocatedDevice) -> bool:
    """Whether a policy turns down a device that is allocated, unless its breaker is open."""
    if device.id.driver in acceptance.open_breakers:
        return False
    choice = chosen("", device, held.tolerations, acceptance, admin_access=held.admin_access)
    return bool(not choice.is_acceptable(acceptance) or choice.met.unmet)


def _owner(claim: resource.ResourceClaim) -> OwnerReference | None:
    """The pod that a claim was made for; None where it was not made for one."""
    owners = claim.metadata.owner_references or ()
    return next((owner for owner in owners if owner.kind == "Pod"), None)


def _node(claim: resource.ResourceClaim) -> str:
    """The one node where an allocation can be used; "" where there may be several: a selector of
    network devices may name nodes too, that it leaves out or beside others."""
    selector = claim.allocation.node_selector if claim.allocation is not None else None
    terms = (selector.node_selector_terms or ()) if selector is not None else ()
    for wanted in (terms[0].match_fields or ()) if len(terms) == 1 else ():
        values = wanted.values or ()
        if (wanted.key, wanted.operator) == ("metadata.name", "In") and len(values) == 1:
            return values[0]
    return ""


def _entry(claim: resource.ResourceClaim, pod: core.Pod) -> str:
    """What the pod calls the claim."""
    if claim.metadata.annotation(EXTENDED_RESOURCE_CLAIM) == "true":
        return EXTENDED_RESOURCES
    if (name := claim.metadata.annotation(resource.POD_CLAIM_NAME)) is not None:
        return name
    name = claim.metadata.name
    named = (entry.name for entry in pod.resource_claims if entry.resource_claim_name == name)
    return next(named, "")
