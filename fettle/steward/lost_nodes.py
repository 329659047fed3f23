"""Deletes by force the pods that end for ever on a lost node, where their policy says so
(`failure.onLostNode`), and the setting `deviceFailures.forceDeleteSeconds` after how long.

Nobody knows whether the processes of such a pod still run. So both have to say so, the node has to
be lost by its Lease and by its condition for that long, asked of the API server just before, and
only a few nodes may be lost at once. The pod is marked as Failed first, as Kubernetes' own pod
garbage collector does: a Job waits for that, and for nothing else.
"""

import time
from collections.abc import Callable, Collection, Iterator, Set
from datetime import datetime
from functools import partial
from itertools import chain
from math import inf
from typing import Any

import msgspec

from fettle.api import api_path, core, kinds
from fettle.api.meta import Wire, rfc3339_at, unix_s
from fettle.client import Event, EventRecorder, Session, decoded
from fettle.cluster import View
from fettle.config import Settings
from fettle.logs import Logger
from fettle.model import BadInput, Conflict, NotFound, OnLostNode, Policy
from fettle.pacing import keep, pause, run_within
from fettle.records import Recorder
from fettle.scheduling import Answers, resolve_policy
from fettle.steward.paced_writes import PacedWrites
from fettle.steward.pod_events import about_pod, act_on, once_name

EVERY_S = 2.0
DELETED = "ForceDeleted"
"""An Event on a Pod: it was deleted by force, since its node is lost. Also the code in the records.

What to do: Its processes may still run: **see that the node is off** [before you trust what both
write](failed-devices.md#pods-on-lost-nodes)."""
RIGHTS = "deploy/rbac/optional/pod-force-deletes.yaml grants the rights"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_LEASES = "kube-node-lease"

_LOG = Logger(__name__)


class _LeaseSpec(Wire, frozen=True, kw_only=True):
    renew_time: datetime | None = None


class _NodeLease(Wire, frozen=True, kw_only=True):
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


