"""Taints DRA devices by their health: a DeviceTaintRule for each device that should have one, and
none for longer than its reason lasts.

It needs the rights in `deploy/rbac/optional/health-taints.yaml`, and the setting `deviceTaints`.
Without them the extender alone keeps pods off.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from math import inf
from typing import Any, NamedTuple

import structlog

from fettle.api import api_path, kinds
from fettle.api.meta import ObjectMeta, Wire
from fettle.api.resource import DeviceTaintRule, DeviceTaintSelector
from fettle.client import Session, decoded
from fettle.cluster import View
from fettle.config import Settings
from fettle.model import (
    DEGRADED_TAINT,
    DeviceId,
    Forbidden,
    Mode,
    NotFound,
    TaintRef,
)
from fettle.observing import StewardMetrics
from fettle.pacing import pause, run_within
from fettle.scheduling import Answers, PlannedTaint, TaintPlan, is_assessed, plan_for, why_in_vain
from fettle.steward.paced_writes import PacedWrites, Write
from fettle.steward.soft_steering import EVERY_S, SoftSteering
from fettle.steward.taint_news import TaintNews
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
_ROLE_PATH = api_path("rbac.authorization.k8s.io/v1", "clusterroles", name=ROLE)
_PREFIX = "fettle-health-"

_LOG = structlog.get_logger(__name__)


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
        named[rule_name(_PREFIX, device)] = planned
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
    ) -> None:
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
            await publisher.keep_looking("device taints", self._look, every_s=LOOK_S)
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
            return LOOK_S
        in_vain = why_in_vain(self._answers)
        wanted = {} if in_vain else plan.taints
        would = wanted if (held_back := self._held_back()) else {}
        due, untold, counts = await run_within(
            None,
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
            return max(LOOK_S, self._writing.pause_s(), self._telling.pause_s())
        again_s = plan.due - self._clock()
        if self._needs_steering(plan):
            again_s = min(again_s, EVERY_S)
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
            yield partial(self._tell_removed, device)
        for device, planned in would.items():
            before = self._would.get(device)
            if before is None or before.taint != planned.taint:
                yield partial(self._tell_set, planned, changes=before is not None)
            pause()

    async def _tell_removed(self, device: DeviceId) -> None:
        del self._would[device]
        name = rule_name(_PREFIX, device)
        self._news.removes(name, device, "its reason is over", written=False)

    async def _tell_set(self, planned: PlannedTaint, *, changes: bool) -> None:
        self._would[planned.device] = planned
        name = rule_name(_PREFIX, planned.device)
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
