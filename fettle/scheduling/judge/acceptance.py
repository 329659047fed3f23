"""What a policy accepts now: of one device or node, why it does not. Pure."""

from collections.abc import Sequence

import msgspec

from fettle.api.resource import DeviceToleration
from fettle.config import HealthSettings
from fettle.health import scoring
from fettle.model import Degraded, Health, Placement, State, Unknown
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

    def refusal(self, health: Health) -> str:
        """Why a device or node of this health is not acceptable; "" if it is."""
        return refusal(health, self.placement)

    def counted(self, health: Health) -> float:
        """A score as it counts towards the policy's minimum.

        Lack of knowledge never refuses, nor does what a tenant could have caused.
        """
        tolerated = health.state is State.UNKNOWN and self.placement.unknown is Unknown.ALLOW
        return 1.0 if tolerated else health.proven

    def tolerating(self, health: Health, tolerations: Sequence[DeviceToleration]) -> Tolerated:
        """A device's health for a request with these tolerations."""
        return tolerating(health, tolerations, self.thresholds)


def refusal(health: Health, placement: Placement) -> str:
    """Why a policy turns down something of this health; "" if it does not.

    Never for what a tenant could have brought about: that lowers a score, which steers.
    """
    if health.state is State.HEALTHY and health.proven >= placement.min_score:
        return ""
    if health.state is State.UNKNOWN:
        return "Unknown" if placement.unknown is Unknown.REFUSE else ""
    if health.state is State.UNHEALTHY:
        return describe_health("Unhealthy", health)
    if health.state is State.DEGRADED and placement.degraded is Degraded.REFUSE:
        return describe_health("Degraded", health)
    if health.proven < placement.min_score:
        return describe_health(f"score below {placement.min_score:g}", health)
    return ""


def describe_health(what: str, health: Health) -> str:
    """A state with the score that it is refused for and the heaviest evidence, for people."""
    proven = scoring.proven(health.evidence)
    top = f": {proven[0].evidence.text}" if proven else ""
    kept = f"; {health.kept}" if health.kept is not None and what == health.state else ""
    return f"{what} ({health.proven:.2f}{kept}){top}"
