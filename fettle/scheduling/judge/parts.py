"""What one part of a demand says about a node: the node itself, a claim, or units; and what is left
of a node beside a bad device, which no whole-node pod can use. Pure.

`units` and `claims` make parts; `verdicts` combines them into the node's verdict.

A pod that gets only sound devices beside a bad one leaves whole nodes to those that need them, so
such a node scores higher. Nothing is said of a pod that may get the bad device, or of one that asks
for all.
"""

from collections.abc import Iterable, Sequence

import msgspec

from fettle.cluster import NodeView, PluginView
from fettle.dra import PoolView
from fettle.model import BAD_STATES, SOUND, DeviceId, Health, State, TaintRef, reasons
from fettle.model.reasons import Reason
from fettle.scheduling.judge.acceptance import Acceptance, node_refusal
from fettle.scheduling.judge.requirements import Met

UNDECIDED_VALUE = 0.5
"""What a node is worth, times its own score, if its devices cannot be told."""


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One device that a pod would get; `request` is the DRA request that it would satisfy.

    `health` is the device's without the evidence of `tolerated` taints. `met` says which
    requirements of the policy the device does not meet. With `admin_access` the health does not
    count: whoever watches a device or repairs it needs access whatever is wrong with it.
    """

    request: str
    device: DeviceId
    health: Health
    tolerated: tuple[TaintRef, ...] = ()
    met: Met = Met()
    admin_access: bool = False

    def is_acceptable(self, acceptance: Acceptance) -> bool:
        """Whether the policy does not refuse its health."""
        if self.admin_access or acceptance.accepts(self.health):
            return True
        return acceptance.accepts(acceptance.refuses_by(self.health, self.device.driver))


class Part(msgspec.Struct, gc=False):
    """What one part of a demand says about a node; `pools` are the drivers or the resource in it.

    `overruled` would be refusals, but for causes that a breaker set aside. `required` are refusals
    for what the policy requires; no breaker overrules them. `rejected` are reasons why the
    scheduler itself does not place the pod here, so no refusal is needed. `leftover` is why the
    pod's devices here are of no use to whole-node pods. `risk` is the chance (0..1) that the pod is
    given something here that its policy does not accept. `last_choice`: why other nodes come first,
    though the policy accepts this one. `canary`: why it comes before equals.
    `may_be_bad`: it may be given a unit here that is Degraded or Unhealthy, be that accepted or
    not.
    """

    pools: frozenset[str] = frozenset()
    value: float | None = None
    refusals: list[Reason] = []
    overruled: list[Reason] = []
    required: list[Reason] = []
    undecided: list[Reason] = []
    rejected: list[Reason] = []
    devices: list[Choice] = []
    notes: list[Reason] = []
    leftover: Reason | None = None
    last_choice: reasons.Maintenance | reasons.DriverIsNew | None = None
    canary: reasons.DriverIsNew | None = None
    risk: float = 0.0
    may_be_bad: bool = False

    def note_passed_over(self, *, taint_would_help: bool) -> None:
        """Note on the first refusal that the scheduler passes over acceptable devices here.

        `taint_would_help`: it would take them if a DeviceTaintRule kept it off the refused ones.
        That does not help against what the policy requires.
        """
        of = self.required or self.refusals
        first, *others = of
        if isinstance(first, reasons.DeviceRequirementNotMet):
            first = msgspec.structs.replace(first, passed_over=True)
        elif isinstance(first, reasons.DeviceRefusal):
            first = msgspec.structs.replace(
                first, passed_over=True, taint_would_help=taint_would_help
            )
        of[:] = [first, *others]


def node_part(
    node: NodeView,
    acceptance: Acceptance,
    pools: Iterable[str],
    *,
    only_admin_access: bool = False,
) -> Part:
    """What the node itself says: whether its own health and its labels are acceptable.

    `pools` are those of the devices that the demand is for. A demand for `only_admin_access` is not
    refused for the node's health.
    """
    met = acceptance.requirements.of_node(node)
    unmet, undecided = met.unmet, met.undecided
    if node.unread:  # its labels are not known
        unmet, undecided = (), (*((one, "") for one in met.unmet), *undecided)
    part = Part(
        required=[reasons.NodeRequirementNotMet(what) for what in unmet],
        undecided=[reasons.NodeRequirementUndecided(what, why) for what, why in undecided],
    )
    # No value of its own: the node's health counts through its devices already.
    placement = acceptance.placement
    if not only_admin_access and (why := node_refusal(node.health, placement)):
        still = node_refusal(acceptance.refuses_by(node.health, *pools), placement)
        if still is not None:
            part.refusals = [still]
        else:
            part.overruled = [why]
    return part


def rejected_part(why: Reason, node: NodeView) -> Part:
    """What the scheduler's own checks reject: allowed, and scored low."""
    return Part(value=UNDECIDED_VALUE * node.health.score, rejected=[why])


def undecided_part(why: Reason, node: NodeView) -> Part:
    """What cannot be decided: allowed, and scored low."""
    return Part(value=UNDECIDED_VALUE * node.health.score, undecided=[why])


def leftover_units(plugin: PluginView, drawn: Iterable[Health]) -> reasons.NodeNotWhole | None:
    """Why the units that are `drawn` from are no whole node; None if they are, or are not sound."""
    if not plugin.units and not plugin.withdrawn:
        return None
    bad = [unit for unit in plugin.units if unit.withdrawn or unit.health.shown_state in BAD_STATES]
    unnamed = plugin.withdrawn - sum(unit.withdrawn for unit in bad)
    if not (bad or unnamed > 0) or not all(health.shown_state is State.HEALTHY for health in drawn):
        return None
    named = [
        reasons.BadDevice(unit.unit, "withdrawn" if unit.withdrawn else _word(unit.health))
        for unit in bad
    ]
    return reasons.NodeNotWhole(plugin.resource, tuple(named), max(0, unnamed))


def leftover_devices(
    part: Part, given: Sequence[Choice], pools: Iterable[PoolView]
) -> reasons.NodeNotWhole | None:
    """Why the devices that a pod is `given` are left over; None if they are not."""
    sound = all(one.health.shown_state is State.HEALTHY and not one.tolerated for one in given)
    if not given or not sound:
        return None
    bad = [
        device
        for pool in pools
        if pool.driver in part.pools
        for device in (*pool.devices, *pool.withheld)
        if device.health is not SOUND and device.health.shown_state in BAD_STATES
    ]
    if not bad:
        return None
    named = tuple(reasons.BadDevice(str(one.id), _word(one.health)) for one in bad)
    return reasons.NodeNotWhole(", ".join(sorted(part.pools)), named)


def _word(health: Health) -> str:
    return "held" if health.held else str(health.shown_state)
