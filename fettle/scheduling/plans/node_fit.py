"""Which nodes a pod's own manifest lets the scheduler place it on, devices aside. Pure.

By node selector, required node affinity, and taints, as the plugins NodeAffinity, TaintToleration
and NodeUnschedulable of kube-scheduler judge; not by processors, memory, volumes or other pods.
"""

from collections.abc import Callable

from fettle.api import core
from fettle.cluster import NodeView
from fettle.dra import MalformedNodeSelector, NodeTarget, parse_node_selector, tolerates

UNSCHEDULABLE = core.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What tolerates this may go to cordoned nodes."""


def node_fit(pod: core.Pod) -> Callable[[NodeView], bool]:
    """Whether the pod may go to a node. To a node that is not ready it may not."""
    spec = pod.spec or core.PodSpec()
    wanted = (spec.node_selector or {}).items()
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    tolerations = spec.tolerations or ()
    try:
        selector = parse_node_selector(required) if required is not None else None
    except MalformedNodeSelector:  # the API server lets none pass
        selector = None

    def is_tolerated(taint: core.Taint) -> bool:
        return any(tolerates(toleration, taint) for toleration in tolerations)

    def fits(node: NodeView) -> bool:
        if node.unread or not wanted <= node.labels.items():
            return False
        if selector is not None and not selector.matches(NodeTarget(node.name, node.labels)):
            return False
        if node.unschedulable and not is_tolerated(UNSCHEDULABLE):
            return False
        return all(
            taint.key not in core.LOST
            and (taint.effect not in ("NoSchedule", "NoExecute") or is_tolerated(taint))
            for taint in node.taints
        )

    return fits
