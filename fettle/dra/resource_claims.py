"""Which ResourceClaim a pod's entry means, and whether the pod can use it as it stands.

Ports of `Name` and `IsForPod` of k8s.io/dynamic-resource-allocation/resourceclaim, and of
`PreFilter`, `isClaimReadyForBinding`, `isClaimTimeout`, `bindClaim` and
`findExtendedResourceClaim` of the scheduler's DRA plugin. What is said here holds for all nodes
alike. Pure; the clock is an argument.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fettle.api import core, resource
from fettle.api.annotations import EXTENDED_RESOURCE_CLAIM
from fettle.api.meta import Condition, rfc3339, unix_s
from fettle.dra.node_selectors import MalformedNodeSelector, parse_node_selector
from fettle.model import DeviceId, reasons
from fettle.model.reasons import Reason

# Which ResourceClaim a pod means


def entries_with_claims(pod: core.Pod) -> Iterator[core.PodResourceClaim]:
    """A pod's entries in `spec.resourceClaims` without those that need no claim, by its status."""
    for entry in pod.resource_claims:
        status = _status(pod, entry)
        if (
            entry.resource_claim_name is not None
            or status is None
            or status.resource_claim_name is not None
        ):
            yield entry


def claim_name(pod: core.Pod, entry: core.PodResourceClaim) -> str | None:
    """The name of an entry's ResourceClaim; None while it is not created yet."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    status = _status(pod, entry)
    return status.resource_claim_name if status is not None else None


def _status(pod: core.Pod, entry: core.PodResourceClaim) -> core.PodResourceClaimStatus | None:
    statuses = (pod.status.resource_claim_statuses if pod.status is not None else None) or ()
    return next((status for status in statuses if status.name == entry.name), None)


def is_for_entry(
    pod: core.Pod, entry: core.PodResourceClaim, claim: resource.ResourceClaim | None
) -> bool:
    """Whether the scheduler accepts the claim as the one that this entry means."""
    if claim is None or entry.resource_claim_name is not None:
        return True
    owner = claim.metadata.controller
    # A pod does not know the UID of its PodGroup. Without the gate DRAWorkloadResourceClaims, which
    # is not known here, there are no claims of PodGroups.
    return owner is not None and (owner.kind == "PodGroup" or owner.uid == pod.metadata.uid)


def extended_claim_owner(claim: resource.ResourceClaim) -> str:
    """The identity of the pod for whose extended resources the scheduler created a claim; "" if
    none."""
    if claim.annotation(EXTENDED_RESOURCE_CLAIM) != "true":
        return ""
    return claim.metadata.controller_identity


def is_left_over(claim: resource.ResourceClaim | None, pod: core.Pod) -> bool:
    """Whether a claim for extended resources is left over from an earlier attempt for the pod.

    The scheduler creates such a claim when it binds a pod, and deletes it in a later attempt.
    """
    if claim is None or pod.node_name:
        return False
    owner = claim.metadata.controller
    devices = claim.spec.devices
    return (
        extended_claim_owner(claim) == pod.metadata.identity
        and owner is not None
        and owner.name == pod.metadata.name
        and devices is not None
        and bool(devices.requests)
    )


# Whether a pod can use the claim

BINDING_TIMEOUT_S = 600.0
"""`DynamicResourcesBindingTimeoutDefault` of the scheduler's configuration."""


class Binding(NamedTuple):
    """The time in seconds since the Unix epoch, and how long binding conditions may take.

    `observed` is false if the scheduler ignores binding conditions because a gate is off.
    """

    now: float = 0.0
    timeout_s: float = BINDING_TIMEOUT_S
    observed: bool = True


NO_TIME_LIMIT = Binding()
"""Without a clock nothing takes too long."""


class ClaimUse(NamedTuple):
    """`barred` is why no node can serve a pod with this claim now; `awaits` is what the pod waits
    for once it is placed."""

    barred: Reason | None = None
    awaits: reasons.BindingAwaited | None = None


