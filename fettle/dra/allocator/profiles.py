"""What Kubernetes' allocator does in one version: its feature gates, and its defects. Pure data."""

import msgspec


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
