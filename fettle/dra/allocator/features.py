"""What the allocator of each version of Kubernetes does: features, feature gates, and defects.

A scheduler cannot be asked for its feature gates. The server says its version; an operator says
which gates differ, as in `--feature-gates` of kube-scheduler. Pure.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from fettle.dra.pools import PoolView
from fettle.model import reasons
from fettle.model.reasons import Reason, Unmodelled

# Features and defects


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The features that change what is allocated, with the defaults of Kubernetes 1.37.

    Named as in `Features` of k8s.io/dynamic-resource-allocation/structured. Two are not there:
    `device_taint_rules` and `extended_resource`, which the scheduler's plugin checks itself.
    """

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    device_taint_rules: bool = True
    device_binding_and_status: bool = True
    consumable_capacity: bool = True
    extended_resource: bool = True
    fractional_capacity_range: bool = False
    list_type_attributes: bool = False
    compatibility_groups: bool = False
    derived_attributes: bool = False
    optional_node_operations: bool = False


class Quirks(msgspec.Struct, frozen=True, kw_only=True):
    """Defects of older allocators, ported to predict what they do; all are fixed in 1.37.0."""

    undoes_in_part: bool = False
    """Rolling back a device or a share does not release its counters, and more."""
    counters_by_pool_name: bool = False
    """The counters that are left are cached by pool name, even across drivers."""
    intersection_kept: bool = False
    """Rolling back does not widen the common values of a list-typed matchAttribute again."""
    distinct_by_request: bool = False
    """distinctAttribute remembers one value for each request."""
    empty_shares_unseen: bool = False
    """A share that consumes no capacity is overlooked: the next one consumes counters again."""
    amounts_unchecked: bool = False
    """Negative amounts, and those beyond 64 bits, are not errors; their effect is unknown."""
    all_drops_short: bool = False
    """Mode All ignores devices with too little capacity left."""
    shares_uncharged: bool = False
    """A device that is only in use by shares does not count against counters."""
    all_crashes: bool = False
    """Mode All crashes the scheduler if a device consumes counters."""
    all_strays: bool = False
    """Mode All in an alternative continues with the first alternative after one device."""


class AllocatorRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of older allocators that are no defects. What follows from them is mostly undecided."""

    pools_by_node: bool = False
    """Only a node's own slices of a pool count, and devices of incomplete pools may be allocated
    unless a request is for all devices."""
    shares_repeat: bool = False
    """A request may take several shares of one device."""


class Profile(msgspec.Struct, frozen=True):
    """How one version's allocator behaves: features, defects, rules.

    `ordered`: it visits pools and slices by name. The "stable" variant, used if the newer feature
    gates are off, visits them in the random order of a Go map.
    """

    features: Features = Features()
    quirks: Quirks = Quirks()
    ordered: bool = True
    rules: AllocatorRules = AllocatorRules()

    @property
    def correct(self) -> "Profile":
        """The same without defects and with a fixed order: for what is possible at all."""
        return Profile(self.features, rules=self.rules)


CURRENT = Profile()


# Feature gates


class FeatureGate(NamedTuple):
    """`since` is the minor version from which it is on by default; None if it is off in all.

    If it is not `modelled`, allocations are predicted as if it were off.
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


def parse_feature_gates(text: str) -> dict[str, bool]:
    """Parse "DRAPrioritizedList=false,DRADeviceTaints=true"; raises ValueError."""
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


def features_of(minor: int, gates: Mapping[str, bool]) -> Features:
    """The features of Kubernetes 1.`minor` with these feature gates set.

    >>> features_of(36, {}).device_taints, features_of(36, {"DRADeviceTaints": False}).device_taints
    (True, False)
    """
    on = {
        name: gates.get(name, gate.since is not None and minor >= gate.since)
        for name, gate in GATES.items()
    }
    return Features(
        admin_access=on["DRAAdminAccess"],
        prioritized_list=on["DRAPrioritizedList"],
        partitionable_devices=on["DRAPartitionableDevices"],
        device_taints=on["DRADeviceTaints"],
        # Before 1.37 the API of the rules is off by default too: if there are rules, they count.
        device_taint_rules=gates.get("DRADeviceTaintRules", True),
        device_binding_and_status=on["DRADeviceBindingConditions"]
        and on["DRAResourceClaimDeviceStatus"],
        consumable_capacity=on["DRAConsumableCapacity"],
        extended_resource=on["DRAExtendedResource"],
        fractional_capacity_range=on["DRAFractionalCapacityRange"],
        # The scheduler of 1.36 does not pass this gate to the allocator.
        list_type_attributes=on["DRAListTypeAttributes"] and minor >= 37,
        compatibility_groups=on["DRADeviceCompatibilityGroups"],
        derived_attributes=on["DRADerivedAttributes"],
        optional_node_operations=on["DRAOptionalNodeOperations"],
    )


