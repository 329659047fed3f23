"""Pods that wait because `preempt` let them preempt nobody: for which nodes to wake them, and the
write that wakes them.

For the scheduler such a pod waits for processors or units. So it retries the pod when another pod
leaves a node, and not for what `wake_ups` writes. It takes a change of a pending pod's
`nominatedNodeName` for that (decision 0042), so Fettle changes the one of a pod of its own, which
never runs. That pod and the right are in `deploy/rbac/optional/wake-preemptors.yaml`.
"""

from collections.abc import Set

from fettle.api import core, kinds
from fettle.client import Session
from fettle.cluster import View
from fettle.model import ClusterError, Forbidden, Mode, NotFound
from fettle.pacing import run_within
from fettle.scheduling import Answers, Demand, Preemption, preemptible_pods
from fettle.steward.allowed_nodes import AllowedNodes

LET_PREEMPT_NOBODY = "no candidate node for preemption"
"""What the scheduler says of a pod if extenders left none of the nodes where it could preempt."""
WOKEN_FOR_S = 2.0
"""The longest pause before a pod is woken again. It is for replicas with an older view only: each
wake-up makes the scheduler retry all other pods that wait for processors or units, too."""
_NOWHERE = "none.fettle.dev"
"""A node that there is not, so that nothing is reserved on any."""
_EMPTIED = "emptied "
_RIGHTS = "deploy/rbac/optional/wake-preemptors.yaml has the pod and the right"


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
            found = await run_within(None, lambda: preemptible_pods(view, pod))
            victims = {name: [one.metadata.uid for one in pods] for name, pods in found.items()}
            verdicts = await self._preemption.verdicts(pod, victims)
            self._emptied[key] = frozenset(
                _EMPTIED + name
                for name, verdict in verdicts.items()
                if verdict.can_be_placed and not verdict.overruled
            )
        return self._emptied[key]


class PreemptorNudge:
    """Makes the scheduler retry pods that wait for processors or units."""

    def __init__(self, session: Session, namespace: str, pod: str) -> None:
        self._session = session
        self._path = kinds.POD.path_of(pod, namespace, "status")

    async def wake(self, _: View, __: float) -> None:
        """Wake all pods that wait; raises ClusterError if the write is refused."""
        try:
            for node in (_NOWHERE, None):
                await self._session.patch(self._path, {"status": {"nominatedNodeName": node}})
        except (Forbidden, NotFound) as error:
            raise ClusterError(f"{error}; {_RIGHTS}") from error
