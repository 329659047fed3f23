"""Holds: an operator's word that a node, a device or a unit is out of use, recorded in annotations
of a Node or ResourceSlice.

Each annotation `fettle.dev/hold` or `fettle.dev/hold-…` is one hold. Its value is a JSON object
with `reason`, `by`, `since`, `until` and `device`, each optional; any other value is the reason,
and `false` is no hold. `device` is written as `fettle devices` prints it: DRIVER/POOL/DEVICE, or
RESOURCE UNIT. What cannot be read never ends a hold, nor makes it smaller.
"""

import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from fettle.api.meta import ObjectMeta, rfc3339_at
from fettle.health.signals import gpu_names
from fettle.health.signals.reports import TEXT_LIMIT, one_line
from fettle.model import (
    FURTHER_HOLD,
    HOLD,
    DeviceId,
    Evidence,
    EvidenceKind,
    Family,
    Hold,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    Subject,
    UnitId,
)

HOLD_SOURCE = Source(SourceKind.ANNOTATION, HOLD)
_LONGEST_TIME = 64
"""Characters. The parser looks at all of a longer text to say that it is none."""


class _Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of an annotation. Times are as in RFC 3339, without an offset in UTC."""

    device: str = ""
    reason: str = ""
    by: str = ""
    since: str = ""
    until: str = ""


def written(hold: Hold) -> str:
    """The value of the annotation that records a hold."""
    value = _Written(
        device="" if isinstance(hold.subject, NodeId) else name_of_held(hold.subject),
        reason=hold.reason,
        by=hold.by,
        since=hold_time(hold.since) or "",
        until=hold_time(hold.until) or "",
    )
    return msgspec.json.encode(value).decode()


def name_of_held(subject: Subject) -> str:
    """A device or unit as `fettle devices` prints it, or the name of a node."""
    match subject:
        case UnitId():
            return f"{subject.resource} {subject.unit}"
        case NodeId():
            return subject.node
    return str(subject)


def hold_time(seconds: float | None) -> str | None:
    """When a hold began or ends, as in RFC 3339; None if nobody said, or if it has no end."""
    if seconds is None or seconds == math.inf:
        return None
    return rfc3339_at(seconds)


def holds_on_node(metadata: ObjectMeta) -> tuple[Hold, ...]:
    """All holds that a Node records, also those that are over."""
    return tuple(_read(metadata, NodeId(metadata.name)))


def holds_on_devices(metadata: ObjectMeta, devices: Iterable[DeviceId]) -> tuple[Hold, ...]:
    """All holds that a ResourceSlice records, each on every device of it."""
    found = [*_read(metadata, NodeId(""))]
    return tuple(
        msgspec.structs.replace(hold, subject=device) for device in devices for hold in found
    )


def in_force(holds: Iterable[Hold], now: float) -> tuple[Hold, ...]:
    return tuple(hold for hold in holds if hold.until > now)


def _read(metadata: ObjectMeta, node: NodeId) -> Iterator[Hold]:
    for key, value in sorted((metadata.annotations or {}).items()):
        is_hold = key == HOLD or key.startswith(FURTHER_HOLD)
        if is_hold and value.strip().lower() != "false":
            yield _hold(key, value.strip(), node)


def _hold(key: str, value: str, node: NodeId) -> Hold:
    try:
        said = msgspec.json.decode(value, type=_Written)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        said = _Written(reason=value)
    subject = subject_called(said.device, node)
    remarks = []
    if subject is None:
        remarks.append(
            f"device {said.device[:TEXT_LIMIT]!r} cannot be read, so the whole node is held"
        )
    until = read_time(said.until)
    if said.until and until is None:
        remarks.append(f"until {said.until[:TEXT_LIMIT]!r} cannot be read, so it has no end")
    return Hold(
        subject=subject or node,
        annotation=key,
        reason=one_line("; ".join(filter(None, (said.reason.strip(), *remarks)))),
        by=one_line(said.by),
        since=read_time(said.since),
        until=math.inf if until is None else until,
    )


def subject_called(device: str, node: NodeId) -> Subject | None:
    """The device or unit that is meant, or the node; None if that cannot be read."""
    if not device:
        return node
    resource, _, unit = device.partition(" ")
    if unit:
        return UnitId(node.node, resource, gpu_names.normal(unit.strip()))
    driver, _, rest = device.partition("/")
    pool, _, name = rest.rpartition("/")
    return DeviceId(driver, pool, name) if driver and pool and name else None


def read_time(text: str) -> float | None:
    """Unix seconds; None if it is not a time as in RFC 3339."""
    if len(text) > _LONGEST_TIME:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


class _Said(NamedTuple):
    texts: list[str]
    since: float


def evidence_of_holds(
    holds: Iterable[Hold], reporter: ReporterId, now: float
) -> Iterator[Evidence]:
    """One piece of evidence for each subject, which names all holds on it."""
    about: dict[Subject, _Said] = {}
    for hold in holds:
        said = about.get(hold.subject, _Said([], now))
        since = said.since if hold.since is None else min(said.since, hold.since)
        about[hold.subject] = _Said([*said.texts, describe_hold(hold)], since)
    for subject, said in about.items():
        yield Evidence(
            subject=subject,
            family=Family.OPERATOR,
            kind=EvidenceKind.LATCHED,
            weight=1.0,
            source=HOLD_SOURCE,
            reporter=reporter,
            said=one_line("; ".join(said.texts)),
            observed_at=said.since,
        )


def describe_hold(hold: Hold) -> str:
    """By whom, until when and why, in words."""
    ends = hold_time(hold.until)
    until = f" until {ends}" if ends else ""
    return f"held by {hold.by or 'an operator'}{until}: {hold.reason or 'no reason given'}"
