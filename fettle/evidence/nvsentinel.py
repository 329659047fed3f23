"""NVSentinel's condition messages, read down to the device.

A message is a list of entries, each `ErrorCode:… GPU:4 PCI:0000:c4:00.0 GPU_UUID:GPU-… text
Recommended Action=NONE;`, joined without a separator and cut off after 1024 characters. Texts may
themselves contain semicolons, colons and PCI addresses. Knows nothing of rules or scores.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fettle.evidence import naming
from fettle.model import UnitId

RESOURCE = "nvidia.com/gpu"
NO_FAILURES = "No Health Failures"

_ENTRY = re.compile(r"(.*?)Recommended Action=(\w+);", re.DOTALL)
_FIELD = re.compile(r"(?<!\S)(ErrorCode|GPU_UUID|PCI|GPU):(\S+)(?=\s)")


class Entry(NamedTuple):
    """One finding: the GPUs it is about, each by all its names; error codes, action, and text."""

    gpus: tuple[tuple[str, ...], ...]
    codes: tuple[str, ...]
    action: str
    text: str


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
    return Entry(
        gpus=_gpus(fields["GPU_UUID"], fields["PCI"], fields["GPU"]),
        codes=tuple(fields["ErrorCode"]),
        action=action,
        text=_FIELD.sub("", text).strip(" ;"),
    )


def _gpus(
    uuids: list[str], pci_addresses: list[str], numbers: list[str]
) -> tuple[tuple[str, ...], ...]:
    """All names are of the only UUID; else those that come in equal number belong together, in
    their order; else the best ones hold."""
    addresses, indices = [naming.pci(a) for a in pci_addresses], [naming.index(n) for n in numbers]
    if len(uuids) == 1:
        return ((uuids[0], *dict.fromkeys((*addresses, *indices))),)
    given = [names for names in (uuids, addresses, indices) if names]
    if len({len(names) for names in given}) > 1:
        given = given[:1]
    return tuple(dict.fromkeys(zip(*given, strict=True)))


def names(entries: Iterable[Entry]) -> dict[str, tuple[str, ...]]:
    """Each name → all names of its GPU, best first, learnt from entries that give several."""
    return naming.joined(gpu for entry in entries for gpu in entry.gpus)


def unit_ids(node: str, entry: Entry, known: Mapping[str, tuple[str, ...]]) -> tuple[UnitId, ...]:
    """The units an entry is about, each with all its names that are known."""
    gpus = (known.get(gpu[0], gpu) for gpu in entry.gpus)
    return tuple(dict.fromkeys(UnitId(node, RESOURCE, gpu[0], gpu[1:]) for gpu in gpus))
