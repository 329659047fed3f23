"""An operator's word on how many devices a node has: the annotation `fettle.dev/expected-devices`
of a Node, such as `nvidia.com/gpu=8, gpu.nvidia.com=8`: units of a resource, devices of a DRA
driver.
"""

import re
from collections.abc import Mapping

from fettle.api.meta import ObjectMeta
from fettle.health.signals.reports import unread_annotation
from fettle.model import EXPECTED_DEVICES, Evidence, Source, SourceKind

EXPECTED_SOURCE = Source(SourceKind.ANNOTATION, EXPECTED_DEVICES)
MOST_EXPECTED = 64
_NAME = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(/[A-Za-z0-9._-]+)?", re.ASCII)
_LONGEST_NAME = 317
"""Characters of a resource, by the API server."""
_SHOWN = 64
"""Characters of what cannot be read."""
_DIGITS = 6
"""Of a number of devices. No kubelet has a million."""


def expected_on_node(metadata: ObjectMeta) -> Mapping[str, int] | None:
    """By resource or driver, how many a node should have; None if the annotation cannot be read."""
    written = (metadata.annotations or {}).get(EXPECTED_DEVICES, "").strip()
    if not written:
        return {}
    found: dict[str, int] = {}
    for entry in written.split(",", MOST_EXPECTED):
        name, _, number = (part.strip() for part in entry.partition("="))
        if not is_device_name(name) or (count := to_count(number)) is None or name in found:
            return None
        found[name] = count
    return found


def to_count(number: str) -> int | None:
    """A number of devices as a label or annotation has it; None if it cannot be one."""
    is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS
    return int(number) if is_number else None


def is_device_name(name: str) -> bool:
    """Whether a resource or driver may be called so. People read it in a terminal."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def unread_expectations(metadata: ObjectMeta, now: float) -> tuple[Evidence, ...]:
    """Evidence without weight that says that the annotation cannot be read; () if it can."""
    if expected_on_node(metadata) is not None:
        return ()
    written = (metadata.annotations or {})[EXPECTED_DEVICES]
    said = (
        f"{EXPECTED_DEVICES}={written[:_SHOWN]!r} counts for nothing: write a number for each "
        "resource or driver, such as nvidia.com/gpu=8"
    )
    return (unread_annotation(metadata.name, EXPECTED_SOURCE, said, now),)
