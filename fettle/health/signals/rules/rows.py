"""The rows of the rule tables, one struct per table: what a fact weighs, and where that is from.

Every row has a `name`, by which an operator's row replaces it, and a `source`: who says so.
`weight` is the share (0..1) of the score that the fact takes.
"""

import re
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

from fettle.model import OWN_PREFIX, EvidenceKind, Family

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, msgspec.Meta(gt=0.0)]


class RuleRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all rows."""

    name: str
    source: str


class FamilyRow(RuleRow, frozen=True, kw_only=True):
    """How fast evidence of a family (the row's name) is forgotten."""

    half_life_s: Seconds

    def __post_init__(self) -> None:
        Family(self.name)


class SignalRow(RuleRow, frozen=True, kw_only=True):
    """Weight and cap of what Fettle itself derives, by the name of the signal.

    `together` bounds what all witnesses take, each of which counts at most `cap`.
    """

    weight: Share
    cap: Share = 1.0
    together: Share = 1.0
    family: Family = Family.DRIVER


class XidClassRow(RuleRow, frozen=True, kw_only=True):
    """What a class of NVIDIA XIDs means for the device."""

    weight: Share
    kind: EvidenceKind = EvidenceKind.LEVEL


class XidRow(RuleRow, frozen=True, kw_only=True):
    """One XID (the row's name): `class_` is an XidClassRow, `action` NVIDIA's first advice.

    `recovery`: its message names the recovery action, whose row then holds in its place.
    """

    class_: str = msgspec.field(name="class")
    family: Family
    text: str
    action: str = ""
    recovery: bool = False


class RecoveryRow(RuleRow, frozen=True, kw_only=True):
    """A GPU recovery action by its number in NVML (the row's name); `class_` as for an XID."""

    class_: str = msgspec.field(name="class")
    family: Family
    text: str


class ActionRow(RuleRow, frozen=True, kw_only=True):
    """An NVSentinel recommended action (the row's name): a device that needs it weighs `least`."""

    least: Share


class ConditionRow(RuleRow, frozen=True, kw_only=True):
    """A node condition and its polarity.

    `type` and `reason` are patterns (`*` matches anything, `{type}` in a reason the type itself),
    `faulty` is the status that means a fault. `format: nvsentinel` reads devices from the message.
    `xid` finds an XID: a regular expression with one group on the reason, or `ErrorCode` for
    NVSentinel's error codes. `unknown_counts`: status Unknown means that nothing reliable is
    known about the node. `heartbeat_s`: its producer renews the condition at least that often;
    after three times as long without, the status counts as Unknown, and a fault fades.
    """

    type: str
    faulty: bool
    family: Family
    weight: Share
    reason: str = "*"
    kind: EvidenceKind = EvidenceKind.LEVEL
    format: str = ""
    xid: str = ""
    unknown_counts: bool = False
    heartbeat_s: Seconds | None = None

    def __post_init__(self) -> None:
        if self.format not in ("", "nvsentinel"):
            raise ValueError(f'format must be "nvsentinel" or unset, not {self.format!r}')
        _check_foreign("type", self.type)
        _check_pattern("xid", self.xid)

    @property
    def is_pattern(self) -> bool:
        return any(c in self.type for c in "*?[")

    def matches(self, type_: str, reason: str) -> bool:
        return (type_ == self.type or fnmatchcase(type_, self.type)) and (
            self.reason == "*" or fnmatchcase(reason, self.reason.replace("{type}", type_))
        )


class TaintRow(RuleRow, frozen=True, kw_only=True):
    """A device taint by driver, key and effect (patterns); `xid`: its value is an XID."""

    key: str
    family: Family
    weight: Share
    driver: str = "*"
    effect: str = "*"
    kind: EvidenceKind = EvidenceKind.LEVEL
    xid: bool = False

    def __post_init__(self) -> None:
        _check_foreign("key", self.key)

    @property
    def is_catch_all(self) -> bool:
        """Whether it says nothing about a key, only what taints mean in general."""
        return self.key == "*"

    def matches(self, driver: str, key: str, effect: str) -> bool:
        return (
            fnmatchcase(key, self.key)
            and fnmatchcase(effect, self.effect)
            and fnmatchcase(driver, self.driver)
        )


class AttributeRow(RuleRow, frozen=True, kw_only=True):
    """An attribute by which a driver publishes that a device is ill.

    `driver` and `value` are patterns, `attribute` is a name without the driver's domain; a boolean
    reads `true` or `false`.
    """

    driver: str
    attribute: str
    value: str
    family: Family
    weight: Share
    kind: EvidenceKind = EvidenceKind.LEVEL

    def matches(self, value: str) -> bool:
        return fnmatchcase(value, self.value)


class DeviceConditionRow(RuleRow, frozen=True, kw_only=True):
    """A condition of an allocated device (`status.devices` of a claim) and its polarity.

    `type`, `reason` and `driver` are patterns, `faulty` is the status that means a fault.
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
    """Whether a kubelet's refusal of a pod is one that pods can cause, by its message.

    `message` is a regular expression that is searched for. `provoked`: the pod's own requests can,
    so it counts as evidence from its namespace; else only the node can.
    """

    message: str
    provoked: bool

    def __post_init__(self) -> None:
        _check_pattern("message", self.message)


class LabelRow(RuleRow, frozen=True, kw_only=True):
    """A node label; that it is absent, or has another value, is an all-clear.

    `key` is a regular expression on the whole key; with `resource`, its group is the index of
    that resource's unit. `value` is a pattern. `remediated`: no fault, but NVSentinel's word that
    what it found has been dealt with.
    """

    key: str
    value: str
    family: Family = Family.NODE
    weight: Share = 0.0
    kind: EvidenceKind = EvidenceKind.LEVEL
    resource: str = ""
    remediated: bool = False

    def __post_init__(self) -> None:
        _check_foreign("key", self.key.removeprefix("^").replace("\\", ""))
        _check_pattern("key", self.key, groups=1 if self.resource else 0)


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
