"""How healthy a device or node is: a score, a state, and the evidence that explains both; and an
operator's word that it is out of use, a hold.

Computed by `fettle/health`, stored in the view, used by every verdict. Times are seconds since the
Unix epoch; scores and weights are 0..1.
"""

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

import msgspec

from fettle.model.annotations import HOLD
from fettle.model.evidence import Evidence
from fettle.model.subjects import Subject


class State(StrEnum):
    """What a score means after hysteresis."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


BAD_STATES = (State.DEGRADED, State.UNHEALTHY)


class Tier(StrEnum):
    """What several devices are together, as labels on Nodes say it; the best first."""

    HEALTHY = "healthy"
    UNKNOWN = "unknown"
    """Of some nothing is known, and none is worse."""
    DEGRADED = "degraded"
    """Some are Degraded, or Unhealthy where nothing says `partly-unhealthy`."""
    PARTLY_UNHEALTHY = "partly-unhealthy"
    """Some are Unhealthy, and a pod may be given one of these or another."""
    UNHEALTHY = "unhealthy"


class Weighed(msgspec.Struct, frozen=True, gc=False):
    """Evidence as it counted in one assessment: `weight` is the weight after decay and cap."""

    evidence: Evidence
    weight: float


def proven_evidence(weighed: tuple[Weighed, ...]) -> tuple[Weighed, ...]:
    """Evidence that no tenant could have caused."""
    return tuple(one for one in weighed if not one.evidence.reporting_namespace)


class Kept(msgspec.Struct, frozen=True, gc=False):
    """Why a state is worse than its score alone would make it, and which state follows.

    Either hysteresis keeps the state until the score reaches `score`, or the minimum dwell keeps it
    until `until`, or a fault that kept coming back does (`recurring`). `then` is the next state.
    """

    then: State
    score: float = 0.0
    until: float = 0.0
    recurring: bool = False


class Health(msgspec.Struct, frozen=True, gc=False):
    """How healthy a device or node is, and why. `evidence` is sorted, the heaviest first.

    - `since`: when the state began.
    - `held`: an operator's hold is part of the evidence; a breaker never overrides it.
    - `tenant_caused`: the part of the score lost to evidence that tenants could cause. It lowers
      the score, but neither the state nor a policy's refusal depends on it.
    - `kept`: why the state is worse than the score alone would make it, else None.
    - `suspected`: how many namespaces' word makes the score that of a Degraded device, though the
      state is not; else 0.
    """

    score: float
    state: State
    since: float = 0.0
    evidence: tuple[Weighed, ...] = ()
    held: bool = False
    tenant_caused: float = 0.0
    kept: Kept | None = None
    suspected: int = 0

    @property
    def shown_state(self) -> State:
        """The state for people. What is only suspected refuses nobody."""
        return State.DEGRADED if self.suspected else self.state

    @property
    def is_corroborated(self) -> bool:
        """Whether several namespaces suspect it."""
        return self.suspected > 1

    @property
    def proven(self) -> float:
        """The score without evidence that a tenant could have caused."""
        return round(self.score + self.tenant_caused, 4) if self.tenant_caused else self.score


SOUND = Health(score=1.0, state=State.HEALTHY)
"""The health of anything without evidence. It is one shared object, so 40,000 sound devices cost
nothing."""

UNKNOWN_SCORE = 0.75
"""The score of a device about which nothing reliable is known."""


class Hold(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One hold. `annotation` is the key under which its object records it.

    - `by`: the user name of who holds it; "" if not recorded.
    - `since`, `until`: Unix seconds. `since` is None if not recorded; without an end, `until` is
      infinite.
    """

    subject: Subject
    annotation: str
    reason: str = ""
    by: str = ""
    since: float | None = None
    until: float = math.inf


class TaintLike(Protocol):
    """The fields that taints of nodes and of devices have in common."""

    @property
    def key(self) -> str: ...

    @property
    def value(self) -> str: ...

    @property
    def effect(self) -> str: ...


def is_tainted_as_held(taints: Iterable[TaintLike]) -> bool:
    """Whether one of these makes the scheduler obey a hold, whoever set it."""
    return any(
        taint.key == HOLD and taint.effect in ("NoSchedule", "NoExecute") for taint in taints
    )
