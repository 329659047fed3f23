"""Which nodes a pod's own manifest lets the scheduler place it on, devices aside. Pure.

By node selector, required node affinity, and taints, as the plugins NodeAffinity, TaintToleration
and NodeUnschedulable of kube-scheduler judge; not by processors, memory, volumes or other pods.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from fettle.api import core
from fettle.cluster import NodeView
from fettle.dra import MalformedNodeSelector, NodeTarget, parse_node_selector, tolerates

UNSCHEDULABLE = core.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What tolerates this may go to cordoned nodes."""


class ExcludedBy(StrEnum):
    """What keeps a pod off a node, whatever its devices."""

    NODE_SELECTOR = "nodeSelector"
    NODE_AFFINITY = "nodeAffinity"
    CORDON = "cordon"
    NOT_READY = "notReady"
    TAINT = "taint"


class Exclusion(NamedTuple):
    """`detail` is the label that the node lacks, or its taint; "" if nothing is to be named."""

    by: ExcludedBy
    detail: str = ""


def node_exclusion(pod: core.Pod) -> Callable[[NodeView], Exclusion | None]:
    """Why the pod cannot go to a node, whatever its devices; None if it can, or if the node cannot
    be read."""
    spec = pod.spec or core.PodSpec()
    wanted = spec.node_selector or {}
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    tolerations = spec.tolerations or ()
    try:
        selector = parse_node_selector(required) if required is not None else None
    except MalformedNodeSelector:  # the API server lets none pass
        selector = None

    def is_tolerated(taint: core.Taint) -> bool:
        return any(tolerates(toleration, taint) for toleration in tolerations)

    def excluded(node: NodeView) -> Exclusion | None:
        if node.unread:
            return None
        for key, value in wanted.items():
            if node.labels.get(key) != value:
                return Exclusion(ExcludedBy.NODE_SELECTOR, f"{key}={value}")
        if selector is not None and not selector.matches(NodeTarget(node.name, node.labels)):
            return Exclusion(ExcludedBy.NODE_AFFINITY)
        if node.unschedulable and not is_tolerated(UNSCHEDULABLE):
            return Exclusion(ExcludedBy.CORDON)
        for taint in node.taints:
            if taint.key in core.LOST:
                return Exclusion(ExcludedBy.NOT_READY, taint.key)
            if taint.effect in ("NoSchedule", "NoExecute") and not is_tolerated(taint):
                if taint.key == UNSCHEDULABLE.key:
                    return Exclusion(ExcludedBy.CORDON)
                return Exclusion(ExcludedBy.TAINT, f"{taint.key}:{taint.effect}")
        return None

    return excluded


def node_fit(pod: core.Pod) -> Callable[[NodeView], bool]:
    """Whether the pod may go to a node. To a node that is not ready it may not."""
    excluded = node_exclusion(pod)
    return lambda node: not node.unread and excluded(node) is None
