"""When a pod that Fettle's refusal keeps waiting should be looked at again. The scheduler does not
retry a pod because Fettle changed its mind: in a quiet cluster that takes five minutes, so the
steward nudges it. Pure: what is allowed now and what was allowed before are arguments.
"""

from collections.abc import Iterator, Mapping, Set

from fettle.view import View
from fettle.wire import core

MARK = "fettle:"
"""What every refusal text of the extender begins with."""
WAKES = 2
"""How often one gain wakes, an interval apart while the pod still waits: another replica, whose
view was a moment behind, may have refused it again.
"""

Allowed = Mapping[str, Set[str]]


def is_waiting(pod: core.Pod) -> bool:
    """Pending, on no node, and last refused with a text of ours in it."""
    if pod.terminal or pod.metadata.deletion_timestamp is not None:
        return False
    if pod.spec is None or pod.spec.node_name or pod.status is None:
        return False
    return any(
        condition.type == "PodScheduled"
        and condition.status != "True"
        and MARK in condition.message
        for condition in pod.status.conditions or ()
    )


def waiting(view: View) -> Iterator[tuple[str, core.Pod]]:
    """Pods that wait because of us, each under a key that no later pod of its name shares."""
    for key, pod in view.pods.items():
        if is_waiting(pod):
            yield f"{key}/{pod.metadata.uid}", pod


class Waking:
    """Which pods are due to be woken. A pod seen for the first time is due if any node is allowed:
    the fault may have cleared between its refusal and our seeing it.
    """

    def __init__(self) -> None:
        self._before: Allowed = {}
        self._due: dict[str, int] = {}

    @property
    def due(self) -> Set[str]:
        """Keys of pods to wake."""
        return self._due.keys()

    def look(self, allowed: Allowed) -> None:
        """Take what is allowed now for every waiting pod; pods that are not in it wait no more."""
        self._due = {key: wakes for key, wakes in self._due.items() if key in allowed}
        for key, nodes in allowed.items():
            if nodes - self._before.get(key, frozenset()):
                self._due[key] = WAKES
        self._before = dict(allowed)

    def woken(self) -> None:
        """All that were due have been woken once more."""
        self._due = {key: wakes - 1 for key, wakes in self._due.items() if wakes > 1}
