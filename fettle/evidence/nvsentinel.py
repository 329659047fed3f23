"""NVSentinel's condition messages, read down to the device.

A message is a list of entries, each `ErrorCode:… GPU:4 PCI:0000:c4:00.0 GPU_UUID:GPU-… text
Recommended Action=NONE;`, joined without a separator and cut off after 1024 characters. Texts may
themselves contain semicolons, colons and PCI addresses. Knows nothing of rules or scores.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fettle.model import UnitId

RESOURCE = "nvidia.com/gpu"
NO_FAILURES = "No Health Failures"

_ENTRY = re.compile(r"(.*?)Recommended Action=(\w+);", re.DOTALL)
_FIELD = re.compile(r"(?<!\S)(ErrorCode|GPU_UUID|PCI|GPU):(\S+)(?=\s)")
_PCI = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-9a-f]))?")


class Entry(NamedTuple):
    """One finding: the unit names it gives (best kind only), error codes, action, and its text."""

    units: tuple[str, ...]
    codes: tuple[str, ...]
    action: str
    text: str
    same: tuple[tuple[str, str], ...] = ()
    """Pairs (lesser name, UUID) of one GPU, where the entry names exactly one."""


class Message(NamedTuple):
    """All entries of a message; `cut_off` where it ends before its last entry does."""

    entries: tuple[Entry, ...]
    cut_off: bool


def parse(message: str) -> Message:
    """The entries of a condition's message; a text of another form is one entry without units."""
    if message.strip() in ("", NO_FAILURES):
        return Message((), cut_off=False)
    entries = []
    end = 0
    for found in _ENTRY.finditer(message):
        entries.append(_entry(found[1], found[2]))
        end = found.end()
    rest = message[end:]
    if rest.strip(" ;"):
        entries.append(_entry(rest, ""))
    return Message(tuple(entries), cut_off=bool(entries) and not message.rstrip().endswith(";"))


def _entry(text: str, action: str) -> Entry:
    fields: dict[str, list[str]] = {"ErrorCode": [], "GPU_UUID": [], "PCI": [], "GPU": []}
    for name, value in _FIELD.findall(text):
        fields[name].append(value)
    uuids = tuple(fields["GPU_UUID"])
    addresses = tuple(f"pci:{_address(a)}" for a in fields["PCI"])
    indices = tuple(f"index:{i}" for i in fields["GPU"])
    same = ((n, uuids[0]) for n in (*addresses, *indices)) if len(uuids) == 1 else ()
    return Entry(
        units=uuids or addresses or indices,
        codes=tuple(fields["ErrorCode"]),
        action=action,
        text=_FIELD.sub("", text).strip(" ;"),
        same=tuple(same),
    )


def _address(text: str) -> str:
    """`0000:c4:00.0`, as NVML and sysfs write it; the kernel's log leaves the function out."""
    found = _PCI.fullmatch(text.lower())
    if found is None:
        return text.lower()
    domain, bus, device, function = found.groups()
    return f"{domain}:{bus}:{device}.{function or 0}"


def uuids(entries: Iterable[Entry]) -> dict[str, str]:
    """Lesser unit name → UUID, learnt from entries that give both."""
    return {name: uuid for entry in entries for name, uuid in entry.same}


def unit_ids(node: str, entry: Entry, known: Mapping[str, str]) -> tuple[UnitId, ...]:
    """The units an entry names, by their UUIDs where these are known."""
    return tuple(
        dict.fromkeys(UnitId(node, RESOURCE, known.get(name, name)) for name in entry.units)
    )
