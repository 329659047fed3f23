"""Taints DRA devices by their health: a DeviceTaintRule for each device that should have one, and
none for longer than its reason lasts.

It needs the rights in `deploy/rbac/optional/health-taints.yaml`, and the setting `deviceTaints`.
Without them the extender alone keeps pods off.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from math import inf
from typing import Any, NamedTuple

from fettle.api import api_path, kinds, resource
from fettle.api.meta import ObjectMeta, Wire
from fettle.api.resource import DeviceTaint, DeviceTaintRule, DeviceTaintSelector
from fettle.client import Event, EventRecorder, Regarding, Session, decoded
from fettle.cluster import View
from fettle.config import Settings
from fettle.dra import tolerates
from fettle.logs import Logger
from fettle.model import (
    ANNOTATION,
    DEGRADED_TAINT,
    ClusterError,
    DeviceId,
    Forbidden,
    Mode,
    NotFound,
    Policy,
    TaintRef,
)
from fettle.observing import StewardMetrics
from fettle.pacing import pause, run_within
from fettle.records import Act, Recorder
from fettle.scheduling import Answers
from fettle.scheduling.plans import PlannedTaint, TaintPlan, is_assessed, plan_for, why_in_vain
from fettle.steward.paced_writes import PacedWrites, Write
from fettle.steward.pod_events import event_name
from fettle.steward.taint_rules import (
    change_rule,
    create_rule,
    delete_rule,
    has_our_labels,
    rule_name,
)

LOOK_S = 1.0
ROLE = "fettle-health-taints"
"""The ClusterRole that allows all this. It owns the rules, so they go when it is deleted."""
RIGHTS = "deploy/rbac/optional/health-taints.yaml grants the rights"
DEVICE_TAINTED = "DeviceTainted"
"""An Event on a Node: a device of it was tainted by its health.

