"""Placed pods that are at risk or stuck, and what watches them."""

from typing import Any

import msgspec

from fettle.api import core
from fettle.cluster import NodeView
from fettle.config import HealthSettings
from fettle.health import START, assess
from fettle.model import (
    Evidence,
    EvidenceKind,
    Family,
    Health,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    Weighed,
)
from fettle.scheduling.placed import AtRisk, PlacedPod, worst_first
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import Cluster

Raw = dict[str, Any]

BOUND = "2026-01-01T00:00:00Z"

BOUND_S = 1767225600.0


def placed(name: str, node: str = "n", gpus: int = 0, policy: str = "training", **spec: Any) -> Raw:
    pod = b.gpu_pod(gpus, name=name, annotations={"fettle.dev/policy": policy})
    if not gpus:
        pod["spec"] = {"containers": []}
    pod["metadata"]["uid"] = f"uid-{name}"
    pod["spec"] |= {"nodeName": node, **spec}
    said = {"type": "PodScheduled", "status": "True", "lastTransitionTime": BOUND}
    pod["status"] = {"phase": "Running", "conditions": [said]}
    return pod


def claimed(name: str, **how: Any) -> Raw:
    return placed(name, resourceClaims=[{"name": "gpu", "resourceClaimName": f"c-{name}"}], **how)


def claim(pod: str, device: str, **result: Any) -> Raw:
    given = {"request": "r", "driver": b.DRIVER, "pool": "n", "device": device, **result}
    return {
        "metadata": {"name": f"c-{pod}", "namespace": "default"},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": [given]}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}],
        },
    }


class Watched(Cluster):
    """A cluster, and the pods at risk in it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BOUND_S + 100.0
        self.at_risk = AtRisk(self.answers, now=lambda: self.now)
        self.nodes: dict[str, NodeView] = {}
        self.pods: dict[str, core.Pod] = {}
        self.claims: dict[str, Any] = {}

    async def see(self, *nodes: NodeView, pods: tuple[Raw, ...] = (), **fields: Any) -> list[str]:
        """The pods at risk, the worst first, after a view with these nodes and pods changed."""
        self.nodes |= {node.name: node for node in nodes}
        self.pods = {**self.pods, **{p.metadata.key: p for p in map(b.pod, pods)}}
        for raw in fields.pop("claims", ()):
            one = b.claim(raw)
            self.claims = {**self.claims, one.metadata.key: one}
        self.show(self.nodes, pods=self.pods, claims=self.claims, **fields)
        return [one.pod.metadata.name for one in await self.listed()]

    async def listed(self) -> list[PlacedPod]:
        return worst_first((await self.at_risk.current()).values(), 100)


FAILED_AT = BOUND_S + 100.0

EARLIER = "2026-01-01T00:00:30Z"

LATER = "2026-01-01T00:02:00Z"

CREATING = {"waiting": {"reason": "ContainerCreating"}}


def failed(
    weight: float = 1.0,
    *,
    at: float = FAILED_AT,
    family: Family = Family.BUS,
    text: str = "XID 79: GPU has fallen off the bus",
    kind: EvidenceKind = EvidenceKind.LATCHED,
    **how: Any,
) -> Health:
    evidence = Evidence(
        subject=NodeId("n"),
        family=family,
        kind=kind,
        weight=weight,
        source=Source(SourceKind.TAINT, "xids"),
        reporter=ReporterId("Node", "n"),
        said=text,
        observed_at=at,
        **how,
    )
    weighed = (Weighed(evidence, weight),)
    return assess(weighed, START, HealthSettings(), at, all_clear=False).health


def unwell(health: Health, name: str = "gpu-0") -> Any:
    """The node of one GPU, with this health."""
    device = msgspec.structs.replace(b.device(name), health=health)
    return b.node(pools=(b.pool(device),))


def waiting(state: dict[str, Any], *, last: dict[str, Any] | None = None, ready: str = "") -> Any:
    """The status of a pod whose container waits; `ready`: whether containers may be created."""
    container = {"name": "main", "state": state, "lastState": {"terminated": last} if last else {}}
    condition = {
        "type": "PodReadyToStartContainers",
        "status": ready,
        "lastTransitionTime": EARLIER,
    }
    return {
        "phase": "Pending" if ready == "False" else "Running",
        "startTime": EARLIER,
        "containerStatuses": [container],
        "conditions": [condition] if ready else [],
    }


def looping(code: int = 139, at: str = LATER) -> Any:
    last = {"exitCode": code, "finishedAt": at}
    return waiting({"waiting": {"reason": "CrashLoopBackOff"}}, last=last)
