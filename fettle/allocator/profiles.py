"""What Kubernetes' allocator does in one version: its feature gates, and its defects. Pure data."""

import re

import msgspec


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The gates that change what is allocated, with the defaults of Kubernetes 1.37.

    Each is named as in `Features` of k8s.io/dynamic-resource-allocation/structured.
    """

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    device_binding_and_status: bool = True
    consumable_capacity: bool = True
    fractional_capacity_range: bool = False
    list_type_attributes: bool = False
    compatibility_groups: bool = False
    derived_attributes: bool = False
    optional_node_operations: bool = False


class Quirks(msgspec.Struct, frozen=True, kw_only=True):
    """Defects of older allocators, kept to predict what they take; all are mended in 1.37.1."""

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
    all_drops_short: bool = False
    """Mode All leaves devices out that have too little capacity left."""


class Profile(msgspec.Struct, frozen=True):
    features: Features = Features()
    quirks: Quirks = Quirks()

    @property
    def correct(self) -> "Profile":
        """The same gates without the defects."""
        return Profile(self.features)


CURRENT = Profile()

_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)")


def of_version(git_version: str) -> Profile:
    """The profile of a server's `gitVersion` ("v1.36.3+k3s1"); what cannot be read is current."""
    match = _VERSION.match(git_version)
    if match is None:
        return CURRENT
    major, minor, patch = map(int, match.groups())
    if (major, minor) >= (1, 37):
        return CURRENT
    return Profile(
        quirks=Quirks(
            undoes_in_part=(minor, patch) < (36, 3),
            counters_by_pool_name=True,
            intersection_kept=True,
            distinct_by_request=True,
            empty_shares_unseen=True,
            all_drops_short=True,
        )
    )
