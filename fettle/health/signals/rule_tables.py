"""The rule tables: what each fact weighs, and who says so.

The shipped rows are data in `rules/*.yaml`; an operator's rules file adds rows, or replaces those
of the same name. Every row has a `name` and a `source` that says where it comes from. `weight` is
the share (0..1) of the score that the fact takes. Read once at start.
"""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec

from fettle.api import describe_error
from fettle.config import parse_yaml
from fettle.health.signals import promql
from fettle.model import OWN_PREFIX, EvidenceKind, Family, SettingsError

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, msgspec.Meta(gt=0.0)]


class RuleRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all rows."""

    name: str
    source: str


class FamilyRow(RuleRow, frozen=True, kw_only=True):
    """How fast evidence of a family (the row's name) is forgotten, and whether a reboot mends its
    faults."""

    half_life_s: Seconds
    mended_by_reboot: bool = True

    def __post_init__(self) -> None:
        Family(self.name)


class SignalRow(RuleRow, frozen=True, kw_only=True):
    """Weight and cap of evidence that Fettle derives itself, by the name of the signal.

    Each witness counts at most `cap`, all witnesses together at most `together`.
    """

    weight: Share
    cap: Share = 1.0
    together: Share = 1.0
    family: Family = Family.DRIVER


class XidClassRow(RuleRow, frozen=True, kw_only=True):
    """What a class of NVIDIA XIDs means for the device. `gone`: the device cannot be asked any more
    what it needs, so a driver's effect `None` says nothing of it."""

    weight: Share
    kind: EvidenceKind = EvidenceKind.LEVEL
    gone: bool = False


class XidRow(RuleRow, frozen=True, kw_only=True):
    """One XID (the row's name). `class_` names an XidClassRow; `action` is the first step that
    NVIDIA recommends.

    `recovery`: if its message names a recovery action, the row of that action applies instead.
    `ends`: XIDs of the same device that are over once this one was logged after them.
    """

    class_: str = msgspec.field(name="class")
    family: Family
    text: str
    action: str = ""
    recovery: bool = False
    ends: tuple[str, ...] = ()


class RecoveryRow(RuleRow, frozen=True, kw_only=True):
    """A GPU recovery action, by its number in NVML (the row's name). `class_` as for an XID."""

    class_: str = msgspec.field(name="class")
    family: Family
    text: str


class ActionRow(RuleRow, frozen=True, kw_only=True):
    """An NVSentinel recommended action (the row's name). A device that needs it weighs at least
    `least`."""

    least: Share


BOOT_ID = r"(?i)boot[ _-]?id\W{1,4}([0-9a-f][0-9a-f-]{30,})"
"""How a message states the boot that it is about."""


class ConditionRow(RuleRow, frozen=True, kw_only=True):
    """A node condition and its polarity.

    - `type`, `reason`: patterns (`*` matches anything; `{type}` in a reason is the type itself).
    - `faulty`: the status that means a fault.
    - `message`: a regular expression. If it is found in the message, the row applies beside the one
      that matches the reason: monitors join findings, and the reason is that of the last.
    - `format: nvsentinel`: read devices from the message.
    - `xid`: how to find all XIDs in reason and message: `any` for every form in which the driver
      and monitors write them, `ErrorCode` for NVSentinel's error codes, or a regular expression
      whose group is the number. With groups `xid` and `pci` it also finds the GPU's address.
    - `concludes`: whatever XIDs it names, a fault weighs at least what the row weighs. Otherwise
      the XIDs' own weights replace that of the row.
    - `boot`: a regular expression whose group in the message is a boot id. If it is another one
      than the node's, the fault is from before a reboot, and over.
    - `listed`: stands for reasons that no row names. A fault with such a reason is listed with the
      conditions that no rule names.
    - `unknown_counts`: status Unknown means that nothing reliable is known about the node.
    - `heartbeat_s`: the producer renews the condition at least this often. After three times as
      long without a renewal, the status counts as Unknown, and a fault fades.
    """

    type: str
    faulty: bool
    family: Family
    weight: Share
    reason: str = "*"
    message: str = ""
    kind: EvidenceKind = EvidenceKind.LEVEL
    format: str = ""
    xid: str = ""
    concludes: bool = False
    boot: str = BOOT_ID
    listed: bool = False
    unknown_counts: bool = False
    heartbeat_s: Seconds | None = None

    def __post_init__(self) -> None:
        if self.format not in ("", "nvsentinel"):
            raise ValueError(f'format must be "nvsentinel" or unset, not {self.format!r}')
        _check_foreign("type", self.type)
        _check_pattern("xid", self.xid)
        _check_pattern("message", self.message)
        _check_pattern("boot", self.boot, groups=1)
        if "pci" in (groups := re.compile(self.xid).groupindex) and "xid" not in groups:
            raise ValueError(f"xid: {self.xid!r} has a group pci, so it needs a group xid too")

    @property
    def is_pattern(self) -> bool:
        return any(c in self.type for c in "*?[")

    def matches(self, type_: str, reason: str) -> bool:
        return (type_ == self.type or fnmatchcase(type_, self.type)) and (
            self.reason == "*" or fnmatchcase(reason, self.reason.replace("{type}", type_))
        )

    def stated_boot(self, message: str) -> str:
        """The boot id that a message states; "" if none."""
        found = re.search(self.boot, message)
        return found[1] if found is not None else ""


class TaintRow(RuleRow, frozen=True, kw_only=True):
    """A device taint by driver, key and effect (patterns), and one of `values` if there are any.

    - `xid`: its value is an XID, whose row says what it weighs: at least `least` and at most
      `most`.
    - `remark` is said where one of these bounds counts.
    """

    key: str
    family: Family
    weight: Share
    driver: str = "*"
    effect: str = "*"
    values: frozenset[str] = frozenset()
    kind: EvidenceKind = EvidenceKind.LEVEL
    xid: bool = False
    least: Share = 0.0
    most: Share = 1.0
    remark: str = ""

    def __post_init__(self) -> None:
        _check_foreign("key", self.key)

    @property
    def is_catch_all(self) -> bool:
        """Whether it matches every key, so it only says what taints mean in general."""
        return self.key == "*"

    def matches(self, driver: str, key: str, value: str, effect: str) -> bool:
        return (
            fnmatchcase(key, self.key)
            and fnmatchcase(effect, self.effect)
            and fnmatchcase(driver, self.driver)
            and (not self.values or value in self.values)
        )


class AttributeRow(RuleRow, frozen=True, kw_only=True):
    """An attribute by which a driver publishes that a device is faulty.

    `driver` and `value` are patterns. `attribute` is a name without the driver's domain. A boolean
    reads as `true` or `false`.
    """

    driver: str
    attribute: str
    value: str
    family: Family
    weight: Share
    kind: EvidenceKind = EvidenceKind.LEVEL

    def matches(self, value: str) -> bool:
        return fnmatchcase(value, self.value)


class AnnotationRow(RuleRow, frozen=True, kw_only=True):
    """A node annotation. If it is absent or has another value, that is an all-clear.

    - `key`: a regular expression for the whole key. `value`: a pattern.
    - With `resource`, it is about units of that resource: those that `units`, a regular expression
      with one group, finds in the value. Each is a UUID, an index or `pci:ADDRESS`.
    """

    key: str
    value: str
    weight: Share
    family: Family = Family.NODE
    kind: EvidenceKind = EvidenceKind.LEVEL
    resource: str = ""
    units: str = ""

    def __post_init__(self) -> None:
        _check_foreign("key", self.key.removeprefix("^").replace("\\", ""))
        _check_pattern("key", self.key)
        if bool(self.resource) != bool(self.units):
            raise ValueError("resource and units are needed together")
        _check_pattern("units", self.units, groups=1 if self.units else 0)


class DeviceConditionRow(RuleRow, frozen=True, kw_only=True):
    """A condition of an allocated device (`status.devices` of a claim) and its polarity.

    `type`, `reason` and `driver` are patterns; `faulty` is the status that means a fault.
    `provoked`: the claim's own requests can cause it, so it counts as evidence from its namespace.
    """

    type: str
    faulty: bool
    family: Family
    weight: Share
    reason: str = "*"
    driver: str = "*"
    kind: EvidenceKind = EvidenceKind.LEVEL
    provoked: bool = False

    def __post_init__(self) -> None:
        if self.provoked and self.kind is not EvidenceKind.LEVEL:
            raise ValueError(f"provoked: only rows of kind level can be provoked, not {self.kind}")

    def matches(self, driver: str, type_: str, reason: str) -> bool:
        return (
            fnmatchcase(type_, self.type)
            and fnmatchcase(reason, self.reason)
            and fnmatchcase(driver, self.driver)
        )


class RefusalRow(RuleRow, frozen=True, kw_only=True):
    """Whether pods can cause a kubelet's refusal, by its message.

    - `message` is a regular expression that is searched for.
    - `provoked`: true if the pod's own requests can cause it, so it counts as evidence from its
      namespace; false if only the node can. Without it, that depends on who placed the pod.
    - `ignored`: it says nothing of devices. `unless_full`: it says nothing while live pods hold all
      units of the resource on the node.
    """

    message: str
    provoked: bool | None = None
    ignored: bool = False
    unless_full: bool = False

    def __post_init__(self) -> None:
        _check_pattern("message", self.message)
        if self.provoked is None and not (self.ignored or self.unless_full):
            raise ValueError("provoked: missing; set it, or ignored, or unless_full")


class VendorRow(RuleRow, frozen=True, kw_only=True):
    """A vendor whose labels and annotations on Nodes may tell of health (the row's name is their
    domain, also with a prefix). Keys that match one of the patterns `describes` do not."""

    describes: tuple[str, ...] = ()

    def may_tell(self, key: str) -> bool:
        domain = key.partition("/")[0]
        return (domain == self.name or domain.endswith(f".{self.name}")) and not any(
            fnmatchcase(key, pattern) for pattern in self.describes
        )


class EventRow(RuleRow, frozen=True, kw_only=True):
    """An Event about a Node, by `reason` and `component` (patterns; who reports it).

    `format` and `xid` as for conditions. It counts as long as the Event is there: an hour after it
    was last seen. Whoever may write in its namespace can write it, so it is the word of that.
    """

    reason: str
    family: Family
    weight: Share
    component: str = "*"
    format: str = ""
    xid: str = ""

    def __post_init__(self) -> None:
        if self.format not in ("", "nvsentinel"):
            raise ValueError(f'format must be "nvsentinel" or unset, not {self.format!r}')
        _check_pattern("xid", self.xid)

    def matches(self, reason: str, component: str) -> bool:
        return fnmatchcase(reason, self.reason) and fnmatchcase(component, self.component)


class StartRow(RuleRow, frozen=True, kw_only=True):
    """Whether a pod that does not start is kept from it by devices, by what is said of it.

    `message` is a regular expression that is searched for. `ignored`: it says nothing of devices.
    """

    message: str
    ignored: bool = False

    def __post_init__(self) -> None:
        _check_pattern("message", self.message)


class LabelRow(RuleRow, frozen=True, kw_only=True):
    """A node label. If it is absent or has another value, that is an all-clear.

    - `key`: a regular expression for the whole key. With `resource`, its group is the index of that
      resource's unit.
    - `value`: a pattern. Values that match `unless` do not count.
    - `due_within_s`: the value is a time in Unix seconds, and counts when it is no further away.
    - `remediated`: not a fault, but NVSentinel's statement that what it found has been dealt with.
    """

    key: str
    value: str
    family: Family = Family.NODE
    weight: Share = 0.0
    kind: EvidenceKind = EvidenceKind.LEVEL
    resource: str = ""
    remediated: bool = False
    unless: str = ""
    due_within_s: Seconds | None = None

    def matches(self, value: str) -> bool:
        return fnmatchcase(value, self.value) and not (
            self.unless and fnmatchcase(value, self.unless)
        )

    def due_at(self, value: str) -> float | None:
        """The time that the value is; None if it is none."""
        is_time = self.due_within_s is not None and re.fullmatch("[0-9]{1,11}", value)
        return float(value) if is_time else None

    def counts(self, value: str, now: float) -> bool:
        """Whether the time that the value is has come close enough."""
        at = self.due_at(value)
        return at is None or at - (self.due_within_s or 0.0) <= now

    def __post_init__(self) -> None:
        _check_foreign("key", self.key.removeprefix("^").replace("\\", ""))
        _check_pattern("key", self.key, groups=1 if self.resource else 0)


class ExporterRow(RuleRow, frozen=True, kw_only=True):
    """An exporter: by which labels its series name devices, each with all names it has had.

    - `resource`: the extended resource that its devices are units of. Without one, its series are
      about the node as a whole; with `pod`, about the devices that a pod holds.
    - `uuid`, `pci`, `index`, `node`, `pod`, `namespace`, `model`: names of labels.
    - `aliases`: other names that a metric has had, by the one that queries use.
    - `series`: a metric that each healthy device has. A device that had it within a day and has it
      no more is Unknown. `identity`: the labels that say which device that is.
    """

    resource: str = ""
    uuid: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    index: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    pod: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ("namespace",)
    model: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = {}
    series: str = ""
    identity: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.series) != bool(self.identity):
            raise ValueError("series and identity are needed together")
        for field in ("uuid", "pci", "index", "node", "pod", "namespace", "model", "identity"):
            for label in getattr(self, field):
                if not _LABEL_NAME.fullmatch(label):
                    raise ValueError(f"{field}: {label!r} is not the name of a label")
        if not (self.node or self.pod or self.uuid):
            raise ValueError("node: labels that name a node, a pod or a device's UUID are needed")

    @property
    def of_pods(self) -> bool:
        """Whether a series is about what a pod holds."""
        return bool(self.pod) and not (self.resource or self.node)

    @property
    def device(self) -> tuple[str, ...]:
        """All labels that say which device a series is about, and whose word it is."""
        return (
            *(*self.uuid, *self.pci, *self.index, *self.node),
            *(*self.pod, *self.model, *self.namespace),
        )

    @property
    def peers(self) -> tuple[str, ...]:
        """The labels that devices of one kind have in common. Those of another namespace are no
        peers: a tenant must not shift what is usual."""
        return (*self.model, *self.namespace)


