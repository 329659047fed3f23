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
    """The gates that change what is allocated, with the defaults of Kubernetes 1.37.

    Each is named as in `Features` of k8s.io/dynamic-resource-allocation/structured, which lacks
    `device_taint_rules` and `extended_resource`: those two the scheduler's plugin asks itself.
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
    """Defects of older allocators, kept to predict what they take; all are mended in 1.37.0."""

    undoes_in_part: bool = False
    """Turning a device down, or giving a share back, leaves counters taken, and more."""
    counters_by_pool_name: bool = False
    """What is left of counters is remembered by pool name, whatever the driver."""
    intersection_kept: bool = False
    """Going back does not widen the common values of a list-typed matchAttribute again."""
    distinct_by_request: bool = False
    """distinctAttribute remembers one value for each request."""
    empty_shares_unseen: bool = False
    """A share that consumes no capacity is overlooked: the next one pays the counters again."""
    amounts_unchecked: bool = False
    """Negative amounts, and those beyond 64 bits, are not errors; their effect is unknown."""
    all_drops_short: bool = False
    """Mode All leaves devices out that have too little capacity left."""
    shares_uncharged: bool = False
    """A device that is in use by shares alone, from before, is charged no counters."""
    all_crashes: bool = False
    """Mode All, given a device that consumes counters, ends the scheduler's process."""
    all_strays: bool = False
    """Mode All in an alternative goes on with the first alternative after one device."""


class AllocatorRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of older allocators that are no defects; what they lead to is undecided for the most
    part."""

    pools_by_node: bool = False
    """A node sees only its own slices of a pool, and takes devices of an incomplete one unless all
    are requested."""
    shares_repeat: bool = False
    """A request may take several shares of one device."""


class Profile(msgspec.Struct, frozen=True):
    """What an allocator is told, its defects, and its rules.

    `ordered`: it goes through pools and slices by name. The variant that serves where the newer
    gates are off ("stable") takes them as a Go map yields them.
    """

    features: Features = Features()
    quirks: Quirks = Quirks()
    ordered: bool = True
    rules: AllocatorRules = AllocatorRules()

    @property
    def correct(self) -> "Profile":
        """The same gates and rules without the defects: what is possible depends on no order."""
        return Profile(self.features, rules=self.rules)


CURRENT = Profile()


# Feature gates


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


def parse_feature_gates(text: str) -> dict[str, bool]:
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


def features_of(minor: int, gates: Mapping[str, bool]) -> Features:
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


def unmodelled_gates(gates: Mapping[str, bool]) -> list[str]:
    """The gates that are set on and that predictions know nothing of."""
    return sorted(name for name, on in gates.items() if on and not GATES[name].modelled)


# Versions

_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)")

_NEWEST = 37
"""What is newer, and what cannot be read, is taken for this minor version."""

_NO_GATES: Mapping[str, bool] = {}


def parse_git_version(git_version: str) -> tuple[int, ...]:
    """Major, minor and patch in a server's `gitVersion` ("v1.36.3+k3s1"); () where none are."""
    match = _VERSION.match(git_version)
    return tuple(map(int, match.groups())) if match is not None else ()


def profile_of_version(git_version: str, gates: Mapping[str, bool] = _NO_GATES) -> Profile:
    """The profile of a server's `gitVersion` ("v1.36.3+k3s1") with these feature gates set."""
    major, minor, patch = parse_git_version(git_version) or (1, _NEWEST, 1)
    if (major, minor) >= (1, _NEWEST):
        told = features_of(_NEWEST, gates)
        return Profile(told, ordered=_is_ordered(told))
    told = features_of(minor, gates)
    return Profile(
        told,
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
        ordered=minor >= 36 and _is_ordered(told),
        rules=AllocatorRules(
            pools_by_node=minor < 35, shares_repeat=minor < 36 and told.consumable_capacity
        ),
    )


def _is_ordered(told: Features) -> bool:
    """Whether the variant "stable" cannot serve these gates; up to 1.35, none has an order."""
    return (
        told.consumable_capacity
        or told.device_binding_and_status
        or told.list_type_attributes
        or told.compatibility_groups
        or told.derived_attributes
        or told.optional_node_operations
    )


def describe_allocator(git_version: str, gates: Mapping[str, bool], profile: Profile) -> list[str]:
    """Sentences on whose allocations are predicted, for people."""
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
    """What cannot be told about a pool; None if nothing."""
    if pool.unclear:
        return reasons.PoolUnclear(pool.ref, pool.unclear)
    return _of_1_34(pool) if profile.rules.pools_by_node else None


def _of_1_34(pool: PoolView) -> Reason | None:
    """What views do not say of a pool where a node sees only its own slices of it: they are made
    by the rules of 1.35, by which pools that are not whole have nothing to take."""
    if pool.flaw or pool.withheld:
        flaw = pool.flaw or "being replaced"
        return reasons.NotModelled(Unmodelled.POOLS_OF_1_34, pool=pool.ref, detail=flaw)
    if pool.counters:
        return reasons.NotModelled(Unmodelled.COUNTERS_OF_1_34, pool=pool.ref)
    return None
