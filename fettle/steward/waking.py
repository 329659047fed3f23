"""Which pods wait because Fettle refused them, when to wake them, and the writes that wake them.
The scheduler does not know that Fettle would allow a pod now: in a quiet cluster it retries after
five minutes. So the waiting pods are judged on each view.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cache, partial
from heapq import nsmallest
from math import inf
from typing import NamedTuple

from fettle.api import api_path, core, kinds
from fettle.api.meta import micro_time
from fettle.client import Session
from fettle.cluster import Publisher, View
from fettle.logs import Logger
from fettle.model import (
    PURPOSE,
    WOKEN_AT,
    ClusterError,
    Conflict,
    Forbidden,
    Mode,
    NotFound,
    reasons,
    utc,
)
from fettle.observing import StewardMetrics
from fettle.pacing import Backoff, part, pause, run_within
from fettle.scheduling import Answers

MARK = "fettle:"
"""Every refusal text of the extender begins with this."""
SCHEDULER_RETRIES_S = 300.0
"""After so long a scheduler retries a pod by itself."""
LET_PREEMPT_NOBODY = "no candidate node for preemption"
"""What the scheduler says of a pod if extenders left none of the nodes where it could preempt."""
PREEMPTOR_WOKEN_FOR_S = 2.0
"""The longest pause before one of these is woken again. It is for replicas with an older view only:
each wake-up makes the scheduler retry all other pods that wait for processors or units, too."""
RETRY_S = 10.0
REST = 4.0
"""After judging the waiting pods, pause for so many times as long: each pod with a demand of its
own is judged on the whole fleet."""
MOST_NAMED = 3
"""Pods that the log names when they are woken."""
PATIENCE_EVERY_S = 1.0
"""The shortest pause between two looks at the pods whose patience ends."""
LATER_S = 0.1
"""So much later than by this clock, the patience is over by the clocks of other replicas too."""
_FAILING = "waiting pods cannot be woken"
_PATIENCE_FAILING = "pods whose patience is over cannot be woken"
_RIGHTS = "deploy/rbac/optional/wake-by-node.yaml grants the right"
_NO_CLASS = "never-allocated.fettle.dev"
_PREEMPTOR_RIGHTS = "deploy/rbac/optional/wake-preemptors.yaml has the pod and the right"
_NOWHERE = "none.fettle.dev"
"""A node that there is not, so that nothing is reserved on any."""

AllowedByPod = Mapping[str, Set[str]]
"""Names of the nodes that each waiting pod could be placed on."""
FindAllowedNodes = Callable[[core.Pod, View], Awaitable[Set[str]]]
"""Names of the nodes that a pod could be placed on now, as far as Fettle knows."""
FindWaiting = Callable[[View], Iterator[tuple[str, core.Pod]]]
"""Pods that wait, each with a key that no later pod of its name has."""
Wake = Callable[[View, float], Awaitable[None]]
"""Makes the scheduler retry the pods that wait; raises ClusterError. Takes the time of day, in
seconds since the Unix epoch."""

_LOG = Logger(__name__)


def is_waiting(pod: core.Pod, saying: str = MARK) -> bool:
    """Whether a pod is pending, on no node, and was last refused with this text; by default one of
    ours."""
    if pod.terminal or pod.metadata.deletion_timestamp is not None:
        return False
    if pod.spec is None or pod.node_name or pod.status is None:
        return False
    return any(
        condition.type == "PodScheduled"
        and condition.status != "True"
        and saying in condition.message
        for condition in pod.status.conditions or ()
    )


def waiting(view: View, saying: str = MARK) -> Iterator[tuple[str, core.Pod]]:
    """Pods that wait with this text, each with a key that no later pod of its name has."""
    for key, pod in view.pods.items():
        if is_waiting(pod, saying):
            yield f"{key}/{pod.metadata.uid}", pod
        pause()


class _Wake(NamedTuple):
    """When a pod is woken next, and how it goes on after that."""

    at: float
    backoff: Backoff


class WakeUps:
    """Which pods are due to be woken, and when. Pure.

    A pod is due when it gains an allowed node, and when it is seen for the first time with one: the
    fault may have ended since the pod was refused. A pod that still waits is woken again, after
    pauses that double. For another replica answers the scheduler: its view may be stale, or it may
    remember more of a fault than ours.
    """

    def __init__(self, interval_s: float, longest_pause_s: float = SCHEDULER_RETRIES_S / 2) -> None:
        """`interval_s` is the first pause before a pod is woken again; after `longest_pause_s` it
        is not."""
        self.interval_s = interval_s
        self._longest_pause_s = max(interval_s, longest_pause_s)
        self._before: AllowedByPod = {}
        self._wakes: dict[str, _Wake] = {}

    def update(self, allowed: AllowedByPod, now: float) -> None:
        """Take what is allowed now for all waiting pods; pods that are not in it wait no more."""
        self._wakes = {key: wake for key, wake in self._wakes.items() if allowed.get(key)}
        for key, nodes in allowed.items():
            if nodes - self._before.get(key, frozenset()):
                self._wakes[key] = _Wake(now, Backoff(self.interval_s))
        self._before = dict(allowed)

    def due(self, now: float) -> Set[str]:
        """Keys of pods to wake."""
        return {key for key, wake in self._wakes.items() if wake.at <= now}

    def next_at(self) -> float | None:
        """When a pod is due next; None if no pod will be."""
        return min((wake.at for wake in self._wakes.values()), default=None)

    def woken(self, now: float) -> None:
        """All pods that were due have been woken."""
        for key in self.due(now):
            backoff = self._wakes.pop(key).backoff
            pause_s = backoff.next_s()
            if pause_s <= self._longest_pause_s:
                self._wakes[key] = _Wake(now + pause_s, backoff)


class Waking:
    """Wakes the pods that wait in one way, at most once each `interval_s`; `whom` is their name."""

    def __init__(
        self,
        publisher: Publisher,
        metrics: StewardMetrics,
        *,
        whom: str,
        waiting: FindWaiting,
        allowed: FindAllowedNodes,
        wake: Wake,
        interval_s: float,
        longest_pause_s: float = SCHEDULER_RETRIES_S / 2,
        clock: Callable[[], float] = time.time,
        retry_s: float = RETRY_S,
    ) -> None:
        self._publisher = publisher
        self._metrics = metrics
        self._waiting = waiting
        self._whom = whom
        self._wake = wake
        self._wake_ups = partial(WakeUps, interval_s, longest_pause_s)
        self._interval_s = interval_s
        self._clock = clock
        self._retry_s = retry_s
        self._warned = ""
        self._retry_at = -inf
        self._judging = part(f"judging of {whom}", allowed)

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        return [f"{_FAILING}: {self._warned}"] if self._warned else []

    async def keep(self) -> None:
        """Judge the waiting pods, and wake them, until cancelled."""
        # Made by the first look, so that a failure of it is minded, too.
        wake_ups = cache(self._wake_ups)

        async def look(view: View) -> float | None:
            return await self._look(wake_ups(), view)

        await self._publisher.keep_looking(
            f"waking of {self._whom}", look, every_s=self._interval_s, rest=REST
        )

    async def _look(self, wake_ups: WakeUps, view: View) -> float | None:
        """Wake those that are due; returns in how many seconds another one will be."""
        wake_ups.update(await self._allowed_by_pod(view), self._now())
        if self._now() >= self._retry_at and not await self._wake_due(wake_ups, view):
            self._retry_at = self._now() + self._retry_s
        next_at = wake_ups.next_at()
        return None if next_at is None else max(next_at, self._retry_at) - self._now()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _wake_due(self, wake_ups: WakeUps, view: View) -> bool:
        """Wake the pods that are due; false if that cannot be written."""
        due = wake_ups.due(self._now())
        if not due:
            return True
        try:
            await self._wake(view, self._clock())
        except ClusterError as error:
            if str(error) != self._warned:
                self._warned = str(error)
                _LOG.warning(_FAILING, pods=_names(due), reason=self._warned)
            return False
        self._warned = ""
        self._metrics.woke()
        _LOG.info("woke waiting pods", pods=len(due), names=_names(due))
        wake_ups.woken(self._now())
        return True

    async def _allowed_by_pod(self, view: View) -> AllowedByPod:
        found = await run_within(lambda: [*self._waiting(view)])
        # One pod that cannot be judged must not keep the others waiting.
        return {
            key: await self._judging.attempt_async(pod, view) or frozenset() for key, pod in found
        }


def _names(due: Set[str]) -> str:
    """The first pods by name, and how many more there are."""
    first = nsmallest(MOST_NAMED, due)
    more = f" and {len(due) - len(first)} more" if len(due) > len(first) else ""
    return ", ".join(key.rpartition("/")[0] for key in first) + more


class PatienceEnds:
    """Wakes pods when their patience ends: from then on they may be placed where they were refused,
    though nothing in the cluster changes, so nothing else has them judged again.

    `allowed` names the nodes that a pod could be placed on, and `wake` wakes the pods that wait.
    `clock` is in Unix seconds.

    It wakes a pod once, when its patience ends. If that was in vain, those who watch for nodes that
    come to be allowed wake it again.
    """

    def __init__(
        self,
        answers: Answers,
        publisher: Publisher,
        allowed: Callable[[core.Pod, View], Awaitable[Set[str]]],
        wake: Callable[[View, float], Awaitable[None]],
        metrics: StewardMetrics,
        clock: Callable[[], float] = time.time,
        every_s: float = PATIENCE_EVERY_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._every_s = every_s
        self._retry_s = retry_s
        self._answers = answers
        self._publisher = publisher
        self._allowed = allowed
        self._wake = wake
        self._metrics = metrics
        self._clock = clock
        self._warned = ""
        self._since = self._retry_at = -inf

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        return [f"{_PATIENCE_FAILING}: {self._warned}"] if self._warned else []

    async def keep(self) -> None:
        """Never returns."""
        self._since = self._clock() - LATER_S
        await self._publisher.keep_looking(
            "waking when patience ends", self._look, every_s=self._every_s, rest=REST
        )

    async def _look(self, view: View) -> float | None:
        """Wake those whose patience is over; returns in how many seconds the next one's is."""
        until = self._clock() - LATER_S
        ends = await run_within(partial(self._ends, view))
        due = [pod for pod, at in ends if self._since < at <= until]
        if (pause_s := self._retry_at - asyncio.get_running_loop().time()) > 0:
            return pause_s
        if await self._is_any_allowed(due, view) and not await self._wake_all(due, view):
            self._retry_at = asyncio.get_running_loop().time() + self._retry_s
            return self._retry_s
        self._since = until
        return min((at - until for _, at in ends if at > until), default=None)

    async def _wake_all(self, due: Sequence[core.Pod], view: View) -> bool:
        """False if that cannot be written."""
        try:
            await self._wake(view, self._clock())
        except ClusterError as error:
            if str(error) != self._warned:
                self._warned = str(error)
                _LOG.warning(_PATIENCE_FAILING, reason=self._warned)
            return False
        self._metrics.woke()
        self._warned = ""
        _LOG.info("woke waiting pods whose patience is over", pods=len(due))
        return True

    def _ends(self, view: View) -> list[tuple[core.Pod, float]]:
        """The pods that Fettle refused and whose patience has an end, and when that is; also when
        they have waited long enough for a rule that is set aside."""
        found: list[tuple[core.Pod, float]] = []
        for _, pod in waiting(view):
            found += ((pod, at) for at in self._answers.demands.last_choices_at(pod))
            match self._answers.demands.patience(pod):
                case reasons.PatienceLasts(at) | reasons.PatienceOver(at):
                    found.append((pod, at))
        return found

    async def _is_any_allowed(self, pods: Iterable[core.Pod], view: View) -> bool:
        for pod in pods:
            # Where it is refused nothing, or Fettle only observes, its patience changes nothing.
            if self._answers.mode_of(pod) is Mode.ENFORCE and await self._allowed(pod, view):
                return True
        return False


