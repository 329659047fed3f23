"""What of a health counts for this request, and whether the policy accepts it. Pure.

Stands between health and verdict. Evidence counts neither for taints that the request tolerates nor
for device plugins that the pod does not use. `complaint` says why a policy does not accept what is
left.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import msgspec

from fettle.api.resource import DeviceToleration
from fettle.cluster import NodeView, PluginView
from fettle.config import HealthSettings
from fettle.dra import DeviceView, PoolView, domain_of, tolerates
from fettle.health import START, assess, source_of
from fettle.model import (
    NO_FAULTS,
    SOUND,
    Degraded,
    DeviceId,
    Evidence,
    EvidenceKind,
    Family,
    Health,
    NewDriverPlacement,
    NodeId,
    Placement,
    Source,
    Standing,
    State,
    TaintRef,
    Unknown,
    Weighed,
    reasons,
)
from fettle.model.reasons import Complaint, DeviceRefusal, NodeRefusal
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.requirements import Requirements


class Tolerated(NamedTuple):
    """Health by the evidence that counts, and the tolerated taints whose evidence does not."""

    health: Health
    taints: tuple[TaintRef, ...] = ()


class Cause(NamedTuple):
    """What a breaker counts by: what one source says of nodes, or of devices by name, be it hard or
    not.

    Hard is what driver or hardware latched, and what a kubelet refused.
    """

    source: Source
    hard: bool = False
    named: bool = False

    @property
    def may_burst(self) -> bool:
        """Whether it may be set aside sooner if it condemns much at once: it names no device, and
        neither a driver nor hardware stands behind it."""
        return not (self.hard or self.named)


Causes = tuple[tuple[Cause, Health], ...]
"""Each cause of a health, and the health that it alone would give."""
SetAside = Mapping[str, frozenset[Cause]]
"""By pool, causes that condemn too much there."""


class Acceptance(msgspec.Struct, frozen=True):
    """What a policy accepts now.

    `set_aside` are, by driver or resource, the causes by which it may not refuse there any more.
    `thresholds` are those between states, for health without some of its evidence. `requirements`
    look up what the policy requires besides health. `patience_over`: where that is refused, what
    `after_patience` accepts is accepted as the last choice. `overrules`: what is set aside refuses
    no more; else it does, though there may be nodes that come last for it.
    """

    placement: Placement
    set_aside: SetAside = {}
    thresholds: HealthSettings = HealthSettings()
    requirements: Requirements = Requirements()
    patience_over: bool = False
    overrules: bool = True

    def strict(self) -> "Acceptance":
        """What is accepted as long as something better may be left."""
        if not self.set_aside:
            return self
        return msgspec.structs.replace(self, overrules=False)

    def after_patience(self) -> "Acceptance":
        """What is accepted if nothing better is left, once the pod has waited long enough."""
        return msgspec.structs.replace(
            self, placement=self.placement.after_patience(), patience_over=False
        )

    def accepts(self, health: Health) -> bool:
        """Whether a device or node of this health is acceptable."""
        return complaint(health, self.placement) is None

    def refuses_by(self, health: Health, *pools: str) -> Health:
        """What of a health may be a reason to refuse in these pools.

        That is all of it, unless causes are set aside in one of them.
        """
        aside = frozenset[Cause]().union(*(self.set_aside.get(pool, ()) for pool in pools))
        if not aside or health is SOUND or not self.overrules:
            return health
        left = tuple(w for w in health.evidence if _cause(w.evidence) not in aside)
        if len(left) == len(health.evidence):
            return health
        return _judged_afresh(left, self.thresholds)

    def own_fault(self, device: DeviceId, health: Health) -> Health:
        """What of a device's health may be a reason to refuse, and is said of the device itself,
        neither of its node nor by an operator."""
        return self.own(self.refuses_by(health, device.driver))

    def own(self, health: Health) -> Health:
        """What of a device's health is said of the device itself, neither of its node nor by an
        operator."""
        return self.without(health, lambda evidence: not _is_fault_of_device(evidence))

    def without(self, health: Health, is_left_out: Callable[[Evidence], bool]) -> Health:
        """A health without some of its evidence."""
        left = tuple(w for w in health.evidence if not is_left_out(w.evidence))
        return (
            health if len(left) == len(health.evidence) else _judged_afresh(left, self.thresholds)
        )

    def counted(self, health: Health) -> float:
        """A score as it counts towards the policy's minimum.

        Lack of knowledge never refuses, nor does what a tenant could have caused.
        """
        allowed = health.state is State.UNKNOWN and self.placement.unknown is Unknown.ALLOW
        return 1.0 if allowed else health.proven

    def tolerating(self, health: Health, tolerations: Sequence[DeviceToleration]) -> Tolerated:
        """A device's health for a request with these tolerations."""
        return without_tolerated(health, tolerations, self.thresholds)


