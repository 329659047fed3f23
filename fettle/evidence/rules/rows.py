"""The rows of the rule tables, one struct per table: what a fact weighs, and where that is from.

Every row has a `name`, by which an operator's row replaces it, and a `source`: who says so.
`weight` is the share (0..1) of the score that the fact takes.
"""

import re
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

from fettle.model import Family, Kind

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, msgspec.Meta(gt=0.0)]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all rows."""

    name: str
    source: str


class FamilyRow(Row, frozen=True, kw_only=True):
    """How fast evidence of a family (the row's name) is forgotten."""

    half_life_s: Seconds

    def __post_init__(self) -> None:
        Family(self.name)


class SignalRow(Row, frozen=True, kw_only=True):
    """Weight and cap of what Fettle itself derives, by the name of the signal."""

    weight: Share
    cap: Share = 1.0
    family: Family = Family.DRIVER


class XidClassRow(Row, frozen=True, kw_only=True):
    """What a class of NVIDIA XIDs means for the device."""

    weight: Share
    kind: Kind = Kind.LEVEL


class XidRow(Row, frozen=True, kw_only=True):
    """One XID (the row's name): `class_` is an XidClassRow, `action` NVIDIA's first advice."""

    class_: str = msgspec.field(name="class")
    family: Family
    text: str
    action: str = ""


class ActionRow(Row, frozen=True, kw_only=True):
    """An NVSentinel recommended action (the row's name): a device that needs it weighs `least`."""

    least: Share


class ConditionRow(Row, frozen=True, kw_only=True):
    """A node condition and its polarity.

    `type` and `reason` are patterns (`*` matches anything, `{type}` in a reason the type itself),
    `faulty` is the status that means a fault. `format: nvsentinel` reads devices from the message.
    `xid` finds an XID: a regular expression with one group on the reason, or `ErrorCode` for
    NVSentinel's error codes. `unknown_counts`: status Unknown means that nothing reliable is
    known about the node.
    """

    type: str
    faulty: bool
    family: Family
    weight: Share
    reason: str = "*"
    kind: Kind = Kind.LEVEL
    format: str = ""
    xid: str = ""
    unknown_counts: bool = False

    def __post_init__(self) -> None:
        if self.format not in ("", "nvsentinel"):
            raise ValueError(f'format is "nvsentinel" or nothing, not {self.format!r}')
        _check_pattern("xid", self.xid)

    @property
    def is_pattern(self) -> bool:
        return any(c in self.type for c in "*?[")

    def matches(self, type_: str, reason: str) -> bool:
        return (type_ == self.type or fnmatchcase(type_, self.type)) and (
            self.reason == "*" or fnmatchcase(reason, self.reason.replace("{type}", type_))
        )


class TaintRow(Row, frozen=True, kw_only=True):
    """A device taint by driver, key and effect (patterns); `xid`: its value is an XID."""

    key: str
    family: Family
    weight: Share
    driver: str = "*"
    effect: str = "*"
    kind: Kind = Kind.LEVEL
    xid: bool = False

    def matches(self, driver: str, key: str, effect: str) -> bool:
        return (
            fnmatchcase(key, self.key)
            and fnmatchcase(effect, self.effect)
            and fnmatchcase(driver, self.driver)
        )


class LabelRow(Row, frozen=True, kw_only=True):
    """A node label; that it is absent, or has another value, is an all-clear.

    `key` is a regular expression on the whole key; with `resource`, its group is the index of
    that resource's unit. `value` is a pattern. `remediated`: no fault, but NVSentinel's word that
    what it found has been dealt with.
    """

    key: str
    value: str
    family: Family = Family.NODE
    weight: Share = 0.0
    kind: Kind = Kind.LEVEL
    resource: str = ""
    remediated: bool = False

    def __post_init__(self) -> None:
        _check_pattern("key", self.key, groups=1 if self.resource else 0)


def _check_pattern(field: str, pattern: str, groups: int | None = None) -> None:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{field}: {pattern!r} is no regular expression: {error}") from error
    if groups is not None and compiled.groups != groups:
        raise ValueError(f"{field}: {pattern!r} must have {groups} group(s)")
