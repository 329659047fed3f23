"""Acts on pods whose device has failed, as their policy's `failure.onDeviceFailure` says: marks
them with a condition, and evicts them; and evicts those that do not start on their node within the
policy's `failure.startDeadline`. The mark goes when the failure ends; it always comes before the
eviction.

All that must outlast this process is on the pods: who leads next finds the condition, evicts what
is marked, and writes nothing twice. It needs the setting `deviceFailures` and the rights in
`deploy/rbac/optional/`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from fettle.api import core
from fettle.client import EventRecorder, Session
from fettle.cluster import View
from fettle.config import Settings
from fettle.observing import StewardMetrics
from fettle.pacing import run_within
from fettle.records import Recorder
from fettle.scheduling import Answers
from fettle.scheduling.placed import (
    AtRisk,
    DeviceFailure,
    Failures,
    FinishedPods,
    FreedPlaces,
    StartFailure,
    StartFailures,
    find_failures,
    find_start_failures,
)
from fettle.steward.eviction_plans import (
    DueEvictions,
    FailureStep,
    MarkedPods,
    steps_for,
    steps_for_starts,
)
from fettle.steward.evictions import EVICTIONS, Evictions, FailureNews

LOOK_S = 0.25
"""The shortest pause between two looks. A Job decides about a failed pod after a second."""
LATE_S = 15.0
"""A pod that failed so shortly ago is marked, too: the cause may be heard of after the failure."""
AGAIN_S = 1.0
REST = 4.0
"""After a look, pause for so many times as long."""


class _Due(NamedTuple):
    """Whose mark is not wanted any more; what is due; and what would be, where nothing may be
    written."""

    unmarked: list[core.Pod]
    real: DueEvictions
    dry: DueEvictions


class FailedDevices:
    """`keep` while leading; `notes` say what is amiss."""

    def __init__(
        self,
        session: Session,
        answers: Answers,
        at_risk: AtRisk,
        finished: FinishedPods,
        freed: FreedPlaces,
        settings: Settings,
        events: EventRecorder,
        recorder: Recorder,
        metrics: StewardMetrics,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._answers = answers
        self._at_risk = at_risk
        self._finished = finished
        self._settings = settings
        self._clock = clock
        self._now = monotonic
        self._marked = MarkedPods()
        evictions = partial(
            Evictions,
            session,
            answers,
            settings.device_failures,
            self._marked,
            freed,
            FailureNews(answers, events, recorder),
            metrics,
            clock,
            monotonic,
        )
        self._real = evictions(writes=True)
        self._dry = evictions(writes=False)
        self._notes: list[str] = []

    async def keep(self) -> None:
        """Never returns. Looks at each view, and once a second while time may change something."""

        async def look(_: View) -> float | None:
            return AGAIN_S if await self.look() else None

        publisher = self._answers.publisher
        await publisher.keep_looking("failed devices", look, every_s=LOOK_S, rest=REST)

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        own = (f"failed devices: {said}" for said in self._notes)
        return [*self._real.notes(), *self._dry.notes(), *own]

    async def look(self) -> bool:
        """Write what is due; whether time alone may make more due."""
        failures: Failures | None = Failures()
        starts = StartFailures()
        now, allow = self._clock(), self._settings.device_failures.allow
        if allow is not None:
            ended = self._finished.failed_since(now - LATE_S)
            failures = await find_failures(self._answers, self._at_risk, ended)
        if allow == "Evict":
            starts = await find_start_failures(self._answers, self._at_risk, now)
        if failures is None:
            return True
        view = self._answers.view
        unmarked, real, dry = await run_within(lambda: self._plan(failures, starts.due, view))
        all_marked = await self._real.mark(real, unmarked)
        await self._dry.mark(dry)
        await self._real.evict(real, view)
        await self._dry.evict(dry, view)
        self._notes = [*self._amiss(real.over_share + dry.over_share)]
        return real.waits or dry.waits or starts.waits or not all_marked

    def _plan(self, failures: Failures, starts: Sequence[StartFailure], view: View) -> _Due:
        self._marked.look(view)
        real, dry = self._steps(failures.running.values(), starts)
        unmarked = [*self._marked.but({step.failure.placed.key for step in real})]
        for steps, ended in zip((real, dry), self._steps(failures.ended), strict=True):
            steps += ended
        now, monotonic = self._clock(), self._now()
        ending = [*self._marked.ending(now)]
        due = self._real.pending.due(real, ending, view, now, monotonic)
        ending += self._real.pending.ending()
        return _Due(unmarked, due, self._dry.pending.due(dry, ending, view, now, monotonic))

    def _steps(
        self, failures: Iterable[DeviceFailure], starts: Iterable[StartFailure] = ()
    ) -> tuple[list[FailureStep], list[FailureStep]]:
        """What is to become of pods: of those about which may be written, and of the others."""
        real: list[FailureStep] = []
        dry: list[FailureStep] = []
        steps = {one.uid: one for one in steps_for(failures, self._settings.device_failures)}
        for start in steps_for_starts(starts):
            if start.uid not in steps or not steps[start.uid].evicts:
                steps[start.uid] = start
        for step in steps.values():
            writes = self._settings.writes(self._answers.mode_of(step.pod))
            (real if writes else dry).append(step)
        return real, dry

    def _amiss(self, over_share: int) -> Iterator[str]:
        settings = self._settings
        if settings.device_failures.allow is not None and not settings.writes(settings.mode):
            nothing = (
                "with steward.dryRun nothing is written"
                if settings.steward.dry_run
                else f"with mode {settings.mode} nothing is written, but where a policy or "
                "namespace says enforce"
            )
            yield f"{nothing}: `fettle decisions` lists what would be"
            if self._dry.unasked:
                asked = "what PodDisruptionBudgets would allow is not known"
                yield f"{asked}: {self._dry.unasked} ({EVICTIONS})"
        if over_share:
            pods = "pod" if over_share == 1 else "pods"
            yield f"evicted later, by deviceFailures.maxShare: {over_share} {pods}"
