"""The rule tables: what each fact weighs, and by which half-life it is forgotten, looked up.
`rule_files.py` reads them."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from heapq import merge
from operator import itemgetter
from typing import NamedTuple

from fettle.health.signals import patterns, xids
from fettle.health.signals.metric_rows import AlertRow, ExporterRow, MetricRow
from fettle.health.signals.object_rows import ObjectRow
from fettle.health.signals.rule_rows import (
    ActionRow,
    AnnotationRow,
    AttributeRow,
    ConditionRow,
    DcgmRow,
    DeviceConditionRow,
    EventRow,
    FamilyRow,
    LabelRow,
    RecoveryRow,
    RefusalRow,
    SignalRow,
    StartRow,
    TaintRow,
    VendorRow,
    XidClassRow,
    XidRow,
    is_about_health,
)
from fettle.model import OWN_PREFIX, EvidenceKind, Family, Source, SourceKind

UNCLASSIFIED = "unclassified"
"""The class of a recovery action that has no row."""
UNKNOWN_XID = "unknown"
"""The class of an XID that has no row."""
UNKNOWN_FAULT = "unknown fault (not in the table)"
DEFAULT_HALF_LIFE_S = 3600.0
BY_REBOOT, BY_RESOLUTION = "reboot", "resolution"
"""All-clears that are no status."""
LONGEST_NAME = 316
"""Characters of a condition's type, as Kubernetes has them. No monitor's is longer."""
MOST_CACHED = 256
"""Characters. What producers write has no limit."""

_RECOVERY = r"(?i)recovery action changed from .{1,40} to 0x([0-9a-f]{1,8})"
"""The driver's log: `GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)`."""


class Xid(NamedTuple):
    """What an XID says about the device that reported it."""

    family: Family
    kind: EvidenceKind
    weight: float
    text: str