What to do: `fettle explain device` names the rule, and says when [it
goes](failed-devices.md#taints-by-health)."""
DRY_RUN_NAMESPACE = "fettle-dry-run"
"""Objects in Fettle's own namespace are not sent to its webhook."""
STEERING_EVERY_S = 10.0
TRUSTED_S = 25.0
"""How long a success counts. One call that a busy webhook does not answer in time changes nothing.
"""
MOST_POLICIES = 5
"""How many policies are tried, of those that give a fallback."""
_TAINT = TaintRef(DEGRADED_TAINT, "", "NoSchedule")
_ROLE_PATH = api_path("rbac.authorization.k8s.io/v1", "clusterroles", name=ROLE)
HEALTH_RULES = "fettle-health-"
"""Begins the names of its DeviceTaintRules."""

_LOG = Logger(__name__)


class DueWrites(NamedTuple):
    """What has to be written, by rule name."""

    removed: list[str]
    changed: dict[str, PlannedTaint]
    new: dict[str, PlannedTaint]


def due_writes(view: View, wanted: Mapping[DeviceId, PlannedTaint]) -> DueWrites:
    """How the rules that there are differ from those that are wanted."""
    rules = view.taint_rules
    named = {}
    for device, planned in wanted.items():
        named[rule_name(HEALTH_RULES, device)] = planned
        pause()
    unwanted = [n for n, rule in rules.items() if is_our_rule(rule) and n not in named]
    return DueWrites(
        _but_unread(unwanted, view),
        {
            name: planned
            for name, planned in named.items()
            if (rule := rules.get(name)) is not None
            and is_our_rule(rule)
            and _ref(rule.spec.taint) != _ref(planned.taint)
        },
        {name: planned for name, planned in named.items() if name not in rules},
    )


def _but_unread(names: list[str], view: View) -> list[str]:
    """The rules but for those of devices that may be in a slice which cannot be read."""
    if not names or not any(one.startswith(f"{kinds.SLICE.name} ") for one in view.quarantined):
        return names
    published: set[DeviceId] = set()
    for node in view.nodes.values():
        for pool in node.pools:
            published.update(device.id for device in chain(pool.devices, pool.withheld))
        pause()
    return [name for name in names if _device_of(view.taint_rules[name]) in published]


def is_our_rule(rule: DeviceTaintRule) -> bool:
    return is_assessed(rule.spec.taint) and has_our_labels(rule)


def _ref(taint: Any) -> TaintRef:
    return TaintRef(taint.key, taint.value, taint.effect)


# --- what is told


class TaintNews:
    """Tells of each taint that is written, or would be, to the log and the records of what the
    steward does; and to people at the node, when pods are kept off a device.

    `mode`: the one that decides whether taints are written.
    """

    def __init__(self, recorder: Recorder, events: EventRecorder, mode: Mode) -> None:
        self._recorder = recorder
        self._events = events
        self._act = partial(Act, kind="Device", mode=mode)

    def sets(self, rule: str, planned: PlannedTaint, *, changes: bool, written: bool) -> None:
        """A device gets a taint by the rule of this name, or another one than before."""
        device, taint, why = str(planned.device), _named(planned.taint), reason_of(planned)
        said = f"{taint} by DeviceTaintRule {rule}: {why}"
        self._log("taint of a device", rule, written=written, device=device, taint=taint, why=why)
        what = "ChangeTaint" if changes else "TaintDevice"
        self._recorder.acted(self._act(what=what, why=said, key=device), written=written)
        if written and planned.taint.effect != "None":
            self._events.record(_event(rule, planned, why))

    def removes(self, rule: str, device: DeviceId, why: str, *, written: bool) -> None:
        self._log("taint of a device removed", rule, written=written, device=str(device), why=why)
        act = self._act(what="UntaintDevice", why=f"DeviceTaintRule {rule}: {why}", key=str(device))
        self._recorder.acted(act, written=written)

    @staticmethod
    def _log(event: str, rule: str, *, written: bool, why: str, **fields: str) -> None:
        _LOG.info(event if written else f"{event}: not written", rule=rule, reason=why, **fields)


def reason_of(planned: PlannedTaint) -> str:
    """Why a device gets a taint, in words."""
    why = [w.evidence.text for w in planned.health.evidence[:1]]
    return f"{planned.health.state}: {why[0]}" if why else str(planned.health.state)


def _named(taint: DeviceTaint) -> str:
    return f"{taint.key}:{taint.effect}"


def _event(rule: str, planned: PlannedTaint, why: str) -> Event:
    """On the node of the device, or on the rule of a device that is of no single node. One for each
    time that the device becomes so bad."""
    about = Regarding("resource.k8s.io/v1", "DeviceTaintRule", rule)
    if planned.node:
        # As the kubelet's Events, by the name as the uid: `kubectl describe` asks for those too.
        about = Regarding("v1", "Node", planned.node, uid=planned.node)
    taint = planned.taint
    code = f"{taint.key} {planned.health.since}"
    return Event(
        regarding=about,
        reason=DEVICE_TAINTED,
        action="Taint",
        note=(
            f"device {planned.device} is {why}; DeviceTaintRule {rule} taints it {_named(taint)}, "
            "so the scheduler gives it to no pod that does not tolerate that"
        ),
        series_key=f"{rule} {code}",
        type="Warning",
        name=event_name(about.name, rule, code),
    )


# --- whether Degraded devices may be tainted


class SoftSteering:
    """Shows that the webhook gives claims degraded devices as a fallback, by a dry run that creates
    nothing. Only then may Degraded devices be tainted: else nobody would get them.

    `problem`: why the last try did not show it, as a sentence; "" if it did.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tried_at = self._shown_at = -inf
        self.problem = ""

    async def works(self, policies: Iterable[Policy]) -> bool:
        """Whether a claim of one of these policies got its fallback lately."""
        now = asyncio.get_running_loop().time()
        if now - self._tried_at >= STEERING_EVERY_S:
            self._tried_at = now
            self.problem = await self._try(policies)
            if not self.problem:
                self._shown_at = now
        return now - self._shown_at < TRUSTED_S

    async def _try(self, policies: Iterable[Policy]) -> str:
        problem = "no policy has tolerations.degradedAsFallback"
        steering = sorted(p.name for p in policies if p.tolerations.degraded_as_fallback)
        for name in steering[:MOST_POLICIES]:
            try:
                if await self._gets_fallback(name):
                    return ""
                problem = f"the webhook gave a claim of policy {name} no fallback"
            except ClusterError as error:
                problem = f"a claim of policy {name} cannot be tried: {error}"
        return problem

    async def _gets_fallback(self, policy: str) -> bool:
        name = "fettle-dry-run"
        api_version = kinds.CLAIM.api_version
        made = await self._session.create(
            api_path(api_version, kinds.CLAIM.plural, namespace=DRY_RUN_NAMESPACE),
            {
                "apiVersion": api_version,
                "kind": kinds.CLAIM.name,
                "metadata": {
                    "name": name,
                    "namespace": DRY_RUN_NAMESPACE,
                    "annotations": {ANNOTATION: policy},
                },
                "spec": {
                    "devices": {
                        "requests": [{"name": "any", "exactly": {"deviceClassName": "fettle.dev"}}]
                    }
                },
            },
            dry_run=True,
        )
        claim = decoded(made, resource.ResourceClaim, "dry-run claim")
        requests = claim.spec.devices.requests if claim.spec.devices is not None else None
        return any(
            tolerates(toleration, _TAINT)
            for request in requests or ()
            for option in request.first_available or ()
            for toleration in option.tolerations or ()
        )


# --- the steward's part


class HealthTaints:
    """`keep` while leading; `notes` say what is amiss."""

    def __init__(
        self,
        session: Session,
        answers: Answers,
        settings: Settings,
        metrics: StewardMetrics,
        news: TaintNews,
        clock: Callable[[], float] = time.time,
        look_s: float = LOOK_S,
    ) -> None:
        self._look_s = look_s
        self._session = session
        self._answers = answers
        self._settings = settings
        self._metrics = metrics
        self._news = news
        self._clock = clock
        self._steering = SoftSteering(session)
        self._writing = PacedWrites(
            "device taints: they cannot be written",
            RIGHTS,
            per_s=settings.device_taints.writes_per_second,
            wrote=metrics.wrote_taint,
        )
        # What would be written is told as slowly: the records keep other decisions, too.
        self._telling = PacedWrites("", per_s=settings.device_taints.writes_per_second)
        self._notes: Mapping[str, str] = {}
        self._would: dict[DeviceId, PlannedTaint] = {}
        """What was told that would be written, where nothing is."""

    async def keep(self) -> None:
        """Never returns. Looks at each view, at most once a second, and when time changes
        something."""
        publisher = self._answers.publisher
        try:
            await publisher.keep_looking("device taints", self._look, every_s=self._look_s)
        finally:
            self._metrics.device_taints({})

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        return [
            *self._writing.notes(),
            *(f"device taints: {text}" for text in self._notes.values()),
        ]

    async def _look(self, view: View) -> float | None:
        """Write what is due; returns after how many seconds to look again, even if no view is
        newer."""
        plan = await self._plan(view)
        if plan is None:
            return self._look_s
        in_vain = why_in_vain(self._answers)
        wanted = {} if in_vain else plan.taints
        would = wanted if (held_back := self._held_back()) else {}
        due, untold, counts = await run_within(
            lambda: (
                due_writes(view, {} if held_back else wanted),
                [*self._untold(would)],
                _count(view, plan),
            ),
        )
        self._metrics.device_taints(counts)
        over = held_back and f"{held_back} none is written"
        await self._writing.do(*self._writes(due, view, in_vain or over or "its reason is over"))
        await self._telling.do(untold)
        self._note(self._describe(plan, in_vain, held_back))
        if any(due) or untold:
            return max(self._look_s, self._writing.pause_s(), self._telling.pause_s())
        again_s = plan.due - self._clock()
        if self._needs_steering(plan):
            again_s = min(again_s, STEERING_EVERY_S)
        return again_s if again_s < inf else None

    # --- what should be there

    def _held_back(self) -> str:
        """Why nothing may be written, in words; "" if it may."""
        if self._settings.mode is not Mode.ENFORCE:
            return f"in mode {self._settings.mode}"
        return "with steward.dryRun" if self._settings.steward.dry_run else ""

    async def _plan(self, view: View) -> TaintPlan | None:
        settings = self._settings.device_taints
        if settings.unhealthy is None and settings.degraded is None:
            return TaintPlan({})
        plan = await plan_for(self._answers, settings, self._clock(), steers=True)
        if plan is None or not self._needs_steering(plan):
            return plan
        policies = {**self._answers.policies.by_name, **view.policies}
        if await self._steering.works(policies.values()):
            return plan
        return await plan_for(self._answers, settings, self._clock(), steers=False)

    @staticmethod
    def _needs_steering(plan: TaintPlan) -> bool:
        return bool(plan.unproven) or any(
            planned.taint.key == DEGRADED_TAINT and planned.taint.effect != "None"
            for planned in plan.taints.values()
        )

    # --- writing

    def _writes(self, due: DueWrites, view: View, over: str) -> Iterator[Iterator[Write]]:
        """`over`: why rules are removed."""
        rules = view.taint_rules
        yield (partial(self._remove, name, rules[name], over) for name in due.removed)
        yield (partial(self._change, *one) for one in due.changed.items())
        yield (partial(self._create, *one) for one in due.new.items())

    async def _remove(self, name: str, rule: DeviceTaintRule, why: str) -> None:
        await delete_rule(self._session, name)
        self._news.removes(name, _device_of(rule), why, written=True)

    async def _change(self, name: str, planned: PlannedTaint) -> None:
        await change_rule(self._session, name, planned.taint)
        self._news.sets(name, planned, changes=True, written=True)

    async def _create(self, name: str, planned: PlannedTaint) -> None:
        metadata = await self._owner()
        await create_rule(self._session, name, planned.device, planned.taint, metadata)
        self._news.sets(name, planned, changes=False, written=True)

    async def _owner(self) -> dict[str, Any]:
        """Metadata by which the rules go with the right to write them."""
        try:
            role = decoded(await self._session.get(_ROLE_PATH), _Role, f"ClusterRole {ROLE}")
        except (Forbidden, NotFound):
            return {}  # the rights were granted in another way
        owner = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "name": ROLE,
            "uid": role.metadata.uid,
        }
        return {"ownerReferences": [owner]}

    # --- telling

    def _untold(self, would: Mapping[DeviceId, PlannedTaint]) -> Iterator[Write]:
        """What would be written, where nothing is, and was not told yet."""
        for device in self._would.keys() - would.keys():
            yield partial(self._record_removed, device)
        for device, planned in would.items():
            before = self._would.get(device)
            if before is None or before.taint != planned.taint:
                yield partial(self._record_set, planned, changes=before is not None)
            pause()

    async def _record_removed(self, device: DeviceId) -> None:
        del self._would[device]
        name = rule_name(HEALTH_RULES, device)
        self._news.removes(name, device, "its reason is over", written=False)

    async def _record_set(self, planned: PlannedTaint, *, changes: bool) -> None:
        self._would[planned.device] = planned
        name = rule_name(HEALTH_RULES, planned.device)
        self._news.sets(name, planned, changes=changes, written=False)

    def _describe(self, plan: TaintPlan, in_vain: str, held_back: str) -> dict[str, str]:
        """What is amiss, each by what it concerns."""
        found = {}
        if in_vain and plan.taints:
            found["rules"] = f"the extender alone keeps pods off: {in_vain}"
        if held_back and plan.taints:
            found["mode"] = f"{held_back} none is written: `fettle devices` lists them"
        if plan.unproven and self._steering.problem:
            found["fallback"] = f"Degraded devices get effect None only: {self._steering.problem}"
        for driver, count in plan.over_share.items():
            found[driver] = (
                f"more of {driver} is bad than deviceTaints.maxShare allows: {count} get none"
            )
        return found

    def _note(self, found: Mapping[str, str]) -> None:
        """Each is logged once while it lasts."""
        for concern, text in found.items():
            if concern not in self._notes:
                _LOG.warning("device taints", reason=text)
        self._notes = found


class _Role(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta


def _device_of(rule: DeviceTaintRule) -> DeviceId:
    """Of a rule for one device."""
    one = rule.spec.device_selector or DeviceTaintSelector()
    return DeviceId(one.driver or "", one.pool or "", one.device or "")


def _count(view: View, plan: TaintPlan) -> Counter[tuple[str, str, str]]:
    """As `StewardMetrics.device_taints` takes it."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for device, planned in plan.taints.items():
        counts[device.driver, planned.taint.effect, "wanted"] += 1
        pause()
    for rule in filter(is_our_rule, view.taint_rules.values()):
        counts[_device_of(rule).driver, rule.spec.taint.effect, "written"] += 1
        pause()
    return counts
