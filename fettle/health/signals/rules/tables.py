"""The rule tables as they are asked: which row holds for a condition, a taint, an XID."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from fettle.health.signals.rules.rows import (
    ActionRow,
    AttributeRow,
    ConditionRow,
    DeviceConditionRow,
    FamilyRow,
    LabelRow,
    RecoveryRow,
    RefusalRow,
    SignalRow,
    TaintRow,
    XidClassRow,
    XidRow,
)
from fettle.model import EvidenceKind, Family

UNCLASSIFIED = "unclassified"
"""The XID class of an XID that has no row."""
DEFAULT_HALF_LIFE_S = 3600.0

_RECOVERY = re.compile(r"recovery action changed from .{1,40} to 0x([0-9a-f]+)", re.IGNORECASE)
"""The driver's log: `GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)`."""


class Xid(NamedTuple):
    """What an XID says about the device that reported it."""

    family: Family
    kind: EvidenceKind
    weight: float
    text: str


class SignalRules:
    """All tables, by name of the row, in the order in which rows are tried.

    Every node is looked at on every heartbeat: conditions are found by exact type before patterns
    are tried, and label keys, which nodes have in common, are matched once.
    """

    def __init__(
        self,
        *,
        families: Mapping[str, FamilyRow],
        signals: Mapping[str, SignalRow],
        xid_classes: Mapping[str, XidClassRow],
        xids: Mapping[str, XidRow],
        recoveries: Mapping[str, RecoveryRow],
        actions: Mapping[str, ActionRow],
        conditions: Mapping[str, ConditionRow],
        device_conditions: Mapping[str, DeviceConditionRow],
        taints: Mapping[str, TaintRow],
        attributes: Mapping[str, AttributeRow],
        labels: Mapping[str, LabelRow],
        refusals: Mapping[str, RefusalRow],
    ) -> None:
        self.families = families
        self.signals = signals
        self.xid_classes = xid_classes
        self.xids = xids
        self.recoveries = recoveries
        self.actions = actions
        self.conditions = conditions
        self.device_conditions = device_conditions
        self.taints = taints
        self.attributes = attributes
        self.labels = labels
        self.refusals = refusals
        self._by_type: dict[str, list[ConditionRow]] = {}
        for row in conditions.values():
            if not row.is_pattern:
                self._by_type.setdefault(row.type, []).append(row)
        self._patterns = [row for row in conditions.values() if row.is_pattern]
        self._labels_by_key = lru_cache(maxsize=4096)(self._match_key)

    def condition(self, type_: str, reason: str) -> ConditionRow | None:
        """The first row that matches; rows that name the type come before patterns."""
        for rows in (self._by_type.get(type_, ()), self._patterns):
            for row in rows:
                if row.matches(type_, reason):
                    return row
        return None

    def names_condition(self, type_: str) -> bool:
        """Whether a row is about conditions of this type, with whatever reason; one that is told by
        its reason alone names none."""
        named = (row.type for row in self._patterns if row.type != "*")
        return type_ in self._by_type or any(fnmatchcase(type_, each) for each in named)

    def taint(self, driver: str, key: str, effect: str) -> TaintRow | None:
        """The first row that matches."""
        for row in self.taints.values():
            if row.matches(driver, key, effect):
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

    def refusal(self, message: str) -> RefusalRow | None:
        """The first row that matches a kubelet's refusal of a pod."""
        for row in self.refusals.values():
            if re.search(row.message, message):
                return row
        return None

    def label(self, key: str, value: str) -> tuple[LabelRow, re.Match[str]] | None:
        """The first row that matches, and how its key did."""
        for row, found in self._labels_by_key(key):
            if fnmatchcase(value, row.value):
                return row, found
        return None

    def _match_key(self, key: str) -> tuple[tuple[LabelRow, re.Match[str]], ...]:
        matches = ((row, re.fullmatch(row.key, key)) for row in self.labels.values())
        return tuple((row, found) for row, found in matches if found is not None)

    def xid(self, code: str, message: str = "") -> Xid:
        """What an XID means; one without a row is unclassified. `message`: what was logged."""
        row = self.xids.get(code)
        if row is not None and row.recovery and (found := _RECOVERY.search(message)) is not None:
            return self._recovery(code, str(int(found[1], 16)))
        class_ = self.xid_classes[row.class_ if row is not None else UNCLASSIFIED]
        if row is None:
            return Xid(Family.DRIVER, class_.kind, class_.weight, f"XID {code} (not in the table)")
        advice = f" ({row.action})" if row.action else ""
        return Xid(row.family, class_.kind, class_.weight, f"XID {code}: {row.text}{advice}")

    def _recovery(self, code: str, number: str) -> Xid:
        row = self.recoveries.get(number)
        class_ = self.xid_classes[row.class_ if row is not None else UNCLASSIFIED]
        text = row.text if row is not None else f"GPU recovery action {number} (not in the table)"
        family = row.family if row is not None else Family.DRIVER
        return Xid(family, class_.kind, class_.weight, f"XID {code}: {text}")

    def half_life_s(self, family: Family) -> float:
        row = self.families.get(family.value)
        return row.half_life_s if row is not None else DEFAULT_HALF_LIFE_S