class LostNodes:
    """`keep` while leading; `notes` say what is amiss. `clock` is in Unix seconds."""

    def __init__(
        self,
        session: Session,
        answers: Answers,
        settings: Settings,
        events: EventRecorder,
        recorder: Recorder,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._answers = answers
        self._settings = settings
        self._events = events
        self._recorder = recorder
        self._clock = clock
        self._writes = PacedWrites(
            "lost nodes: pods cannot be deleted by force",
            RIGHTS,
            per_s=settings.device_failures.evictions_per_second,
        )
        self._done: set[str] = set()
        """UIDs of pods of which it is said what was or would be done."""
        self._failed: dict[str, core.Pod] = {}
        """By UID: pods that we marked as Failed and have not deleted yet. No view shows them."""
        self._too_many = ""

    async def keep(self) -> None:
        """Never returns."""
        await keep("pods on lost nodes", self.look, every_s=EVERY_S)

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        return [*self._writes.notes(), *filter(None, [self._too_many])]

    async def look(self) -> None:
        """Delete the pods that are due, as far as may be now."""
        after_s, view = self._settings.device_failures.force_delete_seconds, self._answers.view
        if after_s is None or not view.synced:
            return
        due = await run_within(lambda: [*self._due(view, after_s)])
        self._done &= {pod.metadata.uid for pod, _ in due}
        await self._writes.do(
            partial(self._try, pod, policy, after_s)
            for pod, policy in due
            if pod.metadata.uid not in self._done
        )

    def _due(self, view: View, after_s: float) -> Iterator[tuple[core.Pod, Policy]]:
        """Pods that should have ended so long ago, on nodes that cannot be reached, and the policy
        of each."""
        lost = {*_unreachable_nodes(view)}
        with_devices = {name for name, node in view.nodes.items() if node.pools or node.plugins}
        self._too_many = (
            f"lost nodes: {len(lost)} nodes are unreachable at once, {len(lost & with_devices)} of "
            "them with devices, more than deviceFailures.maxShare, so no pod is deleted by force"
            if self._exceeds_share(lost, view.nodes) or self._exceeds_share(lost, with_devices)
            else ""
        )
        self._failed = {u: pod for u, pod in self._failed.items() if pod.node_name in lost}
        if not lost or self._too_many:
            return
        failed = (pod for pod in self._failed.values() if pod.metadata.key not in view.pods)
        for pod in chain(view.pods.values(), failed):
            pause()
            ends_at = unix_s(pod.metadata.deletion_timestamp, inf)
            if pod.node_name not in lost or ends_at + after_s > self._clock():
                continue
            policy = resolve_policy(pod, view, self._answers.policies).policy
            if policy.failure.on_lost_node is OnLostNode.FORCE_DELETE:
                yield pod, policy

    def _exceeds_share(self, lost: Set[str], of: Collection[str]) -> bool:
        most = max(1.0, len(of) * self._settings.device_failures.max_share)
        return sum(name in lost for name in of) > most

    async def _try(self, pod: core.Pod, policy: Policy, after_s: float) -> None:
        lost_since = await self._lost_since(pod.node_name)
        now = self._session.server_clock() or self._clock()
        if now - lost_since < after_s:
            return
        words = f"node {pod.node_name} gave no sign of life since {rfc3339_at(lost_since)}"
        writes = self._settings.writes(self._answers.mode_of(pod))
        if writes:
            try:
                await self._delete(pod, f"fettle: {words}", now)
            except (NotFound, Conflict):  # that pod is gone
                self._failed.pop(pod.metadata.uid, None)
                return
        self._done.add(pod.metadata.uid)
        self._record(pod, policy, words, written=writes)

    async def _lost_since(self, name: str) -> float:
        """Since when a node gives no sign of life, by its Lease and its condition Ready, in Unix
        seconds; infinite if it does, or if either is not there."""
        try:
            lease_path = api_path("coordination.k8s.io/v1", "leases", namespace=_LEASES, name=name)
            raw = await self._session.get(kinds.NODE.path_of(name))
            node = decoded(raw, core.Node, f"Node {name}")
            raw = await self._session.get(lease_path)
            lease = decoded(raw, _NodeLease, f"Lease {_LEASES}/{name}")
        except (NotFound, BadInput):
            return inf
        conditions = (node.status.conditions if node.status is not None else None) or ()
        ready = next((one for one in conditions if one.type == "Ready"), None)
        taints = (node.spec.taints if node.spec is not None else None) or ()
        if ready is None or ready.status != "Unknown" or not _is_unreachable(taints):
            return inf
        return max(unix_s(ready.last_transition_time, inf), unix_s(lease.spec.renew_time, inf))

    async def _delete(self, pod: core.Pod, words: str, now: float) -> None:
        """Raises ClusterError."""
        metadata = pod.metadata
        if not pod.terminal and metadata.uid not in self._failed:
            status: dict[str, Any] = {"phase": "Failed"}
            if not pod.disruption:
                status["conditions"] = [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": DELETED,
                        "message": words,
                        "lastTransitionTime": rfc3339_at(now),
                    }
                ]
            path = kinds.POD.path_of(metadata.name, metadata.namespace, "status")
            body = {"metadata": {"uid": metadata.uid}, "status": status}
            await self._session.patch(path, body, strategic=True)
            self._failed[metadata.uid] = pod
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata.uid}}
        path = kinds.POD.path_of(metadata.name, metadata.namespace)
        await self._session.delete(path, options)
        self._failed.pop(metadata.uid, None)

    def _record(self, pod: core.Pod, policy: Policy, words: str, *, written: bool) -> None:
        act = act_on(pod, policy, self._answers.mode_of(pod), DELETED, words)
        self._recorder.acted(act, written=written)
        if written:
            name = once_name(pod, DELETED)
            note = f"{words}; its processes may still run there"
            self._events.record(
                Event(about_pod(pod), DELETED, "Delete", note, type="Warning", name=name)
            )
            _LOG.warning("pod deleted by force", pod=pod.metadata.key, reason=words)


def _unreachable_nodes(view: View) -> Iterator[str]:
    for name, node in view.nodes.items():
        pause()
        if _is_unreachable(node.taints):
            yield name


def _is_unreachable(taints: tuple[core.Taint, ...]) -> bool:
    return any(taint.key == _UNREACHABLE for taint in taints)
