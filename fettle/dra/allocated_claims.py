"""Whether a pod can use a claim as it stands: reservations left, binding conditions met in time.

Ports of `PreFilter`, `isClaimReadyForBinding`, `isClaimTimeout` and `bindClaim` of the scheduler's
DRA plugin. What is said here holds for all nodes alike. Pure; the clock is an argument.
"""

from collections.abc import Mapping
from typing import NamedTuple

from fettle.api import core, resource
from fettle.api.meta import Condition, unix_s
from fettle.dra import node_selectors, pod_claims
from fettle.model import DeviceId, reasons
from fettle.model.reasons import Reason

BINDING_TIMEOUT_S = 600.0
"""`DynamicResourcesBindingTimeoutDefault` of the scheduler's configuration."""


class Binding(NamedTuple):
    """What time it is, in seconds since the Unix epoch, and how long an allocation may wait.

    `observed`: false where the scheduler looks at no binding conditions, since a gate is off.
    """

    now: float = 0.0
    timeout_s: float = BINDING_TIMEOUT_S
    observed: bool = True


NO_TIME_LIMIT = Binding()
"""Where no clock is told, nothing has taken too long."""


class Use(NamedTuple):
    """`barred`: why no node can serve a pod with this claim now. `awaits`: what the pod will wait
    for once it is placed."""

    barred: Reason | None = None
    awaits: reasons.BindingAwaited | None = None


def use(
    entry: core.PodResourceClaim,
    claim: resource.ResourceClaim | None,
    pod: core.Pod,
    binding: Binding,
) -> Use:
    """What to report about the claim that a pod's entry stands for; None: it does not exist yet."""
    name = entry.name
    if claim is None:
        return Use()
    if claim.metadata.deletion_timestamp is not None:
        return Use(reasons.ClaimBeingDeleted(name))
    if not pod_claims.is_for(pod, entry, claim):
        return Use(reasons.ClaimOfAnotherPod(name, claim.metadata.key))
    status = claim.status
    if status is None or (allocation := status.allocation) is None:
        return Use()
    if problem := _problem(allocation):
        return Use(reasons.SchedulingError(reasons.ClaimSelectorMalformed(name, problem)))
    holders, mine = claim.reserved_for, pod.metadata.uid
    if len(holders) >= resource.MAX_RESERVED and mine not in holders:
        return Use(reasons.ClaimFullyReserved(name, len(holders)))
    if not binding.observed:
        return Use()
    others = len(holders - {mine})
    failed, unmet = _conditions(allocation, status.devices or ())
    if failed is not None:
        return Use(reasons.BindingFailed(name, failed.condition, failed.device, others))
    if unmet is not None and _is_late(allocation, binding):
        timeout_s = binding.timeout_s
        return Use(reasons.BindingTimedOut(name, unmet.condition, unmet.device, timeout_s, others))
    if allocation.allocation_timestamp is None and mine not in holders:
        return Use(reasons.ClaimWithoutTimestamp(name, len(holders)))
    if unmet is None:
        return Use()
    since = _since(allocation)
    return Use(awaits=reasons.BindingAwaited(name, unmet.condition, unmet.device, since))


def can_be_allocated(
    entry: core.PodResourceClaim, claim: resource.ResourceClaim, pod: core.Pod
) -> bool:
    """Whether nothing is allocated for a claim yet, and nothing keeps the pod from using it."""
    return claim.allocation is None and use(entry, claim, pod, NO_TIME_LIMIT) == Use()


def named_twice(
    first: core.PodResourceClaim,
    again: core.PodResourceClaim,
    claim: resource.ResourceClaim | None,
    pod: core.Pod,
) -> reasons.ClaimNamedTwice | None:
    """Why a pod cannot have two entries for one claim; None where it is reserved for it already."""
    if claim is not None and pod.metadata.uid in claim.reserved_for:
        return None
    key = f"{pod.metadata.namespace}/{pod_claims.claim_name(pod, again)}"
    return reasons.ClaimNamedTwice(first.name, again.name, key)


def _problem(allocation: resource.AllocationResult) -> str:
    """Why the scheduler cannot parse an allocation's node selector; "" if it can."""
    try:
        if allocation.node_selector is not None:
            node_selectors.parsed(allocation.node_selector)
    except node_selectors.Malformed as error:
        return str(error)
    return ""


def _is_late(allocation: resource.AllocationResult, binding: Binding) -> bool:
    allocated = unix_s(allocation.allocation_timestamp, binding.now)
    return allocated + binding.timeout_s < binding.now


def _since(allocation: resource.AllocationResult) -> str:
    at = allocation.allocation_timestamp
    return f"{at:%Y-%m-%dT%H:%M:%SZ}" if at is not None else ""


class _OnDevice(NamedTuple):
    condition: str
    device: DeviceId


def _conditions(
    allocation: resource.AllocationResult, reported: tuple[resource.AllocatedDeviceStatus, ...]
) -> tuple[_OnDevice | None, _OnDevice | None]:
    """(the failure, the condition that is not met) that comes first, as upstream looks.

    A device whose conditions are not met hides what failed on those after it.
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
    """The conditions of a device by type, the first of each; None where nothing is reported."""
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
