"""The pod's claims, on any node. `claim` is the name in the pod's spec."""

from fettle.model.reasons.base import Reason, listed
from fettle.model.subjects import DeviceId


class ClaimNotFound(Reason, frozen=True, gc=False):
    """Neither the ResourceClaim ("" before it is made) nor its template exists."""

    claim: str
    resource_claim: str = ""
    template: str = ""

    def __str__(self) -> str:
        claim, template = self.resource_claim, f"ResourceClaimTemplate {self.template}"
        if not self.template:
            return f"claim {self.claim}: ResourceClaim {claim} does not exist"
        if not claim:
            return f"claim {self.claim}: {template} does not exist"
        return (
            f"claim {self.claim}: neither ResourceClaim {claim}, which was made for it, nor "
            f"{template} exists"
        )


class ClaimUnreadable(Reason, frozen=True, gc=False):
    """The ResourceClaim or its template cannot be read."""

    sentence = "claim {claim} cannot be read: {detail}"
    claim: str
    detail: str


class DeviceClassUnreadable(Reason, frozen=True, gc=False):
    """A DeviceClass that a claim names cannot be read."""

    sentence = "device class {device_class} cannot be read: {detail}"
    device_class: str
    detail: str


class ClaimLeftOver(Reason, frozen=True, gc=False):
    """A ResourceClaim for the pod's extended resources is left from an earlier attempt."""

    sentence = (
        "ResourceClaim {resource_claim} was created for the pod's extended resources by "
        "an earlier scheduling attempt: unless that is still binding the pod, the next attempt "
        "deletes the claim, and the one after it allocates again"
    )
    resource_claim: str


class ClaimBeingDeleted(Reason, frozen=True, gc=False):
    """The ResourceClaim has a deletion timestamp."""

    sentence = "claim {claim} is being deleted"
    claim: str


class ClaimOfAnotherPod(Reason, frozen=True, gc=False):
    """The ResourceClaim was made for another pod."""

    sentence = "claim {claim}: ResourceClaim {resource_claim} was not made for this pod"
    claim: str
    resource_claim: str


class ClaimSelectorMalformed(Reason, frozen=True, gc=False):
    """The node selector of the allocation cannot be parsed: the attempt ends in an error."""

    sentence = "claim {claim}: its node selector cannot be parsed: {detail}"
    claim: str
    detail: str


class ClaimFullyReserved(Reason, frozen=True, gc=False):
    """The ResourceClaim is reserved for as many pods as there may be."""

    sentence = (
        "claim {claim} is reserved for {pods} pods, the maximum: "
        "the scheduler's attempt would fail when reserving it for one more"
    )
    claim: str
    pods: int


class BindingFailed(Reason, frozen=True, gc=False):
    """A binding failure condition of a device is true."""

    claim: str
    condition: str
    device: DeviceId
    other_pods: int

    def __str__(self) -> str:
        failed = f"condition {self.condition} says that {self.device} cannot be bound"
        return f"claim {self.claim}: {failed}; {_what_follows(self.other_pods)}"


class BindingTimedOut(Reason, frozen=True, gc=False):
    """A binding condition did not become true in time."""

    claim: str
    condition: str
    device: DeviceId
    timeout_s: float
    other_pods: int

    def __str__(self) -> str:
        unmet = f"condition {self.condition} of {self.device}"
        late = f"{unmet} did not become true within {self.timeout_s:g} s"
        return f"claim {self.claim}: {late}; {_what_follows(self.other_pods)}"


def _what_follows(other_pods: int) -> str:
    if other_pods:
        pods = "another pod" if other_pods == 1 else f"{other_pods} other pods"
        return f"it stays allocated, since it is reserved for {pods}"
    return "the scheduler revokes the allocation and allocates again"


class ClaimWithoutTimestamp(Reason, frozen=True, gc=False):
    """The allocation has no timestamp, which the scheduler would fail to add; `pods` use it."""

    claim: str
    pods: int

    def __str__(self) -> str:
        mend = "delete the ResourceClaim and create it again"
        if self.pods:
            one = "pod that uses it has" if self.pods == 1 else f"{self.pods} pods that use it have"
            mend = f"{mend}, or wait until the {one} ended"
        return (
            f"claim {self.claim} was allocated without an allocationTimestamp: the scheduler's "
            "attempt would fail when reserving it, by adding one to an allocation that cannot be "
            f"changed; {mend}"
        )


class ClaimNamedTwice(Reason, frozen=True, gc=False):
    """Two entries of the pod are one ResourceClaim, which cannot be reserved twice."""

    sentence = (
        "claims {first} and {again} are one ResourceClaim, "
        "{resource_claim}: the scheduler's attempt would fail when reserving it for the "
        "pod twice; list it once in spec.resourceClaims"
    )
    first: str
    again: str
    resource_claim: str


class ClaimOnOtherNodes(Reason, frozen=True, gc=False):
    """The claim is allocated, and cannot be used on this node."""

    claim: str
    devices: tuple[DeviceId, ...]

    def __str__(self) -> str:
        holds = f" (it holds {listed(self.devices)})" if self.devices else ""
        return f"claim {self.claim} is allocated to other nodes{holds}"


class BindingAwaited(Reason, frozen=True, gc=False):
    """A note: the pod waits for a binding condition once it is placed; `since`: RFC 3339 or ""."""

    claim: str
    condition: str
    device: DeviceId
    since: str = ""

    def __str__(self) -> str:
        since = f" since {self.since}" if self.since else ""
        condition = f"condition {self.condition} of {self.device}"
        return f"claim {self.claim} is waiting for {condition}{since}"


class BindingWouldBeAwaited(Reason, frozen=True, gc=False):
    """A note: the pod would wait for binding conditions of the devices that it would get."""

    claim: str
    conditions: tuple[str, ...]
    devices: tuple[DeviceId, ...]

    def __str__(self) -> str:
        word = "condition" if len(self.conditions) == 1 else "conditions"
        awaited = f"{word} {', '.join(self.conditions)} of {listed(self.devices)}"
        return f"claim {self.claim} would wait for {awaited}"


class ClaimDeviceNotPublished(Reason, frozen=True, gc=False):
    """A note: the claim holds a device that is not published for this node."""

    sentence = "claim {claim} holds {device}, which is not published for this node"
    claim: str
    device: DeviceId
