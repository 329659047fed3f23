"""The only code that talks to the API server: sessions, reflecting, leasing.

May import the wire structs and the words of `fettle.api.changes`; nothing that judges health or
decides what to write.
"""

from fettle.client import discovering, key_files, versions
from fettle.client.decoding import decoded
from fettle.client.discovering import ServedKind
from fettle.client.leasing import identity, lead
from fettle.client.recording import Event, Recorder, Regarding
from fettle.client.reflecting import Reflector
from fettle.client.session import Session
from fettle.client.streaming import Streams

__all__ = [
    "Event",
    "Recorder",
    "Reflector",
    "Regarding",
    "ServedKind",
    "Session",
    "Streams",
    "decoded",
    "discovering",
    "identity",
    "key_files",
    "lead",
    "versions",
]
