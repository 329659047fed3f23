"""A node's answer to an ask: it fits, with a value and the devices, or it is refused, with reasons.

Pure: ask + node + acceptance → verdict. Whatever cannot be decided is allowed and scored low;
nothing here refuses for lack of knowledge.
"""

from collections.abc import Generator, Sequence

import msgspec

from fettle.cluster.view import NodeView
from fettle.dra.allocator import run
from fettle.dra.claims import Claim, Request
from fettle.dra.extended_resources import in_order
from fettle.model.policy import Aggregate
from fettle.scheduling.demand import Ask
from fettle.scheduling.judge import ranking, unrelated
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.claimed import Allocator, bound_part, claims_part, is_delicate
from fettle.scheduling.judge.parts import (
    Choice,
    Part,
    node_part,
    open_part,
    unfit_part,
    units_part,
)

EXTENDED_RESOURCES = "<extended-resources>"
"""What the scheduler calls the claim that it makes for extended resources."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """`score` is the extender's 0..10. `overruled` are refusals that an open breaker set aside.

    `undecided` are the reasons why a part could not be judged; that part was allowed. `unfit` are
    those for which the scheduler itself does not place the pod here; they are not Fettle's
    refusals, so such a node `fits` as far as Fettle is asked. `notes` say what else there is to
    know. `delicate`: it is not refused, and has devices that would be, had they been free.
    """

    fits: bool
    value: float
    score: int
    refusals: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    overruled: tuple[str, ...] = ()
    devices: tuple[Choice, ...] = ()
    notes: tuple[str, ...] = ()
    delicate: bool = False


def judge(
    ask: Ask,
    node: NodeView,
    acceptance: Acceptance,
    allocator: Allocator,
    *,
    emptied: bool = False,
) -> Verdict:
    """The node's verdict on the ask.

    `emptied` judges it as preemption would leave it: every device-plugin unit may be in the draw.
    """
    return run(judging(ask, node, acceptance, allocator, emptied=emptied))


def judging(
    ask: Ask,
    node: NodeView,
    acceptance: Acceptance,
    allocator: Allocator,
    *,
    emptied: bool = False,
) -> Generator[None, None, Verdict]:
    """As `judge`, with a chance to do something else at each `next`."""
    others = unrelated.domains(ask, node)
    node = unrelated.without(others, node, acceptance.thresholds)
    parts = [node_part(node, acceptance, only_looks=ask.only_looks)]
    if others:
        parts[0].notes = [f"kubelet refusals for {', '.join(others)} do not count here"]
    backing: list[Request] = []
    for units in ask.units:
        plugin = node.plugins.get(units.resource)
        if plugin is not None and plugin.allocatable > 0:
            parts.append(units_part(units, plugin, node, acceptance, emptied=emptied))
        elif units.backing and node.pools:
            backing += units.backing
        else:
            why = f"this node has no {units.resource} to allocate"
            parts.append(unfit_part(why, node))
    parts += [bound_part(bound, node, acceptance) for bound in ask.bound]
    claims = ask.claims
    if backing:
        claims = (*claims, Claim(EXTENDED_RESOURCES, in_order(backing)))
    delicate = False
    if claims:
        part = yield from claims_part(claims, node, acceptance, allocator, ask.takers)
        parts.append(part)
        delicate = yield from is_delicate(claims, node, acceptance)
    parts += [open_part(why, node) for why in ask.unsettled]
    if node.quarantined:
        for part in parts:  # what cannot be read may be what is lacking
            part.undecided += part.unfit
            part.unfit = []
        parts.insert(0, Part(undecided=[*node.quarantined]))
    parts += [unfit_part(why, node) for why in ask.barred]
    return _combine(parts, node, acceptance, delicate=delicate)


def _combine(
    parts: Sequence[Part], node: NodeView, acceptance: Acceptance, *, delicate: bool
) -> Verdict:
    placement = acceptance.placement
    values = [p.value for p in parts if p.value is not None] or [node.health.score]
    value = min(values) if placement.aggregate is Aggregate.MIN else sum(values) / len(values)
    refusals: list[str] = []
    overruled: list[str] = []
    broken = {key for p in parts for key in p.keys} & acceptance.open_breakers
    for part in parts:
        excused = not part.held and bool(broken) and part.keys <= broken
        (overruled if excused else refusals).extend(part.refusals)
        refusals.extend(part.required)
    undecided = tuple(why for p in parts for why in p.undecided)
    unfit = tuple(why for p in parts for why in p.unfit)
    devices = tuple(d for p in parts for d in p.devices)
    counted = (node.health, *(d.health for d in devices if not d.admin_access))
    score = ranking.host_score(
        value,
        placement.degraded,
        provoked=max(health.provoked for health in counted),
        last=bool(refusals or overruled or undecided or unfit),
    )
    return Verdict(
        fits=not refusals,
        value=round(value, 4),
        score=score,
        refusals=tuple(refusals),
        undecided=undecided,
        unfit=unfit,
        overruled=tuple(overruled),
        devices=devices,
        notes=tuple(note for p in parts for note in p.notes),
        delicate=delicate and not refusals,
    )
