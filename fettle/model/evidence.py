"""One timestamped fact about a device or node, from one source, and how it ages.

Times are seconds since the Unix epoch; weights are 0..1.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from fettle.model.subjects import Subject


class Unheard(msgspec.Struct, frozen=True, gc=False):
    """A node condition of a type that no rule names, so that nothing is known of what it means."""

    type: str
    status: str


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
