"""Asks for units and for claims, and the verdict on a node, where every selector matches."""

from fettle.asks.asks import Ask, Units
from fettle.asks.claims import Alternative, Claim, Request
from fettle.policy import BUILT_IN, Policy
from fettle.selectors.outcomes import MATCH, Outcome
from fettle.verdicts.acceptance import Acceptance
from fettle.verdicts.claimed import Allocator
from fettle.verdicts.verdicts import Verdict, judge
from fettle.view import DeviceView, NodeView
from tests.fettle import building as b

TRAINING, INFERENCE, SCAVENGER = (BUILT_IN[n] for n in ("training", "inference", "scavenger"))


def every_device(_expression: str, _device: DeviceView) -> Outcome:
    return MATCH


def units(policy: Policy, count: int = 1) -> Ask:
    return Ask(policy, units=(Units(b.RESOURCE, count),))


def request(policy: Policy, count: int | None = 1, **fields: object) -> Ask:
    return Ask(policy, claims=(Claim("gpu", (wanted("r", count, **fields),)),))


def wanted(name: str, count: int | None = 1, **fields: object) -> Request:
    if count is None:
        fields["mode"] = "All"
    made = Alternative(name, b.DRIVER, ("any",), count=count or 1, **fields)  # type: ignore[arg-type]
    return Request(name, (made,))


def verdict(ask: Ask, node: NodeView, **fields: object) -> Verdict:
    acceptance = Acceptance(ask.policy.placement, frozenset())
    return judge(ask, node, acceptance, Allocator(every_device), **fields)  # type: ignore[arg-type]
