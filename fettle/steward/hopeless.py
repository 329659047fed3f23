"""Which controllers have pods that no node or device will ever suit, so that whoever wrote one need
not look at pod after pod; and what is written about them: an Event on each, and on what controls
it, and their Jobs are suspended where their policy says so.

Hopeless is what growth of the cluster could not mend, by the lint rules that deny (decision 0041),
what kubelets of sound nodes refuse each time, and what starts on none of several nodes. Devices
that are in use or ill are worth waiting for. Only what is certain lets a Job be suspended.

Nothing is resumed here: what has to be mended is in the Job, or in the claims that it names, and
only who mends it knows when. A Job that was suspended once and resumed by somebody is left alone.
Suspending needs the rights in `deploy/rbac/optional/suspend-jobs.yaml`.
"""

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec
from cachetools import LRUCache, TTLCache

from fettle.api import api_path, core, kinds
from fettle.api.kinds import Kind, WireObject
from fettle.api.meta import Condition, ObjectMeta, OwnerReference, Wire, unix_s
from fettle.client import Event, EventRecorder, Regarding, Session, decoded
from fettle.cluster import Publisher, View
from fettle.config import Settings
from fettle.dra import entries_with_claims
from fettle.explain import text
from fettle.lint import DEFAULT_LEVELS, Finding, Linter, Manifest, Severity
from fettle.logs import Logger
from fettle.model import (
    SUSPENDED,
    BadInput,
    ClusterError,
    Forbidden,
    NotFound,
    RuleSeverity,
    Validation,
)
from fettle.model.reasons import PodsFitNowhere, PodsRefusedEachTime, Reason, WorkloadStartsNowhere
from fettle.pacing import pause, run_within
from fettle.records import Act, Recorder
from fettle.scheduling import Answers, resolve_policy
from fettle.scheduling.placed import Comebacks, was_taken
from fettle.steward.paced_writes import LONGEST_PAUSE_S, PacedWrites
from fettle.steward.pod_events import event_name

WAITED_S = 30.0
"""A pod that has waited less may see its devices published yet: a driver that was just installed
publishes one pool after the other."""
STARTING_S = 300.0
"""So long pods have to fail to start: a driver that is being replaced is back by then."""
LINTED_AGAIN_S = 60.0
MOST_LINTED = 50
"""Claims that are linted in one round."""
FITS_NOWHERE = frozenset(
    ("FTL004", "FTL005", "FTL006", "FTL007", "FTL010", "FTL013", "FTL016", "FTL057", "FTL058")
)
"""Rules that, where they deny, find claims that no device can satisfy. The others that deny find
pods that are placed and go wrong later."""
EVERY_S = 5.0
REASON = "PodsComeBack"
"""An Event on a controller: it makes pods for ever, of which none can run, and why.

What to do: [Mend the template](failed-devices.md#pods-that-come-back-for-ever) that it names;
resume the Job if it was suspended."""
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


class Hopeless(NamedTuple):
    """A controller, one of its pods, and why none of them will ever run."""

    owner: OwnerReference
    pod: core.Pod
    why: Reason

    @property
    def identity(self) -> str:
        """`namespace/UID` of the controller."""
        return self.pod.metadata.controller_identity

    @property
    def certain(self) -> bool:
        """Whether nothing but another configuration can mend it."""
        if isinstance(self.why, PodsRefusedEachTime):
            return self.why.certain
        return isinstance(self.why, PodsFitNowhere)


