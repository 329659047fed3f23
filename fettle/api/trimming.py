"""Cuts what others made long, before it is decoded: texts, lists and mappings.

Whoever may write an object decides how long its texts are and how many entries its lists have, up
to the API server's 1.5 MiB. To read all of that would stop the loop for everybody. Only what a
struct names is looked at; what it skips may be of any length.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from fettle.api.annotations import KEPT, KeptAnnotations
from fettle.model import OWN_PREFIX
from fettle.pacing import pause

LONGEST_TEXT = 8 * 1024
"""Characters of a text, such as a condition's message. A monitor's longest has 1024 (NVSentinel's).
"""
LONGEST_SPEC = 16 * 1024
"""Characters of a text of which each decides, such as a selector: the API server takes 10 KiB."""
LONGEST_EVENT = 1024
"""Characters of an Event's text. The newer API for Events takes no longer ones."""
LONGEST_ANNOTATION = 32 * 1024
"""Characters. An annotation may hold a list of devices."""
MOST_ENTRIES = 1024
"""Of a list or mapping. None that Kubernetes validates may have more."""
MOST_OF = {
    "Condition": 256,
    "ContainerStatus": 512,
    "Device": 128,
    "DeviceAttribute": 128,
    "DeviceCapacity": 128,
    "DeviceRequest": 128,
    "DeviceRequestAllocationResult": 128,
    "DeviceSubRequest": 128,
    "DeviceTaint": 128,
    "DeviceToleration": 128,
    "StoredEvidence": 512,
    "StoredSubject": 512,
}
"""Entries of a list or mapping of these. Each condition is held against every rule, the status of a
container is long, and of the others the API server takes no more (of most of them 32)."""
LONGEST_KEY = 1024
"""Characters. Those of labels, annotations and resources have at most 317."""
CUT = "..."
"""Ends a text that was cut. Monitors write it, too, so its readers know that something may be
missing."""
_SPLITTABLE = 16 * 1024
"""Entries of a mapping that are split in one go, in a millisecond or two."""
_PIECE = 32 * 1024
_LONGEST_ENTRY = 256 * 1024
"""Bytes. All annotations of an object have no more."""
# Possessive, so that no text is looked at twice.
_QUOTED = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OBJECT = rb'\{(?:%b|[^"{}]++)*+\}' % _QUOTED
for _ in range(2):  # a capacity of a device has three levels
    _OBJECT = rb'\{(?:%b|[^"{}]++|%b)*+\}' % (_QUOTED, _OBJECT)
_VALUE = rb'(?:%b|%b|[^"\[\]{},:]++)' % (_QUOTED, _OBJECT)
_ENTRY = rb"\s*+%b\s*+:\s*+%b\s*+," % (_QUOTED, _VALUE)
_ENTRIES = re.compile(rb"(?:%b)++" % _ENTRY, re.DOTALL)
_ONE_ENTRY = re.compile(_ENTRY, re.DOTALL)
_ANNOTATIONS = "metadata.annotations"
_OWN_KEY = b'"%b' % OWN_PREFIX.encode()
_LIST: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])
_MAP: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Trimmed(NamedTuple):
    """The JSON as it is to be read, and what was cut: one phrase for each place, by its path."""

    raw: bytes
    cut: tuple[str, ...]


def trim(raw: bytes, struct: type[msgspec.Struct], longest: int = LONGEST_TEXT) -> Trimmed:
    """The JSON of one object that `struct` will read, with no text of more than `longest`
    characters, and no more entries than are read. JSON that cannot be read is left as it is."""
    if len(raw) <= min(longest, LONGEST_TEXT):
        return Trimmed(raw, ())
    trimming = _Trimming(min(longest, LONGEST_TEXT), KEPT.get(struct.__name__))
    kept = trimming.value(raw, _type(struct), "", longest)
    return Trimmed(bytes(kept), tuple(trimming.cut))


