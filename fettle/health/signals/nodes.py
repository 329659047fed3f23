"""What a Node says: its conditions, its labels, devices that plugins have withdrawn, and an
operator's hold.

Polarity and weights come from the rules. NVSentinel's conditions are read down to the device.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from fettle.api import core
from fettle.api.meta import Condition, unix_s
from fettle.dra import is_device_resource, units_of
from fettle.health.signals import gpu_names, nvsentinel
from fettle.health.signals.holds import (
    HOLD_SOURCE,
    evidence_of_holds,
    holds_on_node,
    in_force,
)
from fettle.health.signals.pods import refusals_on
from fettle.health.signals.repairs import REPAIRED_SOURCE, repairs_on_node
from fettle.health.signals.reports import Fault, SignalReport, heaviest, one_line
from fettle.health.signals.rule_tables import ConditionRow, LabelRow, SignalRules
from fettle.model import (
    OWN_PREFIX,
    UNKNOWN_SCORE,
    Evidence,
    EvidenceKind,
    Family,
    NodeId,
    Subject,
    UnitId,
    UnknownCondition,
)

GAP_SOURCE = "allocatable"
MISSED_HEARTBEATS = 3
"""How many heartbeats a producer may miss before it counts as silent."""
_OF_OTHERS = frozenset(("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"))
"""Kubernetes itself taints the node for these conditions."""
_AGES_BY_ITSELF = (EvidenceKind.LATCHED, EvidenceKind.DECAYING)
"""Kinds of evidence that do not depend on their reporter still being there."""


class NodeReport(NamedTuple):
    """One part of a Node's report: evidence, the sources that it settles, stale faults, remediated
    faults (None without a remediation), and conditions that no rule names."""

    evidence: tuple[Evidence, ...]
    settled: frozenset[str]
    stale: tuple[Evidence, ...] = ()
    remediated: tuple[Fault, ...] | None = None
    unknown_conditions: tuple[UnknownCondition, ...] = ()


def report_of_node(node: core.Node, rules: SignalRules, now: float) -> SignalReport:
    """Conditions, labels, withdrawn devices, and the operator's holds."""
    parts = (
        _of_conditions(node, rules, now),
        _of_labels(node, rules, now),
        _of_gaps(node, rules, now),
    )
    name = node.metadata.name
    holds = in_force(holds_on_node(node.metadata), now)
    held = evidence_of_holds(holds, f"Node {name}", now)
    repairs, unread = repairs_on_node(node.metadata, now)
    info = node.status.node_info if node.status is not None else None
    return SignalReport(
        reporter=f"Node {name}",
        evidence=heaviest((*(e for part in parts for e in part.evidence), *held, *unread)),
        settled=frozenset((HOLD_SOURCE, REPAIRED_SOURCE)).union(*(part.settled for part in parts)),
        uid=node.metadata.uid,
        boot=info.boot_id if info is not None else "",
        ended_by_reboot=frozenset((NodeId(name), source) for source in refusals_on(node)),
        stale=heaviest(e for part in parts for e in part.stale),
        remediated=parts[0].remediated,
        unknown_conditions=parts[0].unknown_conditions,
        holds=holds,
        node=NodeId(name),
        repairs=repairs,
    )


def _of_conditions(node: core.Node, rules: SignalRules, now: float) -> NodeReport:
    """Faults, by the polarity of the rules.

    A status that is neither True nor False is neither a fault nor an all-clear. If the producer of
    a condition has fallen silent, the condition is no all-clear either; the fault that it last
    reported goes stale.
    """
    status = node.status
    conditions = []
    unknown_conditions = []
    for condition in (status.conditions if status is not None else None) or ():
        if condition.type.startswith(OWN_PREFIX):
            continue
        if (row := rules.condition(condition.type, condition.reason)) is not None:
            conditions.append((condition, row))
        elif condition.type not in _OF_OTHERS and not rules.names_condition(condition.type):
            unknown_conditions.append(
                UnknownCondition(one_line(condition.type), one_line(condition.status))
            )
    messages = {
        condition.type: nvsentinel.parse(condition.message)
        for condition, row in conditions
        if row.format == "nvsentinel" and _is_faulty(condition, row)
    }
    known = nvsentinel.names(e for message in messages.values() for e in message.entries)
    reader = _ConditionReader(node, rules, now, known)
    kubelet = _kubelet(node)
    reported: list[Fault] = []
    unknown: list[Evidence] = []
    stale: list[Evidence] = []
    settled: set[str] = set()
    for condition, row in conditions:
        silent_s = _silent_s(condition, row, kubelet, now)
        message = messages.get(condition.type)
        faults = tuple(reader.faults(condition, row, message))
        if silent_s is not None:
            unknown += reader.unknown(condition, row, is_stale=True)
            reported += (fault for fault in faults if fault.evidence.kind in _AGES_BY_ITSELF)
            levels = (e for _, e in faults if e.kind is EvidenceKind.LEVEL)
            stale += (msgspec.structs.replace(f, observed_at=now - silent_s) for f in levels)
        elif condition.status not in ("True", "False"):
            unknown += reader.unknown(condition, row, is_stale=False)
        else:
            reported += faults
            if message is None or not message.cut_off:
                settled.add(_source(condition))
    remediated = tuple(f for f in reported if f.identity) if _is_remediated(node, rules) else None
    evidence = (e for identity, e in reported if remediated is None or not identity)
    everything = (*unknown, *evidence)
    return NodeReport(
        everything, frozenset(settled), tuple(stale), remediated, tuple(unknown_conditions)
    )