def unmodelled_gates(gates: Mapping[str, bool]) -> list[str]:
    """The feature gates that are on but not modelled."""
    return sorted(name for name, on in gates.items() if on and not GATES[name].modelled)


# Versions

_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)")

_NEWEST = 37
"""Newer versions, and versions that cannot be parsed, count as this minor version."""

_NO_GATES: Mapping[str, bool] = {}


def parse_git_version(git_version: str) -> tuple[int, ...]:
    """Major, minor and patch of a server's `gitVersion` ("v1.36.3+k3s1"); () if it has none."""
    match = _VERSION.match(git_version)
    return tuple(map(int, match.groups())) if match is not None else ()


def profile_of_version(git_version: str, gates: Mapping[str, bool] = _NO_GATES) -> Profile:
    """The profile of a server's `gitVersion` ("v1.36.3+k3s1") with these feature gates set.

    >>> profile_of_version("v1.36.3+k3s1").quirks.counters_by_pool_name
    True
    >>> profile_of_version("v1.36.4").quirks.counters_by_pool_name
    False
    """
    major, minor, patch = parse_git_version(git_version) or (1, _NEWEST, 1)
    if (major, minor) >= (1, _NEWEST):
        features = features_of(_NEWEST, gates)
        return Profile(features, ordered=_is_ordered(features))
    features = features_of(minor, gates)
    return Profile(
        features,
        Quirks(
            undoes_in_part=(minor, patch) < (36, 3),
            counters_by_pool_name=(minor, patch) < (36, 4),
            intersection_kept=True,
            distinct_by_request=True,
            empty_shares_unseen=True,
            amounts_unchecked=True,
            all_drops_short=True,
            all_strays=minor < 36,
            shares_uncharged=(minor, patch) < (36, 2),
            all_crashes=(35, 0) <= (minor, patch) < (35, 6) or (36, 0) <= (minor, patch) < (36, 2),
        ),
        ordered=minor >= 36 and _is_ordered(features),
        rules=AllocatorRules(
            pools_by_node=minor < 35, shares_repeat=minor < 36 and features.consumable_capacity
        ),
    )


def _is_ordered(features: Features) -> bool:
    """Whether these features rule out the "stable" variant, which has no fixed order. Up to 1.35
    no variant has one."""
    return (
        features.consumable_capacity
        or features.device_binding_and_status
        or features.list_type_attributes
        or features.compatibility_groups
        or features.derived_attributes
        or features.optional_node_operations
    )


def describe_allocator(git_version: str, gates: Mapping[str, bool], profile: Profile) -> list[str]:
    """Sentences for people: which version's allocator is predicted."""
    setting = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(gates.items()))
    with_gates = f" with the feature gates {setting}" if setting else ""
    notes = [f"allocations are predicted as of Kubernetes {_whose(git_version)}{with_gates}"]
    notes += [
        f"the feature gate {name} is on, but not modelled" for name in unmodelled_gates(gates)
    ]
    if not profile.ordered:
        notes.append("this scheduler visits slices in no fixed order: much is undecided")
    if profile.rules.pools_by_node:
        notes.append("pools that are incomplete, invalid or being replaced are undecided")
    if profile.rules.shares_repeat:
        notes.append("requests for devices with allowMultipleAllocations are undecided")
    return notes


def _whose(git_version: str) -> str:
    if not git_version:
        return f"1.{_NEWEST} (the cluster's version is unknown)"
    newest = f"1.{_NEWEST}, the newest that is known here,"
    if not (known := parse_git_version(git_version)):
        return (
            f"{newest} since the cluster's version {git_version!r} cannot be read; "
            "set scheduler.version"
        )
    return f"{newest} for {git_version}" if known[:2] > (1, _NEWEST) else git_version


# Pools that are not modelled


def why_unclear(pool: PoolView, profile: Profile) -> Reason | None:
    """Why it is unclear which devices of a pool can be allocated; None if it is clear."""
    if pool.unclear:
        return reasons.PoolUnclear(pool.ref, pool.unclear)
    return _of_1_34(pool) if profile.rules.pools_by_node else None


def _of_1_34(pool: PoolView) -> Reason | None:
    """The same with the rules of 1.34. Views follow the rules of 1.35, where incomplete and invalid
    pools have no devices to allocate."""
    if pool.flaw or pool.withheld:
        flaw = pool.flaw or "being replaced"
        return reasons.NotModelled(Unmodelled.POOLS_OF_1_34, pool=pool.ref, detail=flaw)
    if pool.counters:
        return reasons.NotModelled(Unmodelled.COUNTERS_OF_1_34, pool=pool.ref)
    return None
