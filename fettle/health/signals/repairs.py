"""Repairs: an operator's word that a node, a device or a unit was mended, in annotations of a Node;
and what was mended on nodes by that, by a reboot or by a monitor's remediation, which ends
evidence.

Each annotation `fettle.dev/repaired` or `fettle.dev/repaired-…` is one repair. Its value is the
time as in RFC 3339, or a JSON object with `at`, and `device` and `by` if wanted; `device` is
written as in a hold. What cannot be read is no repair.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from fettle.api.meta import ObjectMeta, rfc3339_at, unix_s
from fettle.health import memory
from fettle.health.fading import Repair
from fettle.health.signals.holds import read_time, subject_called
from fettle.health.signals.reports import (
    TEXT_LIMIT,
    SignalReport,
    StatedRepair,
    one_line,
    unread_annotation,
)
from fettle.model import (
    FURTHER_REPAIRED,
    REPAIRED,
    Evidence,
    Family,
    NodeId,
    Source,
    SourceKind,
    Subject,
    UnitId,
)

REPAIRED_SOURCE = Source(SourceKind.ANNOTATION, REPAIRED)
AHEAD_S = 60.0
"""An operator's clock may be ahead of ours by this much."""


class _Written(msgspec.Struct, frozen=True):
    at: str = ""
    device: str = ""
    by: str = ""


def repairs_on_node(
    metadata: ObjectMeta, now: float
) -> tuple[tuple[StatedRepair, ...], tuple[Evidence, ...]]:
    """The repairs, and evidence without weight that says which cannot be read."""
    found: list[StatedRepair] = []
    unread: list[Evidence] = []
    node = NodeId(metadata.name)
    for key, value in _annotations(metadata):
        try:
            said = msgspec.json.decode(value, type=_Written)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            said = _Written(at=value)
        at = read_time(said.at)
        subject = subject_called(said.device, node)
        if at is not None and at <= now + AHEAD_S and subject is not None:
            by = f" by {one_line(said.by)}" if said.by.strip() else ""
            found.append(StatedRepair(subject, at, f"{key}={rfc3339_at(at)}{by}"))
        else:
            unread.append(_unread(key, value, node, now))
    return tuple(found), tuple(unread)


def _annotations(metadata: ObjectMeta) -> Iterator[tuple[str, str]]:
    for key, value in sorted((metadata.annotations or {}).items()):
        if key == REPAIRED or key.startswith(FURTHER_REPAIRED):
            yield key, value.strip()


def _unread(key: str, value: str, node: NodeId, now: float) -> Evidence:
    said = (
        f"{key}={value[:TEXT_LIMIT]!r} counts as no repair: write a time that is past, such as "
        f'{rfc3339_at(now)}, or {{"at": TIME, "device": DEVICE}} with a device as `fettle devices` '
        "prints it"
    )
    return unread_annotation(node.node, REPAIRED_SOURCE, said, now)


# What was mended on nodes, and when

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