def _is_faulty(condition: Condition, row: ConditionRow) -> bool:
    return condition.status == ("True" if row.faulty else "False")


def _silent_s(
    condition: Condition, row: ConditionRow, kubelet: Condition | None, now: float
) -> float | None:
    """For how long a condition has counted as no longer renewed, while the kubelet renewed its own;
    None if it is fresh.

    Both times come from the node's clock, so it need not agree with ours. If the kubelet is silent
    as well, the control plane reports that.
    """
    renewed_at = condition.last_heartbeat_time
    if row.heartbeat_s is None or renewed_at is None:
        return None
    if kubelet is None or kubelet.last_heartbeat_time is None:
        return None
    apart_s = (kubelet.last_heartbeat_time - renewed_at).total_seconds()
    silent_s = apart_s - MISSED_HEARTBEATS * row.heartbeat_s
    if silent_s <= 0:
        return None
    if kubelet.status == "Unknown":
        silent_s += max(0.0, now - unix_s(kubelet.last_transition_time, now))
    return silent_s


def _kubelet(node: core.Node) -> Condition | None:
    """The condition that the kubelet renews."""
    conditions = (node.status.conditions if node.status is not None else None) or ()
    return next((c for c in conditions if c.type == "Ready"), None)


def _condition_text(condition: Condition, reason: str = "") -> str:
    why = f" ({reason.strip()})" if reason.strip() else ""
    message = f": {condition.message}" if condition.message.strip() else ""
    return f"{condition.type} is {condition.status}{why}{message}"


def _source(condition: Condition) -> str:
    return f"condition {condition.type}"


class _ConditionReader:
    """Evidence from the conditions of one node."""

    def __init__(
        self, node: core.Node, rules: SignalRules, now: float, known: dict[str, tuple[str, ...]]
    ) -> None:
        self._name = node.metadata.name
        self._rules = rules
        self._now = now
        self._known = known

    def unknown(
        self, condition: Condition, row: ConditionRow, *, is_stale: bool
    ) -> Iterator[Evidence]:
        if row.unknown_counts:
            text = _condition_text(condition)
            if is_stale:
                since = f"{condition.last_heartbeat_time:%Y-%m-%d %H:%M:%SZ}"
                text = (
                    f"the reporter of {condition.type} has been silent since {since}, "
                    "though the kubelet has not"
                )
            weight = 1.0 - UNKNOWN_SCORE
            yield self._evidence(
                condition, NodeId(self._name), row.family, EvidenceKind.UNKNOWN, weight, text
            )

    def faults(
        self, condition: Condition, row: ConditionRow, message: nvsentinel.NVSentinelMessage | None
    ) -> Iterator[Fault]:
        if message is not None:
            yield from self.per_device(condition, row, message)
        elif _is_faulty(condition, row):
            yield Fault("", self.whole_node(condition, row))

    def whole_node(self, condition: Condition, row: ConditionRow) -> Evidence:
        text = _condition_text(condition, condition.reason)
        family, kind, weight = row.family, row.kind, row.weight
        if row.xid and (found := re.search(row.xid, condition.reason)) is not None:
            xid = self._rules.xid(found[found.re.groups], condition.message)
            family, kind, weight = xid.family, xid.kind, xid.weight
            text = f"{xid.text} ({condition.type})"
        return self._evidence(condition, NodeId(self._name), family, kind, weight, text)

    def per_device(
        self, condition: Condition, row: ConditionRow, message: nvsentinel.NVSentinelMessage
    ) -> Iterator[Fault]:
        """One fault for each device and family; about the node where an entry names no device."""
        placed = False
        for entry in message.entries:
            units = nvsentinel.unit_ids(self._name, entry, self._known)
            subjects = units or (() if entry.cut else (NodeId(self._name),))
            for subject in subjects:
                yield from self._entry(condition, row, subject, entry)
                placed = True
        if not placed:
            for entry in message.entries:
                yield from self._entry(condition, row, NodeId(self._name), entry)
            if not message.entries:
                yield Fault("", self.whole_node(condition, msgspec.structs.replace(row, xid="")))
        elif message.cut_off:
            cut = self._rules.signals["cut-off"]
            text = f"{condition.type}: the message is truncated and may concern more devices"
            subject = NodeId(self._name)
            evidence = self._evidence(
                condition, subject, cut.family, EvidenceKind.LEVEL, cut.weight, text
            )
            yield Fault("", evidence)

    def _entry(
        self,
        condition: Condition,
        row: ConditionRow,
        subject: Subject,
        entry: nvsentinel.NVSentinelEntry,
    ) -> Iterator[Fault]:
        action = self._rules.actions.get(entry.action)
        least = action.least if action is not None else 0.0
        advice = f" (recommended: {entry.action})" if entry.action else ""
        codes = " ".join(entry.codes)
        what = f": {entry.text}" if entry.text else ""
        statement = f"{condition.type} {codes}".strip() + f"{what}{advice}"
        readings = [(row.family, row.kind, row.weight, statement)]
        if row.xid and (xids := [c for c in entry.codes if c.isdigit()]):
            found = [self._rules.xid(code, entry.text) for code in xids]
            readings = [(x.family, x.kind, x.weight, f"{x.text}; {statement}") for x in found]
        for family, kind, weight, text in readings:
            weight = max(weight, least)
            evidence = self._evidence(condition, subject, family, kind, weight, text)
            yield Fault(f"{subject} {condition.type} {family} {codes}", evidence)

    def _evidence(
        self,
        condition: Condition,
        subject: Subject,
        family: Family,
        kind: EvidenceKind,
        weight: float,
        text: str,
    ) -> Evidence:
        return Evidence(
            subject=subject,
            family=family,
            kind=kind,
            weight=weight,
            source=_source(condition),
            reporter=f"Node {self._name}",
            text=one_line(text),
            observed_at=unix_s(condition.last_transition_time, self._now),
            half_life_s=self._rules.half_life_s(family),
        )


