"""What a pod would leave behind: its node without it, and what its replacement would find there."""

from collections.abc import Collection
from itertools import chain

import msgspec

from fettle.api import core
from fettle.cluster import NodeView, View
from fettle.dra import Match, Request
from fettle.pacing import pause, run_within
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Demand, copy_to_place
from fettle.scheduling.judge.placed import without_held
from fettle.scheduling.judge.units import count_taken, lacking_units
from fettle.scheduling.preemption import (
    VictimsByNode,
    node_with_released,
    view_with_released,
)
from fettle.scheduling.tables import NOT_EVALUATED


class Departure:
    """Of a pod that has a node. Its claims are released unless other pods use them too."""

    def __init__(self, answers: Answers, view: View, pod: core.Pod) -> None:
        """`view` has the pod. It pauses."""
        self._answers = answers
        self._view = view
        self._pod = pod
        self.copy = copy_to_place(pod)
        """Its replacement."""
        victims = {pod.node_name: {pod.metadata.uid}}
        self._left = VictimsByNode(view, victims).released_claims(pod.node_name)

    def demand(self) -> Demand | None:
        """Of the replacement, by then."""
        then = view_with_released(self._view, self.copy, self._left)
        return self._answers.demand_in(then or self._view, self.copy)

    async def frees_a_place(self, demand: Demand) -> bool:
        """Whether its node would then take the replacement, and give it what its policy accepts."""
        found = await run_within(lambda: self._node(demand))
        if found is None:
            return False
        answers, outcomes = self._answers, self._answers.outcomes()
        verdicts = await answers.judge_apart([(demand, found)], outcomes)
        if outcomes.missing:
            await answers.evaluate_selectors(demand, [found])
            verdicts = await answers.judge_apart([(demand, found)], answers.outcomes())
        verdict = verdicts[found.name]
        return verdict.can_be_placed and not (verdict.overruled or verdict.undecided)

    async def has_devices_elsewhere(self, demand: Demand, names: Collection[str]) -> bool:
        """Whether one of these nodes has what the replacement asks for at all, though it may be in
        use or ill."""
        nodes = [node for name in names if (node := self._view.nodes.get(name)) is not None]
        await self._answers.evaluate_selectors(demand, nodes)
        outcomes = self._answers.outcomes()
        return await run_within(lambda: any(_has(demand, n, outcomes) for n in nodes))

    def _node(self, demand: Demand) -> NodeView | None:
        """The node by then; None if it has too few units even then."""
        node, gone = self._view.nodes.get(self._pod.node_name), self._pod.metadata.uid
        if node is None:
            return None
        others = []
        for pod in self._view.pods.values() if demand.units else ():
            if pod.node_name == node.name and pod.metadata.uid != gone:
                others.append(pod)
            pause()
        if any(lacking_units(demand, node, count_taken(others))):
            return None
        plugins = {name: without_held(one, self._pod) for name, one in node.plugins.items()}
        return msgspec.structs.replace(node_with_released(node, self._left), plugins=plugins)


def _has(demand: Demand, node: NodeView, match: Match) -> bool:
    """Whether a node has so many units of each resource, and a device for each request. A
    selector that cannot be evaluated counts as a match, but not one that is not evaluated yet."""
    requests = [request for claim in demand.claims for request in claim.requests]
    for units in demand.units:
        plugin = node.plugins.get(units.resource)
        if plugin is not None and plugin.capacity:
            if plugin.capacity < units.count:
                return False
        elif not units.backing:
            return False
        else:
            requests += units.backing
    return all(_offers(node, request, match) for request in requests)


def _offers(node: NodeView, request: Request, match: Match) -> bool:
    for device in chain.from_iterable((*pool.devices, *pool.withheld) for pool in node.pools):
        pause()
        for alternative in request.alternatives:
            found = (match(expression, device) for expression in alternative.selectors)
            if all(one.matches or (one.undecided and one != NOT_EVALUATED) for one in found):
                return True
    return False
