"""Demands for units and for claims, and verdicts on a node whose devices match every selector."""

from fettle.cel import Outcome
from fettle.cel.runtime.protocol import MATCH
from fettle.cluster import NodeView
from fettle.dra import Alternative, Claim, DeviceView, Request
from fettle.model import BUILT_IN, Policy
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
