"""One object's JSON becomes a change: put if it can be read, bad if not; and slices of changes that
the loop can afford. Shared by the cluster's and the snapshot's feed, so that a broken object is
the same to both. May import the wire structs; knows nothing of where the JSON came from.
"""

import asyncio
from typing import Any

import msgspec

from fettle.errors import BadInput
from fettle.wire import kinds
from fettle.wire.changes import Bad, Change, Put, Sink
from fettle.wire.kinds import Kind

SLICE_BYTES = 48 * 1024
"""How much JSON is decoded before the loop gets a turn: about 0.2 ms."""


def read(kind: Kind, raw: bytes) -> Put | Bad:
    """The object, or why it cannot be used, under its name as far as that can be read."""
    try:
        decoded = kind.decode(raw)
    except BadInput as error:
        return bad(kind, raw, str(error))
    except RecursionError:
        return bad(kind, raw, f"{kind.name}: nested too deeply")
    if not decoded.metadata.name:
        return bad(kind, raw, f"{kind.name}: it has no metadata.name")
    return Put(kind, decoded)


def bad(kind: Kind, raw: bytes, reason: str) -> Bad:
    """An object that cannot be read, with its key and the node it speaks for if they can be."""
    whole = loosely(raw)
    key = key_of(_part(whole, "metadata"))
    node = key if kind is kinds.NODE else _text(_part(whole, "spec"), "nodeName")
    return Bad(kind, key, reason, node)


def loosely(raw: bytes) -> dict[str, Any]:
    """Whatever can be read of an object that may be malformed; {} if it is none."""
    try:
        whole = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Far below, something is broken; the identity may still be readable.
        name, _, last = _identify(raw).rpartition("/")
        return {"metadata": {"namespace": name, "name": last}}
    return whole if isinstance(whole, dict) else {}


def loose_metadata(raw: bytes) -> dict[str, Any]:
    return _part(loosely(raw), "metadata")


def _identify(raw: bytes) -> str:
    try:
        return kinds.identify(raw)
    except RecursionError:
        return ""


def key_of(metadata: dict[str, Any]) -> str:
    """`namespace/name` or `name` of metadata that may be malformed."""
    name, namespace = _text(metadata, "name"), _text(metadata, "namespace")
    return f"{namespace}/{name}" if namespace else name


def _part(whole: dict[str, Any], field: str) -> dict[str, Any]:
    part = whole.get(field)
    return part if isinstance(part, dict) else {}


def _text(part: dict[str, Any], field: str) -> str:
    text = part.get(field)
    return text if isinstance(text, str) else ""


class Slices:
    """Hands changes on to a sink in slices of bounded size, giving the loop a turn after each."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._changes: list[Change] = []
        self._bytes = 0

    async def add(self, change: Change, size: int = 0) -> None:
        """`size`: how many bytes of JSON were decoded for it."""
        self._changes.append(change)
        self._bytes += size
        if self._bytes >= SLICE_BYTES:
            await self.flush()

    async def flush(self) -> None:
        changes, self._changes, self._bytes = self._changes, [], 0
        if changes:
            await self._sink.send(changes)
            await asyncio.sleep(0)  # a sink with room does not wait, so the loop would starve
