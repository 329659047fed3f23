"""The words of the domain as values: who a fact is about, what it says, how healthy a device is.

Stands before everything else in *watch → inventory → health → verdict → answer* and imports
nothing of Fettle. All times are seconds since the Unix epoch, all scores and weights 0..1.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

OWN_PREFIX = "fettle.dev/"
"""Of all names that Fettle writes: what has one of them is never evidence."""


class NodeId(NamedTuple):
    """A node as a whole; what is said of it is said of every device on it."""

    node: str

    def __str__(self) -> str:
        return f"node {self.node}"


class Unheard(msgspec.Struct, frozen=True, gc=False):
    """A node condition of a type that no rule names, so that nothing is known of what it means."""

    type: str
    status: str


class DeviceId(msgspec.Struct, frozen=True, order=True, gc=False):
    """A DRA device, by the three names that the API identifies it with."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class UnitId(NamedTuple):
    """One unit of an extended resource on a node, by the id its device plugin or a monitor uses.

    `unit` is the device-plugin id (for NVIDIA the GPU's UUID), else `pci:<address>` or
    `index:<n>` where a monitor names nothing better; `others` are further names that it gives.
    """

    node: str
    resource: str
    unit: str
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All its names, the best first."""
        return (self.unit, *self.others)

    def __str__(self) -> str:
        return f"{self.resource} {self.unit} on {self.node}"


Subject = NodeId | DeviceId | UnitId


class State(StrEnum):
    """What a score means after hysteresis."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


class Family(StrEnum):
    """Kinds of evidence that are correlated among themselves; a score takes each one's worst."""

    MEMORY = "memory"
    LINK = "link"
    BUS = "bus"
    THERMAL = "thermal"
    DRIVER = "driver"
    ADMISSION = "admission"
    STRAGGLER = "straggler"
    NODE = "node"
    OPERATOR = "operator"


class EvidenceKind(StrEnum):
    """How evidence ages."""

    LATCHED = "latched"  # until its stated clear, whatever the time
    LEVEL = "level"  # while the fact stands; decays once its messenger is gone
    DECAYING = "decaying"  # an event: halves every half-life, repeats add up to the cap
    UNKNOWN = "unknown"  # says only that nothing reliable is known about the subject


class TaintRef(NamedTuple):
    """A taint of a device, as a toleration names it."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return (f"{self.key}={self.value}" if self.value else self.key) + f":{self.effect}"


class Evidence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One timestamped fact about a device or node, from one source.

    `weight` is the share of the score it takes at full strength (1.0: all of it). `source` names
    the rule or field, `reporter` the object that carries the fact ("Node gpu-3", "Pod ns/x").
    Decaying evidence of the same subject and source adds up, `weight · Σ 2^(-age/half_life_s)`, at
    most `cap`. Where a tenant could cause the fact, `witness` is the namespace that it comes from:
    it adds up to `cap` for each witness, and all that has a witness takes at most `together` from
    what else is known. `taints` are the taints that say it: a request that tolerates them all does
    not mind it. `domain` is that of the extended resources whose device plugin it is about ("" if
    that cannot be told): who asks for others does not mind it. `planned`: an administrator's choice
    and no fault, so that nothing is remembered of it once it is taken back.
    """

    subject: Subject
    family: Family
    kind: EvidenceKind
    weight: float
    source: str
    reporter: str
    text: str
    observed_at: float
    half_life_s: float = 3600.0
    cap: float = 1.0
    witness: str = ""
    together: float = 1.0
    taints: tuple[TaintRef, ...] = ()
    domain: str = ""
    planned: bool = False


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
