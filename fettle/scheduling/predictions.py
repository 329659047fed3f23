"""Whether pods get the devices that were predicted: Fettle's check on itself.

When a pod is answered, its demand is remembered. When one of its claims is seen to be allocated,
the newest view still has the node as it was before, so the prediction is made from that. An
allocation of network devices does not name its node: it waits, with the nodes as they were, until
the pod is bound. The writer calls this, because it knows claims and pods first. It only notes what
there is to compare: that is done later, in slices.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import NamedTuple, NoReturn

import msgspec
from cachetools import LRUCache

from fettle.api import core, resource
from fettle.api.annotations import EXTENDED_RESOURCE_CLAIM, POD_CLAIM_NAME
from fettle.api.kinds import WireObject
from fettle.api.meta import OwnerReference
from fettle.cluster import NodeView
from fettle.dra import (
    AllocatedDevice,
    Budget,
    DeviceView,
    allocated_devices,
)
from fettle.pacing import keep, run_within
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import EXTENDED_RESOURCES, Demand
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.claims import choice_of
from fettle.scheduling.judge.verdicts import Verdict, judge

REMEMBERED = 2000
MAX_WAITING = 50
"""How many pods' allocations wait until the pod is bound; each may keep the nodes of a view."""
BRIEF = Budget(steps=2000)
"""A short one: no answer depends on it."""
_Pool = tuple[str, str]
"""Its driver and its name."""


class Result(StrEnum):
    """The outcome of a prediction: the first of these that applies."""

    REFUSED_DEVICE = "refused_device"
    """The policy refuses one of the devices, whatever was predicted: in a burst, or on a node
    that became worse since."""
    EXACT = "exact"
    """Exactly these devices."""
    UNDECIDED = "undecided"
    """Others, after nothing could be predicted (or not within 2,000 steps)."""
    STALE = "stale"
    """Others, and something had changed or was not visible: the node, a class or template,
    another claim's devices, or a device that no complete pool publishes."""
    OTHER_SOUND = "other_sound"
    """Others, which the policy accepts, on a node that had not changed. Outside of bursts,
    report each of these."""


class _Allocation(NamedTuple):
    """The devices that a claim of a pod got, and what was known just before.

    - `entry` is the pod's name for the claim.
    - `demand_changed`: the pod's demand was another by then, for example because a class changed.
    - `nodes` are all nodes; `changed` those that had changed since the pod was answered (None: any
      may have); `unshown` the pools from which other claims took devices that `nodes` do not show.
    """

    entry: str
    demand_changed: bool
    held: Sequence[AllocatedDevice]
    nodes: Mapping[str, NodeView]
    changed: frozenset[str] | None
    unshown: frozenset[_Pool]

    def is_stale(self, node: NodeView) -> bool:
        if self.demand_changed or self.changed is None or node.name in self.changed:
            return True
        return any((pool.driver, pool.name) in self.unshown for pool in node.pools)


class _FilteredPod:
    """A pod that was answered on the view of `basis`.

    `node` is where it goes, "" until that is known. `waiting` are allocations from before that.
    `predicted` has the verdict by node, once needed, and whether the node's record was stale.
    """

    def __init__(self, demand: Demand, pod: core.Pod, basis: int) -> None:
        self.demand = demand
        self.pod = pod
        self.basis = basis
        self.node = ""
        self.waiting: list[_Allocation] = []
        self.predicted: dict[str, tuple[Verdict, bool]] = {}


class _Unshown:
    """What the view of `basis` does not show yet.

    These are the names of changed classes, the pools of new allocations, and of each claim the
    latest allocation.
    """

    def __init__(self, basis: int) -> None:
        self.basis = basis
        self.classes: set[str] = set()
        self.pools: set[_Pool] = set()
        self._latest: LRUCache[tuple[str, str], resource.AllocationResult] = LRUCache(REMEMBERED)

    def note(self, claim: resource.ResourceClaim) -> bool:
        """Note a claim's allocation; false if it was noted before."""
        # Each write of a claim, for whatever reason, sends the whole claim again.
        assert claim.allocation is not None
        of_claim = (claim.metadata.key, claim.metadata.uid)
        before = self._latest.get(of_claim)
        self._latest[of_claim] = claim.allocation
        return before != claim.allocation


