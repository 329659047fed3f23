"""The cluster as Fettle knows it: objects, pools and nodes in the inventory, and the view of them.

The one writer task (`feeds`) changes the inventory and publishes immutable views. Pure but for
`feeds`, which is a room of its own.
"""

from fettle.cluster import readiness
from fettle.cluster.inventory import divisions, shapes
from fettle.cluster.inventory.inventory import Inventory
from fettle.cluster.inventory.shapes import Attribute, AttributeFingerprints, attributes_read
from fettle.cluster.view import EMPTY, NodeView, PluginView, Publisher, SourceStatus, UnitView, View

__all__ = [
    "EMPTY",
    "Attribute",
    "AttributeFingerprints",
    "Inventory",
    "NodeView",
    "PluginView",
    "Publisher",
    "SourceStatus",
    "UnitView",
    "View",
    "attributes_read",
    "divisions",
    "readiness",
    "shapes",
]
