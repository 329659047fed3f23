"""Which pods run together, and how well the worst placed of them does.

The pods of a gang wait for each other, so its slowest member is everybody's speed. Which pods run
together is known by their group, or by the controller that made them. Pure.
"""

from collections import defaultdict
from typing import NamedTuple

from fettle.api import core
from fettle.cluster import NodeView, View, changed_keys
from fettle.model import Health
from fettle.pacing import pause
from fettle.scheduling.demand import held_claims
from fettle.scheduling.judge.placed import worst_held

GROUP_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/group-key",
    "kueue.x-k8s.io/pod-group-name",
    "scheduling.x-k8s.io/pod-group",
)
"""Labels whose value names the group that a pod runs with."""
VOLCANO_GROUP = "scheduling.k8s.io/group-name"
"""The annotation by which Volcano names it."""
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
APART = ("ReplicaSet", "ReplicationController", "DaemonSet")
"""Controllers whose pods do not wait for each other."""


class SlowestMember(NamedTuple):
    """The placed pod of a gang (`namespace/name`) that has the worst device, its node, and the
    health of that device or node."""

    pod: str
    node: str
    health: Health


class Gangs:
    """The gangs of the pods that have not ended, up to date with the views that it follows."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, core.Pod]] = defaultdict(dict)
        """By group: its pods, by `namespace/name`."""
        self._judged: dict[str, tuple[core.Pod, NodeView, SlowestMember]] = {}
        """By `namespace/name`: what was found of a placed member, and by which pod and node."""
        self._slowest: dict[str, tuple[View, SlowestMember | None]] = {}
        """By group: the slowest of all members, in that view."""

    def follow(self, before: View, view: View, _changed: frozenset[str] = frozenset()) -> None:
        """Take in which pods there are."""
        for key in changed_keys(before.pods, view.pods):
            old, new = before.pods.get(key), view.pods.get(key)
            if old is not None:
                self._forget(old)
            if new is not None and (group := group_of(new)):
                self._members[group][key] = new
                self._slowest.pop(group, None)
            pause()

    def _forget(self, pod: core.Pod) -> None:
        self._judged.pop(pod.metadata.key, None)
        group = group_of(pod)
        self._slowest.pop(group, None)
        if (members := self._members.get(group)) is not None:
            members.pop(pod.metadata.key, None)
            if not members:
                del self._members[group]

    def is_member(self, pod: core.Pod) -> bool:
        """Whether the pod runs together with others that have not ended."""
        members = self._members.get(group_of(pod))
        return members is not None and (len(members) > 1 or pod.metadata.key not in members)

    def slowest(self, pod: core.Pod, view: View) -> SlowestMember | None:
        """The slowest other member of the pod's gang; None if none of them is placed."""
        group = group_of(pod)
        members = self._members.get(group)
        if members is None:
            return None
        itself = members.get(pod.metadata.key)
        if itself is not None and itself.node_name:  # only people ask about it
            return self._slowest_of(members, view, itself)
        known = self._slowest.get(group)
        if known is None or known[0] is not view:
            known = self._slowest[group] = view, self._slowest_of(members, view)
        return known[1]

    def _slowest_of(
        self, members: dict[str, core.Pod], view: View, but: core.Pod | None = None
    ) -> SlowestMember | None:
        found = (
            self._placed(key, member, view)
            for key, member in members.items()
            if member is not but and member.node_name
        )
        return min(filter(None, found), key=_score, default=None)

    def _placed(self, key: str, pod: core.Pod, view: View) -> SlowestMember | None:
        node = view.nodes.get(pod.node_name)
        if node is None:
            return None
        known = self._judged.get(key)
        if known is not None and known[0] is pod and known[1] is node:
            return known[2]
        member = SlowestMember(key, node.name, worst_held(pod, node, held_claims(pod, view)))
        self._judged[key] = pod, node, member
        return member


def _score(member: SlowestMember) -> float:
    return member.health.score


def group_of(pod: core.Pod) -> str:
    """What the pods that run together have in common; "" if the pod runs alone."""
    metadata = pod.metadata
    if pod.pod_group:
        return pod.pod_group
    for label in GROUP_LABELS:
        if name := metadata.label(label):
            return f"{metadata.namespace}/{label}/{name}"
    if name := metadata.annotation(VOLCANO_GROUP):
        return f"{metadata.namespace}/{VOLCANO_GROUP}/{name}"
    controller = metadata.controller
    if controller is None or controller.kind in APART:
        return ""
    if controller.kind == "Job" and metadata.annotation(COMPLETION_INDEX) is None:
        return ""  # such pods take work from a queue, each for itself
    return f"{metadata.namespace}/{controller.uid}"
