"""Containers that ended within a minute of the fault of a device that their pod held, or may have
held, where nobody knows which units of a device plugin it had.

A crash is looked at as long as a fault may still be told that explains it. It never speaks against
a device: whoever may create pods can make them crash (decisions 0010 and 0060).
"""

import time
from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

from cachetools import FIFOCache

from fettle.api import core
from fettle.api.kinds import WireObject
from fettle.cluster import EMPTY, Publisher, View
from fettle.dra import uses_devices
from fettle.model.reasons import CrashAtFault
from fettle.pacing import pause, run_within
from fettle.scheduling.demand import Bound
from fettle.scheduling.placed.at_risk import AtRisk, is_certain
from fettle.scheduling.placed.finished import PodClaims
from fettle.scheduling.placed.stuck_pods import CRASH_S, device_of, faults_of, possible_failures

LATELY_S = 600.0
"""How long a crash is remembered without a fault: monitors may tell late, and say when it was."""
EVERY_S = 1.0
MOST = 2000
_NOT_OF_DEVICES = frozenset(("OOMKilled", *core.START_FAILED))
"""Why a container ended that no device ended: the kernel did, or it never ran."""


class Crash(NamedTuple):
    """A container that ended with an error, and the claims that its pod held then."""

    pod: core.Pod
    claims: tuple[Bound, ...]
    container: str
    exit_code: int
    at: float


class ExplainedCrash(NamedTuple):
    """A pod whose container a fault ended."""

    pod: core.Pod
    why: CrashAtFault


class Crashes:
    """`put` each pod as it arrives, and `keep`. `clock` is in Unix seconds."""

    def __init__(
        self,
        publisher: Publisher,
        at_risk: AtRisk,
        claims: PodClaims,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._publisher = publisher
        self._claims = claims
        self._at_risk = at_risk
        self._clock = clock
        self._crashes: FIFOCache[tuple[str, str, float], Crash | None] = FIFOCache(MOST)
        """By the pod's UID, the container and the time; None once it is explained."""
        self._explained: FIFOCache[str, ExplainedCrash] = FIFOCache(MOST)
        """By the pod's UID, the last one."""
        self._known_from = inf
        """What was observed from our start until then may have begun long before."""
        self._on_explained: list[Callable[[ExplainedCrash], None]] = []

    def on_explained(self, then: Callable[[ExplainedCrash], None]) -> None:
        """Have it called for each crash that is explained."""
        self._on_explained.append(then)

    def of(self, uid: str) -> CrashAtFault | None:
        """The last crash of a pod that a fault explains."""
        found = self._explained.get(uid)
        return found.why if found is not None else None

    def explained(self) -> list[ExplainedCrash]:
        """The last one of each pod."""
        return [*self._explained.values()]

    def observe(self, new: WireObject) -> None:
        """An object as it is now, before a view shows it."""
        if not isinstance(new, core.Pod) or not new.node_name or not uses_devices(new):
            return
        for name, ended, at in _ended_with_errors(new):
            key = (new.metadata.uid, name, at)
            if self._clock() - at < LATELY_S and key not in self._crashes:
                claims = self._claims.of(new)
                self._crashes[key] = Crash(new, claims, name, ended.exit_code, at)

    async def keep(self) -> None:
        """Follow the views until cancelled."""
        await self._publisher.keep_looking("crashes of pods", self.explain, every_s=EVERY_S)

    async def explain(self, _: View = EMPTY) -> None:
        """Compare the crashes with what is known of devices by now."""
        if not self._publisher.view.synced:
            return
        self._known_from = min(self._known_from, self._clock())
        await self._at_risk.current()
        for found in await run_within(lambda: [*self._newly_explained()]):
            self._explained[found.pod.metadata.uid] = found
            for then in self._on_explained:
                then(found)

    def _newly_explained(self) -> Iterator[ExplainedCrash]:
        for key, crash in [*self._crashes.items()]:
            if self._clock() - key[2] >= LATELY_S:
                self._crashes.pop(key, None)
            elif crash is not None and (why := self._fault(crash)) is not None:
                self._crashes[key] = None
                yield ExplainedCrash(crash.pod, why)
            pause()

    def _fault(self, crash: Crash) -> CrashAtFault | None:
        """The fault of a device of the pod that began within a minute of the crash; else one of a
        unit that the pod may have held."""
        claims = crash.claims or self._claims.of(crash.pod)
        placed = self._at_risk.as_it_ran(crash.pod, claims)
        for refusal in possible_failures(placed) if placed is not None else ():
            first = faults_of(refusal)[0]
            at, device = first.observed_at, device_of(refusal)
            is_old = abs(at - crash.at) > CRASH_S
            if not is_old and not self._at_risk.started_at <= at <= self._known_from:
                return CrashAtFault(
                    crash.container,
                    crash.exit_code,
                    crash.at,
                    device,
                    first.text,
                    at,
                    is_certain(refusal),
                )
        return None


def _ended_with_errors(
    pod: core.Pod,
) -> Iterator[tuple[str, core.ContainerStateTerminated, float]]:
    """The containers that ended by themselves, not because somebody ended the pod, and when."""
    if pod.metadata.deletion_timestamp is not None or pod.disruption:
        return
    for container in pod.container_statuses():
        for state in (container.state, container.last_state):
            ended = state.terminated if state is not None else None
            if ended is None or not ended.exit_code or ended.finished_at is None:
                continue
            if ended.reason not in _NOT_OF_DEVICES:
                yield container.name, ended, ended.finished_at.timestamp()
