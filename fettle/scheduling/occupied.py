"""The nodes on which pods with devices are: none of them is whole, whatever is free there. Pure."""

from collections import Counter
from collections.abc import Set

from fettle.api import core
from fettle.cluster import View, changed_keys
from fettle.dra import uses_devices
from fettle.pacing import pause


class OccupiedNodes:
    """Up to date with the views that it follows."""

    def __init__(self) -> None:
        self._pods: Counter[str] = Counter()

    @property
    def names(self) -> Set[str]:
        return self._pods.keys()

    def follow(self, before: View, view: View) -> None:
        """Take in which pods are where."""
        for key in changed_keys(before.pods, view.pods):
            old, new = _node_of(before.pods.get(key)), _node_of(view.pods.get(key))
            if old != new:
                self._pods[new] += 1
                self._pods[old] -= 1
                if not self._pods[old]:
                    del self._pods[old]
            pause()
        self._pods.pop("", None)


def _node_of(pod: core.Pod | None) -> str:
    """The node on which a pod has devices; "" if none."""
    return pod.node_name if pod is not None and uses_devices(pod) else ""
