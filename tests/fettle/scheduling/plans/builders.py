"""Faults, nodes and healths that plans are made of."""

import math
from typing import Any

import msgspec

from fettle.cluster import NodeMarks, NodeView, Shortage
from fettle.config import HealthSettings, NodeMarkSettings
from fettle.health import START, assess
from fettle.model import (
    SOUND,
    Degraded,
    DeviceId,
    Evidence,
    EvidenceKind,
    Family,
    Health,
    Placement,
    ReporterId,
    Source,
    SourceKind,
    State,
    Subject,
    Weighed,
)
from fettle.scheduling.judge.acceptance import Acceptance, Cause
from fettle.scheduling.plans import NodeHealth, node_health
from tests.fettle import building as b


def fault(
    name: str,
    weight: float,
    *,
    of: Subject | None = None,
    family: Family = Family.DRIVER,
    kind: EvidenceKind = EvidenceKind.LEVEL,
    reporting_namespace: str = "",
) -> Weighed:
    evidence = Evidence(
        subject=of or DeviceId(b.DRIVER, "n", name),
        family=family,
        kind=kind,
        weight=weight,
        source=Source(SourceKind.TAINT, "rule"),
        reporter=ReporterId("Node", "n"),
        said="a fault",
        observed_at=0.0,
        reporting_namespace=reporting_namespace,
    )
    return Weighed(evidence, weight)


def healthy_by(*evidence: Weighed, since: float = 0.0) -> Health:
    found = assess(evidence, START, HealthSettings(), math.inf, all_clear=False).health
    return msgspec.structs.replace(found, since=since)


NOW = 10_000.0

DEAD = fault("gpu", 1.0)

CORDONS = NodeMarkSettings(
    cordon="AnyDevice", confirm_seconds=60, max_cordoned=10, max_cordoned_share=1.0
)


def ill(*evidence: Weighed, since: float = 0.0) -> Health:
    return healthy_by(*evidence, since=since) if evidence else SOUND


def node(name: str, *devices: Health, **fields: Any) -> NodeView:
    """A node with these DRA devices."""
    made = (
        msgspec.structs.replace(b.device(f"gpu-{i}", pool=name, local=name), health=health)
        for i, health in enumerate(devices)
    )
    view = b.node(name, pools=(b.pool(*made, name=name),))
    return msgspec.structs.replace(view, **fields)


def health_of(
    view: NodeView, *, aside: frozenset[Cause] = frozenset(), of_hardware: bool = False
) -> NodeHealth:
    set_aside = {b.DRIVER: aside}
    accepted = {
        State.UNHEALTHY: Acceptance(Placement(min_score=0), set_aside),
        State.DEGRADED: Acceptance(Placement(min_score=0, degraded=Degraded.REFUSE), set_aside),
    }
    found = node_health(view, accepted, of_hardware=of_hardware)
    assert found is not None
    return found


OURS: dict[str, Any] = {"unschedulable": True, "marks": NodeMarks(cordon="dead")}


LOST_AT = NOW - 100.0


def lacking(name: str, *, found: int = 1, lost_at: float = LOST_AT) -> NodeView:
    """A node with so many of two devices. What is there is sound."""
    gone = Shortage(b.DRIVER, 2, found, "somebody", lost_at - 600.0, lost_at)
    return node(name, *[SOUND] * found, missing=(gone,))
