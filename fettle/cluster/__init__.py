"""The cluster as Fettle knows it: objects, pools and nodes in the inventory, and the view of them.

The one writer task (`feeds`) changes the inventory and publishes immutable views. Pure, except for
`feeds`, which is a room of its own.
"""

from fettle.cluster import readiness
from fettle.cluster.inventory.fingerprints import (
    EVERYTHING,
    Attribute,
    AttributeFingerprints,
    attribute_digests,
    attributes_read,
)
from fettle.cluster.inventory.inventory import Inventory
from fettle.cluster.inventory.measuring import Measuring
from fettle.cluster.inventory.stores import changed_keys
from fettle.cluster.inventory.unit_counts import whole_device
from fettle.cluster.view import (
    EMPTY,
    UNMARKED,
    NodeMarks,
    NodeView,
    PluginView,
    Publisher,
    Shortage,
    SourceStatus,
    UnitView,
    View,
)

__all__ = [
    "EMPTY",
    "EVERYTHING",
    "UNMARKED",
    "Attribute",
    "AttributeFingerprints",
    "Inventory",
    "Measuring",
    "NodeMarks",
    "NodeView",
    "PluginView",
    "Publisher",
    "Shortage",
    "SourceStatus",
    "UnitView",
    "View",
    "attribute_digests",
    "attributes_read",
    "changed_keys",
    "readiness",
    "whole_device",
]
