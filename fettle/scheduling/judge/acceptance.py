"""What a policy accepts now: of one device or node, why it does not. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from fettle.api.resource import DeviceToleration
from fettle.config import HealthSettings
from fettle.model import Degraded, DeviceId, Health, Placement, State, Unknown, reasons
from fettle.model.reasons import Complaint, DeviceRefusal, NodeRefusal
from fettle.scheduling.judge.requirements import Requirements
from fettle.scheduling.judge.tolerated import Tolerated, tolerating


class Acceptance(msgspec.Struct, frozen=True):
    """What a policy accepts now. `open_breakers` are drivers or resources it may not refuse on.

    `thresholds` are those between states, for health without what a request tolerates;
    `requirements` look up what the policy requires beside health.
    """

    placement: Placement
    open_breakers: frozenset[str] = frozenset()
    thresholds: HealthSettings = HealthSettings()
    requirements: Requirements = Requirements()

    def accepts(self, health: Health) -> bool:
        """Whether a device or node of this health is acceptable."""
        return complaint(health, self.placement) is None

    def counted(self, health: Health) -> float:
        """A score as it counts towards the policy's minimum.

        Lack of knowledge never refuses, nor does what a tenant could have caused.
        """
        tolerated = health.state is State.UNKNOWN and self.placement.unknown is Unknown.ALLOW
        return 1.0 if tolerated else health.proven

    def tolerating(self, health: Health, tolerations: Sequence[DeviceToleration]) -> Tolerated:
        """A device's health for a request with these tolerations."""
        return tolerating(health, tolerations, self.thresholds)


def complaint(health: Health, placement: Placement) -> Complaint | None:
    """Why a policy does not accept something of this health; None if it does.

    Never for what a tenant could have brought about: that lowers a score, which steers.
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
    Complaint.HELD: reasons.NodeHeld,
    Complaint.UNHEALTHY: reasons.NodeUnhealthy,
    Complaint.DEGRADED: reasons.NodeDegraded,
    Complaint.UNKNOWN: reasons.NodeUnknown,
    Complaint.SCORE_TOO_LOW: reasons.NodeScoreTooLow,
}
_OF_DEVICES: Mapping[Complaint, type[DeviceRefusal]] = {
    Complaint.HELD: reasons.DeviceHeld,
    Complaint.UNHEALTHY: reasons.DeviceUnhealthy,
    Complaint.DEGRADED: reasons.DeviceDegraded,
    Complaint.UNKNOWN: reasons.DeviceUnknown,
    Complaint.SCORE_TOO_LOW: reasons.DeviceScoreTooLow,
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