class MetricRow(RuleRow, frozen=True, kw_only=True):
    """A query of PromQL whose series are evidence, each about the device that its labels name.

    - `exporter`: names an ExporterRow. `$device` and `$peers` in the query stand for its labels.
    - `query`: gives only series that are a fault, so that few travel.
    - `weight`, or `graded`: two values with the weight that each has; between them it grows evenly.
    - `text`: what people read; `{value}` and `{percent}` stand for the value, a label's name for
      the label's.
    - `compared`: `above` or `below`: only series that are so, far from their `peers` (labels that
      these have in common), are a fault. Its value is by what share of the median. `least`: what is
      not above this is no fault.
    - `xid`: the label with the XID, or `value`. Then the table of XIDs says what it means.
    - `until`: of a latched fault: it is over when this query does not give the device any more.
    - `metrics`: the names of the metrics that must be there, if the query does not show them.
    - `gone_is_over`: its series exist only while the fault does, as those of alerts do.
    - `provoked`: a tenant can cause it, so it counts as evidence from the series' namespace.
    """

    exporter: str
    query: str
    family: Family
    weight: Share = 0.0
    graded: Mapping[float, Share] = {}
    kind: EvidenceKind = EvidenceKind.LEVEL
    text: str = ""
    compared: Literal["", "above", "below"] = ""
    peers: tuple[str, ...] = ()
    least: float = 0.0
    xid: str = ""
    until: str = ""
    metrics: tuple[str, ...] = ()
    half_life_s: Seconds | None = None
    gone_is_over: bool = False
    provoked: bool = False

    def __post_init__(self) -> None:
        if not _RULE_NAME.fullmatch(self.name):
            raise ValueError(f"name: {self.name!r} must be letters, digits, '-', '_' and '.'")
        if not self.query.strip():
            raise ValueError("query: must not be empty")
        for field, query in (("query", self.query), ("until", self.until)):
            if why := promql.complaint(query):
                raise ValueError(f"{field}: {why}")
        if self.kind is EvidenceKind.DECAYING:
            raise ValueError("kind: the fault of a metric stands: level, latched or unknown")
        if self.graded and (len(self.graded) != 2 or self.weight):
            raise ValueError("graded: two values with their weights, and no weight beside it")
        if self.until and not (self.kind is EvidenceKind.LATCHED or self.xid):
            raise ValueError("until: only what is latched can last longer than its query")
        if (self.peers or self.least) and not self.compared:
            raise ValueError("compared: it is needed with peers or least: above or below")
        if self.is_provoked and self.kind is EvidenceKind.LATCHED:
            raise ValueError("provoked: what a tenant can cause cannot be latched")

    @property
    def is_provoked(self) -> bool:
        """A straggler is mostly software, which is a tenant's."""
        return self.provoked or self.family is Family.STRAGGLER

    def weighs(self, value: float) -> float:
        """The weight of a value, in steps of 0.05 where it is graded; of NaN, the lightest."""
        if not self.graded:
            return self.weight
        (low, light), (high, heavy) = sorted(self.graded.items())
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return round((light + share * (heavy - light)) * 20) / 20

    def says(self, value: float, labels: Mapping[str, str]) -> str:
        is_known = isfinite(value)
        known = {
            **labels,
            "value": f"{value:.3g}" if is_known else "an unknown number of",
            "percent": f"{value:.0%}" if is_known else "for an unknown share",
        }
        return _HOLE.sub(lambda hole: known.get(hole[1], ""), self.text or self.name)


