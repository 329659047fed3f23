"""DRA as Kubernetes does it: quantities, slices, pools, claims, and the in-tree allocator.

Ports of k8s.io/dynamic-resource-allocation and of the scheduler's DRA plugin. Pure: selectors are
looked up, not evaluated. Stands between API objects and verdicts.
"""

from fettle.dra.allocator.allocate_device import Match, are_tolerated, tolerates
from fettle.dra.allocator.allocated_state import with_allocated, with_released, with_unreleased
from fettle.dra.allocator.allocator import allocate
from fettle.dra.allocator.constraint import equality_pattern, lookup_attribute
from fettle.dra.allocator.consumable_capacity import (
    CapacityOffer,
    capacity_offer,
    largest_amount,
    readable_amount,
)
from fettle.dra.allocator.features import (
    CURRENT,
    Features,
    Profile,
    describe_allocator,
    parse_feature_gates,
    parse_git_version,
    profile_of_version,
    why_unclear,
)
from fettle.dra.allocator.results import AMPLE, AllocationOutcome, AllocationStatus, Budget
from fettle.dra.allocator.shortfall import explain_shortfall
from fettle.dra.claims import (
    ALL,
    AllocatedDevice,
    Alternative,
    Claim,
    Request,
    allocated_devices,
    cel_expressions,
    claim_of_spec,
    held_devices,
    unreadable_shares,
)
from fettle.dra.extended_resources import (
    IMPLICIT_CLASS_PREFIX,
    MARKER,
    device_units,
    domain_of,
    in_order,
    is_device_resource,
    requests_behind,
    units_of,
    uses_devices,
)
from fettle.dra.node_selectors import (
    MalformedNodeSelector,
    NodeTarget,
    ParsedNodeSelector,
    parse_node_selector,
)
from fettle.dra.pools import DeviceView, PoolView
from fettle.dra.quantities import UNIT, Unreadable, nano
from fettle.dra.resource_claims import (
    NO_TIME_LIMIT,
    Binding,
    allocated_node,
    can_be_allocated,
    claim_name,
    claim_use,
    entries_with_claims,
    extended_claim_owner,
    is_for_entry,
    is_left_over,
    why_not_twice,
)
from fettle.dra.slices import CounterId, PublishedDevice, PublishedSlice, Target, read_slice

__all__ = [
    "ALL",
    "AMPLE",
    "CURRENT",
    "IMPLICIT_CLASS_PREFIX",
    "MARKER",
    "NO_TIME_LIMIT",
    "UNIT",
    "AllocatedDevice",
    "AllocationOutcome",
    "AllocationStatus",
    "Alternative",
    "Binding",
    "Budget",
    "CapacityOffer",
    "Claim",
    "CounterId",
    "DeviceView",
    "Features",
    "MalformedNodeSelector",
    "Match",
    "NodeTarget",
    "ParsedNodeSelector",
    "PoolView",
    "Profile",
    "PublishedDevice",
    "PublishedSlice",
    "Request",
    "Target",
    "Unreadable",
    "allocate",
    "allocated_devices",
    "allocated_node",
    "are_tolerated",
    "can_be_allocated",
    "capacity_offer",
    "cel_expressions",
    "claim_name",
    "claim_of_spec",
    "claim_use",
    "describe_allocator",
    "device_units",
    "domain_of",
    "entries_with_claims",
    "equality_pattern",
    "explain_shortfall",
    "extended_claim_owner",
    "held_devices",
    "in_order",
    "is_device_resource",
    "is_for_entry",
    "is_left_over",
    "largest_amount",
    "lookup_attribute",
    "nano",
    "parse_feature_gates",
    "parse_git_version",
    "parse_node_selector",
    "profile_of_version",
    "read_slice",
    "readable_amount",
    "requests_behind",
    "tolerates",
    "units_of",
    "unreadable_shares",
    "uses_devices",
    "why_not_twice",
    "why_unclear",
    "with_allocated",
    "with_released",
    "with_unreleased",
]