def complaint(health: Health, placement: Placement) -> Complaint | None:
    """Why a policy does not accept something of this health; None if it does.

    It never complains about what a tenant could have caused: that only lowers a score.
    """
    found = _complaint(health, placement)
    return Complaint.HELD if found is not None and health.held else found


def _complaint(health: Health, placement: Placement) -> Complaint | None:
    state = health.state
    if state is State.HEALTHY and health.proven >= placement.min_score:
        return None
    if state is State.UNKNOWN:
        return Complaint.UNKNOWN if placement.unknown is Unknown.REFUSE else None
    if state is State.UNHEALTHY:
        return Complaint.UNHEALTHY
    if state is State.DEGRADED and placement.degraded is Degraded.REFUSE:
        return Complaint.DEGRADED
    return Complaint.SCORE_TOO_LOW if health.proven < placement.min_score else None


_OF_NODES: Mapping[Complaint, type[NodeRefusal]] = {
    kind.complaint: kind for kind in NodeRefusal.__subclasses__()
}
_OF_DEVICES: Mapping[Complaint, type[DeviceRefusal]] = {
    kind.complaint: kind for kind in DeviceRefusal.__subclasses__()
}


def node_refusal(health: Health, placement: Placement) -> NodeRefusal | None:
    """Why a policy refuses a node of this health; None if it does not."""
    if (found := complaint(health, placement)) is None:
        return None
    return _OF_NODES[found](health, placement.min_score)


def device_refusal(
    request: str, device: DeviceId, health: Health, placement: Placement, *, allocated: bool
) -> DeviceRefusal | None:
    """Why a policy refuses a device of this health; None if it does not."""
    if (found := complaint(health, placement)) is None:
        return None
    return _OF_DEVICES[found](request, device, health, placement.min_score, allocated)


# Causes


def by_cause(health: Health, thresholds: HealthSettings) -> Causes:
    """The causes of a health, each with the health that it alone would give.

    Not those of a hold, nor of what is held: an operator means it, and no rule takes from a pool
    what an operator has taken already. Nor what a tenant could have caused, which refuses nothing.
    """
    if health is SOUND or health.held:
        return ()
    found: dict[Cause, list[Weighed]] = {}
    for weighed in health.evidence:
        if not weighed.evidence.reporting_namespace:
            found.setdefault(_cause(weighed.evidence), []).append(weighed)
    if len(found) == 1:
        # The state stays, even one that is worse than the score alone: this cause brought it about.
        return ((next(iter(found)), Health(health.proven, health.state)),)
    alone = ((c, _judged_afresh(tuple(e), thresholds)) for c, e in sorted(found.items()))
    return tuple((cause, Health(each.proven, each.state)) for cause, each in alone)


def _cause(evidence: Evidence) -> Cause:
    refused = evidence.family is Family.ADMISSION and not evidence.reporting_namespace
    hard = refused or evidence.kind is EvidenceKind.LATCHED
    return Cause(
        evidence.rule or source_of(evidence), hard, not isinstance(evidence.subject, NodeId)
    )


def onsets(health: Health) -> Mapping[Cause, float]:
    """Since when each cause that may burst is observed, in Unix seconds."""
    found: dict[Cause, float] = {}
    for weighed in health.evidence:
        evidence = weighed.evidence
        if (cause := _cause(evidence)).may_burst and not evidence.reporting_namespace:
            found[cause] = min(evidence.observed_at, found.get(cause, math.inf))
    return found


def _is_fault_of_device(evidence: Evidence) -> bool:
    return not isinstance(evidence.subject, NodeId) and evidence.family not in NO_FAULTS


# Evidence of tolerated taints


def without_tolerated(
    health: Health, tolerations: Sequence[DeviceToleration], thresholds: HealthSettings
) -> Tolerated:
    """The health of a device for a request with these tolerations.

    The allocator gives such a device to such a request, so the taint alone is no ground to refuse
    it. All other evidence counts, an operator's hold included.
    """
    if not tolerations or not health.evidence:
        return Tolerated(health)
    left = tuple(w for w in health.evidence if not _is_excused(w.evidence, tolerations))
    if len(left) == len(health.evidence):
        return Tolerated(health)
    excused = {t for w in health.evidence if w not in left for t in w.evidence.taints}
    return Tolerated(_judged_afresh(left, thresholds), tuple(sorted(excused)))


def _judged_afresh(evidence: tuple[Weighed, ...], thresholds: HealthSettings) -> Health:
    """The health by this evidence, as if nothing else had ever been reported."""
    # Not from the state that it was in before: that may be due to evidence which does not count.
    if not evidence:
        return SOUND
    return assess(evidence, START, thresholds, math.inf, all_clear=False).health


