"""DRA as Kubernetes does it: quantities, slices, pools, claims, and the in-tree allocator.

Ports of k8s.io/dynamic-resource-allocation and of the scheduler's DRA plugin. Pure; selectors are
looked up, not evaluated.
"""

from fettle.dra import (
    allocated_claims,
    claims,
    extended_resources,
    node_selectors,
    pod_claims,
    slices,
)
from fettle.dra.allocated_claims import NO_TIME_LIMIT, Binding
from fettle.dra.allocator import (
    AMPLE,
    Allocated,
    AllocationStatus,
    Budget,
    Match,
    allocate,
    constraints,
    gates,
    offers,
    shortfall,
    tolerates,
    versions,
)
from fettle.dra.allocator.committing import after, without
from fettle.dra.allocator.constraints import equality_pattern
from fettle.dra.allocator.doubts import doubt
from fettle.dra.allocator.offers import Offer
from fettle.dra.allocator.profiles import CURRENT, Features, Profile
from fettle.dra.allocator.tolerating import tolerated
from fettle.dra.allocator.versions import of_version, release
from fettle.dra.claims import ALL, AllocatedDevice, Alternative, Claim, Request
from fettle.dra.extended_resources import (
    IMPLICIT_CLASS_PREFIX,
    MARKER,
    device_units,
    domain_of,
    in_order,
    is_device_resource,
    units_of,
    uses_devices,
)
from fettle.dra.node_selectors import Malformed, NodeTarget, Selector
from fettle.dra.pod_claims import EXTENDED_RESOURCE_CLAIM, extended_for
from fettle.dra.pools import SOME_DRIVER, SOME_POOL, DeviceView, PoolView
from fettle.dra.quantities import UNIT, Unreadable, nano
from fettle.dra.slices import CounterId, PublishedDevice, PublishedSlice, Target

__all__ = [
    "ALL",
    "AMPLE",
    "CURRENT",
    "EXTENDED_RESOURCE_CLAIM",
    "IMPLICIT_CLASS_PREFIX",
    "MARKER",
    "NO_TIME_LIMIT",
    "SOME_DRIVER",
    "SOME_POOL",
    "UNIT",
    "Allocated",
    "AllocatedDevice",
    "AllocationStatus",
    "Alternative",
    "Binding",
    "Budget",
    "Claim",
    "CounterId",
    "DeviceView",
    "Features",
    "Malformed",
    "Match",
    "NodeTarget",
    "Offer",
    "PoolView",
    "Profile",
    "PublishedDevice",
    "PublishedSlice",
    "Request",
    "Selector",
    "Target",
    "Unreadable",
    "after",
    "allocate",
    "allocated_claims",
    "claims",
    "constraints",
    "device_units",
    "domain_of",
    "doubt",
    "equality_pattern",
    "extended_for",
    "extended_resources",
    "gates",
    "in_order",
    "is_device_resource",
    "nano",
    "node_selectors",
    "of_version",
    "offers",
    "pod_claims",
    "release",
    "shortfall",
    "slices",
    "tolerated",
    "tolerates",
    "units_of",
    "uses_devices",
    "versions",
    "without",
]
