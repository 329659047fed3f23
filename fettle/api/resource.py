"""The `resource.k8s.io/v1` group: slices, classes, claims, templates and device taint rules; and of
`resource.nvidia.com/v1beta1` the ComputeDomains that claims refer to."""

from datetime import datetime

import msgspec

from fettle.api.annotations import ApiObject
from fettle.api.core import NodeSelector
from fettle.api.meta import Condition, ObjectMeta, Unread, Wire

MAX_RESULTS = 32
"""`AllocationResultsMaxSize`: the most devices that one claim can hold."""
MAX_RESERVED = 256
"""`ResourceClaimReservedForMaxSize`: the most entries that the API server accepts in
`reservedFor`."""
NODE_SELECTOR = "nodeSelector"
"""The field of slices and devices that says which nodes see them."""


class DeviceTaint(Wire, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class DeviceAttribute(Wire, frozen=True, kw_only=True):
    """One value; its type is the field that is set. Lists are alpha in 1.37."""

    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


Quantity = str | int | float


def _unknown() -> str:
    """A field that names another field of the object which Fettle does not know (see
    `decoding.py`)."""
    field: str = msgspec.field(default="", name="fettle.dev/unknown")
    return field


class CapacityRequestPolicyRange(Wire, frozen=True, kw_only=True):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Wire, frozen=True, kw_only=True):
    """How much of a capacity one request consumes (`requestPolicy`)."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] | None = None
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Wire, frozen=True, kw_only=True):
    value: Quantity = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(Wire, frozen=True, kw_only=True):
    value: Quantity = "0"


class CounterSet(Wire, frozen=True, kw_only=True):
    name: str
    counters: dict[str, Counter] | None = None


class DeviceCounterConsumption(Wire, frozen=True, kw_only=True):
    """What a device consumes of one counter set. `compatibility_groups` are alpha in 1.37."""

    counter_set: str
    counters: dict[str, Counter] | None = None
    compatibility_groups: tuple[str, ...] | None = None


class Device(Wire, frozen=True, kw_only=True):
    name: str
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    taints: tuple[DeviceTaint, ...] | None = None
    allow_multiple_allocations: bool | None = None
    consumes_counters: tuple[DeviceCounterConsumption, ...] | None = None
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    node_allocatable_resources: dict[str, Unread] | None = None


class ResourcePool(Wire, frozen=True, kw_only=True):
    name: str
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Wire, frozen=True, kw_only=True):
    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] | None = None
    shared_counters: tuple[CounterSet, ...] | None = None
    skip_node_operations: tuple[str, ...] | None = None
    partition_type_attribute: str | None = None
    unknown: str = _unknown()


class ResourceSlice(ApiObject, frozen=True, kw_only=True):
    spec: ResourceSliceSpec


class CELSelector(Wire, frozen=True, kw_only=True):
    expression: str = ""


class DeviceSelector(Wire, frozen=True, kw_only=True):
    cel: CELSelector | None = None


class DeviceClassSpec(Wire, frozen=True, kw_only=True):
    selectors: tuple[DeviceSelector, ...] | None = None
    extended_resource_name: str | None = None
    config: tuple[Unread, ...] | None = None
    unknown: str = _unknown()


class DeviceClass(ApiObject, frozen=True, kw_only=True):
    spec: DeviceClassSpec | None = None

    @property
    def selectors(self) -> tuple[DeviceSelector, ...]:
        return (self.spec.selectors if self.spec is not None else None) or ()

    @property
    def extended_resource_name(self) -> str | None:
        return self.spec.extended_resource_name if self.spec is not None else None


class DeviceToleration(Wire, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(Wire, frozen=True, kw_only=True):
    requests: dict[str, Quantity] | None = None


class ExactDeviceRequest(Wire, frozen=True, kw_only=True):
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = ""
    count: int | None = None
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[Unread, ...] | None = None


class DeviceSubRequest(Wire, frozen=True, kw_only=True):
    name: str
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = ""
    count: int | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[Unread, ...] | None = None


class DeviceRequest(Wire, frozen=True, kw_only=True):
    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] | None = None


class DeviceConstraint(Wire, frozen=True, kw_only=True):
    requests: tuple[str, ...] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Wire, frozen=True, kw_only=True):
    requests: tuple[DeviceRequest, ...] | None = None
    constraints: tuple[DeviceConstraint, ...] | None = None
    config: tuple[Unread, ...] | None = None


class DeviceRequestAllocationResult(Wire, frozen=True, kw_only=True):
    """One entry of `status.allocation.devices.results`."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None


class DeviceAllocationResult(Wire, frozen=True, kw_only=True):
    results: tuple[DeviceRequestAllocationResult, ...] | None = None


class AllocationResult(Wire, frozen=True, kw_only=True):
    devices: DeviceAllocationResult | None = None
    node_selector: NodeSelector | None = None
    allocation_timestamp: datetime | None = None


class AllocatedDeviceStatus(Wire, frozen=True, kw_only=True):
    driver: str
    pool: str
    device: str
    conditions: tuple[Condition, ...] | None = None


class ResourceClaimSpec(Wire, frozen=True, kw_only=True):
    devices: DeviceClaim | None = None
    unknown: str = _unknown()


class ResourceClaimConsumerReference(Wire, frozen=True, kw_only=True):
    """An object that a claim is reserved for. Fettle only uses its UID."""

    uid: str = ""


class ResourceClaimStatus(Wire, frozen=True, kw_only=True):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] | None = None
    devices: tuple[AllocatedDeviceStatus, ...] | None = None


class ResourceClaim(ApiObject, frozen=True, kw_only=True):
    spec: ResourceClaimSpec
    status: ResourceClaimStatus | None = None

    @property
    def allocation(self) -> AllocationResult | None:
        return self.status.allocation if self.status is not None else None

    @property
    def reserved_for(self) -> set[str]:
        """UIDs of the pods that may use it."""
        reserved = self.status.reserved_for if self.status is not None else None
        return {consumer.uid for consumer in reserved or ()}


class ResourceClaimTemplateSpec(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta | None = None
    spec: ResourceClaimSpec


class ResourceClaimTemplate(ApiObject, frozen=True, kw_only=True):
    spec: ResourceClaimTemplateSpec


class DeviceTaintSelector(Wire, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each field is optional; `{}` selects every device.

    Kubernetes 1.34 has two more fields. A rule with an unknown field may select fewer devices than
    it seems, so it counts as unreadable.
    """

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Wire, frozen=True, kw_only=True):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint


class DeviceTaintRule(ApiObject, frozen=True, kw_only=True):
    spec: DeviceTaintRuleSpec


class ComputeDomainNode(Wire, frozen=True, kw_only=True):
    """`status` is Ready or NotReady; "" where the driver does not say."""

    name: str = ""
    status: str = ""


class ComputeDomainStatus(Wire, frozen=True, kw_only=True):
    nodes: tuple[ComputeDomainNode, ...] | None = None


class ComputeDomain(ApiObject, frozen=True, kw_only=True):
    """Claims refer to it by UID; nothing in its spec matters to them."""

    status: ComputeDomainStatus | None = None
