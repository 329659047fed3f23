"""Repairs: an operator's word that a node, a device or a unit was mended, in annotations of a Node.

Each annotation `fettle.dev/repaired` or `fettle.dev/repaired-…` is one repair. Its value is the
time as in RFC 3339, or a JSON object with `at`, and `device` and `by` if wanted; `device` is
written as in a hold. What cannot be read is no repair.
"""

from collections.abc import Iterator

import msgspec

from fettle.api.meta import ObjectMeta, rfc3339_at
from fettle.health.signals.holds import read_time, subject_called
from fettle.health.signals.reports import TEXT_LIMIT, StatedRepair, node_reporter, one_line
from fettle.model import (
    FURTHER_REPAIRED,
    REPAIRED,
    Evidence,
    EvidenceKind,
    Family,
    NodeId,
    Source,
    SourceKind,
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
    return Evidence(
        subject=node,
        family=Family.OPERATOR,
        kind=EvidenceKind.LEVEL,
        weight=0.0,
        source=REPAIRED_SOURCE,
        reporter=node_reporter(node.node),
        said=one_line(
            f"{key}={value[:TEXT_LIMIT]!r} counts as no repair: write a time that is past, such as "
            f'{rfc3339_at(now)}, or {{"at": TIME, "device": DEVICE}} with a device as `fettle '
            "devices` prints it"
        ),
        observed_at=now,
        planned=True,
    )
