"""Which workload a pod is part of: one name for all pods that do the same."""

from fettle.api import core
from fettle.api.meta import OwnerReference

_OUTLIVING = {
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    "actions.github.com/scale-set-name": "AutoscalingRunnerSet",
}
"""Labels that name on each pod a workload that outlives the pod's controller, and its kind: to try
again, it makes a new Job, StatefulSet or EphemeralRunner."""


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


def known_as(pod: core.Pod) -> OwnerReference:
    """What a pod has in common with those that come after it: its workload. A pod that is alone has
    its name, or the `generateName` that it was made from, within its namespace."""
    if (workload := workload_of(pod)) is not None:
        return workload
    metadata = pod.metadata
    name = f"{metadata.generate_name}*" if metadata.generate_name else metadata.name
    return OwnerReference(kind="Pod", name=name, uid=f"{metadata.namespace}/Pod/{name}")
