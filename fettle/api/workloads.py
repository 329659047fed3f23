"""Which workload a pod is part of: one name for all pods that do the same."""

from fettle.api import core
from fettle.api.meta import OwnerReference

_OUTLIVING = {
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
}
"""Labels that name on each pod a workload that outlives the pod's controller, and its kind: to try
again, it makes a new Job or StatefulSet."""


def workload_of(pod: core.Pod) -> OwnerReference | None:
    """A workload that outlives the pod's controller, else that; None if the pod is alone."""
    metadata = pod.metadata
    for label, kind in _OUTLIVING.items():
        # A tenant may write a label, but only its own namespace can be meant by it.
        if name := metadata.label(label):
            uid = f"{metadata.namespace}/{kind}/{name}"
            return OwnerReference(kind=kind, name=name, uid=uid)
    if (controller := metadata.controller) is None:
        return None
    # Nor does a reference to another namespace's workload make a pod that one's.
    return OwnerReference(
        kind=controller.kind, name=controller.name, uid=f"{metadata.namespace}/{controller.uid}"
    )
