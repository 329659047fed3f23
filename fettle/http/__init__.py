"""How listeners take in what strangers send: bounds on connections, bytes and time."""

from fettle.http.accepting import Accepted, Acceptor, Limits, MakeProtocol
from fettle.http.app_connections import AppConnections
from fettle.http.deadlines import MAX_HEAD_BYTES, RECEIVE_S
from fettle.http.socket_paths import bound_to, is_answered

__all__ = [
    "MAX_HEAD_BYTES",
    "RECEIVE_S",
    "Accepted",
    "Acceptor",
    "AppConnections",
    "Limits",
    "MakeProtocol",
    "bound_to",
    "is_answered",
]
