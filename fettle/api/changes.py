"""What a feed tells the writer: objects that came, went or cannot be read, and how fresh it is."""

import asyncio
import json
from typing import Any, NamedTuple, Protocol

import msgspec

from fettle.api import kinds
from fettle.api.decoding import decode_lenient, mend
from fettle.api.kinds import Kind, WireObject
from fettle.api.salvage import (
    Pools,
    SalvagedNode,
    loose_object,
    loose_text,
    node_and_pools,
    salvage_node,
)
from fettle.model import BadInput


class Put(NamedTuple):
    """An object as it is now."""

    kind: Kind
    object: WireObject


class Gone(NamedTuple):
    """An object was deleted; `key` is `namespace/name`, or `name` where cluster-scoped."""

    kind: Kind
    key: str


class Bad(NamedTuple):
    """An object cannot be read: it is quarantined under its key until it is put or gone.

    `node` is the node it speaks for as far as can be told, else ""; `pools` are those whose devices
    may be other than they seem without it; `left` is what of a Node can be read.
    """

    kind: Kind
    key: str
    reason: str
    node: str = ""
    pools: tuple[Pools, ...] = ()
    left: SalvagedNode | None = None


class ListStarted(NamedTuple):
    """A full list follows; what it does not put before `ListEnded` is gone."""

    kind: Kind


class ListEnded(NamedTuple):
    """The list is complete: the kind is synced."""

    kind: Kind


class Contact(NamedTuple):
    """The source of this kind spoke (event or bookmark)."""

    kind: Kind


class Lost(NamedTuple):
    """The source of this kind cannot be read at present; `note` is one sentence for people."""

    kind: Kind
    note: str


class Unserved(NamedTuple):
    """The cluster does not serve this kind at all; it counts as synced and empty."""

    kind: Kind
    note: str


Change = Put | Gone | Bad | ListStarted | ListEnded | Contact | Lost | Unserved


class Sink(Protocol):
    """Takes changes in order; waits while the writer is behind."""

    async def send(self, changes: list[Change]) -> None: ...


_ANY_JSON: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
BATCH_BYTES = 48 * 1024
"""How much JSON is decoded before the loop gets a turn: about 0.2 ms."""


def read_object(kind: Kind, raw: bytes) -> Put | Bad:
    """The object, or why it cannot be used, under its name as far as that can be read."""
    try:
        decoded = kind.decode(raw)
    except BadInput as error:
        return bad_object(kind, raw, str(error))
    if not decoded.metadata.name:
        return bad_object(kind, raw, "it has no metadata.name")
    return Put(kind, decoded)


def bad_object(kind: Kind, raw: bytes, reason: str) -> Bad:
    """An object that cannot be read, with its key and what it speaks of, if they can be."""
    whole = read_loosely(raw)
    node, pools = node_and_pools(kind, whole)
    left = salvage_node(whole) if kind is kinds.NODE else None
    return Bad(kind, key_of(loose_object(whole, "metadata")), reason, node, pools, left)


def read_loosely(raw: bytes) -> dict[str, Any]:
    """Whatever can be read of an object that may be malformed; {} if it is none."""
    try:
        whole = decode_lenient(_ANY_JSON, raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:  # there may be a number that is too large, which says nothing of all else
            whole = json.loads(mend(raw), parse_int=float)
        except ValueError:
            return {}
    return whole if isinstance(whole, dict) else {}


def loose_metadata(raw: bytes) -> dict[str, Any]:
    return loose_object(read_loosely(raw), "metadata")


def key_of(metadata: dict[str, Any]) -> str:
    """`namespace/name` or `name` of metadata that may be malformed."""
    name, namespace = loose_text(metadata, "name"), loose_text(metadata, "namespace")
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
