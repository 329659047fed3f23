"""What a feed sends to the writer: objects that came, went or cannot be read, and how fresh a
source is; of feeds that ask: series that fire, by the rule, what rules say of objects, and what
workloads name.

Also how one object's JSON becomes such a change, and how changes are batched so that the event loop
stays responsive. The cluster's feed and the snapshot's feed share this, so both treat a broken
object the same. Knows nothing of where the JSON came from.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from fettle.api import core, kinds
from fettle.api.decoding import decode_lenient, mend
from fettle.api.kinds import LONGEST_WHOLE, Kind, WireObject
from fettle.api.meta import ObjectMeta
from fettle.api.salvage import (
    Pools,
    SalvagedNode,
    loose_object,
    loose_text,
    node_and_pools,
    salvage_node,
)
from fettle.api.trimming import LONGEST_TEXT, trim, trim_loosely
from fettle.model import BadInput, Inherited
from fettle.pacing import run_within


class Put(NamedTuple):
    """An object as it is now, and what of it was too long to be read."""

    kind: Kind
    object: WireObject
    cut: tuple[str, ...] = ()


class Gone(NamedTuple):
    """An object was deleted. `key` is `namespace/name`, or `name` if cluster-scoped."""

    kind: Kind
    key: str


class Bad(NamedTuple):
    """An object cannot be read. It is quarantined under its key until a Put or Gone with that key.

    `node` is the node that it is about, "" if that is unknown. `pools` are those whose devices may
    differ from what they seem without it. `salvaged` is the readable part of a Node.
    """

    kind: Kind
    key: str
    reason: str
    node: str = ""
    pools: tuple[Pools, ...] = ()
    salvaged: SalvagedNode | None = None


class ListStarted(NamedTuple):
    """A full list follows. Objects that it does not put before `ListEnded` are gone."""

    kind: Kind


class ListEnded(NamedTuple):
    """The list is complete: the kind is synced."""

    kind: Kind


class Contact(NamedTuple):
    """The source of this kind sent an event or a bookmark."""

    kind: Kind


class Lost(NamedTuple):
    """The source of this kind cannot be read at present. `note` is one sentence for people."""

    kind: Kind
    note: str


class Unserved(NamedTuple):
    """The cluster does not serve this kind at all. It counts as synced and empty."""

    kind: Kind
    note: str


class Inheritance(NamedTuple):
    """What the pods of a controller inherit where they name no policy themselves; `identity` is the
    controller's, `namespace/UID`."""

    identity: str
    inherited: Inherited


Change = Put | Gone | Bad | ListStarted | ListEnded | Contact | Lost | Unserved


class Sink(Protocol):
    """Takes changes in order. `send` waits while the writer is busy."""

    async def send(self, changes: list[Change]) -> None: ...


T = TypeVar("T")
_ANY_JSON: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
BATCH_BYTES = 48 * 1024
"""How much JSON is decoded before the event loop gets a turn: about 0.2 ms."""


def read_object(kind: Kind, raw: bytes) -> Put | Bad:
    """The object, or why it cannot be used, under its key as far as that can be read."""
    if kind.is_kept_whole:
        return _whole_object(kind, raw)
    trimmed, cut = trim(raw, kind.struct, kind.longest)
    try:
        decoded = kind.decode(trimmed, cut)
    except BadInput as error:
        return bad_object(kind, trimmed, str(error))
    if not decoded.metadata.name:
        return bad_object(kind, trimmed, "it has no metadata.name")
    return Put(kind, decoded, cut)


_WHOLE: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OBJECT_META = msgspec.json.Decoder(ObjectMeta, strict=False)


