"""The scheduler extender: HTTP around verdicts, and a second listener for people and machines."""

from extender.app import make_connections
from extender.browse import Browse
from extender.connections import LINGER_S, SchedulerConnections
from extender.verbs import Verbs

__all__ = [
    "LINGER_S",
    "Browse",
    "SchedulerConnections",
    "Verbs",
    "make_connections",
]
