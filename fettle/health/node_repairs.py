"""What was mended on nodes, and when: by a reboot, by a monitor's remediation, or as operators
state it. The ledger ends evidence by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fettle.api.meta import rfc3339_at, unix_s
from fettle.health import memory
from fettle.health.fading import Repair
from fettle.health.signals.reports import SignalReport, StatedRepair
from fettle.model import Family, NodeId, Subject, UnitId

_REBOOT, _REMEDIATION = "a reboot", "the monitor's remediation"


class NodeRepairs:
    """By node. `mended_by_reboot`: the families whose faults a reboot mends."""

    def __init__(self, mended_by_reboot: frozenset[Family]) -> None:
        self.mended_by_reboot = mended_by_reboot
        self._stated: dict[NodeId, tuple[StatedRepair, ...]] = {}
        """What operators say was mended on a node."""
        self._reboots: dict[NodeId, float] = {}
        self._remediations: dict[NodeId, float] = {}
        """When we first heard that a monitor's remediation of the node had succeeded."""

    def take_report(
        self, report: SignalReport, node: NodeId, now: float, *, rebooted: bool
    ) -> bool:
        """What a node's report says of them. Returns whether that is news."""
        if rebooted:
            self._reboots[node] = now
        before = self._remediations.get(node), self._stated.get(node, ())
        if report.remediated is None:
            self._remediations.pop(node, None)
        else:
            self._remediations.setdefault(node, now)
        self._stated[node] = report.repairs
        if not report.repairs:
            del self._stated[node]
        return rebooted or before != (self._remediations.get(node), report.repairs)

    def forget(self, node: NodeId) -> None:
        for known in (self._stated, self._reboots, self._remediations):
            known.pop(node, None)

    def rebooted_at(self, node: NodeId) -> float | None:
        """When we heard of its last reboot."""
        return self._reboots.get(node)

    def last_on(self, node: NodeId) -> float:
        """When something was last repaired on a node, whatever it was; 0 if nothing was."""
        known = self._reboots.get(node, 0.0), self._remediations.get(node, 0.0)
        return max(*known, *(stated.at for stated in self._stated.get(node, ())))

    def of(self, subjects: Sequence[Subject]) -> tuple[Repair, ...]:
        """What was mended on something that has all these names: on itself, or on its node."""
        found = []
        for node in {NodeId(s.node) for s in subjects if isinstance(s, NodeId | UnitId)}:
            if at := self._reboots.get(node):
                found.append(Repair(at, _said(_REBOOT, at), self.mended_by_reboot))
            if at := self._remediations.get(node):
                found.append(Repair(at, _said(_REMEDIATION, at)))
            found += [
                Repair(stated.at, stated.how)
                for stated in self._stated.get(node, ())
                if stated.subject == node or any(_is_about(stated, s) for s in subjects)
            ]
        return tuple(found)

    def recall(self, node: NodeId) -> tuple[datetime | None, datetime | None]:
        """When a node was last rebooted, and first said to be remediated."""
        times = self._reboots.get(node, 0.0), self._remediations.get(node, 0.0)
        return memory.time_of(times[0]), memory.time_of(times[1])

    def adopt(self, node: NodeId, rebooted: datetime | None, remediation: datetime | None) -> None:
        """What another process, or the one before, knew of them. Only at a start."""
        for known, at in ((self._reboots, rebooted), (self._remediations, remediation)):
            if at is not None:
                known[node] = unix_s(at, 0.0)


def _said(how: str, at: float) -> str:
    return f"{how}, heard {rfc3339_at(at)}"


def _is_about(repair: StatedRepair, subject: Subject) -> bool:
    """A unit may be meant by any of its names."""
    meant = repair.subject
    if isinstance(meant, UnitId) and isinstance(subject, UnitId):
        same = (meant.node, meant.resource) == (subject.node, subject.resource)
        return same and meant.unit in (subject.unit, *subject.others)
    return meant == subject
