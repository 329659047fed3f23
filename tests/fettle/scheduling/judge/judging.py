"""Demands for units and for claims, and verdicts on a node whose devices match every selector."""

import math

from fettle.cel import Outcome
from fettle.cel.runtime.protocol import MATCH
from fettle.cluster import NodeView
from fettle.config import HealthSettings
from fettle.dra import Alternative, Claim, DeviceView, Request
from fettle.health import START, assess
from fettle.model import (
    BUILT_IN,
    Evidence,
    EvidenceKind,
    Family,
    Health,
    NodeId,
    Policy,
    ReporterId,
    Source,
    SourceKind,
    Weighed,
)
from fettle.scheduling.demand import Demand, Units
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.claims import Allocator
from fettle.scheduling.judge.verdicts import Verdict, judge
from tests.fettle import building as b

TRAINING, INFERENCE, SCAVENGER = (BUILT_IN[n] for n in ("training", "inference", "scavenger"))


def every_device(_expression: str, _device: DeviceView) -> Outcome:
    return MATCH


def units(policy: Policy, count: int = 1) -> Demand:
    return Demand(policy, units=(Units(b.RESOURCE, count),))


def request(policy: Policy, count: int | None = 1, **fields: object) -> Demand:
    return Demand(policy, claims=(Claim("gpu", (wanted("r", count, **fields),)),))


def wanted(name: str, count: int | None = 1, **fields: object) -> Request:
    if count is None:
        fields["mode"] = "All"
    made = Alternative(name, b.DRIVER, ("any",), count=count or 1, **fields)  # type: ignore[arg-type]
    return Request(name, (made,))


def verdict(demand: Demand, node: NodeView, **fields: object) -> Verdict:
    acceptance = Acceptance(demand.policy.placement)
    return judge(demand, node, acceptance, Allocator(every_device), **fields)  # type: ignore[arg-type]


def work(begins_in_s: float | None, weight: float = 0.15) -> Evidence:
    return Evidence(
        subject=NodeId("n"),
        family=Family.MAINTENANCE,
        kind=EvidenceKind.LEVEL,
        weight=weight,
        source=Source(SourceKind.CONDITION, "MaintenancePlanned"),
        reporter=ReporterId("Node", "n"),
        said="MaintenancePlanned is True",
        observed_at=0.0,
        planned=True,
        begins_in_s=begins_in_s,
    )


def by(*evidence: Evidence) -> Health:
    weighed = tuple(Weighed(one, one.weight) for one in evidence)
    return assess(weighed, START, HealthSettings(), math.inf, all_clear=False).health