def trim_loosely(raw: bytes, struct: type[msgspec.Struct]) -> bytes:
    """The same of JSON that `struct` cannot read, without what no struct reads."""
    if len(raw) <= LONGEST_TEXT:
        return raw
    trimming = _Trimming(LONGEST_TEXT, KEPT.get(struct.__name__), loosely=True)
    return bytes(trimming.value(raw, _type(struct), "", LONGEST_TEXT))


_type = cache(inspect.type_info)
"""It takes msgspec most of a millisecond."""
_Json = bytes | memoryview
"""A piece of it, not copied if that is not needed: it may be as long as the whole."""


class _Trimming:
    def __init__(self, short: int, kept: KeptAnnotations | None, loosely: bool = False) -> None:
        """`short`: bytes in which nothing can be too long. `kept`: the annotations that are read;
        None for all. `loosely`: nothing is left that has not the form of its type."""
        self._short = short
        self._kept = kept
        self._loosely = loosely
        self.cut: list[str] = []

    def value(self, raw: _Json, of: inspect.Type, path: str, longest: int) -> _Json:
        """The value, cut where it is too long; the same object if it is not."""
        if len(raw) <= self._short:
            return raw
        pause()
        try:
            match first := bytes(raw[:1]), _read_as(of, first):
                case b'"', _:
                    return self._text(raw, path, longest)
                case _, inspect.StructType(fields=()):
                    return b"{}" if self._loosely else raw
                case b"{", inspect.StructType() as struct:
                    return self._struct(raw, struct, path, longest)
                case b"{", inspect.DictType() as mapping:
                    return self._map(raw, mapping.value_type, path, longest)
                case b"[", (inspect.ListType() | inspect.VarTupleType()) as list_:
                    return self._list(raw, list_.item_type, path, longest)
                case ((b"{" | b"["), _) if self._loosely:
                    return b"{}" if first == b"{" else b"[]"
        except _UNREADABLE:
            pass  # the decoder will say what is wrong, and where
        return raw

    def _text(self, raw: _Json, path: str, longest: int) -> _Json:
        text = _TEXT.decode(raw)
        if len(text) <= longest:
            return raw
        self.cut.append(f"{path}: {longest} of {len(text)} characters are read")
        return msgspec.json.encode(f"{text[:longest]} (cut after {longest} characters){CUT}")

    def _struct(self, raw: _Json, of: inspect.StructType, path: str, longest: int) -> _Json:
        outline = _outline(of.cls).decode(raw)
        changed = self._loosely
        for field in of.fields:
            given = getattr(outline, field.name)
            if given is msgspec.UNSET:
                continue
            room = _room(field.encode_name, longest)
            before = memoryview(given)
            after = self.value(before, field.type, f"{path}.{field.encode_name}".strip("."), room)
            if after is not before:
                changed = True
                setattr(outline, field.name, msgspec.Raw(bytes(after)))
        return msgspec.json.encode(outline) if changed else raw

    def _map(self, given: _Json, of: inspect.Type, path: str, longest: int) -> _Json:
        """Fettle's own keys come first, or nobody could see a hold among a thousand others."""
        most = _most(of)
        own: dict[str, Any] = {}
        others: dict[str, Any] = {}
        raw = bytes(given)
        wanted = self._kept if path == _ANNOTATIONS else None
        changed = unread = False
        for piece in _pieces(raw) if raw.count(b":") > _SPLITTABLE else (raw,):
            pause()
            if len(others) == most and _OWN_KEY not in piece:
                changed = True
                continue
            entries = _split(piece)
            if wanted is not None:
                number, entries = len(entries), wanted.among(entries)
                unread = unread or len(entries) < number
            for key, entry in entries.items():
                kept = own if key.startswith(OWN_PREFIX) else others
                if len(key) > LONGEST_KEY:
                    self.cut.append(f"{path}: a key of {len(key)} characters is not read")
                    changed = True
                elif len(kept) == most:
                    changed = True
                else:
                    kept[key] = entry
        if len(own) + len(others) > most or (changed and len(others) == most):
            self.cut.append(f"{path}: only {most} entries are read")
            changed = True
        changed = changed or unread
        read: dict[str, Any] = {}
        for key, entry in islice((own | others).items(), most):
            before = memoryview(entry)
            after = self.value(before, of, f"{path}[{key}]", longest)
            changed = changed or after is not before
            read[key] = entry if after is before else msgspec.Raw(bytes(after))
        return msgspec.json.encode(read) if changed else given

    def _list(self, given: _Json, of: inspect.Type, path: str, longest: int) -> _Json:
        raw = bytes(given)
        most = _most(of)
        entries = _LIST.decode(raw) if raw.count(b",") < most else _first(most + 1, raw)
        changed = len(entries) > most
        if changed:
            self.cut.append(f"{path}: only the first {most} entries are read")
        kept = []
        for at, entry in enumerate(entries[:most]):
            before = memoryview(entry)
            after = self.value(before, of, f"{path}[{at}]", longest)
            changed = changed or after is not before
            kept.append(entry if after is before else msgspec.Raw(bytes(after)))
        return msgspec.json.encode(kept) if changed else given


