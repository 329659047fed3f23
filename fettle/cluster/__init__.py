"""The cluster as Fettle knows it: objects, pools and nodes in the inventory, and the view of them.

The one writer task (`feeds`) changes the inventory and publishes immutable views. Pure, except for
`feeds`, which is a room of its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fettle.cluster.view import (
    EMPTY,
    UNMARKED,
    NewDriver,
    NodeMarks,
    NodeView,
    PluginView,
    Publisher,
    Shortage,
    SourceStatus,
    UnitView,
    View,
)

if TYPE_CHECKING:
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

__all__ = [
    "EMPTY",
    "EVERYTHING",
    "UNMARKED",
    "Attribute",
    "AttributeFingerprints",
    "Inventory",
    "Measuring",
    "NewDriver",
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

_LATE = {
    "EVERYTHING": "fingerprints",
    "Attribute": "fingerprints",
    "AttributeFingerprints": "fingerprints",
    "Inventory": "inventory",
    "Measuring": "measuring",
    "attribute_digests": "fingerprints",
    "attributes_read": "fingerprints",
    "changed_keys": "stores",
    "whole_device": "unit_counts",
}
"""In which module of the inventory a name is. `fettle lint` needs the view, and none of these."""


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.inventory.{_LATE[name]}"), name)
    globals()[name] = found
    return found
