"""Which allocator a version of Kubernetes has: its profile, by the version a server says. Pure."""

import re
from collections.abc import Mapping

from fettle.dra.allocator.gates import features, unmodelled
from fettle.dra.allocator.profiles import AllocatorRules, Features, Profile, Quirks

_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)")
_NEWEST = 37
"""What is newer, and what cannot be read, is taken for this minor version."""
_NO_GATES: Mapping[str, bool] = {}


def release(git_version: str) -> tuple[int, ...]:
    """Major, minor and patch in a server's `gitVersion` ("v1.36.3+k3s1"); () where none are."""
    match = _VERSION.match(git_version)
    return tuple(map(int, match.groups())) if match is not None else ()


def of_version(git_version: str, gates: Mapping[str, bool] = _NO_GATES) -> Profile:
    """The profile of a server's `gitVersion` ("v1.36.3+k3s1") with these feature gates set."""
    major, minor, patch = release(git_version) or (1, _NEWEST, 1)
    if (major, minor) >= (1, _NEWEST):
        told = features(_NEWEST, gates)
        return Profile(told, ordered=_is_ordered(told))
    told = features(minor, gates)
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
    notes += [f"the feature gate {name} is on, but not modelled" for name in unmodelled(gates)]
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
    if not (known := release(git_version)):
        return (
            f"{newest} since the cluster's version {git_version!r} cannot be read; "
            "set scheduler.version"
        )
    return f"{newest} for {git_version}" if known[:2] > (1, _NEWEST) else git_version
