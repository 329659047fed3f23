"""Verdicts on nodes as preemption would leave them, over the newest view.

For the preempt verb, and for explanations of what preemption would change. The scheduler names its
victims before it evicts them. Once they are gone, a claim that only they had reserved is deleted if
it was made for one of them, and deallocated otherwise; a claim that another pod has reserved stays.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from cachetools import LRUCache

from fettle.api import core, resource
from fettle.cluster import NodeView, View
from fettle.dra import claim_name, entries_with_claims, held_devices, with_released
from fettle.model import reasons
from fettle.pacing import pause, run_within
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.verdicts import Verdict

MAX_REMEMBERED = 100
"""How many pods' preemptions are remembered."""
RELEASE_S = 10.0
"""How long a pod waits at most for claims to release devices, which takes them milliseconds."""
OBJECTS_PER_PAUSE = 16
"""Objects looked at between two pauses."""

ByNode = Mapping[str, Collection[str]]
"""The UIDs of the victims on each node."""
Claims = Mapping[str, resource.ResourceClaim]
"""Claims by their keys."""


class _Emptied(NamedTuple):
    """A node that was emptied for a pod, of which victims, and until when the pod waits for it."""

    node: str
    victims: Collection[str]
    until: float


class Preemption:
    """Judges preemptions, and remembers by pod UID which nodes it answered with.

    Nothing of it survives a restart: in the middle of a preemption that may cost one more.
    """

    def __init__(self, answers: Answers, clock: Callable[[], float] = time.monotonic) -> None:
        self._answers = answers
        self._clock = clock
        self._offered: LRUCache[str, ByNode] = LRUCache(MAX_REMEMBERED)
        self._emptied: LRUCache[str, _Emptied] = LRUCache(MAX_REMEMBERED)

    async def judged_nodes(
        self, pod: core.Pod, victims: ByNode
    ) -> tuple[list[str], dict[str, Verdict]]:
        """The nodes that would not be refused with their victims gone, and the verdicts on all of
        them, if they had to be judged.

        None of them if another node was emptied for the pod already.
        """
        if await self._has_room_made(pod):
            return [], {}
        verdicts = await self.verdicts(pod, victims)
        found = [name for name in victims if name not in verdicts or verdicts[name].fits]
        self._offered[pod.metadata.uid] = {name: victims[name] for name in found}
        return found, verdicts

    async def _has_room_made(self, pod: core.Pod) -> bool:
        """Whether a node emptied for the pod has room for it, once claims release devices."""
        # The scheduler tries the node as soon as the victims are gone, a moment before their claims
        # release devices. If it is refused there, it would evict other pods elsewhere.
        uid, name = pod.metadata.uid, pod.nominated_node
        if victims := self._offered.get(uid, {}).get(name):
            del self._offered[uid]
            self._emptied[uid] = _Emptied(name, victims, self._clock() + RELEASE_S)
        emptied = self._emptied.get(uid)
        if emptied is None or self._clock() > emptied.until:
            return False
        then = (await self.verdicts(pod, {emptied.node: emptied.victims})).get(emptied.node)
        return then is not None and then.can_be_placed

    async def verdicts(self, pod: core.Pod, victims: ByNode) -> dict[str, Verdict]:
        """The pod's verdict on each of these nodes, with its victims and what they leave gone.

        Leaves out nodes that are not known. Waits once, within a bound, for selectors. Nothing is
        kept of it.
        """
        answers = self._answers
        cases = await run_within(lambda: list(self._cases(pod, victims)))
        outcomes = answers.outcomes()
        verdicts = await answers.judge_apart(cases, outcomes, emptied=True)
        if outcomes.missing:  # a pod that finds all nodes full is sent to this verb first
            nodes = [node for _, node in cases]
            demands = dict.fromkeys(demand for demand, _ in cases)
            await asyncio.gather(*(answers.evaluate_selectors(demand, nodes) for demand in demands))
            verdicts = await answers.judge_apart(cases, outcomes, emptied=True)
        return verdicts

    async def with_notes(self, pod: core.Pod, verdicts: dict[str, Verdict]) -> dict[str, Verdict]:
        """The verdicts on a pod, with notes where preemption would change them.

        The notes are about preempting all pods on the node that the pod may preempt.
        """
        view = self._answers.view
        victims = await run_within(lambda: preemptible_pods(view, pod))
        uids = {name: [one.metadata.uid for one in pods] for name, pods in victims.items()}
        changed = await self.verdicts(pod, uids)
        return verdicts | {
            name: _with_note(verdicts[name], then, victims[name])
            for name, then in changed.items()
            if name in verdicts
        }

    def _cases(self, pod: core.Pod, by_node: ByNode) -> Iterator[tuple[Demand, NodeView]]:
        """Each node with its victims gone, and the pod's demand by then."""
        view, usual = self._answers.view, self._answers.demand(pod)
        victims = VictimsByNode(view, by_node)
        for name in by_node:
            if usual is not None and (node := view.nodes.get(name)) is not None:
                left = victims.released_claims(name)
                then = view_with_released(view, pod, left)
                demand = self._answers.demand_in(then, pod) if then is not None else usual
                yield demand or usual, node_with_released(node, left)
            pause()