class Predictions:
    """Calls `on_result` for each allocation of a pod that was answered before, while it is kept."""

    def __init__(self, answers: Answers, on_result: Callable[[Result], None]) -> None:
        self._answers = answers
        self._on_result = on_result
        self._filtered: OrderedDict[str, _FilteredPod] = OrderedDict()
        self._waiting: OrderedDict[str, _FilteredPod] = OrderedDict()
        self._unshown = _Unshown(-1)
        self._due: deque[tuple[_FilteredPod, NodeView, _Allocation]] = deque(maxlen=REMEMBERED)
        self._has_due = asyncio.Event()

    async def keep(self) -> NoReturn:
        """Compare what is due, again and again."""
        await keep("predictions", self.compare, when=self._has_due.wait)

    async def compare(self) -> None:
        """Compare what is due."""
        self._has_due.clear()
        while self._due:
            self._on_result(await run_within(partial(self._result, *self._due.popleft())))

    def note_nodes_given(self, demand: Demand, pod: core.Pod) -> None:
        """Note that a pod was answered with suitable nodes."""
        if not demand.allocates:
            return
        key = pod.metadata.key
        self._waiting.pop(key, None)
        self._filtered[key] = _FilteredPod(demand, pod, self._answers.view.basis)
        self._filtered.move_to_end(key)
        if len(self._filtered) > REMEMBERED:
            self._filtered.popitem(last=False)

    def observe(self, new: WireObject) -> None:
        """Take an object as it is now; the newest view still has it as it was before."""
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
        if (filtered := self._for(new)) is not None:
            changed = self._answers.publisher.changed_since(filtered.basis)
            entry, unshown = _entry(new, filtered.pod), frozenset(self._unshown.pools)
            demand_changed = self._is_demand_changed(filtered)
            filtered.waiting.append(
                _Allocation(entry, demand_changed, held, view.nodes, changed, unshown)
            )
            filtered.node = _node(new) or filtered.node
            self._settle(filtered)
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

    def _is_demand_changed(self, filtered: _FilteredPod) -> bool:
        """Whether the pod asks for other devices than when it was answered.

        Judged by the newest view, and by changed classes that this does not show yet.
        """
        then, now = filtered.demand, self._answers.demand(filtered.pod)
        if now is None or now.units != then.units or not {*now.claims} <= {*then.claims}:
            return True
        return any(each.class_name in self._unshown.classes for each in then.alternatives())

    def _pod(self, new: core.Pod) -> None:
        filtered = self._filtered.get(new.metadata.key)
        if filtered is None or filtered.pod.metadata.uid != new.metadata.uid:
            return
        if new.node_name:
            filtered.node = new.node_name
            self._settle(filtered)

    def _settle(self, filtered: _FilteredPod) -> None:
        """What the pod got is due to be compared once its node is known."""
        key = filtered.pod.metadata.key
        if not filtered.node:
            self._waiting[key] = filtered
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popitem(last=False)[1].waiting.clear()
            return
        self._waiting.pop(key, None)
        for allocation in filtered.waiting:
            if (node := allocation.nodes.get(filtered.node)) is not None:
                self._due.append((filtered, node, allocation._replace(nodes={})))
                self._has_due.set()
        filtered.waiting.clear()

    def _for(self, claim: resource.ResourceClaim) -> _FilteredPod | None:
        """The pod that a claim was allocated for: its owner, or the latest one that names it.

        If the claim says for whom it is reserved, only for one of these.
        """
        namespace = claim.metadata.namespace
        if owner := _owner(claim):
            filtered = self._filtered.get(f"{namespace}/{owner.name}")
            return filtered if filtered and filtered.pod.metadata.uid == owner.uid else None
        consumers = claim.reserved_for
        for filtered in reversed(self._filtered.values()):
            pod = filtered.pod
            names = pod.metadata.namespace == namespace and _entry(claim, pod)
            if names and (not consumers or pod.metadata.uid in consumers):
                return filtered
        return None

    def _result(self, filtered: _FilteredPod, node: NodeView, given: _Allocation) -> Result:
        verdict, stale = self._predicted(filtered, node, given)
        offered = {device.id: device for pool in node.pools for device in pool.devices}
        withheld = {device.id: device for pool in node.pools for device in pool.withheld}
        published = withheld | offered
        acceptance = self._answers.table(filtered.demand).acceptance
        if acceptance.patience_over:
            acceptance = acceptance.after_patience()
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
        self, filtered: _FilteredPod, node: NodeView, given: _Allocation
    ) -> tuple[Verdict, bool]:
        """The verdict, and whether the node's record was stale."""
        # Kept for the pod's other claims, which were allocated in the same moment.
        if (kept := filtered.predicted.get(node.name)) is None:
            answers = self._answers
            acceptance = answers.table(filtered.demand).acceptance
            allocator = answers.outcomes().allocator(answers.profile, BRIEF)
            alone = msgspec.structs.replace(filtered.demand, in_flight=0)
            kept = judge(alone, node, acceptance, allocator), given.is_stale(node)
            filtered.predicted[node.name] = kept
        return kept


def _refuses(acceptance: Acceptance, device: DeviceView, held: AllocatedDevice) -> bool:
    """Whether a policy refuses an allocated device."""
    choice = choice_of("", device, held.tolerations, acceptance, admin_access=held.admin_access)
    return bool(not choice.is_acceptable(acceptance) or choice.met.unmet)


def _owner(claim: resource.ResourceClaim) -> OwnerReference | None:
    """The pod that a claim was made for; None if it was made for none."""
    owners = claim.metadata.owner_references or ()
    return next((owner for owner in owners if owner.kind == "Pod"), None)


def _node(claim: resource.ResourceClaim) -> str:
    """The one node where an allocation can be used; "" if there may be several."""
    # A selector of network devices may name nodes too: beside others, or as those it leaves out.
    selector = claim.allocation.node_selector if claim.allocation is not None else None
    terms = (selector.node_selector_terms or ()) if selector is not None else ()
    for wanted in (terms[0].match_fields or ()) if len(terms) == 1 else ():
        values = wanted.values or ()
        if (wanted.key, wanted.operator) == ("metadata.name", "In") and len(values) == 1:
            return values[0]
    return ""


def _entry(claim: resource.ResourceClaim, pod: core.Pod) -> str:
    """The pod's name for the claim."""
    if claim.annotation(EXTENDED_RESOURCE_CLAIM) == "true":
        return EXTENDED_RESOURCES
    if (name := claim.annotation(POD_CLAIM_NAME)) is not None:
        return name
    name = claim.metadata.name
    named = (entry.name for entry in pod.resource_claims if entry.resource_claim_name == name)
    return next(named, "")