class AlertRow(RuleRow, frozen=True, kw_only=True):
    """Alerts of Alertmanager that are evidence, about the device that their labels name.

    `alert` is a pattern for `alertname`. `exporter` says by which labels devices are named. The
    rest is as in a MetricRow; without a `text`, people read the alert's summary.
    """

    alert: str
    exporter: str
    family: Family
    weight: Share
    kind: EvidenceKind = EvidenceKind.LEVEL
    text: str = "alert {alertname}: {summary}"
    provoked: bool = False

    def __post_init__(self) -> None:
        self.as_metric()

    def as_metric(self) -> MetricRow:
        return MetricRow(
            name=self.name,
            source=self.source,
            exporter=self.exporter,
            query="ALERTS",
            family=self.family,
            weight=self.weight,
            kind=self.kind,
            text=self.text,
            gone_is_over=True,
            provoked=self.provoked,
        )


_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOLE = re.compile(r"\{(\w+)\}")
_RULE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def _check_foreign(field: str, pattern: str) -> None:
    if pattern.startswith(OWN_PREFIX):
        raise ValueError(
            f"{field}: names that begin with {OWN_PREFIX} are Fettle's own and never evidence, so "
            f"this row would never count; use a name in a domain of your own"
        )


def _check_pattern(field: str, pattern: str, groups: int | None = None) -> None:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"{field}: {pattern!r} is not a valid regular expression: {error}"
        ) from error
    if groups is not None and compiled.groups != groups:
        raise ValueError(f"{field}: {pattern!r} must have {groups} group(s)")