# --- the writes


class Nudge:
    """Makes the scheduler retry pods that an extender refused.

    By default it annotates a ResourceClaim of our own, which no pod uses and no driver serves: that
    wakes all of them, and needs no right outside our namespace. Without DRA it annotates one node.
    """

    def __init__(self, session: Session, namespace: str, claim: str) -> None:
        self._session = session
        self._namespace = namespace
        self._name = claim

    async def wake(self, view: View, now: float) -> None:
        """Wake all pods that wait; raises ClusterError if the write is refused."""
        at = micro_time(utc(now))
        stamp = {"metadata": {"annotations": {WOKEN_AT: at}}}
        if view.served.get("ResourceClaim", True):
            await self._by_claim(stamp)
        elif view.nodes:
            try:
                await self._session.patch(kinds.NODE.path_of(min(view.nodes)), stamp)
            except Forbidden as error:
                raise ClusterError(f"{error}; {_RIGHTS}") from error

    async def _by_claim(self, stamp: Mapping[str, object]) -> None:
        path = kinds.CLAIM.path_of(self._name, self._namespace)
        try:
            await self._session.patch(path, stamp)
        except NotFound:
            await self._create()
            await self._session.patch(path, stamp)

    async def _create(self) -> None:
        request = {"name": "none", "exactly": {"deviceClassName": _NO_CLASS}}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": self._name,
                "labels": {"app.kubernetes.io/name": "fettle"},
                "annotations": {
                    PURPOSE: "Its annotation wakes pods that Fettle refused. "
                    "No pod uses it, so it is never allocated."
                },
            },
            "spec": {"devices": {"requests": [request]}},
        }
        with suppress(Conflict):  # another replica was first
            await self._session.create(
                api_path(kinds.CLAIM.api_version, kinds.CLAIM.plural, namespace=self._namespace),
                claim,
            )


class PreemptorNudge:
    """Makes the scheduler retry pods that wait because `preempt` let them preempt nobody.

    For the scheduler such a pod waits for processors or units. So it retries the pod when another
    pod leaves a node, and not for what `Nudge` writes. It takes a change of a pending pod's
    `nominatedNodeName` for that (decision 0042), so Fettle changes the one of a pod of its own,
    which never runs. That pod and the right are in `deploy/rbac/optional/wake-preemptors.yaml`.
    """

    def __init__(self, session: Session, namespace: str, pod: str) -> None:
        self._session = session
        self._path = kinds.POD.path_of(pod, namespace, "status")

    async def wake(self, _: View, __: float) -> None:
        """Wake all pods that wait; raises ClusterError if the write is refused."""
        try:
            for node in (_NOWHERE, None):
                await self._session.patch(self._path, {"status": {"nominatedNodeName": node}})
        except (Forbidden, NotFound) as error:
            raise ClusterError(f"{error}; {_PREEMPTOR_RIGHTS}") from error
