"""Writes on Nodes how healthy their devices are, for those who ask no extender: a label for node
affinity, a condition for remediation, and a cordon.

It needs the rights in `deploy/rbac/optional/node-marks.yaml`, and the setting `nodeMarks`. What is
written here is never evidence. It goes when its reason ends, or when it is switched off.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from math import inf
from typing import Any, NamedTuple

import msgspec

from fettle.api import kinds
from fettle.api.meta import rfc3339_at
from fettle.client import Session
from fettle.cluster import UNMARKED, NodeMarks, NodeView, Shortage, View
from fettle.config import NodeMarkSettings, Settings
from fettle.explain import CAUSES, LOST, state_in_words, worst_state
from fettle.logs import Logger
from fettle.model import (
    CORDONED,
    DEVICES_SOUND,
    HEALTH,
    HEALTH_OF_NODE,
    HEALTH_REASON,
    LEFT_ALONE,
    LOST_DEVICES,
    NotFound,
    State,
    Tier,
    units_label,
)
from fettle.observing import StewardMetrics
from fettle.pacing import pause, run_within
from fettle.records import Act, Recorder
from fettle.scheduling import Answers
from fettle.scheduling.plans import (
    NOTHING_LOST,
    Cordons,
    LostDevices,
    NodeHealth,
    NodeHealths,
    lost_devices,
    plan_cordons,
)
from fettle.steward.holding import RawNode, change_node, metadata_of
from fettle.steward.paced_writes import LONGEST_PAUSE_S, PacedWrites, Write

LOOK_S = 1.0
RIGHTS = "deploy/rbac/optional/node-marks.yaml grants the rights"
NOTICEABLE = 0.1
"""A smaller change of the score alone is not written."""
GONE_S = 600.0
"""A node without devices keeps its marks so long: its driver may be starting."""
_CAUSES = [*CAUSES.values()][::-1]
_CAUSES.insert(-1, LOST)
_TIERS = [state.lower() for state in CAUSES][::-1]
"""The better ones first."""
_STATUS = {State.UNHEALTHY: "False", State.UNKNOWN: "Unknown"}

_LOG = Logger(__name__)


class Mark(StrEnum):
    """What is written on a Node. Each takes a right of its own, or may be refused by itself."""

    CORDON = "cordon"
    CONDITION = "condition"
    LABEL = "label"


class DueMark(NamedTuple):
    """A write that is due: the Node is to be like `wanted` in this one thing."""

    mark: Mark
    node: str
    wanted: NodeMarks

    @property
    def urgency(self) -> tuple[bool, bool, str]:
        """The bad news first: they keep pods off."""
        is_healthy = self.wanted.tier in ("", "healthy") and self.wanted.status in ("", "True")
        return not self.wanted.cordon, is_healthy, self.node


def wanted_marks(
    settings: NodeMarkSettings,
    healths: Mapping[str, NodeHealth],
    of_hardware: Mapping[str, NodeHealth],
    cordons: Cordons,
    lost: LostDevices = NOTHING_LOST,
) -> dict[str, NodeMarks]:
    """What is to be on each node that has devices, or has lost some."""
    found = {}
    for name, health in healths.items():
        marks, gone = UNMARKED, lost.acted_on(name)
        if not health.devices and name not in lost.nodes:
            continue
        if settings.label:
            none_left = any(not one.found for one in gone)
            tier = State.UNHEALTHY if none_left else health.tier
            if health.devices or gone:
                labels = _labels_of(health, gone)
                marks = msgspec.structs.replace(marks, tier=tier.lower(), labels=labels)
            if health.score < 1 or gone:
                score = round(health.score, 1) if health.devices else None
                reason = state_in_words(health, gone)
                marks = msgspec.structs.replace(marks, score=score, reason=reason)
        if settings.condition:
            hardware = of_hardware[name]
            worst = worst_state(hardware)
            status, cause = _STATUS.get(worst, "True"), CAUSES[worst]
            if gone and worst is not State.UNHEALTHY:
                status, cause = _STATUS[State.UNHEALTHY], LOST
            if hardware.devices or gone:
                marks = msgspec.structs.replace(
                    marks, status=status, cause=cause, message=state_in_words(hardware, gone)
                )
        if name in cordons.nodes:
            why = state_in_words(cordons.nodes[name], lost.nodes.get(name, ()))
            marks = msgspec.structs.replace(marks, cordon=why)
        elif name in cordons.left:
            marks = msgspec.structs.replace(marks, cordon=LEFT_ALONE)
        found[name] = marks
        pause()
    return found


def _labels_of(health: NodeHealth, lost: Sequence[Shortage]) -> tuple[tuple[str, str], ...]:
    labels = [(units_label(resource), str(tier)) for resource, tier in health.units.items()]
    if health.devices:
        labels.append((HEALTH_OF_NODE, str(health.proven)))
    if lost:
        labels.append((LOST_DEVICES, "true"))
    return tuple(sorted((label, value) for label, value in labels if label is not None))


def due_marks(nodes: Mapping[str, NodeView], wanted: Mapping[str, NodeMarks]) -> list[DueMark]:
    """How the marks that there are differ from those that are wanted, the most urgent first."""
    due = []
    for name, node in nodes.items():
        pause()
        to_be, there = wanted.get(name, UNMARKED), node.marks
        if to_be == there or node.unread:
            continue
        is_left = to_be.cordon == LEFT_ALONE != there.cordon
        if is_left or bool(to_be.cordon) != bool(there.cordon):
            due.append(DueMark(Mark.CORDON, name, to_be))
        are_alike = (to_be.tier, to_be.labels) == (there.tier, there.labels)
        if not are_alike or not _reads_alike(to_be, there):
            due.append(DueMark(Mark.LABEL, name, to_be))
        if (to_be.status, to_be.cause, to_be.message) != (there.status, there.cause, there.message):
            due.append(DueMark(Mark.CONDITION, name, to_be))
    return sorted(due, key=lambda one: one.urgency)


def marks_after(there: NodeMarks, due: DueMark) -> NodeMarks:
    """What is on the node once this is written."""
    fields = {
        Mark.LABEL: ("tier", "labels", "score", "reason"),
        Mark.CONDITION: ("status", "cause", "message"),
        Mark.CORDON: ("cordon",),
    }[due.mark]
    return msgspec.structs.replace(there, **{name: getattr(due.wanted, name) for name in fields})


class Holds:
    """Which of the marks that differ are not written yet. Worse is written at once; better, other
    words, and that a node has no devices any more, once that has lasted: or each flap of a device,
    and each reboot, would write its Node twice. Pure."""

    def __init__(self, settings: NodeMarkSettings) -> None:
        self._settings = settings
        self._since: dict[tuple[Mark, str], float] = {}

    def ripe(
        self,
        due: list[DueMark],
        nodes: Mapping[str, NodeView],
        wanted: Mapping[str, NodeMarks],
        now: float,
    ) -> tuple[list[DueMark], float]:
        """Those of what is due that are to be written now, and when more will be, in Unix
        seconds."""
        before, self._since = self._since, {}
        found, next_at = [], inf
        for one in due:
            pause()
            if not self._is_held(one, nodes[one.node].marks):
                found.append(one)
                continue
            key = one.mark, one.node
            since = self._since[key] = before.get(key, now)
            hold_s = self._settings.hold_seconds if one.node in wanted else GONE_S
            if now >= since + hold_s:
                found.append(one)
            else:
                next_at = min(next_at, since + hold_s)
        return found, next_at

    def _is_held(self, due: DueMark, there: NodeMarks) -> bool:
        settings, to_be = self._settings, due.wanted
        match due.mark:
            case Mark.LABEL:
                is_no_worse = _is_no_worse(to_be.tier, there.tier, _TIERS)
                return settings.label and is_no_worse and _are_no_worse(to_be.labels, there.labels)
            case Mark.CONDITION:
                return settings.condition and _is_no_worse(to_be.cause, there.cause, _CAUSES)
            case Mark.CORDON:
                return settings.cordon is not None and not to_be.cordon


def _is_no_worse(to_be: str, there: str, order: Sequence[str]) -> bool:
    if there not in order:
        return False
    return to_be not in order or order.index(to_be) <= order.index(there)


def _are_no_worse(to_be: Iterable[tuple[str, str]], there: Iterable[tuple[str, str]]) -> bool:
    before = dict(there)
    return all(_is_no_worse(state, before.get(label, ""), [*Tier]) for label, state in to_be)


def _reads_alike(one: NodeMarks, other: NodeMarks) -> bool:
    """Whether their annotations differ in nothing but a small change of the score."""
    if one.reason != other.reason or one.score is None or other.score is None:
        return one.annotation == other.annotation
    return abs(one.score - other.score) <= NOTICEABLE + 1e-9


class NodeMarking:
    """`keep` while leading; `notes` say what is amiss."""

    def __init__(
        self,
        session: Session,
        answers: Answers,
        settings: Settings,
        metrics: StewardMetrics,
        recorder: Recorder,
        clock: Callable[[], float] = time.time,
        look_s: float = LOOK_S,
        longest_pause_s: float = LONGEST_PAUSE_S,
    ) -> None:
        self._session = session
        self._answers = answers
        self._settings = settings
        self._recorder = recorder
        self._clock = clock
        self._look_s = look_s
        self._healths = NodeHealths(answers)
        self._of_hardware = NodeHealths(answers, of_hardware=True)
        self._writing = {
            mark: PacedWrites(
                f"node marks: {mark} cannot be written",
                RIGHTS,
                per_s=settings.node_marks.writes_per_second,
                longest_pause_s=longest_pause_s,
                wrote=partial(metrics.wrote_node, mark),
            )
            for mark in Mark
        }
        self._holds = Holds(settings.node_marks)
        self._notes: list[str] = []
        self._settled_at = -1
        """The basis of the last view for which nothing is left to write."""
        self._due = inf
        """When time changes something, in Unix seconds."""
        self._would: dict[str, NodeMarks] = {}
        """By node: what would be on it by now, where nothing is written."""

    async def keep(self) -> None:
        """Never returns. Looks at each view, at most once a second, and when time changes
        something."""
        publisher = self._answers.publisher
        await publisher.keep_looking("node marks", self._look, every_s=self._look_s)

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        failing = (note for writing in self._writing.values() for note in writing.notes())
        return [*failing, *(f"node marks: {text}" for text in self._notes)]

    async def _look(self, view: View) -> float | None:
        """Write what is due; returns after how many seconds to look again, even if no view is
        newer."""
        if view.basis != self._settled_at or self._clock() >= self._due:
            await self._look_at_all(view)
        if view.basis != self._settled_at:
            return self._look_s
        return max(self._look_s, self._due - self._clock()) if self._due < inf else None

    async def _look_at_all(self, view: View) -> None:
        planned = await run_within(partial(self._plan, view))
        if planned is None:
            return
        wanted, cordons, lost = planned
        writes = self._settings.writes(self._settings.mode)
        due, next_at = await run_within(lambda: self._due_now(view.nodes, wanted))
        if writes:
            self._would = {}
        else:
            await run_within(lambda: self._record_unwritten(view, due))
            due = await run_within(lambda: due_marks(view.nodes, {}))
        for mark, writing in self._writing.items():
            await writing.do(
                self._write(one, view.nodes[one.node]) for one in due if one.mark is mark
            )
        self._note([*self._describe(wanted, cordons, lost, writes=writes)])
        self._settled_at = -1 if due else view.basis
        self._due = min(cordons.due, lost.due, next_at)

    def _due_now(
        self, nodes: Mapping[str, NodeView], wanted: Mapping[str, NodeMarks]
    ) -> tuple[list[DueMark], float]:
        would = {name: nodes[name] for name in self._would if name in nodes}
        for name, node in would.items():
            would[name] = msgspec.structs.replace(node, marks=self._would[name])
            pause()
        nodes = {**nodes, **would}
        return self._holds.ripe(due_marks(nodes, wanted), nodes, wanted, self._clock())

    def _plan(self, view: View) -> tuple[Mapping[str, NodeMarks], Cordons, LostDevices] | None:
        settings = self._settings.node_marks
        if not settings.is_on:
            return {}, Cordons({}), NOTHING_LOST
        healths = self._healths.look(view.nodes)
        of_hardware = self._of_hardware.look(view.nodes)
        if healths is None or of_hardware is None:
            return None
        now = self._clock()
        lost = lost_devices(healths, self._settings.breaker, now)
        cordons = plan_cordons(view.nodes, of_hardware, settings, now, lost)
        return wanted_marks(settings, healths, of_hardware, cordons, lost), cordons, lost

    # --- writing

    def _write(self, one: DueMark, node: NodeView) -> Write:
        writes = {
            Mark.LABEL: self._write_label,
            Mark.CONDITION: self._write_condition,
            Mark.CORDON: self._write_cordon,
        }

        async def write() -> None:
            await writes[one.mark](one, node)
            self._record(one, node.marks, written=True)

        return write

    async def _write_label(self, due: DueMark, node: NodeView) -> None:
        gone = {label: None for label, _ in node.marks.labels}
        metadata = {
            "labels": {HEALTH: due.wanted.tier or None, **gone, **dict(due.wanted.labels)},
            "annotations": {HEALTH_REASON: due.wanted.annotation or None},
        }
        with suppress(NotFound):
            await self._session.patch(kinds.NODE.path_of(due.node), {"metadata": metadata})

    async def _write_condition(self, due: DueMark, node: NodeView) -> None:
        wanted = due.wanted
        condition: dict[str, str] = {"type": DEVICES_SOUND, "$patch": "delete"}
        if wanted.status:
            now = rfc3339_at(self._clock())
            condition = {
                "type": DEVICES_SOUND,
                "status": wanted.status,
                "reason": wanted.cause,
                "message": wanted.message,
                "lastHeartbeatTime": now,
            }
            if wanted.status != node.marks.status:
                condition["lastTransitionTime"] = now
        with suppress(NotFound):
            path = kinds.NODE.path_of(due.node, subresource="status")
            body = {"status": {"conditions": [condition]}}
            await self._session.patch(path, body, strategic=True)

    async def _write_cordon(self, due: DueMark, _: NodeView) -> None:
        if due.wanted.cordon == LEFT_ALONE:
            change = leave_alone
        else:
            change = partial(cordon, why=due.wanted.cordon) if due.wanted.cordon else uncordon
        with suppress(NotFound):
            if (await change_node(self._session, due.node, change))[1]:
                why, is_cordoned = due.wanted.cordon, bool(due.wanted.cordon)
                _LOG.info("cordon", node=due.node, cordoned=is_cordoned, reason=why)

    # --- telling

    def _record(self, due: DueMark, there: NodeMarks, *, written: bool) -> None:
        """Not that a new node is healthy."""
        wanted = due.wanted
        what, before, after = {
            Mark.LABEL: ("LabelNode", _labels(there), _labels(wanted)),
            Mark.CONDITION: ("SetNodeCondition", there.status, wanted.status),
            Mark.CORDON: ("CordonNode", there.cordon, wanted.cordon),
        }[due.mark]
        if before == after or (not before and _is_fine(after)):
            return
        if LEFT_ALONE in (before, after):
            return
        if due.mark is Mark.CORDON and not after:
            what = "UncordonNode"
        why = {
            Mark.LABEL: f"{after}; {wanted.annotation}" if after else "",
            Mark.CONDITION: f"{DEVICES_SOUND}={wanted.status}; {wanted.message}" if after else "",
            Mark.CORDON: wanted.cordon,
        }[due.mark]
        mode = self._settings.mode
        act = Act(what, why or "its reason has ended", "Node", due.node, mode=mode)
        self._recorder.acted(act, written=written)

    def _record_unwritten(self, view: View, due: list[DueMark]) -> None:
        """Record what would be written, as if it were."""
        would = {name: marks for name, marks in self._would.items() if name in view.nodes}
        for one in due:
            there = would.get(one.node, view.nodes[one.node].marks)
            self._record(one, there, written=False)
            would[one.node] = marks_after(there, one)
            pause()
        self._would = would

    def _describe(
        self, wanted: Mapping[str, NodeMarks], cordons: Cordons, lost: LostDevices, *, writes: bool
    ) -> Iterator[str]:
        if wanted and not writes:
            why = "with steward.dryRun" if self._settings.steward.dry_run else ""
            yield f"{why or f'in mode {self._settings.mode}'} none is written"
        if cordons.over:
            yield (
                f"{cordons.over} more nodes are bad enough to be cordoned than "
                "nodeMarks.maxCordoned and maxCordonedShare allow"
            )

        for pool, (lacking, nodes) in sorted(lost.set_aside.items()):
            yield (
                f"{lacking} of {nodes} nodes lack {pool}, more than breaker.maxExcludedShare: no "
                "condition and no label says so, and none is cordoned for it"
            )

    def _note(self, found: list[str]) -> None:
        """Each is logged once while it lasts."""
        for text in found:
            if text not in self._notes:
                _LOG.warning("node marks", reason=text)
        self._notes = found


def _labels(marks: NodeMarks) -> str:
    """Such as `fettle.dev/health=degraded, fettle.dev/health.nvidia.com_gpu=healthy`."""
    labels = ((HEALTH, marks.tier), *marks.labels) if marks.tier else marks.labels
    return ", ".join(f"{label}={value}" for label, value in labels)


def _is_fine(written: str) -> bool:
    return {each.rpartition("=")[2] for each in written.split(", ")} <= {"healthy", "True"}


def cordon(node: RawNode, why: str) -> dict[str, Any] | None:
    """The patch that cordons a Node; None if somebody else was faster."""
    if node.get("spec", {}).get("unschedulable"):
        return None
    return {"spec": {"unschedulable": True}, "metadata": {"annotations": {CORDONED: why}}}


def uncordon(node: RawNode) -> dict[str, Any] | None:
    """The patch that uncordons a Node; None if its cordon is not ours."""
    why = (metadata_of(node).annotations or {}).get(CORDONED)
    if why is None:
        return None
    ours = {} if why == LEFT_ALONE else {"spec": {"unschedulable": None}}
    return {**ours, "metadata": {"annotations": {CORDONED: None}}}


def leave_alone(node: RawNode) -> dict[str, Any] | None:
    """The patch that notes that somebody has uncordoned a Node which we had cordoned: a later
    cordon is theirs. None if it is cordoned."""
    if node.get("spec", {}).get("unschedulable"):
        return None
    return {"metadata": {"annotations": {CORDONED: LEFT_ALONE}}}
