"""Controllers whose pods kubelets refuse one after the other, so that new ones come back for ever.

Only refusals by sound nodes count: a pod that waits for a node to be repaired is not hopeless.
What is known of a controller is forgotten as soon as a kubelet takes one of its pods.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import msgspec
from cachetools import LRUCache

from fettle.api import core
from fettle.api.kinds import WireObject
from fettle.cluster import View
from fettle.dra import uses_devices
from fettle.model import State
from fettle.model.reasons import PodsRefusedEachTime
from fettle.pacing import pause
from fettle.scheduling.owner_refusals import is_refused, refused_at

TRIES = 5
"""So many pods were refused: schedulers and kubelets disagree about one or two now and then."""
CERTAIN_S = 30.0
"""How long none was taken, if the pod's own shape is refused by nodes on which nothing else is."""
LASTING_S = 300.0
"""The same for other refusals, on two nodes or more. A device plugin that restarts is back by then,
and where it is not, the node's health shows it."""
LATELY_S = 900.0
"""A controller that tried for the last time so long ago has given up. A Job pauses up to six
minutes before it tries again."""
MOST_OWNERS = 2000
MOST_COUNTED = 1000
"""A controller may make pods without end, and a tenant controllers."""
_SHAPE = "TopologyAffinityError"
"""The reason of a refusal that devices in use can cause too, but not on an idle node."""


class _Tries(msgspec.Struct, gc=False):
    """What became of a controller's pods since the last one that a kubelet took."""

    pod: core.Pod
    since: float
    last: float
    refused: dict[str, str] = {}
    """By the UID of a pod: the node that refused it."""
    by_shape: bool = True


class Comebacks:
    """`put` each pod as it arrives. `clock` is in Unix seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._tries: LRUCache[str, _Tries] = LRUCache(MOST_OWNERS)
        """By the controller's identity."""

    def observe(self, new: WireObject) -> None:
        """An object as it is now."""
        if not isinstance(new, core.Pod) or not (owner := new.metadata.controller_identity):
            return
        if is_refused(new) and uses_devices(new):
            self._note(owner, new)
        elif owner in self._tries and was_taken(new):
            del self._tries[owner]

    def _note(self, owner: str, pod: core.Pod) -> None:
        at = refused_at(pod, self._clock())
        tries = self._tries.setdefault(owner, _Tries(pod, at, at))
        uid = pod.metadata.uid
        if uid in tries.refused or len(tries.refused) >= MOST_COUNTED:
            return
        tries.refused[uid] = pod.node_name
        tries.since, tries.last = min(tries.since, at), max(tries.last, at)
        tries.pod = pod
        tries.by_shape &= pod.status is not None and pod.status.reason == _SHAPE

    def hopeless(self, view: View) -> Iterator[tuple[core.Pod, PodsRefusedEachTime]]:
        """The controllers whose pods no kubelet takes: the last pod of each, and why."""
        now = self._clock()
        recent = [t for t in self._tries.values() if now - t.last < LATELY_S]
        found = [t for t in recent if len(t.refused) >= TRIES and now - t.since >= CERTAIN_S]
        users = _users(view) if found else {}
        for tries in found:
            refused = [node for node in tries.refused.values() if _is_sound(view, node)]
            nodes, own = tuple(sorted(set(refused))), {tries.pod.metadata.controller_identity}
            certain = tries.by_shape and all(users.get(node, own) <= own for node in nodes)
            lasts = len(nodes) > 1 and now - tries.since >= LASTING_S
            if len(refused) >= TRIES and (certain or lasts):
                message = tries.pod.status.message if tries.pod.status is not None else ""
                yield tries.pod, PodsRefusedEachTime(len(refused), nodes, message, certain)


def _users(view: View) -> Mapping[str, set[str]]:
    """By node: the identities of the controllers that have pods with devices there, or of lone
    pods."""
    found: dict[str, set[str]] = defaultdict(set)
    for pod in view.pods.values():
        if pod.node_name:
            metadata = pod.metadata
            found[pod.node_name].add(metadata.controller_identity or metadata.identity)
        pause()
    return found


def was_taken(pod: core.Pod) -> bool:
    """Whether a kubelet took the pod and ran it."""
    phase = pod.status.phase if pod.status is not None else ""
    return phase in ("Running", "Succeeded") or (phase == "Failed" and not is_refused(pod))


def _is_sound(view: View, name: str) -> bool:
    node = view.nodes.get(name)
    return node is not None and node.health.state is not State.UNHEALTHY
