"""The scheduler extender: kube-scheduler's three verbs.
Stands at the end of *watch → inventory → health → verdict → answer*."""

from extender.app import make_connections
from extender.freshness import AlwaysFresh, Freshness
from extender.http.connections import LINGER_S, SchedulerConnections
from extender.misconfiguration import Misconfiguration

__all__ = [
    "LINGER_S",
    "AlwaysFresh",
    "Freshness",
    "Misconfiguration",
    "SchedulerConnections",
    "make_connections",
]
