"""What a pod would leave behind: its node without it, and what its replacement would find there."""

import msgspec

from fettle.api import core
from fettle.cluster import NodeView, View
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
        found = await run_within(None, lambda: self._node(demand))
        if found is None:
            return False
        answers, outcomes = self._answers, self._answers.outcomes()
        verdicts = await answers.judge_apart([(demand, found)], outcomes)
        if outcomes.missing:
            await answers.evaluate_selectors(demand, [found])
            verdicts = await answers.judge_apart([(demand, found)], answers.outcomes())
        verdict = verdicts[found.name]
        return verdict.can_be_placed and not (verdict.overruled or verdict.undecided)

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
