"""One object's JSON becomes a change: put if it can be read, bad if not; and changes go on in
batches that the loop can afford. Shared by the cluster's and the snapshot's feed, so that a broken
object is the same to both. May import the wire structs; knows nothing of where the JSON came from.
"""

import asyncio
import json
from typing import Any

import msgspec

from fettle.api import kinds, lenient
from fettle.api.changes import Bad, Change, Put, Sink
from fettle.api.concerning import concern, part, text
from fettle.api.kinds import Kind
from fettle.api.salvaging import salvage
from fettle.model import BadInput

_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
BATCH_BYTES = 48 * 1024
"""How much JSON is decoded before the loop gets a turn: about 0.2 ms."""


def read(kind: Kind, raw: bytes) -> Put | Bad:
    """The object, or why it cannot be used, under its name as far as that can be read."""
    try:
        decoded = kind.decode(raw)
    except BadInput as error:
        return bad(kind, raw, str(error))
    if not decoded.metadata.name:
        return bad(kind, raw, "it has no metadata.name")
    return Put(kind, decoded)


def bad(kind: Kind, raw: bytes, reason: str) -> Bad:
    """An object that cannot be read, with its key and what it speaks of, if they can be."""
    whole = loosely(raw)
    node, pools = concern(kind, whole)
    left = salvage(whole) if kind is kinds.NODE else None
    return Bad(kind, key_of(part(whole, "metadata")), reason, node, pools, left)


def loosely(raw: bytes) -> dict[str, Any]:
    """Whatever can be read of an object that may be malformed; {} if it is none."""
    try:
        whole = lenient.decode(_ANY, raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:  # there may be a number that is too large, which says nothing of all else
            whole = json.loads(lenient.mended(raw), parse_int=float)
        except ValueError:
            return {}
    return whole if isinstance(whole, dict) else {}


def loose_metadata(raw: bytes) -> dict[str, Any]:
    return part(loosely(raw), "metadata")


def key_of(metadata: dict[str, Any]) -> str:
    """`namespace/name` or `name` of metadata that may be malformed."""
    name, namespace = text(metadata, "name"), text(metadata, "namespace")
    return f"{namespace}/{name}" if namespace else name


class Batches:
    """Hands changes on to a sink in batches of bounded size, giving the loop a turn after each."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._changes: list[Change] = []
        self._bytes = 0

    async def add(self, change: Change, size: int = 0) -> None:
        """`size`: how many bytes of JSON were decoded for it."""
        self._changes.append(change)
        self._bytes += size
        if self._bytes >= BATCH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        changes, self._changes, self._bytes = self._changes, [], 0
        if changes:
            await self._sink.send(changes)
            await asyncio.sleep(0)  # a sink with room does not wait, so the loop would starve
