"""Verdicts on nodes as preemption would leave them, over the newest view: for the verb, and for
people who wonder what it would bring. Beside `answering`."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from cachetools import LRUCache

from fettle.api import core
from fettle.cluster import NodeView
from fettle.model import reasons
from fettle.pacing import pause, run_within
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.verdicts import Verdict
from fettle.scheduling.victims import VictimsByNode, deallocated, emptied, lower

MOST = 100
"""Pods whose preemptions are remembered."""
LET_GO_S = 10.0
"""Longest that a pod waits for claims to let go, which takes them some milliseconds."""

ByNode = Mapping[str, Collection[str]]
"""Victims of a node, by their UIDs."""


class _Made(NamedTuple):
    """A node that was emptied for a pod, of whom, and until when that may be waited for."""

    node: str
    victims: Collection[str]
    until: float


class Preempting:
    """Remembers what pods were told, by their UIDs: a restart in the midst of a preemption may cost
    one more."""

    def __init__(self, answers: Answers, clock: Callable[[], float] = time.monotonic) -> None:
        self._answers = answers
        self._clock = clock
        self._told: LRUCache[str, ByNode] = LRUCache(MOST)
        self._made: LRUCache[str, _Made] = LRUCache(MOST)

    async def worth(self, pod: core.Pod, victims: ByNode) -> list[str]:
        """The nodes that would not be refused with their victims gone; none where that was done for
        the pod elsewhere."""
        if await self._has_room_made(pod):
            return []
        verdicts = await self.verdicts(pod, victims)
        found = [name for name in victims if name not in verdicts or verdicts[name].fits]
        self._told[pod.metadata.uid] = {name: victims[name] for name in found}
        return found

    async def _has_room_made(self, pod: core.Pod) -> bool:
        """Whether a node that was emptied for the pod has a place for it, or will have once claims
        let go of what its victims had.

        The scheduler looks at a node as soon as the victims are gone, a moment before that, and
        would evict others elsewhere for a pod that is refused there.
        """
        uid, name = pod.metadata.uid, pod.nominated_node
        if victims := self._told.get(uid, {}).get(name):
            del self._told[uid]
            self._made[uid] = _Made(name, victims, self._clock() + LET_GO_S)
        made = self._made.get(uid)
        if made is None or self._clock() > made.until:
            return False
        then = (await self.verdicts(pod, {made.node: made.victims})).get(made.node)
        return then is not None and then.fits and not then.rejected

    async def verdicts(self, pod: core.Pod, victims: ByNode) -> dict[str, Verdict]:
        """A verdict for each of these nodes that is known, on the pod, once these victims, by UID,
        and all that they leave are gone. Nothing is kept of it.

        Waits once, within a bound, for selectors: a pod that finds all nodes full comes to this
        verb first.
        """
        answers = self._answers
        cases = await run_within(None, lambda: list(self._cases(pod, victims)))
        match = answers.matching()
        verdicts = await answers.apart(cases, match, emptied=True)
        if match.missing:
            nodes = [node for _, node in cases]
            demands = dict.fromkeys(demand for demand, _ in cases)
            await asyncio.gather(*(answers.evaluated(demand, nodes) for demand in demands))
            verdicts = await answers.apart(cases, match, emptied=True)
        return verdicts

    async def noted(self, pod: core.Pod, verdicts: dict[str, Verdict]) -> dict[str, Verdict]:
        """The verdicts on a pod, with a note where they would turn with all of those gone that it
        may preempt."""
        view = self._answers.view
        victims = await run_within(None, lambda: lower(view, pod))
        uids = {name: [one.metadata.uid for one in pods] for name, pods in victims.items()}
        turned = await self.verdicts(pod, uids)
        return verdicts | {
            name: _noted(verdicts[name], then, victims[name])
            for name, then in turned.items()
            if name in verdicts
        }

    def _cases(self, pod: core.Pod, by_node: ByNode) -> Iterator[tuple[Demand, NodeView]]:
        """What is asked of each node by then, and what it will be like."""
        view, usual = self._answers.view, self._answers.demand(pod)
        victims = VictimsByNode(view, by_node)
        for name in by_node:
            if usual is not None and (node := view.nodes.get(name)) is not None:
                left = victims.left(name)
                then = deallocated(view, pod, left)
                demand = self._answers.demand_in(then, pod) if then is not None else usual
                yield demand or usual, emptied(node, left)
            pause()


def _noted(now: Verdict, then: Verdict, victims: Sequence[core.Pod]) -> Verdict:
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