def _with_note(now: Verdict, then: Verdict, victims: Sequence[core.Pod]) -> Verdict:
    if now.fits == then.fits or then.rejected:
        return now
    keys = tuple(sorted(pod.metadata.key for pod in victims))
    note: reasons.Reason
    if not then.fits:
        note = reasons.PreemptionWouldNotHelp(keys, then.refusals[0])
    else:
        devices = tuple(choice.device for choice in then.devices)
        note = reasons.PreemptionWouldHelp(keys, devices)
    return msgspec.structs.replace(now, notes=(*now.notes, note))


# What victims leave behind


class VictimsByNode:
    """The victims on each node, by UID. Pods that the view does not know hold nothing."""

    def __init__(self, view: View, by_node: Mapping[str, Collection[str]]) -> None:
        self._view = view
        self._by_node = {name: frozenset(uids) for name, uids in by_node.items()}
        wanted = frozenset[str]().union(*self._by_node.values())
        self._reserved: dict[str, list[resource.ResourceClaim]] = defaultdict(list)
        for looked_at, claim in enumerate(view.claims.values()):
            for uid in claim.reserved_for & wanted:
                self._reserved[uid].append(claim)
            if looked_at % OBJECTS_PER_PAUSE == 0:
                pause()

    def released_claims(self, name: str) -> Claims:
        """The claims that are reserved for nobody once a node's victims are gone."""
        gone = self._by_node[name]
        theirs = (claim for uid in gone for claim in self._reserved.get(uid, ()))
        return {claim.metadata.key: claim for claim in theirs if claim.reserved_for <= gone}


def preemptible_pods(view: View, pod: core.Pod) -> Mapping[str, list[core.Pod]]:
    """The pods with devices that a pending pod may preempt, by node."""
    found: dict[str, list[core.Pod]] = defaultdict(list)
    if pod.node_name or not pod.preempts:
        return found
    for looked_at, other in enumerate(view.pods.values()):
        if other.node_name and other.priority < pod.priority:
            found[other.node_name].append(other)
        if looked_at % OBJECTS_PER_PAUSE == 0:
            pause()
    return found


def node_with_released(node: NodeView, left: Claims) -> NodeView:
    """The node without what these claims hold."""
    held = [one for claim in left.values() for one in held_devices(claim) or ()]
    return msgspec.structs.replace(node, pools=with_released(node.pools, held)) if held else node


def view_with_released(view: View, pod: core.Pod, left: Claims) -> View | None:
    """The view with the pod's own claims deallocated that are among these; None if none is."""
    own = _own_claims(view, pod)
    if own.keys().isdisjoint(left):
        return None
    anew = {
        key: msgspec.structs.replace(claim, status=None) if key in left else claim
        for key, claim in own.items()
    }
    return msgspec.structs.replace(view, claims=anew)


def _own_claims(view: View, pod: core.Pod) -> Claims:
    names = (claim_name(pod, entry) for entry in entries_with_claims(pod))
    keys = (f"{pod.metadata.namespace}/{name}" for name in names)
    return {key: view.claims[key] for key in keys if key in view.claims}