UNCLASSIFIED = "unclassified"
"""The class of a recovery action that has no row."""
UNKNOWN_XID = "unknown"
"""The class of an XID that has no row."""
DEFAULT_HALF_LIFE_S = 3600.0
MOST_CACHED = 256
"""Characters. What producers write has no limit."""

_RECOVERY = re.compile(r"recovery action changed from .{1,40} to 0x([0-9a-f]+)", re.IGNORECASE)
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
        self.annotations = annotations
        self.attributes = attributes
        self.vendors = vendors
        self.is_unheard = lru_cache(maxsize=4096)(self._may_tell)
        self.labels = labels
        self.refusals = refusals
        self.starts = starts
        self.events = events
        self.exporters = exporters
        self.metrics = metrics
        self.alerts = alerts
        self._by_type: dict[str, list[ConditionRow]] = {}
        for row in conditions.values():
            if not row.is_pattern:
                self._by_type.setdefault(row.type, []).append(row)
        self._patterns = [row for row in conditions.values() if row.is_pattern]
        self._conditions = lru_cache(maxsize=4096)(self._match_condition)
        self._annotations_by_key = lru_cache(maxsize=4096)(self._match_annotation)
        self._labels_by_key = lru_cache(maxsize=4096)(self._match_key)

    def condition(self, type_: str, reason: str) -> ConditionRow | None:
        """The first row that matches. Rows that name the type come before patterns."""
        is_usual = len(type_) + len(reason) <= MOST_CACHED
        return (self._conditions if is_usual else self._match_condition)(type_, reason)

    def joined(self, type_: str, message: str, but: ConditionRow) -> tuple[ConditionRow, ...]:
        """The rows of further findings in the message of a condition of this type."""
        rows = (row for row in self._by_type.get(type_, ()) if row.message and row is not but)
        return tuple(row for row in rows if re.search(row.message, message))

    def _match_condition(self, type_: str, reason: str) -> ConditionRow | None:
        for rows in (self._by_type.get(type_, ()), self._patterns):
            for row in rows:
                if row.matches(type_, reason):
                    return row
        return None

    def names_condition(self, type_: str) -> bool:
        """Whether a row is about conditions of this type, whatever their reason. Rows that match
        every type do not count."""
        named = (row.type for row in self._patterns if row.type != "*")
        return type_ in self._by_type or any(fnmatchcase(type_, each) for each in named)

    def clear_status(self, source: str) -> str:
        """The status of a node condition that says that its fault is over; "" for other sources."""
        what, _, name = source.partition(" ")
        rows = (*self._by_type.get(name, ()), *self._patterns) if what == "condition" else ()
        row = next((row for row in rows if fnmatchcase(name, row.type)), None)
        return "" if row is None else "False" if row.faulty else "True"

    def may_latch(self, source: str) -> bool:
        """Whether a row can still be about this source. What a row that is gone once latched would
        otherwise be remembered with nothing to clear it."""
        what, _, name = source.partition(" ")
        if what == "condition":
            return self.names_condition(name)
        if what == "annotation":
            return name in self.annotations or name.startswith(OWN_PREFIX)
        if what == "label":
            return name in self.labels
        if what == "metric":
            return name in self.metrics or name in self.alerts
        if source.startswith("claim condition "):
            name = source.removeprefix("claim condition ")
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
        return tuple(row for row in self.annotations.values() if re.fullmatch(row.key, key))

    def refusal(self, message: str) -> RefusalRow | None:
        """The first row that matches the message of a kubelet's refusal."""
        for row in self.refusals.values():
            if re.search(row.message, message):
                return row
        return None

    def said_of_start(self, message: str) -> str:
        """What the message says of devices that keep a pod from starting, without what a runtime
        wrote before it; "" if nothing."""
        for row in self.starts.values():
            if (found := re.search(row.message, message)) is not None:
                return "" if row.ignored else message[found.start() :]
        return ""

    def event(self, reason: str, component: str) -> EventRow | None:
        """The first row that matches."""
        return next((r for r in self.events.values() if r.matches(reason, component)), None)

    def label(self, key: str, value: str) -> tuple[LabelRow, re.Match[str]] | None:
        """The first row that matches, and the match of its key."""
        for row, found in self._labels_by_key(key):
            if row.matches(value):
                return row, found
        return None

    def _match_key(self, key: str) -> tuple[tuple[LabelRow, re.Match[str]], ...]:
        matches = ((row, re.fullmatch(row.key, key)) for row in self.labels.values())
        return tuple((row, found) for row, found in matches if found is not None)

    def _may_tell(self, key: str) -> bool:
        """Whether a label or annotation of a Node may tell of health, and no row names it."""
        named = self._labels_by_key(key) or self._annotations_by_key(key)
        return not named and any(row.may_tell(key) for row in self.vendors.values())

    def xid(self, code: str, message: str = "") -> Xid:
        """What an XID means; one without a row is an unknown, mild fault. `message` is what was
        logged."""
        row = self.xids.get(code)
        if row is not None and row.recovery and (found := _RECOVERY.search(message)) is not None:
            return self._recovery(code, str(int(found[1], 16)))
        class_ = self.xid_classes[row.class_ if row is not None else UNKNOWN_XID]
        if row is None:
            text = f"XID {code}: unknown fault (not in the table)"
            return Xid(Family.DRIVER, class_.kind, class_.weight, text)
        advice = f" ({row.action})" if row.action else ""
        return Xid(row.family, class_.kind, class_.weight, f"XID {code}: {row.text}{advice}")

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


