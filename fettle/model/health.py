"""How healthy a device or node is: a score, a state, and the evidence that explains them.

Times are seconds since the Unix epoch; scores and weights are 0..1.
"""

from enum import StrEnum

import msgspec

from fettle.model.evidence import Evidence


class State(StrEnum):
    """What a score means after hysteresis."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


class Weighed(msgspec.Struct, frozen=True, gc=False):
    """Evidence as it counted in one assessment: `weight` after decay and cap."""

    evidence: Evidence
    weight: float


class Kept(msgspec.Struct, frozen=True, gc=False):
    """Why a state is worse than its score alone would make it, and which state is to follow.

    Hysteresis: it is left from `score` on. Else its minimum dwell, which lasts `until` then.
    """

    then: State
    score: float = 0.0
    until: float = 0.0

    def __str__(self) -> str:
        if self.until:
            return "held by the minimum dwell"
        again = " again" if self.then is State.HEALTHY else ""
        return f"{self.then}{again} from {self.score:.2f}"


class Health(msgspec.Struct, frozen=True, gc=False):
    """How healthy a device or node is, and why: `evidence` is sorted, the heaviest first.

    `kept` is why its state is worse than the score alone would make it; None where it is not.
    `held` is true where an operator's hold takes part, which a breaker never overrides. `provoked`
    is the part of the score that is lost only to what tenants could cause: it affects the score,
    but neither the state nor what a policy refuses for.
    """

    score: float
    state: State
    since: float = 0.0
    evidence: tuple[Weighed, ...] = ()
    held: bool = False
    provoked: float = 0.0
    kept: Kept | None = None

    @property
    def proven(self) -> float:
        """The score without what a tenant could have brought about."""
        return round(self.score + self.provoked, 4) if self.provoked else self.score


SOUND = Health(score=1.0, state=State.HEALTHY)
"""The health of anything without evidence; shared, so 40,000 sound devices cost one."""

UNKNOWN_SCORE = 0.75
"""What a device scores while nothing reliable is known about it."""
