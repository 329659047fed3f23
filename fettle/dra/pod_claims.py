"""Which ResourceClaim a pod's entry stands for, and whether that claim was made for the pod.

Ports of `Name` and `IsForPod` of k8s.io/dynamic-resource-allocation/resourceclaim, and of
`findExtendedResourceClaim` of the scheduler's DRA plugin. Pure; imports only `wire`.
"""

from collections.abc import Iterator

from fettle.api import core, resource
from fettle.api.meta import OwnerReference

EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of claims that the scheduler made for a pod's extended resources."""


def needed(pod: core.Pod) -> Iterator[core.PodResourceClaim]:
    """A pod's entries, without those for which Kubernetes says that they need no claim."""
    for entry in pod.resource_claims:
        status = _status(pod, entry)
        if (
            entry.resource_claim_name is not None
            or status is None
            or status.resource_claim_name is not None
        ):
            yield entry


def claim_name(pod: core.Pod, entry: core.PodResourceClaim) -> str | None:
    """The name of an entry's claim; None while it is yet to be made."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    status = _status(pod, entry)
    return status.resource_claim_name if status is not None else None


def _status(pod: core.Pod, entry: core.PodResourceClaim) -> core.PodResourceClaimStatus | None:
    statuses = (pod.status.resource_claim_statuses if pod.status is not None else None) or ()
    return next((status for status in statuses if status.name == entry.name), None)


def is_for(
    pod: core.Pod, entry: core.PodResourceClaim, claim: resource.ResourceClaim | None
) -> bool:
    """Whether the scheduler takes the claim for the one that this entry means."""
    if claim is None or entry.resource_claim_name is not None:
        return True
    owner = _controller(claim)
    # A pod does not know the UID of its PodGroup, and without the gate DRAWorkloadResourceClaims,
    # which nobody says is off, there are no claims of PodGroups.
    return owner is not None and (owner.kind == "PodGroup" or owner.uid == pod.metadata.uid)


def extended_for(claim: resource.ResourceClaim) -> str:
    """The UID of the pod for whose extended resources the scheduler made a claim; "" if none."""
    if claim.metadata.annotation(EXTENDED_RESOURCE_CLAIM) != "true":
        return ""
    owner = _controller(claim)
    return owner.uid if owner is not None else ""


def is_left(claim: resource.ResourceClaim | None, pod: core.Pod) -> bool:
    """Whether a claim for its extended resources keeps a pod from being placed.

    The scheduler makes one as it binds a pod, and deletes one that it finds in a later attempt.
    """
    if claim is None or pod.node_name:
        return False
    owner = _controller(claim)
    devices = claim.spec.devices
    return (
        extended_for(claim) == pod.metadata.uid
        and owner is not None
        and owner.name == pod.metadata.name
        and devices is not None
        and bool(devices.requests)
    )


def _controller(claim: resource.ResourceClaim) -> OwnerReference | None:
    owners = claim.metadata.owner_references or ()
    return next((owner for owner in owners if owner.controller), None)
