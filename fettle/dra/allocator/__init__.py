"""Which devices the in-tree DRA allocator takes on a node: first fit, in its own order, read-only.

Files are named as in k8s.io/dynamic-resource-allocation/structured: `allocator` searches,
`allocate_device` takes one device with the help of `constraint`, `counters` and
`consumable_capacity`; `features` knows how versions differ. Ours alone: `pruning` and `matching`
end searches early that cannot succeed, `shortfall` explains why nothing fits. What is not modelled
ends in "undecided", never in a guess.
"""

from fettle.dra.allocator.allocator import allocate
from fettle.dra.allocator.results import (
    AMPLE,
    AllocationOutcome,
    AllocationStatus,
    Budget,
    DeviceResult,
)
from fettle.dra.allocator.shortfall import explain_shortfall

__all__ = [
    "AMPLE",
    "AllocationOutcome",
    "AllocationStatus",
    "Budget",
    "DeviceResult",
    "allocate",
    "explain_shortfall",
]
