"""What should be written by the health of devices: which of them get a taint, what Nodes say, which
nodes are cordoned, and where an evicted pod may go. Pure.

Stands between health and what the steward writes.
"""

from fettle.scheduling.plans.node_fit import Exclusion, node_exclusion, node_fit
from fettle.scheduling.plans.node_healths import (
    NOTHING_LOST,
    Cordons,
    LostDevices,
    NodeHealth,
    NodeHealths,
    UnsoundDevice,
    devices_by_state,
    lost_devices,
    node_health,
    plan_cordons,
)
from fettle.scheduling.plans.taint_plans import (
    PlannedTaint,
    TaintPlan,
    as_if_on,
    is_assessed,
    plan_for,
    plan_taints,
    why_in_vain,
)

__all__ = [
    "NOTHING_LOST",
    "Cordons",
    "Exclusion",
    "LostDevices",
    "NodeHealth",
    "NodeHealths",
    "PlannedTaint",
    "TaintPlan",
    "UnsoundDevice",
    "as_if_on",
    "devices_by_state",
    "is_assessed",
    "lost_devices",
    "node_exclusion",
    "node_fit",
    "node_health",
    "plan_cordons",
    "plan_for",
    "plan_taints",
    "why_in_vain",
]