def _whole_object(kind: Kind, raw: bytes) -> Put | Bad:
    """The object as it is, without its managed fields."""
    try:
        fields = _WHOLE.decode(raw)
        metadata = _WHOLE.decode(fields["metadata"])
        metadata.pop("managedFields", None)
        fields["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
        read = _OBJECT_META.decode(fields["metadata"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError) as error:
        return Bad(kind, key_of(loose_metadata(raw)), f"it cannot be read: {error}")
    whole = msgspec.json.encode(fields)
    if len(whole) > LONGEST_WHOLE:
        reason = f"it has {len(whole)} bytes, and rules read at most {LONGEST_WHOLE}"
        return Bad(kind, read.key, reason)
    return Put(kind, core.WatchedObject(metadata=read, raw=whole))


async def read_in_slices(kind: Kind, raw: bytes) -> Put | Bad:
    """As `read_object`; a large object in slices, between which others have their turn."""
    return await _in_slices(raw, partial(read_object, kind))


async def metadata_in_slices(raw: bytes) -> dict[str, Any]:
    """As `loose_metadata`; of a large object in slices."""
    return await _in_slices(raw, loose_metadata)


async def _in_slices(raw: bytes, read: Callable[[bytes], T]) -> T:
    """What is short is read at once. Only what is large takes a slice of its own."""
    if len(raw) <= LONGEST_TEXT:
        return read(raw)
    if large := len(raw) >= BATCH_BYTES:
        await asyncio.sleep(0)
    found = await run_within(partial(read, raw))
    if large:
        await asyncio.sleep(0)
    return found


def bad_object(kind: Kind, raw: bytes, reason: str) -> Bad:
    """An unreadable object, with its key and what it is about, as far as they can be read."""
    whole = read_loosely(trim_loosely(raw, kind.struct))
    node, pools = node_and_pools(kind, whole)
    salvaged = salvage_node(whole) if kind is kinds.NODE else None
    key = key_of(loose_object(whole, "metadata"))
    return Bad(kind, key, reason, node, pools, salvaged)


def read_loosely(raw: bytes) -> dict[str, Any]:
    """Whatever JSON object can be read from the bytes; {} if none can."""
    try:
        whole = decode_lenient(_ANY_JSON, raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:  # a number may be too large; the rest of the object is fine
            whole = json.loads(mend(raw), parse_int=float)
        except ValueError:
            return {}
    return whole if isinstance(whole, dict) else {}


class _OfMetadata(msgspec.Struct):
    metadata: msgspec.Raw


_METADATA = msgspec.json.Decoder(_OfMetadata)


def loose_metadata(raw: bytes) -> dict[str, Any]:
    """The metadata, as far as it can be read. Of an object that is gone nobody needs the rest."""
    try:
        metadata = bytes(_METADATA.decode(raw).metadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return loose_object(read_loosely(raw), "metadata")
    return read_loosely(trim_loosely(metadata, ObjectMeta))


def key_of(metadata: dict[str, Any]) -> str:
    """`namespace/name` or `name`, from metadata that may be malformed."""
    name, namespace = loose_text(metadata, "name"), loose_text(metadata, "namespace")
    return f"{namespace}/{name}" if namespace else name


class Batches:
    """Passes changes on to a sink in batches of bounded size, giving the event loop a turn after
    each."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._changes: list[Change] = []
        self._bytes = 0

    async def add(self, change: Change, size: int = 0) -> None:
        """`size`: how many bytes of JSON were decoded for this change."""
        self._changes.append(change)
        self._bytes += size
        if self._bytes >= BATCH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        changes, self._changes, self._bytes = self._changes, [], 0
        if changes:
            await self._sink.send(changes)
            await asyncio.sleep(0)  # a sink with room does not wait, and would starve the loop


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The value of one series now, and the labels that name the series."""

    labels: Mapping[str, str]
    value: float


class Measured(NamedTuple):
    """What a rule's query found.

    - `samples`: the series that fire. `kept`: those of which what was latched is not over yet.
    - `odd`: series without a usable number. They are neither a fault nor an all-clear.
    - `present`: series, whether they fire or not, of the devices for which the rule fired before.
      None: a device that has none is well.
    - `complete`: Prometheus answered in full, so what does not fire and is present is well. If not,
      nothing is.
    - `missed`: series of what began while nobody asked. Only what is latched counts of it.
    """

    rule: str
    samples: tuple[Sample, ...]
    kept: tuple[Sample, ...] = ()
    odd: tuple[Sample, ...] = ()
    present: tuple[Sample, ...] | None = None
    complete: bool = True
    missed: tuple[Sample, ...] = ()


class Alert(NamedTuple):
    """What Alertmanager says of one alert of a rule: whether it `fires`, or is over.

    `fingerprint`: Alertmanager's name for the alert's labels.
    """

    rule: str
    fingerprint: str
    sample: Sample
    fires: bool


class Alerted(NamedTuple):
    """The alerts of one message."""

    alerts: tuple[Alert, ...]


class Unmeasured(NamedTuple):
    """A rule has had no answer for so long that what it said no longer stands; or one alert of the
    rule, by its fingerprint, was not repeated."""

    rule: str
    alert: str = ""


class ObjectFact(msgspec.Struct, frozen=True, array_like=True):
    """`device` is as a hold names it; "" for the node. `said`: what people read."""

    node: str
    device: str = ""
    said: str = ""


class ObjectReported(NamedTuple):
    """What rows of the table `objects` say of one object now, by their names.

    `unknown`: rows that could not be evaluated. `gone`: it does not exist any more.
    """

    kind: str
    key: str
    uid: str = ""
    facts: Mapping[str, tuple[ObjectFact, ...]] = {}
    unknown: tuple[str, ...] = ()
    gone: bool = False


Finding = Measured | Alerted | Unmeasured | ObjectReported | Inheritance
