"""How listeners take in what strangers send: bounds on connections, bytes and time."""

from fettle.http.accepting import (
    BACKLOG,
    MAX_HEAD_BYTES,
    RECEIVE_S,
    Accepted,
    Acceptor,
    Caller,
    Callers,
    Limits,
    MakeProtocol,
    listening_on,
)
from fettle.http.app_connections import AppConnections, Turns, unserved

__all__ = [
    "BACKLOG",
    "MAX_HEAD_BYTES",
    "RECEIVE_S",
    "Accepted",
    "Acceptor",
    "AppConnections",
    "Caller",
    "Callers",
    "Limits",
    "MakeProtocol",
    "Turns",
    "listening_on",
    "unserved",
]
