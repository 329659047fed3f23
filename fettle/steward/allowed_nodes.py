"""Which nodes a waiting pod could be placed on: those that neither Fettle nor the scheduler's own
checks of devices refuse, nor a breaker alone allows. To wake the pod for other nodes would be in
vain, or would put it on devices that are called bad.
"""

from collections.abc import Set

from fettle.api import core
from fettle.cluster import View
from fettle.model import Mode
from fettle.pacing import run_within
from fettle.scheduling import (
    Answers,
    Demand,
    Preemption,
    Taken,
    Units,
    count_taken,
    nodes_lacking_units,
    preemptible_pods,
)

_EMPTIED = "emptied "


class AllowedNodes:
    """For one steward: it judges all waiting pods on one view before it goes on to the next.

    `overruled`: also what a breaker alone allows, as the last choice of pods that have waited.
    """

    def __init__(self, answers: Answers, *, overruled: bool = False) -> None:
        self._answers = answers
        self._overruled = overruled
        self._generation = -1
        self._taken: Taken = {}
        self._full: dict[tuple[tuple[Units, ...], int], frozenset[str]] = {}

    async def find(
        self, pod: core.Pod, view: View, mode: Mode | None = None, demand: Demand | None = None
    ) -> Set[str]:
        """Names of nodes, in the pod's own mode and by its demand in the newest view if none is
        given. Units of pods that this pod may preempt count as free.

        None where Fettle only observes: there it wakes nobody.
        """
        demand = demand or self._answers.demand(pod)
        if demand is None:
            return frozenset(view.nodes)
        mode = mode or demand.mode
        if mode is Mode.OBSERVE:
            return frozenset()
        table = await self._answers.judged(demand)
        unsuited = set(table.rejected)
        if mode is Mode.ENFORCE:
            unsuited |= table.refused
            if table.acceptance.set_aside and not self._overruled:
                # What a breaker allows is no reason to wake a pod: it may be really bad.
                unsuited |= {name for name, one in table.verdicts.items() if one.overruled}
        if demand.units:
            unsuited |= await self._full_nodes(demand, pod, view)
        return frozenset(table.verdicts.keys() - unsuited)

    async def _full_nodes(self, demand: Demand, pod: core.Pod, view: View) -> frozenset[str]:
        if view.generation != self._generation:
            self._taken = await run_within(lambda: count_taken(view.pods.values()))
            self._generation = view.generation
            self._full.clear()
        key = demand.units, pod.priority
        if key not in self._full:
            nodes = view.nodes.values()
            self._full[key] = await run_within(
                lambda: nodes_lacking_units(demand, nodes, self._taken, preemptor=pod)
            )
        return self._full[key]


class PreemptibleNodes:
    """For one steward: the nodes that `preempt` would leave a pod now."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._allowed = AllowedNodes(answers)
        self._preemption = Preemption(answers)
        self._generation = -1
        self._emptied: dict[tuple[Demand, int], frozenset[str]] = {}

    async def find(self, pod: core.Pod, view: View) -> Set[str]:
        """Names of nodes that are allowed as they are, and names, marked, of those that would be
        without all that the pod may preempt there.

        Which of those pods would be its victims is not known: it depends on processors and memory
        too.
        """
        allowed = await self._allowed.find(pod, view)
        demand = self._answers.demand(pod)
        if demand is None or demand.mode is not Mode.ENFORCE:
            return allowed
        return allowed | await self._emptied_nodes(demand, pod, view)

    async def _emptied_nodes(self, demand: Demand, pod: core.Pod, view: View) -> frozenset[str]:
        if view.generation != self._generation:
            self._generation = view.generation
            self._emptied.clear()
        key = demand, pod.priority
        if key not in self._emptied:
            found = await run_within(lambda: preemptible_pods(view, pod))
            victims = {name: [one.metadata.uid for one in pods] for name, pods in found.items()}
            verdicts = await self._preemption.verdicts(pod, victims)
            self._emptied[key] = frozenset(
                _EMPTIED + name
                for name, verdict in verdicts.items()
                if verdict.can_be_placed and not verdict.overruled
            )
        return self._emptied[key]
