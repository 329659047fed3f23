"""A node's answer to a demand: it fits, with a value and devices, or is refused, with reasons.

Pure: demand + node + acceptance → verdict. What cannot be decided is allowed and scored low:
nothing here refuses for lack of knowledge.
"""

from collections.abc import Sequence
from math import prod

import msgspec

from fettle.cluster import NodeView
from fettle.dra import Claim, Request, in_order
from fettle.model import BAD_STATES, Aggregate, NewDriverPlacement, reasons
from fettle.model.reasons import Reason
from fettle.scheduling.demand import EXTENDED_RESOURCES, Demand
from fettle.scheduling.judge.acceptance import (
    Acceptance,
    new_driver,
    unrelated_domains,
    without_domains,
    without_planned,
)
from fettle.scheduling.judge.claims import (
    Allocator,
    bound_part,
    claims_part,
    has_unacceptable_device,
)
from fettle.scheduling.judge.parts import Choice, Part, node_part, rejected_part, undecided_part
from fettle.scheduling.judge.scores import (
    CANARY_BONUS,
    HIGHEST_SCORE,
    LEFTOVER_BONUS,
    host_score,
)
from fettle.scheduling.judge.units import too_few, units_part

LAST_SCORE = 2
"""Nodes that are allowed for a breaker alone, or since the pod's patience is over, or whose planned
maintenance begins before the pod would end, or whose driver is new to a policy that avoids that,
score no higher, and all others that fit do."""
UNDER_WAY_SCORE = 0
"""Of nodes where maintenance is under way: a pod there is soon deleted."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """A node's answer to a demand; `score` is the extender's, 0 to `HIGHEST_SCORE`.

    - `refusals` are Fettle's. `overruled` would be, but for causes that a breaker set aside; the
      node comes after all others. So does one with `conceded`: they would be refusals, had the pod
      not waited as long as its policy lets it.
    - `undecided` says why some part could not be judged. That part is allowed.
    - `rejected` says why the scheduler itself does not place the pod here. These are not Fettle's
      refusals: such a node `fits` as far as Fettle is asked.
    - `may_be_bad`: the pod may be given something Degraded or Unhealthy.
    - `near_refusal`: the node is not refused, but has devices that would be, had they been free.
    """

    fits: bool
    value: float
    score: int
    refusals: tuple[Reason, ...] = ()
    undecided: tuple[Reason, ...] = ()
    rejected: tuple[Reason, ...] = ()
    overruled: tuple[Reason, ...] = ()
    conceded: tuple[Reason, ...] = ()
    devices: tuple[Choice, ...] = ()
    notes: tuple[Reason, ...] = ()
    may_be_bad: bool = False
    near_refusal: bool = False

    @property
    def can_be_placed(self) -> bool:
        """Whether neither Fettle nor the scheduler's own checks keep the pod off the node."""
        return self.fits and not self.rejected


def judge(
    demand: Demand,
    node: NodeView,
    acceptance: Acceptance,
    allocator: Allocator,
    *,
    emptied: bool = False,
) -> Verdict:
    """The node's verdict on the demand.

    `emptied` judges it as preemption would leave it: every device-plugin unit may be drawn.
    """
    strict = acceptance.strict()
    verdict = _judged(demand, node, strict, allocator, emptied=emptied)
    if acceptance.patience_over and not verdict.fits:
        late = _judged(demand, node, strict.after_patience(), allocator, emptied=emptied)
        verdict = after_patience(verdict, late)
    if acceptance.set_aside and not verdict.fits:
        least = acceptance.after_patience() if acceptance.patience_over else acceptance
        verdict = _judged(demand, node, least, allocator, emptied=emptied)
    return verdict


def after_patience(verdict: Verdict, late: Verdict) -> Verdict:
    """The verdict on a node that is refused, once the pod's patience is over.

    `late` goes by what is accepted then.
    """
    if not late.fits:
        return late
    score = min(late.score, LAST_SCORE)
    return msgspec.structs.replace(late, score=score, conceded=verdict.refusals)


