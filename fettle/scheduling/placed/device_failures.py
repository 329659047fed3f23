"""Which pods certainly are on a device, unit or node that has failed. Pure, but for who asks.

Failed is what is Unhealthy by proof (decision 0010), by causes that nobody stated or planned.
What a policy refuses besides that, such as a Degraded device, is no failure.
Stands between the pods at risk and what the steward does about them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from fettle.api import core
from fettle.cluster import View
from fettle.dra import device_units
from fettle.model import NO_FAULTS, Health, State, reasons
from fettle.model.reasons import Reason
from fettle.pacing import pause, run_within
from fettle.scheduling.answers import Answers, accepted_by_state
from fettle.scheduling.demand import held_claims
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.placed.at_risk import AtRisk, PlacedPod, is_certain
from fettle.scheduling.placed.finished import FinishedPod
from fettle.scheduling.waits import bound_at


class DeviceFailure(NamedTuple):
    """A pod, and the gravest reason why what it is on has failed. `fault`: what of the health in
    `why` is proven, and nobody's word alone. `set_aside`: only by causes that a breaker sets aside,
    so it is said, and nothing is done."""

    placed: PlacedPod
    why: Reason
    fault: Health
    set_aside: bool = False

    @property
    def pod(self) -> core.Pod:
        return self.placed.pod

    @property
    def began_at(self) -> float:
        """Since when the pod is on something failed, in Unix seconds."""
        return max(self.fault.since, bound_at(self.pod))

    @property
    def lasts(self) -> bool:
        """Whether the evidence of now still says so, rather than hysteresis alone."""
        return self.fault.kept is None

    @property
    def is_dead(self) -> bool:
        """Whether nothing at all can be expected of it any more."""
        return self.fault.proven <= 0


class Failures(NamedTuple):
    """`running`: by `namespace/name`, pods that have a node. `ended`: pods that have ended."""

    running: Mapping[str, DeviceFailure] = {}
    ended: Sequence[DeviceFailure] = ()


async def find_failures(
    answers: Answers, at_risk: AtRisk, ended: Iterable[FinishedPod] = ()
) -> Failures | None:
    """In the newest view, also of these pods that have ended; None while the devices are not
    counted yet."""
    by_state = accepted_by_state(answers)
    if by_state is None:
        return None
    accepted = by_state[State.UNHEALTHY]
    found = await at_risk.current()

    def failures(of: Iterable[PlacedPod]) -> Iterator[DeviceFailure]:
        for placed in of:
            if (failure := failure_of(placed, accepted)) is not None:
                yield failure
            pause()

    def when_they_ran() -> Iterator[PlacedPod]:
        for pod, claims in ended:
            if (placed := at_risk.as_it_ran(pod, claims)) is not None:
                yield msgspec.structs.replace(placed, pod=pod)

    def find_all() -> Failures:
        running = {failure.placed.key: failure for failure in failures(found.values())}
        return Failures(running, [*failures(when_they_ran())])

    return await run_within(find_all)


def failure_of(placed: PlacedPod, accepted: Acceptance) -> DeviceFailure | None:
    """The gravest failure that a pod certainly is on; None if there is none."""
    failures = []
    for why in placed.verdict.refusals:
        if (about := _about(why, placed)) is None or not is_certain(why):
            continue
        health, pools = about
        fault = _fault(health, accepted)
        if fault.state is State.UNHEALTHY:
            acted_on = _fault(accepted.refuses_by(health, *pools), accepted)
            aside = acted_on.state is not State.UNHEALTHY
            # By a part of the evidence alone it is not known since when, but no longer than by all.
            fault = msgspec.structs.replace(fault, since=health.since)
            failures.append(DeviceFailure(placed, why, fault, aside))
    return min(failures, key=lambda one: (one.set_aside, one.fault.proven), default=None)


def _about(why: Reason, placed: PlacedPod) -> tuple[Health, tuple[str, ...]] | None:
    """The health that a refusal is about, and in which pools; None if it is about none."""
    match why:
        case reasons.NodeRefusal():
            devices = (choice.device.driver for choice in placed.verdict.devices)
            units = (resource for resource, _ in device_units(placed.pod))
            return why.health, (*devices, *units)
        case reasons.DeviceRefusal():
            return why.health, (why.device.driver,)
        case reasons.UnitNotAcceptable():
            return why.health, (why.resource,)
    return None


def _fault(health: Health, accepted: Acceptance) -> Health:
    """What of a health is neither an operator's word nor planned."""
    return accepted.without(health, lambda evidence: evidence.family in NO_FAULTS)


def devices_held(pods: Iterable[core.Pod], view: View) -> Counter[str]:
    """How many devices these pods have of each driver, and units of each resource."""
    held: Counter[str] = Counter()
    for pod in pods:
        held.update(dict(device_units(pod)))
        held.update(each.device.driver for bound in held_claims(pod, view) for each in bound.held)
        pause()
    return held
