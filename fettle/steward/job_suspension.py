"""Suspends Jobs whose pods no node or device will ever suit, where their policy says so.

Nothing is resumed here: what has to be mended is in the Job, or in the claims that it names, and
only who mends it knows when. A Job that was suspended once and resumed by somebody is left alone.
It needs the rights in `deploy/rbac/optional/suspend-jobs.yaml`.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import msgspec
import structlog
from cachetools import LRUCache

from fettle.api import core
from fettle.api.meta import Condition, ObjectMeta, OwnerReference, Wire
from fettle.client import Session, decoded
from fettle.config import Settings
from fettle.model import NotFound
from fettle.records import Act, Recorder
from fettle.scheduling import Answers, resolve_policy
from fettle.steward.owners import path_of
from fettle.steward.paced_writes import PacedWrites

SUSPENDED = "fettle.dev/suspended"
"""The annotation that says why, an interface. While it is there, the Job is not suspended again."""
SUSPEND_JOB = "SuspendJob"
"""The code in the records."""
RIGHTS = "deploy/rbac/optional/suspend-jobs.yaml grants the rights"
WRITES_PER_S = 2.0
_QUEUE = "kueue.x-k8s.io/queue-name"
_CONTROLLER = "kubernetes.io/job-controller"
_CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
"""The label that a Job's selector and its pods get from the API server (`JobControllerUIDLabel` of
k8s.io/api/batch/v1), unless the Job has `manualSelector`."""
_OVER = frozenset(("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"))

_LOG = structlog.get_logger(__name__)


class _Selector(Wire, frozen=True, kw_only=True):
    match_labels: dict[str, str] | None = None


class _JobSpec(Wire, frozen=True, kw_only=True):
    suspend: bool | None = None
    manual_selector: bool | None = None
    selector: _Selector = msgspec.field(default_factory=_Selector)
    managed_by: str | None = None


class _JobStatus(Wire, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] | None = None


class _Job(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: _JobSpec = msgspec.field(default_factory=_JobSpec)
    status: _JobStatus = msgspec.field(default_factory=_JobStatus)

    def is_ours_to_suspend(self, pod: core.Pod) -> bool:
        """Whether it runs and has this pod, nobody else decides when it does, and it was not
        suspended by us before."""
        return self._has(pod) and self._runs_by_itself()

    def _has(self, pod: core.Pod) -> bool:
        """Whether the Job selects the pod, by the UID that the API server gave the Job: a pod's
        reference to an owner is the word of whoever created the pod. A Job with a selector of its
        user may select any pod, so it has none."""
        metadata, selects = self.metadata, self.spec.selector.match_labels or {}
        return (
            not self.spec.manual_selector
            and pod.metadata.controller_identity == metadata.identity
            and selects.get(_CONTROLLER_UID) == metadata.uid
            and selects.items() <= (pod.metadata.labels or {}).items()
        )

    def _runs_by_itself(self) -> bool:
        metadata, above = self.metadata, self.metadata.controller
        over = any(c.type in _OVER and c.status == "True" for c in self.status.conditions or ())
        elsewhere = (
            (above is not None and above.kind != "CronJob")
            or self.spec.managed_by not in (None, _CONTROLLER)
            or metadata.label(_QUEUE) is not None
        )
        known = SUSPENDED in (metadata.annotations or {})
        return not (over or elsewhere or known or self.spec.suspend or metadata.deletion_timestamp)


class JobSuspension:
    """`notes` say what is amiss."""

    def __init__(
        self, session: Session, answers: Answers, settings: Settings, recorder: Recorder
    ) -> None:
        self._session = session
        self._answers = answers
        self._settings = settings
        self._recorder = recorder
        self._writes = PacedWrites("Jobs cannot be suspended", RIGHTS, per_s=WRITES_PER_S)
        self.notes = self._writes.notes
        self._done: LRUCache[str, None] = LRUCache(2000)
        """Identities of Jobs with which nothing is left to do."""
        self._told: LRUCache[str, None] = LRUCache(2000)
        """Those of which it is told what would be done."""

    async def suspend(self, found: Iterable[tuple[OwnerReference, core.Pod, str]]) -> None:
        """Suspend those of these controllers that are Jobs, if the policy of the pod says so; the
        text is why."""
        due = []
        for owner, pod, why in found:
            identity = pod.metadata.controller_identity
            resolved = resolve_policy(pod, self._answers.view, self._answers.policies)
            wanted = resolved.policy.failure.suspend_hopeless_jobs and owner.kind == "Job"
            path = path_of(owner, pod.metadata.namespace)
            if not (wanted and path) or identity in self._done:
                continue
            act = Act(
                SUSPEND_JOB,
                why,
                owner.kind,
                f"{pod.metadata.namespace}/{owner.name}",
                owner.uid,
                policy=resolved.policy.name,
                mode=resolved.mode.mode,
            )
            if self._settings.writes(act.mode):
                due.append(partial(self._suspend, path, pod, act))
            elif identity not in self._told:
                due.append(partial(self._tell, path, pod, act))
        await self._writes.do(due)

    async def _tell(self, path: str, pod: core.Pod, act: Act) -> None:
        """Record that the Job would be suspended, if it would."""
        with suppress(NotFound):
            job = decoded(await self._session.get(path), _Job, f"Job {act.key}")
            if job.is_ours_to_suspend(pod):
                self._recorder.acted(act, written=False)
        self._told[pod.metadata.controller_identity] = None

    async def _suspend(self, path: str, pod: core.Pod, act: Act) -> None:
        """Suspend the Job as it is now, if that is for us to do."""
        try:
            job = decoded(await self._session.get(path), _Job, f"Job {act.key}")
        except NotFound:
            return
        if job.is_ours_to_suspend(pod):
            # With its version: whoever changes it at the same moment goes first.
            version = job.metadata.resource_version
            metadata = {"resourceVersion": version, "annotations": {SUSPENDED: act.why}}
            await self._session.patch(path, {"metadata": metadata, "spec": {"suspend": True}})
            self._recorder.acted(act, written=True)
            _LOG.info("Job suspended", job=act.key, reason=act.why)
        self._done[pod.metadata.controller_identity] = None