def _is_excused(evidence: Evidence, tolerations: Sequence[DeviceToleration]) -> bool:
    if not evidence.taints or evidence.family is Family.OPERATOR:
        return False
    return all(
        any(
            tolerates(toleration, taint) and not _is_evicted(toleration, taint)
            for toleration in tolerations
        )
        for taint in evidence.taints
    )


def _is_evicted(toleration: DeviceToleration, taint: TaintRef) -> bool:
    """Whether a pod that tolerates the taint so is evicted, at once or some seconds later."""
    if taint.effect != "NoExecute":
        return False  # seconds count for no other effect
    # Eviction counts only tolerations that name NoExecute. Seconds are grace for a pod that runs,
    # after which a new one would be evicted too.
    return toleration.effect != "NoExecute" or toleration.toleration_seconds is not None


# Evidence about other device plugins


def unrelated_domains(demand: Demand, node: NodeView) -> list[str]:
    """The domains of evidence about the node that say nothing about what the pod asks for.

    A kubelet that cannot give a pod its `smarter-devices/fuse` says nothing about the node's GPUs,
    which another device plugin offers. Resources of one domain count as one plugin's.
    """
    known = {weighed.evidence.domain for weighed in node.health.evidence} - {""}
    # Devices of claims have no domain to compare with, so all evidence counts for them.
    if not known or demand.claims or demand.bound or any(units.backing for units in demand.units):
        return []
    return sorted(known - {domain_of(units.resource) for units in demand.units})


def without_domains(
    domains: Collection[str], node: NodeView, thresholds: HealthSettings
) -> NodeView:
    """The node without the evidence about device plugins of these domains."""
    if not domains:
        return node
    return _without(node, lambda evidence: evidence.domain in domains, thresholds)


# Planned work


def without_planned(
    node: NodeView, acceptance: Acceptance
) -> tuple[NodeView, reasons.Maintenance | None]:
    """Why the node is the last choice for the work that is planned or under way there, if it is. If
    the policy says how long its pods run, what has not begun counts for nothing besides."""
    runs_s = acceptance.placement.runs_s
    works = [w.evidence for w in node.health.evidence if _is_work(w)]
    begun = next((e for e in works if e.begins_in_s is None), None)
    planned = [(e.begins_in_s, e) for e in works if e.begins_in_s is not None]
    if planned and runs_s is not None:
        node = _without(node, lambda e: e.begins_in_s is not None, acceptance.thresholds)
    if begun is not None:
        return node, reasons.Maintenance(begun.text)
    if not planned or runs_s is None:
        return node, None
    begins_in_s, first = min(planned, key=itemgetter(0))
    if begins_in_s >= runs_s:
        return node, None
    return node, reasons.Maintenance(first.text, begins_in_s, runs_s)


def new_driver(node: NodeView, placement: Placement) -> reasons.DriverIsNew | None:
    """Why the policy avoids or prefers the node for a driver that is new there, if it does."""
    if not node.new_drivers or placement.new_driver is NewDriverPlacement.ALLOW:
        return None
    one = node.new_drivers[0]
    preferred = placement.new_driver is NewDriverPlacement.PREFER
    return reasons.DriverIsNew(one.name, one.version, one.former, preferred)


def _is_work(weighed: Weighed) -> bool:
    """Whether it is about work on the node that somebody plans or does."""
    evidence = weighed.evidence
    is_reported = evidence.family is Family.MAINTENANCE and evidence.standing is Standing.REPORTED
    return is_reported and (weighed.weight > 0 or evidence.begins_in_s is not None)


def _without(
    node: NodeView, is_left_out: Callable[[Evidence], bool], thresholds: HealthSettings
) -> NodeView:
    """The node, its units and its devices without some evidence."""

    def health(whole: Health) -> Health:
        left = tuple(w for w in whole.evidence if not is_left_out(w.evidence))
        return whole if len(left) == len(whole.evidence) else _judged_afresh(left, thresholds)

    def plugin(whole: PluginView) -> PluginView:
        units = tuple(
            msgspec.structs.replace(unit, health=health(unit.health)) for unit in whole.units
        )
        return msgspec.structs.replace(whole, units=units)

    def device(whole: DeviceView) -> DeviceView:
        left = health(whole.health)
        return whole if left is whole.health else msgspec.structs.replace(whole, health=left)

    def pool(whole: PoolView) -> PoolView:
        return msgspec.structs.replace(
            whole,
            devices=tuple(map(device, whole.devices)),
            withheld=tuple(map(device, whole.withheld)),
        )

    return msgspec.structs.replace(
        node,
        health=health(node.health),
        plugins={name: plugin(each) for name, each in node.plugins.items()},
        pools=tuple(map(pool, node.pools)),
    )
