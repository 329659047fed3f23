"""One line of a watch: read whole in one pass where that can be, else its type and the object's
bytes. Of thousands of pods' events a second nearly all are of the first kind. Pure.
"""

from typing import Any, NamedTuple

import msgspec

from fettle.api import Gone, Put, lenient
from fettle.api.kinds import Kind
from fettle.model import BadInput

PUTS = ("ADDED", "MODIFIED")
GONE = "DELETED"


class Plain(NamedTuple):
    """An event about an object that could be read."""

    change: Put | Gone
    version: str


class UnreadEvent(msgspec.Struct, frozen=True):
    """Any event, its object as it came."""

    type: str
    object: msgspec.Raw


_UNREAD = msgspec.json.Decoder(UnreadEvent)


class Events:
    """Reads the lines of one kind's watch."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        whole = msgspec.defstruct("Event", [("type", str), ("object", kind.struct)], frozen=True)
        self._whole: Any = msgspec.json.Decoder(whole, strict=False)

    def read(self, line: bytes) -> Plain | UnreadEvent:
        """Raises BadInput for what is not an event."""
        if not self._kind.is_probed:  # what is probed has to be read twice anyway
            try:
                event = lenient.decode(self._whole, line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return _unread(line)
            metadata = event.object.metadata
            if metadata.name and event.type in PUTS:
                return Plain(Put(self._kind, event.object), metadata.resource_version)
            if metadata.name and event.type == GONE:
                return Plain(Gone(self._kind, metadata.key), metadata.resource_version)
        return _unread(line)


def _unread(line: bytes) -> UnreadEvent:
    try:
        unread: UnreadEvent = lenient.decode(_UNREAD, line)
        return unread
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(str(error)) from error
