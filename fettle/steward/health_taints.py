"""Taints DRA devices by their health: a DeviceTaintRule for each device that should have one, and
none for longer than its reason lasts.

It needs the rights in `deploy/rbac/optional/health-taints.yaml`, and the setting `deviceTaints`.
Without them the extender alone keeps pods off.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from math import inf
from typing import Any, NamedTuple

import structlog

from fettle.api import kinds
from fettle.api.meta import ObjectMeta, Wire
from fettle.api.resource import DeviceTaintRule
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
_ROLE_PATH = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{ROLE}"
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
    selectors = {name: view.taint_rules[name].spec.device_selector for name in names}
    return [
        name
        for name, one in selectors.items()
        if one is not None
        and DeviceId(one.driver or "", one.pool or "", one.device or "") in published
    ]


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
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._answers = answers
        self._settings = settings
        self._clock = clock
        self._steering = SoftSteering(session)
        self._writing = PacedWrites(
            "device taints: they cannot be written",
            RIGHTS,
            per_s=settings.device_taints.writes_per_second,
            wrote=metrics.wrote_taint,
        )
        self._notes: list[str] = []
        self._would: dict[DeviceId, TaintRef] = {}
        """What was told that would be written, in a mode in which nothing is."""

    async def keep(self) -> None:
        """Never returns. Looks at each view, at most once a second, and when time changes
        something."""
        loop = asyncio.get_running_loop()
        while True:
            view = self._answers.view
            again_s = await self._look(view) if view.synced else None
            await asyncio.sleep(LOOK_S)
            until = None if again_s is None else loop.time() + max(0.0, again_s - LOOK_S)
            await self._answers.publisher.newer_than(view.generation, until)

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        return [*self._writing.notes(), *(f"device taints: {text}" for text in self._notes)]

    async def _look(self, view: View) -> float | None:
        """Write what is due; returns after how many seconds to look again, even if no view is
        newer."""
        plan = await self._plan(view)
        if plan is None:
            return LOOK_S
        writes = self._settings.mode is Mode.ENFORCE
        in_vain = why_in_vain(self._answers)
        wanted = plan.taints if writes and not in_vain else {}
        due = await run_within(None, lambda: due_writes(view, wanted))
        self._tell_unwritten({} if writes else plan.taints)
        await self._writing.do(*self._writes(due))
        self._note(self._describe(plan, in_vain))
        if any(due):
            return max(LOOK_S, self._writing.pause_s())
        again_s = plan.due - self._clock()
        if self._needs_steering(plan):
            again_s = min(again_s, EVERY_S)
        return again_s if again_s < inf else None

    # --- what should be there

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

    def _writes(self, due: DueWrites) -> Iterator[Iterator[Write]]:
        yield (partial(self._remove, name) for name in due.removed)
        yield (partial(self._change, *one) for one in due.changed.items())
        yield (partial(self._create, *one) for one in due.new.items())

    async def _remove(self, name: str) -> None:
        await delete_rule(self._session, name)
        _LOG.info("taint of a device removed", rule=name)

    async def _change(self, name: str, planned: PlannedTaint) -> None:
        await change_rule(self._session, name, planned.taint)
        _LOG.info("taint of a device changed", rule=name, **_said(planned))

    async def _create(self, name: str, planned: PlannedTaint) -> None:
        metadata = await self._owner()
        await create_rule(self._session, name, planned.device, planned.taint, metadata)
        _LOG.info("taint of a device", rule=name, **_said(planned))

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

    def _describe(self, plan: TaintPlan, in_vain: str) -> list[str]:
        found = []
        if in_vain and plan.taints:
            found.append(f"the extender alone keeps pods off: {in_vain}")
        if plan.taints and self._settings.mode is not Mode.ENFORCE:
            found.append(
                f"in mode {self._settings.mode} none is written: `fettle devices` lists them"
            )
        if plan.unproven and self._steering.problem:
            found.append(f"Degraded devices get effect None only: {self._steering.problem}")
        found += [
            f"more of {driver} is bad than deviceTaints.maxShare allows: {count} get none"
            for driver, count in plan.over_share.items()
        ]
        return found

    def _note(self, found: list[str]) -> None:
        """Each is logged once while it lasts."""
        for text in found:
            if text not in self._notes:
                _LOG.warning("device taints", reason=text)
        self._notes = found

    def _tell_unwritten(self, taints: Mapping[DeviceId, PlannedTaint]) -> None:
        would = {device: _ref(planned.taint) for device, planned in taints.items()}
        for device, taint in would.items():
            if self._would.get(device) != taint:
                _LOG.info("taint of a device, not written in this mode", **_said(taints[device]))
        self._would = would


class _Role(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta


def _said(planned: PlannedTaint) -> dict[str, str]:
    why = [w.evidence.text for w in planned.health.evidence[:1]]
    return {
        "device": str(planned.device),
        "taint": str(_ref(planned.taint)),
        "reason": why[0] if why else str(planned.health.state),
    }
