"""What is written about controllers whose pods no node or device will ever suit: an Event on each,
and on what controls it; and their Jobs are suspended, where their policy says so.

Nothing is resumed here: what has to be mended is in the Job, or in the claims that it names, and
only who mends it knows when. A Job that was suspended once and resumed by somebody is left alone.
Suspending needs the rights in `deploy/rbac/optional/suspend-jobs.yaml`.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec
from cachetools import LRUCache, TTLCache

from fettle.api import api_path, core
from fettle.api.meta import Condition, ObjectMeta, OwnerReference, Wire
from fettle.client import Event, EventRecorder, Regarding, Session, decoded
from fettle.cluster import Publisher, View
from fettle.config import Settings
from fettle.explain import text
from fettle.logs import Logger
from fettle.model import SUSPENDED, BadInput, ClusterError, Forbidden, NotFound
from fettle.records import Act, Recorder
from fettle.scheduling import Answers, resolve_policy
from fettle.steward.hopeless import Hopeless, HopelessOwners
from fettle.steward.paced_writes import PacedWrites
from fettle.steward.pod_events import event_name

EVERY_S = 5.0
REASON = "PodsComeBack"
"""The Events' reason, an interface."""
SUSPEND_JOB = "SuspendJob"
"""The code in the records."""
RIGHTS = "deploy/rbac/optional/suspend-jobs.yaml grants the rights"
WRITES_PER_S = 2.0
_PLURALS = {("apps/v1", "ReplicaSet"): "replicasets", ("batch/v1", "Job"): "jobs"}
OWNERS_KEPT_S = 600.0
_QUEUE = "kueue.x-k8s.io/queue-name"
_CONTROLLER = "kubernetes.io/job-controller"
_CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
"""The label that a Job's selector and its pods get from the API server (`JobControllerUIDLabel` of
k8s.io/api/batch/v1), unless the Job has `manualSelector`."""
_OVER = frozenset(("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"))

_LOG = Logger(__name__)


# --- owners


class _Controller(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta


class Lineage(NamedTuple):
    """A controller, and what controls it, if that is known."""

    owner: OwnerReference
    above: OwnerReference | None = None


def path_of(owner: OwnerReference, namespace: str) -> str:
    """The URL path of a controller; "" if its kind is not read, or no controller can have this
    name: whoever creates a pod writes its owners."""
    plural = _PLURALS.get((owner.api_version, owner.kind))
    if plural is None or not owner.name:
        return ""
    try:
        return api_path(owner.api_version, plural, namespace=namespace, name=owner.name)
    except BadInput:
        return ""


class Owners:
    """Looks up what controls a controller, such as the Deployment of a ReplicaSet: the object that
    people know. Without the right to read those, the controller itself has to do.

    Asks once for each controller, and again after ten minutes.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._above: TTLCache[str, OwnerReference | None] = TTLCache(2000, OWNERS_KEPT_S)
        """By the identity of a controller."""

    async def of(self, owner: OwnerReference, namespace: str) -> Lineage:
        """The controller itself, and what is above it."""
        path, identity = path_of(owner, namespace), f"{namespace}/{owner.uid}"
        if identity not in self._above and path:
            try:
                raw = await self._session.get(path)
                found = decoded(raw, _Controller, f"{owner.kind} {namespace}/{owner.name}")
            except (Forbidden, NotFound):
                self._above[identity] = None
            except ClusterError:
                return Lineage(owner)  # asked again in the next round
            else:
                is_it = found.metadata.uid == owner.uid
                self._above[identity] = found.metadata.controller if is_it else None
        return Lineage(owner, self._above.get(identity))


# --- suspending


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


# --- telling


class HopelessPods:
    """`keep` while leading. `writes_about` says whether anything may be written about a pod."""

    def __init__(
        self,
        publisher: Publisher,
        owners: HopelessOwners,
        recorder: EventRecorder,
        lineages: Owners,
        suspension: JobSuspension,
        writes_about: Callable[[core.Pod], bool] = lambda _: True,
    ) -> None:
        self._publisher = publisher
        self._owners = owners
        self._recorder = recorder
        self._lineages = lineages
        self._suspension = suspension
        self._writes_about = writes_about
        self._told: set[str] = set()
        """Names of Events about controllers that still are hopeless."""

    async def keep(self) -> None:
        """Never returns."""

        async def look(_: View) -> float:
            await self.tell()
            return EVERY_S

        await self._publisher.keep_looking("hopeless controllers", look, every_s=EVERY_S)

    async def tell(self) -> None:
        """Tell each controller that is hopeless by now, and suspend the Jobs that are to be."""
        view = self._publisher.view
        if not view.synced:
            return
        found = {one.identity: one async for one in self._owners.found(view)}
        names: set[str] = set()
        for one in found.values():
            lineage = await self._lineages.of(one.owner, one.pod.metadata.namespace)
            names |= {self._tell(one, owner) for owner in lineage if owner is not None}
        self._told &= names
        await self._suspension.suspend(
            (one.owner, one.pod, text(one.why)) for one in found.values() if one.certain
        )

    def _tell(self, hopeless: Hopeless, owner: OwnerReference) -> str:
        """Tell it if it was not told; returns the name of the Event."""
        code, namespace = hopeless.why.code, hopeless.pod.metadata.namespace
        name = event_name(owner.name, owner.uid, code)
        if name not in self._told and self._writes_about(hopeless.pod):
            about = Regarding(owner.api_version, owner.kind, owner.name, namespace, owner.uid)
            note = text(hopeless.why)
            event = Event(about, REASON, "Observe", note, code, type="Warning", name=name)
            if self._recorder.record(event):
                self._told.add(name)
        return name
