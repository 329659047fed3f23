"""Parses NVSentinel's condition messages, down to the device. Knows nothing of rules or scores.

A message is a list of entries without a separator between them, each like `ErrorCode:… GPU:4
PCI:0000:c4:00.0 GPU_UUID:GPU-… text Recommended Action=NONE;`.

- Texts may contain semicolons, colons and PCI addresses themselves.
- An NVSwitch comes before the GPU at the other end of its link, with its own address (`NVSWITCH:0
  PCI:0000:05:00.0 NVLINK:61 GPU:3`). `GPU` may give a UUID.
- If all entries together exceed 1024 characters, each is cut after 72 (`GPU_UUID:G... Recommended
  Action=NONE;`). If that is still too long, the message ends in `;...`.
- When there is room again, an entry that was cut stays in place, without an action.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fettle.health.signals import gpu_names, patterns, xids
from fettle.model import UnitId
from fettle.pacing import pause

RESOURCE = "nvidia.com/gpu"
ERROR_CODE = "ErrorCode"
"""As the `xid` of a rule: the error codes of an entry are XIDs."""
DCGM = "DCGM_FR_"
"""Begins the names of DCGM's error codes."""
NO_FAILURES = "No Health Failures"

_ACTION = re.compile(r"Recommended Action=(\w++);")
_FIELD = re.compile(r"(?<!\S)(ErrorCode|GPU_UUID|PCI|GPU):(\S+)(?=\s)")
_ENTITY = re.compile(r"(?<!\S)(ErrorCode|GPU_UUID|PCI|GPU|NVSWITCH):(\S+)(?=\s)")
_NEXT = re.compile(r";(?=(?:ErrorCode|GPU_UUID|PCI|GPU|NVSWITCH):)")
MOST_ENTRIES = 128
"""That are read of one message. NVSentinel's have 1024 characters."""
_MOST_NAMES = 64
"""That are read of one entry."""
_UUID = ("GPU-", "MIG-")
_CUT = "..."


class NVSentinelEntry(NamedTuple):
    """One finding: the GPUs it is about, each with all its names; error codes, action and text.

    `action` is "" where it was cut off. `cut`: names may be missing.
    """

    gpus: tuple[tuple[str, ...], ...]
    codes: tuple[str, ...]
    action: str
    text: str
    cut: bool


class NVSentinelMessage(NamedTuple):
    """All entries of a message. `cut_off`: one of them ends too early, or further entries are
    missing."""

    entries: tuple[NVSentinelEntry, ...]
    cut_off: bool


def parse(message: str) -> NVSentinelMessage:
    """The entries of a condition's message. Text of another form is one entry without GPUs."""
    message = message[: patterns.LONGEST]
    if message.strip() in ("", NO_FAILURES):
        return NVSentinelMessage((), cut_off=False)
    entries, end = [], 0
    for found in _ACTION.finditer(message):
        *before, last = _split(message[end : found.start()])
        entries += [_entry(text, "") for text in before]
        entries.append(_entry(last, found[1]))
        end = found.end()
        if len(entries) > MOST_ENTRIES:
            break
        pause()
    rest = message[end:].rstrip()
    entries += [_entry(text, "") for text in _split(rest) if text.strip(" ;.")]
    kept = tuple(entries[:MOST_ENTRIES])
    cut_off = rest.endswith(_CUT) or len(entries) > len(kept) or not all(e.action for e in kept)
    return NVSentinelMessage(kept, cut_off)


def _split(text: str) -> list[str]:
    """The beginnings of entries that were cut, and the last one."""
    return _NEXT.split(text, maxsplit=MOST_ENTRIES)


def _entry(text: str, action: str) -> NVSentinelEntry:
    fields: dict[str, list[str]] = {"ErrorCode": [], "GPU_UUID": [], "PCI": [], "GPU": []}
    of_switch = False
    for name, value in _ENTITY.findall(text)[:_MOST_NAMES]:
        of_switch = name == "NVSWITCH" or (of_switch and name not in ("GPU", "GPU_UUID"))
        if value.endswith(_CUT) or (of_switch and name in ("NVSWITCH", "PCI")):
            continue
        fields["GPU_UUID" if name == "GPU" and value.upper().startswith(_UUID) else name].append(
            value
        )
    return NVSentinelEntry(
        gpus=_gpus(fields["GPU_UUID"], fields["PCI"], fields["GPU"]),
        codes=tuple(fields["ErrorCode"]),
        action=action,
        text=_FIELD.sub("", text).strip(" ;"),
        cut=not action or text.rstrip().endswith(_CUT),
    )


def _gpus(
    uuids: list[str], pci_addresses: list[str], numbers: list[str]
) -> tuple[tuple[str, ...], ...]:
    """Groups the names that belong to one GPU.

    A single UUID owns all names. Otherwise lists of equal length are matched by position. Otherwise
    only the most reliable names count.
    """
    uuids = [gpu_names.uuid(u) for u in uuids]
    addresses = [gpu_names.pci(a) for a in pci_addresses]
    indices = [gpu_names.index(n) for n in numbers]
    if len(uuids) == 1:
        return ((uuids[0], *dict.fromkeys((*addresses, *indices))),)
    given = [names for names in (uuids, addresses, indices) if names]
    if len({len(names) for names in given}) > 1:
        given = given[:1]
    return tuple(dict.fromkeys(zip(*given, strict=True)))


def xids_of(entry: NVSentinelEntry) -> tuple[xids.XidMention, ...]:
    """The XIDs of an entry whose error codes are XIDs, such as `79` or `149.NETIR_LINK_EVT`. If no
    code is one, nor one of DCGM's, those that its text calls so; other numbers are none."""
    codes = [code.partition(".")[0] for code in entry.codes]
    told = tuple(xids.XidMention(code, "", entry.text) for code in codes if xids.is_code(code))
    if told or any(code.startswith(DCGM) for code in codes):
        return told
    return xids.mentions(xids.ANY_FORM, "", entry.text)


def names(entries: Iterable[NVSentinelEntry]) -> dict[str, tuple[str, ...]]:
    """By name, all names of that GPU, the most reliable first, learnt from entries that give
    several."""
    return gpu_names.joined([[gpu for entry in entries for gpu in entry.gpus]])


def unit_ids(
    node: str, entry: NVSentinelEntry, known: Mapping[str, tuple[str, ...]]
) -> tuple[UnitId, ...]:
    """The units that an entry is about, each with all its known names."""
    gpus = (known.get(gpu[0], gpu) for gpu in entry.gpus)
    return tuple(dict.fromkeys(UnitId(node, RESOURCE, gpu[0], gpu[1:]) for gpu in gpus))