def _of_labels(node: core.Node, rules: SignalRules, now: float) -> NodeReport:
    """What health tools say in labels. Each look at a Node settles all label sources."""
    evidence = tuple(
        _label_evidence(node, row, found, rules, now)
        for row, found in _labels(node, rules)
        if not row.remediated
    )
    return NodeReport(evidence, frozenset(_label_source(row) for row in rules.labels.values()))


def _labels(node: core.Node, rules: SignalRules) -> Iterator[tuple[LabelRow, re.Match[str]]]:
    for key, value in (node.metadata.labels or {}).items():
        if (match := rules.label(key, value)) is not None and not key.startswith(OWN_PREFIX):
            yield match


def _is_remediated(node: core.Node, rules: SignalRules) -> bool:
    return any(row.remediated for row, _ in _labels(node, rules))


def _label_source(row: LabelRow) -> str:
    return f"label {row.name}"


def _label_evidence(
    node: core.Node, row: LabelRow, found: re.Match[str], rules: SignalRules, now: float
) -> Evidence:
    name = node.metadata.name
    unit = UnitId(name, row.resource, gpu_names.index(found[1])) if row.resource else None
    return Evidence(
        subject=unit or NodeId(name),
        family=row.family,
        kind=row.kind,
        weight=row.weight,
        source=_label_source(row),
        reporter=f"Node {name}",
        text=one_line(f"label {found[0]}={(node.metadata.labels or {})[found[0]]}"),
        observed_at=now,
        half_life_s=rules.half_life_s(row.family),
    )


def _of_gaps(node: core.Node, rules: SignalRules, now: float) -> NodeReport:
    """Units that device plugins have withdrawn: mild evidence about the node, by their share."""
    status = node.status
    if status is None or status.capacity is None:
        return NodeReport((), frozenset())
    allocatable = status.allocatable or {}
    gaps = []
    for resource, quantity in sorted(status.capacity.items()):
        capacity = units_of(quantity) if is_device_resource(resource) else 0
        missing = capacity - units_of(allocatable.get(resource, 0))
        if capacity and missing > 0:
            gaps.append((missing / capacity, f"{missing} of {capacity} {resource}"))
    settled = frozenset((GAP_SOURCE,))
    return NodeReport(tuple(_gap_evidence(node, gaps, rules, now)) if gaps else (), settled)


def _gap_evidence(
    node: core.Node, gaps: Iterable[tuple[float, str]], rules: SignalRules, now: float
) -> Iterator[Evidence]:
    signal = rules.signals["gap"]
    share = max(share for share, _ in gaps)
    yield Evidence(
        subject=NodeId(node.metadata.name),
        family=signal.family,
        kind=EvidenceKind.LEVEL,
        weight=min(signal.cap, signal.weight * share),
        source=GAP_SOURCE,
        reporter=f"Node {node.metadata.name}",
        text=one_line("not allocatable: " + ", ".join(text for _, text in gaps)),
        observed_at=now,
        half_life_s=rules.half_life_s(signal.family),
    )
