"""Where changes come from: a cluster's API server, or a snapshot folder; and the one writer task.

Every feed says the same things in the same words (`fettle.api.changes`), so serving from a
snapshot and serving from a cluster differ in nothing but the source.
"""

from fettle.cluster.feeds.cluster import ClusterFeed
from fettle.cluster.feeds.documents import LocatedObject, objects_of_json, objects_of_yaml
from fettle.cluster.feeds.folders import Folder
from fettle.cluster.feeds.latest import FeedFreshness
from fettle.cluster.feeds.snapshot import SnapshotFeed
from fettle.cluster.feeds.writing import Writer

__all__ = [
    "ClusterFeed",
    "FeedFreshness",
    "Folder",
    "LocatedObject",
    "SnapshotFeed",
    "Writer",
    "objects_of_json",
    "objects_of_yaml",
]
