"""How listeners take in what strangers send: bounds on connections, bytes and time."""

from fettle.http.accepting import (
    MAX_HEAD_BYTES,
    RECEIVE_S,
    Accepted,
    Acceptor,
    Caller,
    Callers,
    Limits,
    MakeProtocol,
)
from fettle.http.app_connections import AppConnections, Turns, unserved

__all__ = [
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
    "unserved",
]