class SignalRules:
    """All tables, by the names of their rows, in the order in which rows are tried.

    Every Node is looked at on every heartbeat. So conditions are found by exact type before
    patterns are tried, and matches of label keys, which nodes have in common, are cached.
    """

    def __init__(
        self,
        *,
        families: Mapping[str, FamilyRow],
        signals: Mapping[str, SignalRow],
        xid_classes: Mapping[str, XidClassRow],
        xids: Mapping[str, XidRow],
        dcgm_codes: Mapping[str, DcgmRow],
        recoveries: Mapping[str, RecoveryRow],
        actions: Mapping[str, ActionRow],
        conditions: Mapping[str, ConditionRow],
        device_conditions: Mapping[str, DeviceConditionRow],
        taints: Mapping[str, TaintRow],
        annotations: Mapping[str, AnnotationRow],
        attributes: Mapping[str, AttributeRow],
        vendors: Mapping[str, VendorRow],
        labels: Mapping[str, LabelRow],
        refusals: Mapping[str, RefusalRow],
        starts: Mapping[str, StartRow],
        events: Mapping[str, EventRow],
        exporters: Mapping[str, ExporterRow],
        metrics: Mapping[str, MetricRow],
        alerts: Mapping[str, AlertRow],
        objects: Mapping[str, ObjectRow],
    ) -> None:
        self.families = families
        self.signals = signals
        self.xid_classes = xid_classes
        self.xids = xids
        self.dcgm_codes = dcgm_codes
        self.recoveries = recoveries
        self.actions = actions
        self.conditions = conditions
        self.device_conditions = device_conditions
        self.taints = taints
        self.annotations = annotations
        self.attributes = attributes
        self.vendors = vendors
        self._described = frozenset(key for row in vendors.values() for key in row.describes)
        self.is_unknown = lru_cache(maxsize=4096)(self._is_relevant)
        self.labels = labels
        self.refusals = refusals
        self.starts = starts
        self.events = events
        self.exporters = exporters
        self.metrics = metrics
        self.alerts = alerts
        self.objects = objects
        self._by_type: dict[str, list[tuple[int, ConditionRow]]] = {}
        self._patterns: list[tuple[int, ConditionRow]] = []
        for at, row in enumerate(conditions.values()):
            same = self._patterns if row.is_pattern else self._by_type.setdefault(row.type, [])
            same.append((at, row))
        self.maintenance = frozenset(
            row.type for row in conditions.values() if row.family is Family.MAINTENANCE
        )
        """The types of conditions about planned work: without the condition nothing is planned."""
        self._some_label = patterns.any_of(row.key for row in labels.values())
        self._some_annotation = patterns.any_of(row.key for row in annotations.values())
        """Match what any row does: most keys are none's."""
        self._conditions = lru_cache(maxsize=4096)(self._match_condition)
        self._annotations_by_key = lru_cache(maxsize=4096)(self._match_annotation)
        self._labels_by_key = lru_cache(maxsize=4096)(self._match_key)

    def condition(self, type_: str, reason: str) -> ConditionRow | None:
        """The first row that matches: an operator's, then those that name the type, then
        patterns."""
        if len(type_) > LONGEST_NAME:
            return None
        is_usual = len(type_) + len(reason) <= MOST_CACHED
        return (self._conditions if is_usual else self._match_condition)(type_, reason)

    def joined(self, type_: str, message: str, but: ConditionRow) -> tuple[ConditionRow, ...]:
        """The rows of further findings in the message of a condition of this type."""
        rows = (row for _, row in self._by_type.get(type_, ()) if row.message and row is not but)
        return tuple(row for row in rows if patterns.search(row.message, message))

    def unlisted(self, type_: str) -> ConditionRow | None:
        """The row for the findings of a condition of this type that no other row names."""
        rows = (row for _, row in self._by_type.get(type_, ()))
        return next((row for row in rows if row.listed and row.reason == "*"), None)

    def naming(self, type_: str, text: str) -> Iterator[ConditionRow]:
        """The rows that name what a part of the message of a condition of this type says."""
        for _, row in self._by_type.get(type_, ()):
            if (
                (row.message and patterns.search(row.message, text))
                or (row.dcgm and patterns.search(row.dcgm, text))
                or (row.xid and xids.mentions(row.xid, "", text))
            ):
                yield row

    def _match_condition(self, type_: str, reason: str) -> ConditionRow | None:
        rows = merge(self._by_type.get(type_, ()), self._patterns, key=itemgetter(0))
        return next((row for _, row in rows if row.matches(type_, reason)), None)

    def names_condition(self, type_: str) -> bool:
        """Whether a row is about conditions of this type, whatever their reason. Rows that match
        every type do not count."""
        if len(type_) > LONGEST_NAME:
            return False
        named = (row.type for _, row in self._patterns if row.type != "*")
        return type_ in self._by_type or any(fnmatchcase(type_, each) for each in named)

    def all_clear(self, source: Source) -> str:
        """What says that a fault is over: of a node condition the status, or BY_REBOOT; of an alert
        BY_RESOLUTION, if that is enough; "" for others, and where no row says it."""
        name = source.name
        if source.kind is SourceKind.ALERT:
            return BY_RESOLUTION if name in self.alerts else ""
        if source.kind is not SourceKind.CONDITION:
            return ""
        rows = (*self._by_type.get(name, ()), *self._patterns)
        row = next((r for _, r in rows if r.type != "*" and fnmatchcase(name, r.type)), None)
        if row is None:
            return ""
        return BY_REBOOT if row.until_reboot else "False" if row.faulty else "True"

    def may_latch(self, source: Source) -> bool:
        """Whether a row can still be about this source. What a row that is gone once latched would
        otherwise be remembered with nothing to clear it."""
        name = source.name
        match source.kind:
            case SourceKind.CONDITION:
                return self.names_condition(name)
            case SourceKind.ANNOTATION:
                return name in self.annotations or name.startswith(OWN_PREFIX)
            case SourceKind.LABEL:
                return name in self.labels
            case SourceKind.METRIC | SourceKind.ALERT:
                return name in self.metrics or name in self.alerts
            case SourceKind.OBJECT:
                return name in self.objects
            case SourceKind.CLAIM_CONDITION:
                return any(fnmatchcase(name, row.type) for row in self.device_conditions.values())
        return True  # the others are cleared by the silence of their objects

    def taint(self, driver: str, key: str, value: str, effect: str) -> TaintRow | None:
        """The first row that matches."""
        for row in self.taints.values():
            if row.matches(driver, key, value, effect):
                return row
        return None

    def device_condition(self, driver: str, type_: str, reason: str) -> DeviceConditionRow | None:
        """The first row that matches."""
        for row in self.device_conditions.values():
            if row.matches(driver, type_, reason):
                return row
        return None

    def attributes_of(self, driver: str) -> tuple[AttributeRow, ...]:
        """The rows about a driver's attributes."""
        return tuple(r for r in self.attributes.values() if fnmatchcase(driver, r.driver))

    def annotation(self, key: str, value: str) -> AnnotationRow | None:
        """The first row that matches."""
        return next((r for r in self._annotations_by_key(key) if fnmatchcase(value, r.value)), None)

    def _match_annotation(self, key: str) -> tuple[AnnotationRow, ...]:
        if patterns.fullmatch(self._some_annotation, key) is None:
            return ()
        return tuple(row for row in self.annotations.values() if patterns.fullmatch(row.key, key))

    def refusal(self, message: str) -> RefusalRow | None:
        """The first row that matches the message of a kubelet's refusal."""
        for row in self.refusals.values():
            if patterns.search(row.message, message):
                return row
        return None

    def said_of_start(self, message: str) -> tuple[StartRow, str] | None:
        """The first row that matches what is said of a pod that does not start, and that without
        what a runtime wrote before it."""
        for row in self.starts.values():
            if (found := patterns.search(row.message, message)) is not None:
                return row, message[found.start() :]
        return None

    def event(self, reason: str, component: str, namespace: str, message: str) -> EventRow | None:
        """The first row that matches."""
        rows = self.events.values()
        return next((r for r in rows if r.matches(reason, component, namespace, message)), None)

    def label(self, key: str, value: str) -> tuple[LabelRow, patterns.Match] | None:
        """The first row that matches, and the match of its key."""
        for row, found in self._labels_by_key(key):
            if row.matches(value):
                return row, found
        return None

    def is_unread(self, key: str, value: str) -> bool:
        """Whether rows name a label's key, and none can tell what its value says."""
        rows = self._labels_by_key(key)
        for row, _ in rows:
            if row.matches(value):
                return not row.is_read(value)
        sound = [row.sound for row, _ in rows if row.sound is not None]
        return bool(sound) and not any(fnmatchcase(value, one) for these in sound for one in these)

    def _match_key(self, key: str) -> tuple[tuple[LabelRow, patterns.Match], ...]:
        if patterns.fullmatch(self._some_label, key) is None:
            return ()
        matches = ((row, patterns.fullmatch(row.key, key)) for row in self.labels.values())
        return tuple((row, found) for row, found in matches if found is not None)

    def _is_relevant(self, key: str) -> bool:
        """Whether a label or annotation of a Node may tell of health, and no row names it."""
        if key.startswith(OWN_PREFIX) or self._labels_by_key(key) or self._annotations_by_key(key):
            return False
        if is_about_health(key):
            return key not in self._described
        return any(row.is_relevant(key) for row in self.vendors.values())

    def xid(self, code: str, message: str = "") -> Xid:
        """What an XID means; one without a row is an unknown, mild fault. `message` is what was
        logged."""
        row = self.xids.get(code)
        if (
            row is not None
            and row.recovery
            and (found := patterns.search(_RECOVERY, message)) is not None
        ):
            return self._recovery(code, str(int(found[1], 16)))
        class_ = self.xid_classes[row.class_ if row is not None else UNKNOWN_XID]
        if row is None:
            text = f"XID {code}: {UNKNOWN_FAULT}"
            return Xid(Family.DRIVER, class_.kind, class_.weight, text)
        advice = f" ({row.action})" if row.action else ""
        return Xid(row.family, class_.kind, class_.weight, f"XID {code}: {row.text}{advice}")

    def unlisted_xid(self, code: str) -> str:
        """The XID, if no row names it; else ""."""
        return "" if code in self.xids else code

    def dcgm(self, code: str) -> DcgmRow | None:
        """The row of one of DCGM's error codes, by its number or name."""
        return self.dcgm_codes.get(code)

    def tainting_xid(self, code: str, row: TaintRow) -> Xid:
        """What an XID means that a driver publishes as a taint of this row."""
        xid = self.xid(code)
        known = self.xids.get(code)
        is_gone = known is not None and self.xid_classes[known.class_].gone
        weight = max(row.least, xid.weight if is_gone else min(xid.weight, row.most))
        if weight == xid.weight:
            return xid
        kind = xid.kind if weight > xid.weight else EvidenceKind.LEVEL
        text = f"{xid.text}; {row.remark}" if row.remark else xid.text
        return Xid(xid.family, kind, weight, text)

    def _recovery(self, code: str, number: str) -> Xid:
        row = self.recoveries.get(number)
        class_ = self.xid_classes[row.class_ if row is not None else UNCLASSIFIED]
        text = row.text if row is not None else f"GPU recovery action {number} (not in the table)"
        family = row.family if row is not None else Family.DRIVER
        return Xid(family, class_.kind, class_.weight, f"XID {code}: {text}")

    @property
    def mended_by_reboot(self) -> frozenset[Family]:
        """The families whose faults a reboot mends."""
        rows = self.families
        return frozenset(f for f in Family if f not in rows or rows[f].mended_by_reboot)

    def half_life_s(self, family: Family) -> float:
        row = self.families.get(family.value)
        return row.half_life_s if row is not None else DEFAULT_HALF_LIFE_S
