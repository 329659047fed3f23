"""Which pods run together, and how well the worst placed of them does.

The pods of a gang wait for each other, so its slowest member is everybody's speed. Which pods run
together is known by their group, or by the controller that made them. Pure.
"""

from collections import defaultdict
from typing import NamedTuple

from cachetools import LRUCache

from fettle.api import core
from fettle.api.annotations import COMPLETION_INDEX, GROUP_KEYS, SIZE_ANNOTATIONS
from fettle.cluster import NodeView, View, changed_keys
from fettle.model import Health
from fettle.pacing import pause
from fettle.scheduling.demand import held_claims
from fettle.scheduling.judge.placed import worst_held

VOLCANO_GROUP = "podgroup-{}"
"""Volcano's name for the group of all pods of a controller with this UID, whatever it is."""
ANSWERED_S = 1.0
"""How long a member counts as placed after Fettle's answer, before that is seen."""
MOST_GROUPS = 1000
"""Any pod may name a group of its own, so the ones asked about longest ago are forgotten."""
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
        self._given_nodes: LRUCache[str, dict[str, float]] = LRUCache(MOST_GROUPS)
        """By group: when each member was given nodes, in their order."""

    def observe_view(
        self, before: View, view: View, _changed: frozenset[str] = frozenset()
    ) -> None:
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

    def note_attempt(self, pod: core.Pod) -> None:
        """The scheduler begins to place a pod. If it was given nodes before, that came to
        nothing, and so did what its group was given since, as with Kubernetes' own PodGroups."""
        given = self._given_nodes.get(group_of(pod)) if self._given_nodes else None
        while given and pod.metadata.key in given:
            given.popitem()

    def note_nodes_given(self, pod: core.Pod, now: float) -> None:
        """Filter gave the pod suitable nodes. `now` is in seconds, as in `unplaced`."""
        if group := group_of(pod):
            self._given_nodes.setdefault(group, {})[pod.metadata.key] = now

    def unplaced(self, pod: core.Pod, now: float) -> int:
        """How many members of the pod's gang, itself among them, are still to be placed, as far as
        is known; 0 if it runs alone."""
        if not (group := group_of(pod)):
            return 0
        members, key = self._members.get(group) or {}, pod.metadata.key
        size = max(len(members) + (key not in members), _told_size(pod))
        if size == 1:
            # A controller makes one pod after the other, and the first is placed meanwhile.
            if not _others_will_come(pod, group):
                return 0
            size = 2
        placed = {name for name, member in members.items() if member.node_name}
        given = self._given_nodes.get(group) or {}
        placed.update(name for name, at in given.items() if now - at <= ANSWERED_S)
        return size - len(placed - {key})

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
    controller = metadata.controller
    for key in GROUP_KEYS:
        # Kueue and JobSet write one key as a label, an annotation, or both.
        if (name := metadata.label(key) or pod.annotation(key)) and (
            controller is None or name != VOLCANO_GROUP.format(controller.uid)
        ):
            return f"{metadata.namespace}/{key}/{name}"
    if pod.pod_group and not _is_made_by_job(pod):
        return pod.pod_group
    if controller is None or controller.kind in APART:
        return ""
    if controller.kind == "Job" and pod.annotation(COMPLETION_INDEX) is None:
        return ""  # such pods take work from a queue, each for itself
    return f"{metadata.namespace}/{controller.uid}"


def _others_will_come(pod: core.Pod, group: str) -> bool:
    """Whether a pod is hardly the only one of its group: a StatefulSet often has just one."""
    if pod.annotation(COMPLETION_INDEX) is not None:
        return True
    controller = pod.metadata.controller
    return controller is None or not group.endswith(f"/{controller.uid}")


def _told_size(pod: core.Pod) -> int:
    """How many pods its group has, by its annotations; 0 if they do not say."""
    told = (pod.annotation(key) or "" for key in SIZE_ANNOTATIONS)
    return max(int(size) if size.isdecimal() and len(size) < 7 else 0 for size in told)


def _is_made_by_job(pod: core.Pod) -> bool:
    """Whether its PodGroup is one that Kubernetes makes for any Job: that says nothing, since it
    need not be a gang."""
    owners = pod.metadata.owner_references or ()
    return {"Job", "PodGroup"} <= {owner.kind for owner in owners}