class HopelessOwners:
    """Finds the controllers that are hopeless by now, for the steward and for people."""

    def __init__(
        self,
        publisher: Publisher,
        comebacks: Comebacks,
        linter: Linter,
        levels: Callable[[Manifest, View], Validation] = lambda *_: DEFAULT_LEVELS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`levels`: the severities of rules for an object, as settings and policies have them."""
        self._publisher = publisher
        self._comebacks = comebacks
        self._linter = linter
        self._levels = levels
        self._clock = clock
        self._linted: TTLCache[tuple[str, str], str] = TTLCache(10_000, LINTED_AGAIN_S)
        """By claim or template, and its version: what is wrong with it; "" if nothing is."""

    async def why(self, pod: core.Pod) -> Reason | None:
        """Why no pod of this one's controller will ever run; None if that is not known."""
        owner = pod.metadata.controller_identity
        if not owner:
            return None
        async for one in self.found(self._publisher.view, of=owner):
            if one.identity == owner:
                return one.why
        return None

    async def found(self, view: View, of: str = "") -> AsyncIterator[Hopeless]:
        """All of a view, or only what concerns the controller with the identity `of`, among
        others."""
        pods = await run_within(lambda: _by_owner(view, of))
        for pod, refused in await run_within(lambda: [*self._comebacks.hopeless(view)]):
            owner = pod.metadata.controller
            if owner is not None and not any(
                map(was_taken, pods.get(pod.metadata.controller_identity, ()))
            ):
                yield Hopeless(owner, pod, refused)
        for one in await run_within(lambda: [*self._starting_nowhere(view)]):
            yield one
        left = MOST_LINTED
        for owner, waiting in await run_within(lambda: [*self._waiting(pods)]):
            for name, kind, made in _claims(waiting[0], view):
                version = made.metadata.resource_version
                if (name, version) not in self._linted and left:
                    left -= 1
                    self._linted[name, version] = await self._mistake(kind, made, view)
                if mistake := self._linted.get((name, version), ""):
                    yield Hopeless(owner, waiting[0], PodsFitNowhere(len(waiting), name, mistake))
                    break

    def _waiting(
        self, pods: Mapping[str, list[core.Pod]]
    ) -> Iterator[tuple[OwnerReference, list[core.Pod]]]:
        """The controllers of which no pod has a node and one has waited for long enough, and their
        pods that wait, however briefly, that one first: they are told once, so all count."""
        now = self._clock()
        for theirs in pods.values():
            pause()
            owner = theirs[0].metadata.controller
            if owner is None or any(pod.node_name for pod in theirs):
                continue
            waiting = [(at, pod) for pod in theirs if (at := _waits_since(pod, now)) is not None]
            waiting.sort(key=lambda one: one[0])
            if waiting and now - waiting[0][0] >= WAITED_S:
                yield owner, [pod for _, pod in waiting]

    async def _mistake(self, kind: Kind, made: WireObject, view: View) -> str:
        """Why no device can ever satisfy a claim; "" if one might."""
        raw = msgspec.json.decode(msgspec.json.encode(made))
        manifest = Manifest({**raw, "apiVersion": kind.api_version, "kind": kind.name})
        # Who loosens a rule says that it may be wrong here. Who tightens it proves nothing.
        rules = self._levels(manifest, view).rules
        loosened = {rule: how for rule, how in rules.items() if how is not RuleSeverity.DENY}
        found = await self._linter.lint(manifest, view, Validation(rules=loosened))
        return next((_said(one) for one in found if _is_final(one)), "")

    def _starting_nowhere(self, view: View) -> Iterator[Hopeless]:
        """Those whose pods do not start on any of several nodes, for a reason that was told."""
        starts = defaultdict(list)
        for start in view.failed_starts.values():
            owned_by = start.pod.metadata.controller_identity
            if start.blamed and start.message and owned_by:
                starts[owned_by].append(start)
            pause()
        for theirs in starts.values():
            first, owner = min(theirs, key=lambda one: one.at), theirs[0].pod.metadata.controller
            if owner is not None and self._clock() - first.at >= STARTING_S:
                workload = f"{owner.kind} {owner.name}"
                why = WorkloadStartsNowhere(workload, first.blamed, first.message, len(theirs))
                yield Hopeless(owner, first.pod, why)


def _by_owner(view: View, of: str) -> dict[str, list[core.Pod]]:
    """The pods of each controller, by its identity, or of the one with the identity `of`."""
    found: dict[str, list[core.Pod]] = defaultdict(list)
    for pod in view.pods.values():
        owner = pod.metadata.controller_identity
        if owner and of in ("", owner):
            found[owner].append(pod)
        pause()
    return found


def _waits_since(pod: core.Pod, now: float) -> float | None:
    """When a scheduler first found no node for it; None if none has looked."""
    for one in (pod.status.conditions if pod.status is not None else None) or ():
        if one.type == "PodScheduled" and one.status == "False":
            return None if pod.scheduling_gates else unix_s(one.last_transition_time, now)
    return None


def _claims(pod: core.Pod, view: View) -> Iterator[tuple[str, Kind, WireObject]]:
    """The claims that a pod names, and the templates of those that are made for it."""
    for entry in entries_with_claims(pod):
        template, claim = entry.resource_claim_template_name, entry.resource_claim_name
        key = f"{pod.metadata.namespace}/{template or claim}"
        kind = kinds.TEMPLATE if template else kinds.CLAIM
        found = view.templates.get(key) if template else view.claims.get(key)
        if found is not None:
            yield f"{kind.name} {key}", kind, found


def _is_final(finding: Finding) -> bool:
    return finding.severity is Severity.DENY and finding.rule in FITS_NOWHERE


def _said(finding: Finding) -> str:
    return f"{finding.field}: {finding.message} ({finding.rule})"


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
        self,
        session: Session,
        answers: Answers,
        settings: Settings,
        recorder: Recorder,
        longest_pause_s: float = LONGEST_PAUSE_S,
    ) -> None:
        self._session = session
        self._answers = answers
        self._settings = settings
        self._recorder = recorder
        self._writes = PacedWrites(
            "Jobs cannot be suspended",
            RIGHTS,
            per_s=WRITES_PER_S,
            longest_pause_s=longest_pause_s,
        )
        self.notes = self._writes.notes
        self._done: LRUCache[str, None] = LRUCache(2000)
        """Identities of Jobs with which nothing is left to do."""
        self._recorded: LRUCache[str, None] = LRUCache(2000)
        """Those of which it is recorded what would be done."""

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
            elif identity not in self._recorded:
                due.append(partial(self._record_unwritten, path, pod, act))
        await self._writes.do(due)

    async def _record_unwritten(self, path: str, pod: core.Pod, act: Act) -> None:
        """Record that the Job would be suspended, if it would."""
        with suppress(NotFound):
            job = decoded(await self._session.get(path), _Job, f"Job {act.key}")
            if job.is_ours_to_suspend(pod):
                self._recorder.acted(act, written=False)
        self._recorded[pod.metadata.controller_identity] = None

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
        self._recorded: set[str] = set()
        """Names of Events about controllers that still are hopeless."""

    async def keep(self) -> None:
        """Never returns."""

        async def look(_: View) -> float:
            await self.record()
            return EVERY_S

        await self._publisher.keep_looking("hopeless controllers", look, every_s=EVERY_S)

    async def record(self) -> None:
        """Tell each controller that is hopeless by now, and suspend the Jobs that are to be."""
        view = self._publisher.view
        if not view.synced:
            return
        found = {one.identity: one async for one in self._owners.found(view)}
        names: set[str] = set()
        for one in found.values():
            lineage = await self._lineages.of(one.owner, one.pod.metadata.namespace)
            names |= {self._record_event(one, owner) for owner in lineage if owner is not None}
        self._recorded &= names
        await self._suspension.suspend(
            (one.owner, one.pod, text(one.why)) for one in found.values() if one.certain
        )

    def _record_event(self, hopeless: Hopeless, owner: OwnerReference) -> str:
        """Record it if it was not recorded; returns the name of the Event."""
        code, namespace = hopeless.why.code, hopeless.pod.metadata.namespace
        name = event_name(owner.name, owner.uid, code)
        if name not in self._recorded and self._writes_about(hopeless.pod):
            about = Regarding(owner.api_version, owner.kind, owner.name, namespace, owner.uid)
            note = text(hopeless.why)
            event = Event(about, REASON, "Observe", note, code, type="Warning", name=name)
            if self._recorder.record(event):
                self._recorded.add(name)
        return name
