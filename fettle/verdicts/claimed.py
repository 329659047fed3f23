"""What the DRA claims of an ask say of a node: which devices they would get, and what those are
worth. Pure; `allocator` knows which, `acceptance` knows whether a policy takes them.
"""

from collections.abc import Generator, Sequence
from functools import partial

import msgspec

from fettle.affinity import Malformed, Place, Selector
from fettle.allocator import AMPLE, Allocated, Budget, Found, Match, allocating
from fettle.allocator.committing import after
from fettle.allocator.profiles import CURRENT, Profile
from fettle.asks.asks import Bound
from fettle.asks.claims import Claim
from fettle.verdicts import ranking
from fettle.verdicts.acceptance import Acceptance
from fettle.verdicts.parts import UNDECIDED_VALUE, Choice, Part
from fettle.view import DeviceView, NodeView


def bound_part(bound: Bound, node: NodeView, acceptance: Acceptance) -> Part:
    """A claim that is allocated already pins the pod: its very devices are judged."""
    part = Part(frozenset(h.device.driver for h in bound.held))
    if bound.failed:
        part.undecided.append(f"claim {bound.name} will be allocated anew: {bound.failed}")
        return part
    try:
        if bound.nodes is not None and not Selector(bound.nodes).matches(
            Place(node.name, node.labels)
        ):
            part.notes.append(f"claim {bound.name} is allocated to other nodes")
            return part
    except Malformed as error:
        part.undecided.append(f"claim {bound.name}: {error}")
        return part
    wanted = {held.device for held in bound.held}
    pools = {(id_.driver, id_.pool) for id_ in wanted}
    here = [
        device
        for pool in node.pools
        if (pool.driver, pool.name) in pools
        for device in pool.devices
        if device.id in wanted
    ]
    for gone in sorted(wanted - {device.id for device in here}):
        part.notes.append(f"claim {bound.name} holds {gone}, which is not published for this node")
    return _judged(part, [(bound.name, d) for d in here], acceptance, how="is allocated")


class Allocator(msgspec.Struct, frozen=True):
    """What allocating needs besides the claims and the node."""

    match: Match
    profile: Profile = CURRENT
    budget: Budget = AMPLE

    def predicting(
        self, claims: Sequence[Claim], node: NodeView
    ) -> Generator[None, None, Allocated]:
        """What the scheduler's allocator would take here, defects and all."""
        if node.malformed:
            return Allocated(Found.ERROR, reason=node.malformed)
        return (
            yield from allocating(claims, node.pools, self.match, self.profile, budget=self.budget)
        )

    def searching(
        self, claims: Sequence[Claim], node: NodeView, acceptance: Acceptance
    ) -> Generator[None, None, Allocated]:
        """Whether there is any allocation of acceptable devices."""
        return (
            yield from allocating(
                claims,
                node.pools,
                self.match,
                self.profile.correct,
                acceptable=lambda device: not acceptance.refusal(device.health),
                budget=self.budget,
            )
        )


def claims_part(
    claims: Sequence[Claim],
    node: NodeView,
    acceptance: Acceptance,
    allocator: Allocator,
    takers: int,
) -> Generator[None, None, Part]:
    """The claims on this node, while `takers` others with the same needs are on their way."""
    predicted = yield from allocator.predicting(claims, node)
    part = _predicted_part(claims, predicted, node, acceptance)
    if part.refusals:
        feasible = yield from allocator.searching(claims, node, acceptance)
        if feasible.found is Found.FITS:
            part.refusals.append(
                "acceptable devices exist here, but the scheduler would not take them"
            )
        return part
    for _ in range(takers if part.value is not None else 0):
        if predicted.found is not Found.FITS:
            break
        node = msgspec.structs.replace(node, pools=after(node.pools, predicted.devices))
        predicted = yield from allocator.predicting(claims, node)
        if predicted.found is Found.FITS:
            part.value = min(part.value or 0.0, _worth_later(claims, predicted, node, acceptance))
    if takers:
        part.notes.append(f"up to {takers} pods with the same needs may be served here before")
    return part


def _worth_later(
    claims: Sequence[Claim], predicted: Allocated, node: NodeView, acceptance: Acceptance
) -> float:
    """What a node is worth once others were served there: nothing, where it would be refused.

    They may as well be served elsewhere; so this lowers a score, and refuses nothing.
    """
    later = _predicted_part(claims, predicted, node, acceptance)
    return 0.0 if later.refusals or later.value is None else later.value


def _predicted_part(
    claims: Sequence[Claim], predicted: Allocated, node: NodeView, acceptance: Acceptance
) -> Part:
    part = Part()
    if predicted.found is not Found.FITS:
        part.undecided.append(_why_open(predicted))
        part.value = UNDECIDED_VALUE * node.health.score
        return part
    chosen = [(f"{claims[t.claim].name}/{t.request}", t.device) for t in predicted.devices]
    part.keys = frozenset(device.id.driver for _, device in chosen)
    return _judged(part, chosen, acceptance)


def _why_open(predicted: Allocated) -> str:
    if predicted.found is Found.NONE or predicted.on_node:
        return f"no allocation is possible here as far as Fettle sees ({predicted.reason})"
    if predicted.found is Found.ERROR:
        return f"the scheduler's attempt for this pod would end in an error: {predicted.reason}"
    return predicted.reason


def _judged(
    part: Part,
    devices: Sequence[tuple[str, DeviceView]],
    acceptance: Acceptance,
    *,
    how: str = "would get",
) -> Part:
    part.devices = [Choice(request, d.id, d.health) for request, d in devices]
    if not devices:
        return part
    together = partial(ranking.taken, aggregate=acceptance.placement.aggregate)
    part.value = together([d.health.score for _, d in devices])
    refused: set[str] = set()
    for request, device in devices:
        if why := acceptance.refusal(device.health):
            part.refusals.append(f"{request} {how} {device.id}, which is {why}")
            part.held = part.held or device.health.held
            refused.add(device.id.driver)
    worth = together([acceptance.counted(d.health) for _, d in devices])
    if refused:
        part.keys = frozenset(refused)
    elif worth < acceptance.placement.min_score:
        part.refusals.append(
            f"the devices are worth {worth:.2f} together, "
            f"less than {acceptance.placement.min_score:g}"
        )
    return part