def claim_use(
    entry: core.PodResourceClaim,
    claim: resource.ResourceClaim | None,
    pod: core.Pod,
    binding: Binding,
) -> ClaimUse:
    """How the pod can use the claim of an entry; the claim is None if it does not exist yet."""
    name = entry.name
    if claim is None:
        return ClaimUse()
    if claim.metadata.deletion_timestamp is not None:
        return ClaimUse(reasons.ClaimBeingDeleted(name))
    if not is_for_entry(pod, entry, claim):
        return ClaimUse(reasons.ClaimOfAnotherPod(name, claim.metadata.key))
    status = claim.status
    if status is None or (allocation := status.allocation) is None:
        return ClaimUse()
    if problem := _problem(allocation):
        return ClaimUse(reasons.SchedulingError(reasons.ClaimSelectorMalformed(name, problem)))
    holders, mine = claim.reserved_for, pod.metadata.uid
    if len(holders) >= resource.MAX_RESERVED and mine not in holders:
        return ClaimUse(reasons.ClaimFullyReserved(name, len(holders)))
    if not binding.observed:
        return ClaimUse()
    others = len(holders - {mine})
    failed, unmet = _conditions(allocation, status.devices or ())
    if failed is not None:
        return ClaimUse(reasons.BindingFailed(name, failed.condition, failed.device, others))
    if unmet is not None and _is_late(allocation, binding):
        timeout_s = binding.timeout_s
        return ClaimUse(
            reasons.BindingTimedOut(name, unmet.condition, unmet.device, timeout_s, others)
        )
    if allocation.allocation_timestamp is None and mine not in holders:
        return ClaimUse(reasons.ClaimWithoutTimestamp(name, len(holders)))
    if unmet is None:
        return ClaimUse()
    since = rfc3339(allocation.allocation_timestamp)
    return ClaimUse(awaits=reasons.BindingAwaited(name, unmet.condition, unmet.device, since))


def can_be_allocated(
    entry: core.PodResourceClaim, claim: resource.ResourceClaim, pod: core.Pod
) -> bool:
    """Whether a claim is not allocated yet, and nothing prevents the pod from using it."""
    return claim.allocation is None and claim_use(entry, claim, pod, NO_TIME_LIMIT) == ClaimUse()


def why_not_twice(
    first: core.PodResourceClaim,
    again: core.PodResourceClaim,
    claim: resource.ResourceClaim | None,
    pod: core.Pod,
) -> reasons.ClaimNamedTwice | None:
    """Why a pod cannot have two entries for one claim; None if it is reserved for the pod."""
    if claim is not None and pod.metadata.uid in claim.reserved_for:
        return None
    key = f"{pod.metadata.namespace}/{claim_name(pod, again)}"
    return reasons.ClaimNamedTwice(first.name, again.name, key)


def allocated_node(claim: resource.ResourceClaim) -> str:
    """The node to which the allocation binds the claim by name, as it does for devices of slices
    with a `nodeName` (`createNodeSelector` of k8s.io/dynamic-resource-allocation); "" if to
    none."""
    allocation = claim.status.allocation if claim.status is not None else None
    selector = allocation.node_selector if allocation is not None else None
    for term in (selector.node_selector_terms if selector is not None else None) or ():
        for field in term.match_fields or ():
            if (field.key, field.operator) == ("metadata.name", "In") and field.values:
                return field.values[0]
    return ""


def _problem(allocation: resource.AllocationResult) -> str:
    """Why the scheduler cannot parse an allocation's node selector; "" if it can."""
    try:
        if allocation.node_selector is not None:
            parse_node_selector(allocation.node_selector)
    except MalformedNodeSelector as error:
        return str(error)
    return ""


def _is_late(allocation: resource.AllocationResult, binding: Binding) -> bool:
    allocated = unix_s(allocation.allocation_timestamp, binding.now)
    return allocated + binding.timeout_s < binding.now


class _OnDevice(NamedTuple):
    condition: str
    device: DeviceId


def _conditions(
    allocation: resource.AllocationResult, reported: tuple[resource.AllocatedDeviceStatus, ...]
) -> tuple[_OnDevice | None, _OnDevice | None]:
    """The first failure, or the first condition that is not met, in upstream's order.

    A device whose conditions are not met hides failures of the devices after it.
    """
    devices = allocation.devices
    for result in devices.results or () if devices is not None else ():
        if not result.binding_conditions:
            continue
        found = _found(result, reported)
        device = DeviceId(result.driver, result.pool, result.device)
        if found is not None:
            for name in result.binding_failure_conditions or ():
                if _is_true(found, name):
                    return _OnDevice(name, device), None
        for name in result.binding_conditions:
            if found is None or not _is_true(found, name):
                return None, _OnDevice(name, device)
    return None, None


def _found(
    result: resource.DeviceRequestAllocationResult,
    reported: tuple[resource.AllocatedDeviceStatus, ...],
) -> Mapping[str, Condition] | None:
    """The first condition of each type of a device; None if the driver reports nothing."""
    for status in reported:
        if (status.driver, status.pool, status.device) == (
            result.driver,
            result.pool,
            result.device,
        ):
            return {c.type: c for c in reversed(status.conditions or ())}
    return None


def _is_true(conditions: Mapping[str, Condition], name: str) -> bool:
    return name in conditions and conditions[name].status == "True"