TABLES: Mapping[str, type[RuleRow]] = {
    "families": FamilyRow,
    "signals": SignalRow,
    "xid_classes": XidClassRow,
    "xids": XidRow,
    "recoveries": RecoveryRow,
    "actions": ActionRow,
    "conditions": ConditionRow,
    "device_conditions": DeviceConditionRow,
    "taints": TaintRow,
    "annotations": AnnotationRow,
    "attributes": AttributeRow,
    "vendors": VendorRow,
    "labels": LabelRow,
    "refusals": RefusalRow,
    "starts": StartRow,
    "events": EventRow,
    "exporters": ExporterRow,
    "metrics": MetricRow,
    "alerts": AlertRow,
}
_SHIPPED = (
    "scoring.yaml",
    "xids.yaml",
    "conditions.yaml",
    "clouds.yaml",
    "taints.yaml",
    "vendors.yaml",
    "devices.yaml",
    "labels.yaml",
    "refusals.yaml",
    "starts.yaml",
    "events.yaml",
    "metrics.yaml",
)


def load_rules(path: str | Path | None = None, text: str | None = None) -> SignalRules:
    """The shipped rules, with the rows of an operator's file. SettingsError names file, row and
    field. `text`: what the file holds, if it was read already."""
    tables = dict(_shipped())
    if path is not None:
        where = f"rules file {path}"
        own: dict[str, dict[str, RuleRow]] = {table: {} for table in TABLES}
        text = _read_file(Path(path), where) if text is None else text
        for table, row in _read_rows(text, where):
            own[table][row.name] = row
        _check_signals(own["signals"], tables["signals"], where)
        tables = {table: _over(own[table], shipped) for table, shipped in tables.items()}
    else:
        where = "shipped rules"
    _check_classes(tables, where)
    _check_exporters(tables, where)
    conditions = tables["conditions"].values()
    tables["conditions"] = {r.name: r for r in sorted(conditions, key=_breadth)}
    return SignalRules(**cast(dict[str, Any], tables))


