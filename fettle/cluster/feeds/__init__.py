"""Where changes come from, a cluster's API server or a snapshot folder; and the one writer task.

Every feed sends the same changes (`fettle.api.changes`), so serving from a snapshot and serving
from a cluster differ in nothing but the source.
"""

from fettle.cluster.feeds.alerts import Alerts
from fettle.cluster.feeds.cluster import ClusterFeed, FeedFreshness, read_once
from fettle.cluster.feeds.objects import MOST_FACTS_OF_TENANTS, ObjectFeed
from fettle.cluster.feeds.prometheus import Poller
from fettle.cluster.feeds.snapshot import OtherObject, SnapshotFeed, SnapshotFolder
from fettle.cluster.feeds.workloads import WorkloadFeed
from fettle.cluster.feeds.writer import OnView, Writer

__all__ = [
    "MOST_FACTS_OF_TENANTS",
    "Alerts",
    "ClusterFeed",
    "FeedFreshness",
    "ObjectFeed",
    "OnView",
    "OtherObject",
    "Poller",
    "SnapshotFeed",
    "SnapshotFolder",
    "WorkloadFeed",
    "Writer",
    "read_once",
]
