"""Whether a pod can use a claim as it stands: reservations left, binding conditions met in time.

Ports of `PreFilter`, `isClaimReadyForBinding`, `isClaimTimeout` and `bindClaim` of the scheduler's
DRA plugin. What is said here holds for all nodes alike. Pure; the clock is an argument.
"""

from collections.abc import Mapping
from typing import NamedTuple

from fettle.api import core, resource
from fettle.api.meta import Condition, unix_s
from fettle.dra import node_selectors as affinity
from fettle.dra import pod_claims as entries

BINDING_TIMEOUT_S = 600.0
"""`DynamicResourcesBindingTimeoutDefault` of the scheduler's configuration."""

ENDS_IN_AN_ERROR = "the scheduler's attempt for this pod would end in an error"
"""Said of a node, and then true of the pod: it is placed nowhere once the scheduler looks there."""


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
    for once it is placed. Both "" where there is nothing to say."""

    barred: str = ""
    awaits: str = ""


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
        return Use(f"claim {name} is being deleted")
    if not entries.is_for(pod, entry, claim):
        return Use(f"claim {name}: ResourceClaim {claim.metadata.key} was not made for this pod")
    status = claim.status
    if status is None or (allocation := status.allocation) is None:
        return Use()
    if problem := _problem(allocation):
        return Use(f"claim {name}: {ENDS_IN_AN_ERROR}: {problem}")
    holders, mine = claim.reserved_for, pod.metadata.uid
    if len(holders) >= resource.MAX_RESERVED and mine not in holders:
        return Use(
            f"claim {name} is reserved for {len(holders)} pods, the maximum: "
            "the scheduler's attempt would fail when reserving it for one more"
        )
    if not binding.observed:
        return Use()
    failed, unmet = _conditions(allocation, status.devices or ())
    if unmet and _is_late(allocation, binding):
        failed = f"{unmet} did not become true within {binding.timeout_s:g} s"
    if failed:
        return Use(f"claim {name}: {failed}; {_what_follows(len(holders - {mine}))}")
    if allocation.allocation_timestamp is None and mine not in holders:
        return Use(
            f"claim {name} was allocated without an allocationTimestamp: the scheduler's attempt "
            "would fail when reserving it, by adding one to an allocation that cannot be changed; "
            f"{_how_to_allocate_anew(len(holders))}"
        )
    return Use(awaits=f"claim {name} is waiting for {unmet}{_since(allocation)}" if unmet else "")


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
) -> str:
    """Why a pod cannot have two entries for one claim; "" where it is reserved for it already."""
    if claim is not None and pod.metadata.uid in claim.reserved_for:
        return ""
    return (
        f"claims {first.name} and {again.name} are one ResourceClaim, "
        f"{pod.metadata.namespace}/{entries.claim_name(pod, again)}: the scheduler's attempt would "
        "fail when reserving it for the pod twice; list it once in spec.resourceClaims"
    )


def _problem(allocation: resource.AllocationResult) -> str:
    """Why the scheduler cannot read an allocation; "" if it can."""
    try:
        if allocation.node_selector is not None:
            affinity.parsed(allocation.node_selector)
    except affinity.Malformed as error:
        return f"its node selector cannot be parsed: {error}"
    return ""


def _how_to_allocate_anew(holders: int) -> str:
    recreate = "delete the ResourceClaim and create it again"
    if not holders:
        return recreate
    using = "pod that uses it has" if holders == 1 else f"{holders} pods that use it have"
    return f"{recreate}, or wait until the {using} ended"


def _what_follows(others: int) -> str:
    if others:
        pods = "another pod" if others == 1 else f"{others} other pods"
        return f"it stays allocated, since it is reserved for {pods}"
    return "the scheduler revokes the allocation and allocates again"


def _is_late(allocation: resource.AllocationResult, binding: Binding) -> bool:
    allocated = unix_s(allocation.allocation_timestamp, binding.now)
    return allocated + binding.timeout_s < binding.now


def _since(allocation: resource.AllocationResult) -> str:
    if (at := allocation.allocation_timestamp) is None:
        return ""
    return f" since {at:%Y-%m-%dT%H:%M:%SZ}"


def _conditions(
    allocation: resource.AllocationResult, reported: tuple[resource.AllocatedDeviceStatus, ...]
) -> tuple[str, str]:
    """(the failure, the condition that is not met) that comes first, as upstream looks.

    A device whose conditions are not met hides what failed on those after it.
    """
    devices = allocation.devices
    for result in devices.results or () if devices is not None else ():
        if not result.binding_conditions:
            continue
        found = _found(result, reported)
        device = f"{result.driver}/{result.pool}/{result.device}"
        if found is not None:
            for name in result.binding_failure_conditions or ():
                if _is_true(found, name):
                    return f"condition {name} says that {device} cannot be bound", ""
        for name in result.binding_conditions:
            if found is None or not _is_true(found, name):
                return "", f"condition {name} of {device}"
    return "", ""


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
