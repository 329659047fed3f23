"""The scheduler extender: kube-scheduler's three verbs, and a second listener for people and
machines. Stands at the end of *watch → inventory → health → verdict → answer*."""

from extender.app import make_connections
from extender.browse import Browse
from extender.browse_access import by_review, by_token, screened, trusting
from extender.filter import RecentPods
from extender.freshness import AlwaysFresh, Freshness
from extender.http.connections import LINGER_S, Callers, SchedulerConnections
from extender.misconfiguration import Misconfiguration
from extender.reviews import Reviews

__all__ = [
    "LINGER_S",
    "AlwaysFresh",
    "Browse",
    "Callers",
    "Freshness",
    "Misconfiguration",
    "RecentPods",
    "Reviews",
    "SchedulerConnections",
    "by_review",
    "by_token",
    "make_connections",
    "screened",
    "trusting",
]
