"""The only code that talks to the API server and to Prometheus: connection, session, reflector,
leader election, Events, discovery, queries. It judges no health and does not decide what to write.
"""

from fettle.client.discovery import (
    ServedKind,
    keep_server_version,
    served_kinds,
    server_version,
)
from fettle.client.event_recorder import Event, EventRecorder, Regarding
from fettle.client.key_files import key_file
from fettle.client.kubeconfig import Chosen
from fettle.client.leader_election import LeaseLook, identity, lead
from fettle.client.prometheus import Answer, Prometheus
from fettle.client.reflector import Reflector
from fettle.client.responses import DENIED, decoded
from fettle.client.session import METADATA_ONLY, Session
from fettle.client.watch_streams import Streams

__all__ = [
    "DENIED",
    "METADATA_ONLY",
    "Answer",
    "Chosen",
    "Event",
    "EventRecorder",
    "LeaseLook",
    "Prometheus",
    "Reflector",
    "Regarding",
    "ServedKind",
    "Session",
    "Streams",
    "decoded",
    "identity",
    "keep_server_version",
    "key_file",
    "lead",
    "served_kinds",
    "server_version",
]