def _most(of: inspect.Type) -> int:
    return MOST_OF.get(getattr(getattr(of, "cls", None), "__name__", ""), MOST_ENTRIES)


def _split(raw: bytes) -> dict[str, msgspec.Raw]:
    return _MAP.decode(raw)


def _pieces(raw: bytes) -> Iterator[bytes]:
    """A mapping as smaller ones, if its entries are texts or objects of three levels at most. Of
    others, and of longer ones, no API server takes very many."""
    at = 1
    while len(raw) - at > _PIECE:
        found = _ENTRIES.match(raw, at, at + _PIECE)
        if found is None:
            pause()
            found = _ONE_ENTRY.match(raw, at, at + _LONGEST_ENTRY)
        if found is None:
            break
        yield b"{%b}" % raw[at : found.end() - 1]
        at = found.end()
    yield b"{" + raw[at:]


def _first(most: int, raw: bytes) -> list[msgspec.Raw]:
    """The first entries of a list. The others are passed over."""
    found = msgspec.structs.astuple(_head(most).decode(raw))
    return [entry for entry in found if entry is not msgspec.UNSET]


@cache
def _head(most: int) -> "msgspec.json.Decoder[Any]":
    unread = (msgspec.Raw | msgspec.UnsetType, msgspec.UNSET)
    fields = [(f"_{at}", *unread) for at in range(most)]
    return msgspec.json.Decoder(msgspec.defstruct("Head", fields, array_like=True, gc=False))


def _room(field: str, longest: int) -> int:
    """How long the texts in a field may be, where others of the object may be so long."""
    if field == "annotations" and longest > LONGEST_EVENT:
        return LONGEST_ANNOTATION
    return min(longest, LONGEST_TEXT) if field == "message" else longest


def _read_as(of: inspect.Type, first: bytes) -> inspect.Type:
    """Of a union the type that a value is read as that begins so."""
    if isinstance(of, inspect.UnionType):
        wanted: tuple[type, ...] = (inspect.ListType, inspect.VarTupleType)
        if first == b"{":
            wanted = (inspect.StructType, inspect.DictType)
        return next((one for one in of.types if isinstance(one, wanted)), of)
    return of


@cache
def _outline(struct: type[msgspec.Struct]) -> "msgspec.json.Decoder[Any]":
    """Reads the fields of a struct as they stand, each unread."""
    fields = msgspec.structs.fields(struct)
    outline = msgspec.defstruct(
        f"Outline{struct.__name__}",
        [(one.name, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for one in fields],
        rename={one.name: one.encode_name for one in fields},
        gc=False,
    )
    return msgspec.json.Decoder(outline)