def _judged(
    demand: Demand,
    node: NodeView,
    acceptance: Acceptance,
    allocator: Allocator,
    *,
    emptied: bool,
) -> Verdict:
    others = unrelated_domains(demand, node)
    node = without_domains(others, node, acceptance.thresholds)
    node, maintenance = without_planned(node, acceptance)
    parts: list[Part] = []
    backing: list[Request] = []
    for units in demand.units:
        # The scheduler allocates devices for an extended resource only if no plugin offers it here.
        plugin = node.plugins.get(units.resource)
        if plugin is not None and plugin.allocatable > 0:
            parts.append(units_part(units, plugin, node, acceptance, emptied=emptied))
        elif units.backing and node.pools:
            backing += units.backing
        elif plugin is not None:
            parts.append(rejected_part(too_few(units, plugin), node))
        else:
            parts.append(rejected_part(reasons.NoUnits(units.resource), node))
    parts += [bound_part(bound, node, acceptance) for bound in demand.bound]
    claims = demand.claims
    if backing:
        claims = (*claims, Claim(EXTENDED_RESOURCES, in_order(backing)))
    near_refusal = False
    if claims:
        part = claims_part(claims, node, acceptance, allocator, demand.in_flight)
        parts.append(part)
        near_refusal = has_unacceptable_device(claims, node, acceptance)
    parts += [undecided_part(why, node) for why in demand.unsettled]
    pools = frozenset[str]().union(*(part.pools for part in parts))
    of_node = node_part(node, acceptance, pools, only_admin_access=demand.only_admin_access)
    if others:
        of_node.notes = [reasons.OtherKubeletRefusals(tuple(others))]
    of_node.last_choice, driver = maintenance, new_driver(node, acceptance.placement)
    if driver is not None and driver.preferred:
        of_node.canary = driver
    elif driver is not None and maintenance is None:
        of_node.last_choice = driver
    parts.insert(0, of_node)
    if node.quarantined:
        for part in parts:  # what is missing may be in the object that cannot be read
            part.undecided += part.rejected
            part.rejected = []
        parts.insert(0, Part(undecided=[*map(reasons.ObjectUnreadable, node.quarantined)]))
    # Last, since these reasons hold even if something of the node cannot be read.
    parts += [rejected_part(why, node) for why in demand.barred]
    return combine(parts, node, acceptance, near_refusal=near_refusal)


def combine(
    parts: Sequence[Part], node: NodeView, acceptance: Acceptance, *, near_refusal: bool = False
) -> Verdict:
    """The verdict that these parts make together."""
    placement = acceptance.placement
    values = [p.value for p in parts if p.value is not None] or [node.health.score]
    value = min(values) if placement.aggregate is Aggregate.MIN else sum(values) / len(values)
    refusals = tuple(why for p in parts for why in (*p.refusals, *p.required))
    overruled = tuple(why for p in parts for why in p.overruled)
    undecided = tuple(why for p in parts for why in p.undecided)
    rejected = tuple(why for p in parts for why in p.rejected)
    devices = tuple(d for p in parts for d in p.devices)
    counted = (node.health, *(d.health for d in devices if not d.admin_access))
    last = bool(refusals or overruled or undecided or rejected)
    score = host_score(
        value,
        placement.degraded,
        tenant_caused=max(health.tenant_caused for health in counted),
        risk=1.0 - prod(1.0 - part.risk for part in parts),
        last=last,
    )
    # What comes last must stay last: no bonus lifts it over a node that simply fits.
    leftovers = [] if last else [p.leftover for p in parts if p.leftover is not None]
    if leftovers:
        score += LEFTOVER_BONUS
    last_choices = [p.last_choice for p in parts if p.last_choice is not None]
    may_be_bad = any(p.may_be_bad for p in parts) or any(
        health.shown_state in BAD_STATES for health in counted
    )
    canaries = [p.canary for p in parts if p.canary is not None]
    # What fails there must not be able to fail for another reason than the new driver.
    if last or last_choices or may_be_bad:
        canaries = []
    if canaries:
        score = min(HIGHEST_SCORE, score + CANARY_BONUS)
    if any(isinstance(w, reasons.Maintenance) and w.begins_in_s is None for w in last_choices):
        score = UNDER_WAY_SCORE
    elif overruled or last_choices or any(health.is_corroborated for health in counted):
        score = min(score, LAST_SCORE)
    elif not last and (
        acceptance.set_aside
        or acceptance.patience_over
        or placement.expected_runtime
        or placement.new_driver is NewDriverPlacement.AVOID
    ):
        score = max(score, LAST_SCORE + 1)
    return Verdict(
        fits=not refusals,
        value=round(value, 4),
        score=score,
        refusals=refusals,
        undecided=undecided,
        rejected=rejected,
        overruled=overruled,
        devices=devices,
        notes=(
            *(note for p in parts for note in p.notes),
            *leftovers,
            *canaries,
            *(() if refusals else last_choices),
        ),
        may_be_bad=may_be_bad,
        near_refusal=near_refusal and not refusals,
    )