@cache
def _shipped() -> Mapping[str, dict[str, RuleRow]]:
    tables: dict[str, dict[str, RuleRow]] = {table: {} for table in TABLES}
    for name in _SHIPPED:
        text = resources.files(__package__).joinpath("rules", name).read_text(encoding="utf-8")
        for table, row in _read_rows(text, f"rules file {name}"):
            tables[table][row.name] = row
    return tables


def _over(own: dict[str, RuleRow], shipped: dict[str, RuleRow]) -> dict[str, RuleRow]:
    """Replaced rows keep their place; new rows come first."""
    new = {name: row for name, row in own.items() if name not in shipped}
    return new | {name: own.get(name, row) for name, row in shipped.items()}


def _breadth(row: RuleRow) -> tuple[bool, bool, bool]:
    """Sorts rows that name a type before patterns, those for every type last, and among them rows
    that name a reason first."""
    assert isinstance(row, ConditionRow)
    return row.is_pattern, row.type == "*", row.reason == "*"


def _read_file(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{where}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{where}: not valid UTF-8: {error}") from error


def _read_rows(text: str, where: str) -> Iterator[tuple[str, RuleRow]]:
    try:
        data: Any = parse_yaml(text)
    except ValueError as error:
        raise SettingsError(f"{where}: invalid YAML: {error}") from error
    if data is None:
        return
    if not isinstance(data, dict):
        raise SettingsError(
            f"{where}: expected tables ({', '.join(TABLES)}), not a {_type_name(data)}"
        )
    for table, entries in data.items():
        if table not in TABLES:
            raise SettingsError(
                f"{where}: unknown table {table!r}; expected one of {', '.join(TABLES)}"
            )
        if not isinstance(entries, list):
            raise SettingsError(
                f"{where}: {table}: expected a list of rows, not a {_type_name(entries)}"
            )
        for position, entry in enumerate(entries, start=1):
            yield table, read_row(table, entry, position, where)


def read_row(table: str, entry: Any, position: int, where: str) -> RuleRow:
    """One row of a file; raises SettingsError."""
    if not isinstance(entry, dict) or "name" not in entry:
        raise SettingsError(f"{where}: {table}, row {position}: a row needs a name")
    name = str(entry["name"])  # YAML reads an XID as a number
    try:
        return msgspec.convert({**entry, "name": name}, TABLES[table])
    except msgspec.ValidationError as error:
        problem = describe_error(error, TABLES[table])
        raise SettingsError(f"{where}: {table}, row {name!r}: {problem}") from error


def _check_signals(own: Mapping[str, RuleRow], shipped: Mapping[str, RuleRow], where: str) -> None:
    """Fettle derives signals by name, so a signal that is not shipped would never count."""
    for name in own:
        if name not in shipped:
            raise SettingsError(
                f"{where}: signals, row {name!r}: unknown signal; "
                f"expected one of {', '.join(shipped)}"
            )


def _check_classes(tables: Mapping[str, Mapping[str, RuleRow]], where: str) -> None:
    classes = tables["xid_classes"]
    assert UNCLASSIFIED in classes
    assert UNKNOWN_XID in classes
    for table in ("xids", "recoveries"):
        for row in tables[table].values():
            assert isinstance(row, XidRow | RecoveryRow)
            if row.class_ not in classes:
                raise SettingsError(
                    f"{where}: {table}, row {row.name!r}: class: unknown class {row.class_!r}; "
                    f"expected one of {', '.join(classes)}"
                )


def _check_exporters(tables: Mapping[str, Mapping[str, RuleRow]], where: str) -> None:
    exporters = tables["exporters"]
    for table in ("metrics", "alerts"):
        for row in tables[table].values():
            assert isinstance(row, MetricRow | AlertRow)
            if row.exporter not in exporters:
                raise SettingsError(
                    f"{where}: {table}, row {row.name!r}: exporter: unknown exporter "
                    f"{row.exporter!r}; expected one of {', '.join(exporters)}"
                )
    for name in tables["alerts"].keys() & tables["metrics"].keys():
        raise SettingsError(f"{where}: alerts, row {name!r}: a row of metrics has that name too")


def _type_name(value: object) -> str:
    return "list" if isinstance(value, list) else type(value).__name__
