"""Bytes to structs of only the needed fields, one module per API group.

Field names are Kubernetes' own in snake case (`msgspec` renames them); an absent field and `null`
are the same. What a struct does not name is skipped while decoding, not stored.
"""

from fettle.api import (
    admission,
    choices,
    core,
    extender,
    kinds,
    lenient,
    meta,
    nvidia,
    quantities,
    raw,
    resource,
)
from fettle.api.changes import (
    Bad,
    Change,
    Contact,
    Gone,
    ListEnded,
    ListStarted,
    Lost,
    Pools,
    Put,
    Sink,
    Unserved,
)
from fettle.api.concerning import concern
from fettle.api.lenient import mended
from fettle.api.policies import DevicePolicy
from fettle.api.reading import Batches, bad, key_of, loose_metadata, read
from fettle.api.salvaging import completed

__all__ = [
    "Bad",
    "Batches",
    "Change",
    "Contact",
    "DevicePolicy",
    "Gone",
    "ListEnded",
    "ListStarted",
    "Lost",
    "Pools",
    "Put",
    "Sink",
    "Unserved",
    "admission",
    "bad",
    "choices",
    "completed",
    "concern",
    "core",
    "extender",
    "key_of",
    "kinds",
    "lenient",
    "loose_metadata",
    "mended",
    "meta",
    "nvidia",
    "quantities",
    "raw",
    "read",
    "resource",
]
