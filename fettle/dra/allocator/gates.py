"""Kubernetes' feature gates that concern DRA: their defaults by version, and what else is set.

A scheduler's gates cannot be asked for: the server says its version, an operator says the rest,
as `--feature-gates` of kube-scheduler says it. Pure.
"""

from collections.abc import Mapping
from typing import NamedTuple

from fettle.dra.allocator.profiles import Features


class FeatureGate(NamedTuple):
    """`since`: the minor version of Kubernetes 1 from which it is on by default; None: in none.

    `modelled`: false where allocations are predicted as if it were off.
    """

    since: int | None = None
    modelled: bool = True


GATES: Mapping[str, FeatureGate] = {
    "DRAAdminAccess": FeatureGate(34),
    "DRAConsumableCapacity": FeatureGate(36),
    "DRADerivedAttributes": FeatureGate(),
    "DRADeviceBindingConditions": FeatureGate(36),
    "DRADeviceCompatibilityGroups": FeatureGate(),
    "DRADeviceTaintRules": FeatureGate(37),
    "DRADeviceTaints": FeatureGate(36),
    "DRAExtendedResource": FeatureGate(36),
    "DRAFractionalCapacityRange": FeatureGate(),
    "DRAListTypeAttributes": FeatureGate(),
    "DRANodeAllocatableResources": FeatureGate(modelled=False),
    "DRAOptionalNodeOperations": FeatureGate(),
    "DRAPartitionableDevices": FeatureGate(36),
    "DRAPrioritizedList": FeatureGate(34),
    "DRAResourceClaimDeviceStatus": FeatureGate(33),
    "DRASchedulerFilterTimeout": FeatureGate(34),
    "DRAWorkloadResourceClaims": FeatureGate(modelled=False),
}
"""By name, as in `pkg/features/kube_features.go` of Kubernetes 1.37.1."""

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def parse(text: str) -> dict[str, bool]:
    """ "DRAPrioritizedList=false,DRADeviceTaints=true" by name; raises ValueError."""
    gates: dict[str, bool] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in entry.partition("="))
        if name not in GATES:
            raise ValueError(
                f"{name!r} is not a DRA feature gate that Fettle knows; "
                f"leave it out, or use one of {', '.join(sorted(GATES))}"
            )
        if not equals or value not in _TRUE | _FALSE:
            raise ValueError(f"{name}: write {name}=true or {name}=false, not {entry!r}")
        gates[name] = value in _TRUE
    return gates


def features(minor: int, gates: Mapping[str, bool]) -> Features:
    """What the allocator of Kubernetes 1.`minor` is told, with these gates set."""
    on = {
        name: gates.get(name, gate.since is not None and minor >= gate.since)
        for name, gate in GATES.items()
    }
    return Features(
        admin_access=on["DRAAdminAccess"],
        prioritized_list=on["DRAPrioritizedList"],
        partitionable_devices=on["DRAPartitionableDevices"],
        device_taints=on["DRADeviceTaints"],
        # Before 1.37 the rules' API is off by default, too: where rules are seen, they count.
        device_taint_rules=gates.get("DRADeviceTaintRules", True),
        device_binding_and_status=on["DRADeviceBindingConditions"]
        and on["DRAResourceClaimDeviceStatus"],
        consumable_capacity=on["DRAConsumableCapacity"],
        extended_resource=on["DRAExtendedResource"],
        fractional_capacity_range=on["DRAFractionalCapacityRange"],
        # The scheduler of 1.36 does not pass it on.
        list_type_attributes=on["DRAListTypeAttributes"] and minor >= 37,
        compatibility_groups=on["DRADeviceCompatibilityGroups"],
        derived_attributes=on["DRADerivedAttributes"],
        optional_node_operations=on["DRAOptionalNodeOperations"],
    )


def unmodelled(gates: Mapping[str, bool]) -> list[str]:
    """The gates that are set on and that predictions know nothing of."""
    return sorted(name for name, on in gates.items() if on and not GATES[name].modelled)
