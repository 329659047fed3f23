"""Which annotations are kept of objects: one table, by their kind.

Who creates an object may annotate it with 256 KiB, and some tools write most of that. Only what
somebody in here reads is kept. Of Nodes everything is, within the limits of `trimming.py`: rules
may name any annotation of theirs.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import msgspec

from fettle.api.meta import ObjectMeta, Wire
from fettle.model import ANNOTATIONS, FURTHER_HOLD, HOLD

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""On claims that were made from a template for one pod: the pod's name for the claim."""
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""On claims that the scheduler made for a pod's extended resources."""
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
GROUP_KEYS = (
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/group-key",
    "training.kubeflow.org/job-name",
    "kueue.x-k8s.io/pod-group-name",
    "scheduling.x-k8s.io/pod-group",
    "scheduling.k8s.io/group-name",
)
"""Labels or annotations whose value names the group that a pod runs with, the largest first: a
JobSet has many Jobs, each of which may have a PodGroup."""
SIZE_ANNOTATIONS = (
    "leaderworkerset.sigs.k8s.io/size",
    "kueue.x-k8s.io/pod-group-total-count",
    "jobset.sigs.k8s.io/global-replicas",
)
"""Say how many pods the group has at least: of a JobSet, how many Jobs."""

LONGEST_NAME = 1024
"""Characters. The names of policies, claims and groups have at most 253."""
_LONGEST_HOLD = 64 * 1024
"""More than `trimming.py` leaves of one."""


_Value = TypeVar("_Value")


class KeptAnnotations(NamedTuple):
    """The annotations of a kind that are kept: by their keys, or how those begin, and how many
    characters of each."""

    keys: frozenset[str] = frozenset()
    begins: tuple[str, ...] = ()
    longest: int = LONGEST_NAME

    def has(self, key: str) -> bool:
        return key in self.keys or key.startswith(self.begins)

    def of(self, given: dict[str, str]) -> dict[str, str] | None:
        """Those of an object; None if there are none."""
        return {k: v[: self.longest] for k, v in given.items() if self.has(k)} or None

    def among(self, given: Mapping[str, _Value]) -> dict[str, _Value]:
        """The same in any form, uncut. It does not look at each of tens of thousands of others."""
        if self.begins:
            return {key: value for key, value in given.items() if self.has(key)}
        return {key: given[key] for key in sorted(self.keys) if key in given}


_NONE = KeptAnnotations()
KEPT = {
    "Pod": KeptAnnotations(
        frozenset((*ANNOTATIONS, *GROUP_KEYS, *SIZE_ANNOTATIONS, COMPLETION_INDEX))
    ),
    "PartialObjectMetadata": KeptAnnotations(frozenset(ANNOTATIONS)),  # of a pod's owners
    "ResourceClaim": KeptAnnotations(frozenset((POD_CLAIM_NAME, EXTENDED_RESOURCE_CLAIM))),
    "ResourceSlice": KeptAnnotations(frozenset((HOLD,)), (FURTHER_HOLD,), _LONGEST_HOLD),
    "AdmissionCheck": _NONE,
    "ComputeDomain": _NONE,
    "DeviceClass": _NONE,
    "DeviceHealth": _NONE,
    "DevicePolicy": _NONE,
    "DeviceTaintRule": _NONE,
    "WatchedEvent": _NONE,
    "QueuedWorkload": _NONE,
    "ResourceFlavor": _NONE,
    "Namespace": _NONE,  # its labels name a policy
    "ResourceClaimTemplate": _NONE,
    "ResourceQuota": _NONE,
    "StoredPolicyStatus": _NONE,
    "WebhookConfiguration": _NONE,
}
"""By the name of the struct that an object fills."""


class ApiObject(Wire, frozen=True, kw_only=True):
    """Base of the objects in KEPT: the others of their annotations are gone however the object was
    made, so that no test passes that would need one."""

    metadata: ObjectMeta

    def __post_init__(self) -> None:
        if (given := self.metadata.annotations) is not None:
            kept = KEPT[type(self).__name__].of(given)
            if kept != given:
                metadata = msgspec.structs.replace(self.metadata, annotations=kept)
                msgspec.structs.force_setattr(self, "metadata", metadata)

    def annotation(self, key: str) -> str | None:
        """One that is kept. To ask for another is an error in the program: write it into KEPT."""
        if not KEPT[type(self).__name__].has(key):
            raise LookupError(f"{key} is not kept of a {type(self).__name__}")
        return (self.metadata.annotations or {}).get(key)
