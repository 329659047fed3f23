"""What a process knows, as handlers show it."""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry

from fettle.api import core
from fettle.client import DENIED
from fettle.cluster import readiness
from fettle.config import Settings
from fettle.explain import (
    Recoveries,
    Stewardship,
    describe_mechanisms,
    list_taints,
)
from fettle.model.reasons import Reason
from fettle.observing import CertificateEnd, LastRequests
from fettle.pacing import run_within
from fettle.records import Decision, Recorder
from fettle.scheduling import Answers
from fettle.scheduling.placed import PodObservers
from fettle.scheduling.plans import TaintPlan, as_if_on, plan_for, why_in_vain

Query = Mapping[str, str]
"""The parameters of a question, by name."""
WhyHopeless = Callable[[core.Pod], Awaitable[Reason | None]]


class Leader(NamedTuple):
    """Who holds the stewards' lease, "" if nobody is known to; `here`: whether it is this one."""

    name: str
    here: bool


class Known(NamedTuple):
    """`recorder` knows what was decided, `recoveries` when something is Healthy again, `hopeless`
    why no pod of a controller will ever run. `extra_problems` are what keeps other parts of the
    process from being ready, and `notes` what else `/readyz?verbose` shows; of these,
    `caller_notes` are about who calls a listener, or should, and `object_notes` about rules about
    objects. `is_steward`: the settings of what a steward does are those that count.
    `last_requests`: by role, of those who asked it. `leader`: of the stewards; None where none runs
    here.
    """

    answers: Answers
    pods: PodObservers
    settings: Settings
    registry: CollectorRegistry
    recorder: Recorder | None = None
    recoveries: Recoveries | None = None
    hopeless: WhyHopeless | None = None
    extra_problems: Callable[[], list[str]] = list
    notes: Callable[[], list[str]] = list
    caller_notes: Callable[[], list[str]] = list
    object_notes: Callable[[], list[str]] = list
    is_steward: bool = True
    roles: Collection[str] = ()
    last_requests: Callable[[], Mapping[str, LastRequests]] = dict
    certificates: Callable[[], list[CertificateEnd]] = list
    leader: Callable[[], Leader | None] = lambda: None

    @property
    def stewardship(self) -> Stewardship:
        settings = self.settings
        return Stewardship(
            settings.device_failures.allow, settings.steward.dry_run, self.is_steward
        )

    def is_ready(self) -> bool:
        return not self.problems()

    def problems(self) -> list[str]:
        """Why this process is not ready."""
        return [*self.stale(), *self.extra_problems()]

    def stale(self) -> list[str]:
        """Why answers may be incomplete or old."""
        sources = self.answers.publisher.sources.values()
        return readiness.problems(
            sources, time.monotonic(), self.settings.sources.silent_after_seconds
        )

    def unready(self) -> list[str]:
        return [f"Fettle is not ready: {problem}" for problem in self.stale()]

    def unknown_pod(self, key: str) -> web.Response:
        why = "it does not exist, uses no devices, finished long ago, or has not been seen yet"
        return as_json(
            {"error": "; ".join([f"pod {key} is not known: {why}", *self.unready()])}, 404
        )

    def pod(self, key: str) -> core.Pod | None:
        """The pod as it is, as it ended, or as a scheduler asked about it."""
        finished = self.pods.finished.get(key)
        return (
            self.answers.view.pods.get(key)
            or (finished.pod if finished is not None else None)
            or self.pods.recent.get(key)
        )

    async def taints(self) -> list[dict[str, Any]]:
        """Which devices Fettle taints or would taint by their health."""
        answers, settings = self.answers, self.settings.device_taints
        view = answers.view
        plan = await plan_for(answers, as_if_on(settings), time.time(), steers=True)
        return await run_within(
            lambda: list_taints(
                plan or TaintPlan({}),
                view,
                settings,
                answers.policies.mode,
                why_in_vain(answers),
                dry_run=self.settings.steward.dry_run,
            ),
        )

    async def mechanisms(self) -> list[dict[str, Any]]:
        """Which mechanisms keep pods off bad devices here."""
        last, names = self.last_requests().get("extender"), self.settings.scheduler.names
        asked, answers = None if last is None else last.was_called, self.answers
        view, sources = answers.view, answers.publisher.sources.values()
        denied = {one.name for one in sources if not one.served and DENIED in one.note}
        found = await run_within(
            lambda: describe_mechanisms(view, answers.policies, names, asked, denied)
        )
        return [one._asdict() for one in found]

    async def decisions(self, since: float, **wanted: str) -> list[Decision]:
        recorder = self.recorder
        if recorder is None:
            return []
        return await run_within(lambda: recorder.select(since, **wanted))


def namespace_of(key: str) -> str:
    """Of an object; "" if it has none."""
    return key.rpartition("/")[0]


def as_json(data: object, status: int = 200) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(data), content_type="application/json"
    )
