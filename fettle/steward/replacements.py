"""Whether the replacement of a pod on a failed device would be better off than the pod. Stands
between such pods and their eviction.
"""

from fettle.api import core
from fettle.cluster import View
from fettle.dra import claim_name, entries_with_claims
from fettle.model import Mode
from fettle.pacing import pause, run_within
from fettle.scheduling import Answers, Departure, DeviceFailure, node_fit
from fettle.steward.allowed_nodes import AllowedNodes
from fettle.steward.pod_writes import MarkReason

_PINNED = ("DaemonSet", "Node")
"""Controllers whose pods come back on the same node."""


class Replacements:
    """For one steward."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._allowed_nodes = AllowedNodes(answers)

    async def why_in_vain(self, failure: DeviceFailure) -> MarkReason | None:
        """Why nothing would be gained by an eviction; None if something would."""
        pod, view = failure.pod, self._answers.view
        controller = pod.metadata.controller
        if controller is None or controller.kind in _PINNED:
            return MarkReason.NO_REPLACEMENT
        if _shares_claims(pod, view):  # its replacement would be given the same device
            return MarkReason.CLAIM_SHARED
        departure = await run_within(None, lambda: Departure(self._answers, view, pod))
        demand = departure.demand()
        fitting = await run_within(None, lambda: _fitting(pod, view))
        if pod.node_name in fitting:
            # Judged as it will be by then: a device that would be given again does not count.
            if demand is not None and await departure.frees_a_place(demand):
                return None
            fitting.discard(pod.node_name)
        if not fitting:
            return MarkReason.NO_OTHER_NODE
        if failure.is_dead:  # it is no loss, and whoever waits for the pod waits in vain
            found = demand is None or await departure.has_devices_elsewhere(demand, fitting)
            return None if found else MarkReason.NO_OTHER_NODE
        allowed = await self._allowed_nodes.find(departure.copy, view, Mode.ENFORCE, demand)
        return None if fitting & allowed else MarkReason.NOWHERE_BETTER


def _fitting(pod: core.Pod, view: View) -> set[str]:
    """The nodes to which its own manifest lets the pod go."""
    fits, found = node_fit(pod), set()
    for name, node in view.nodes.items():
        if fits(node):
            found.add(name)
        pause()
    return found


def _shares_claims(pod: core.Pod, view: View) -> bool:
    """Whether another pod uses one of its claims."""
    names = (claim_name(pod, entry) for entry in entries_with_claims(pod))
    claims = (view.claims.get(f"{pod.metadata.namespace}/{name}") for name in names)
    return any(claim is not None and claim.reserved_for - {pod.metadata.uid} for claim in claims)
