"""Evidence: one timestamped fact about a device or node, from one source, and how it ages.

Made by `fettle/health/signals` from the inventory's objects, weighed by `fettle/health`. Times are
seconds since the Unix epoch; weights are 0..1.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from fettle.model.subjects import Subject


class UnknownSignal(msgspec.Struct, frozen=True, gc=False):
    """A node condition, a reason or an XID that no rule names, so Fettle does not know what it
    means; or `label KEY` or `annotation KEY` whose key tells of health, or is a known vendor's."""

    type: str
    status: str


class Family(StrEnum):
    """Groups of evidence with a common cause. The score takes only the worst of each family."""

    MEMORY = "memory"
    LINK = "link"
    BUS = "bus"
    THERMAL = "thermal"
    DRIVER = "driver"
    ADMISSION = "admission"
    STRAGGLER = "straggler"
    NODE = "node"
    MAINTENANCE = "maintenance"
    OPERATOR = "operator"


NO_FAULTS = frozenset((Family.MAINTENANCE, Family.OPERATOR))
"""What is planned, and what an operator says. It decides where pods go, and is no fault to act
on."""


class EvidenceKind(StrEnum):
    """How evidence ages."""

    LATCHED = "latched"  # until its stated clear, whatever the time
    LEVEL = "level"  # while the fact stands; decays once its messenger is gone
    DECAYING = "decaying"  # an event: halves every half-life, repeats add up to the cap
    UNKNOWN = "unknown"  # says only that nothing reliable is known about the subject


class Standing(StrEnum):
    """Whether its reporter still says it."""

    REPORTED = "Reported"
    NOT_REPORTED = "NotReported"  # it fades
    LATCHED = "Latched"  # not reported either, but it stands until it is cleared
    NOT_CLEARED = "NotCleared"  # the reporter says something else now, which clears nothing


class SourceKind(StrEnum):
    """What evidence comes from: what objects, metrics and alerts say, and what kubelets do."""

    ALERT = "alert"
    ALLOCATABLE = "allocatable"
    ANNOTATION = "annotation"
    ATTRIBUTE = "attribute"
    CLAIM_CONDITION = "claim condition"
    COMPUTE_DOMAIN = "ComputeDomain status"
    CONDITION = "condition"
    CUT = "cut"  # a Node that is too long to be read whole
    DEVICE_STATUS = "allocatedResourcesStatus"
    EVENT = "event"
    LABEL = "label"
    METRIC = "metric"
    MISALIGNMENTS = "kubelet refusals by NUMA nodes"
    NAMED_DEVICES = "named devices"
    OBJECT = "object rule"
    QUARANTINE = "quarantine"
    READMISSIONS = "kubelet refusals of pods that had run"
    RECORD = "record of 28 days"
    REFUSALS = "kubelet refusals"
    STARTS = "pods that do not start"
    TAINT = "taint"
    UNEXPLAINED = "kubelet refusals in unknown words"


OF_DOMAINS = (
    SourceKind.REFUSALS,
    SourceKind.READMISSIONS,
    SourceKind.MISALIGNMENTS,
    SourceKind.UNEXPLAINED,
    SourceKind.STARTS,
)
"""Those that are named after the domain of what pods request; "" for several domains."""


class Source(msgspec.Struct, frozen=True, order=True, gc=False):
    """What evidence comes from, and which one of its kind: of a condition its type.

    `is_over`: of the trace of a fault that is over.
    """

    kind: SourceKind
    name: str = ""
    is_over: bool = False

    def __str__(self) -> str:
        """For people. Nothing reads it back."""
        between = " for " if self.kind in OF_DOMAINS else " "
        words = f"{self.kind}{between}{self.name}" if self.name else str(self.kind)
        return f"{words}, lately" if self.is_over else words


class ReporterId(msgspec.Struct, frozen=True, order=True, gc=False):
    """Who reports: an object of the cluster by its `kind` and key (`Node`, `gpu-3`; `Pod`,
    `ml/a`), or another kind of reporter.

    Of metrics and alerts `name` is the rule, `alert` the fingerprint, `node` the node that it is
    about, and `namespace` the one whose word it is.
    """

    kind: str
    name: str = ""
    node: str = ""
    namespace: str = ""
    alert: str = ""

    def __str__(self) -> str:
        """For people. Nothing reads it back."""
        words = " ".join(filter(None, (self.kind, self.name, self.alert)))
        if self.namespace:
            words += f" by namespace {self.namespace}"
        return f"{words} on {self.node}" if self.node else words


class TaintRef(NamedTuple):
    """A device taint, as a toleration names it."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return (f"{self.key}={self.value}" if self.value else self.key) + f":{self.effect}"


class Evidence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One timestamped fact about a device or node, from one source.

    - `weight`: the share of the score it takes at full strength (1.0: all of it).
    - `rule`: the row of the rules, where one row has several sources: its pattern. A breaker counts
      by it. None if it is the source.
    - `said`: the reporter's words, of which nothing is read here. `text` is what people read.
    - `about`: what it is about, where `subject` does not say that; "" if it does.
    - `source`: the rule or field. `reporter`: the object that carries the fact.
    - `half_life_s`, `cap`: decaying evidence of the same subject and source adds up to `weight · Σ
      2^(-age/half_life_s)`, at most `cap`.
    - `reporting_namespace`: the namespace that the fact comes from, set where a tenant could cause
      the fact. Each namespace adds up to `cap`.
    - `together`: all evidence with a reporting namespace takes at most this share of the remaining
      score.
    - `taints`: the taints that state the fact. It does not count for a request that tolerates all
      of them.
    - `domain`: the domain of the extended resources whose device plugin this is about; "" if
      unknown. It does not count for pods that request resources of other domains.
    - `planned`: an administrator's choice, or a monitor's own trouble, rather than a fault. It
      leaves no trace once it is over.
    - `begins_in_s`: of planned work that has not begun, in how many seconds it does at the
      earliest; None of all else.
    - `unlisted`: the XID that no rule names, or what stands where an XID should; "" if there is
      none.
    - `began_at`: of the trace of a fault that is over, when the fault began. `repaired`: how it was
      said to be repaired since; "" if it was not.
    - `count`: how many events it stands for. It is the latest of them.
    """

    subject: Subject
    family: Family
    kind: EvidenceKind
    weight: float
    source: Source
    reporter: ReporterId
    said: str
    observed_at: float
    half_life_s: float = 3600.0
    cap: float = 1.0
    reporting_namespace: str = ""
    together: float = 1.0
    taints: tuple[TaintRef, ...] = ()
    domain: str = ""
    planned: bool = False
    begins_in_s: float | None = None
    began_at: float = 0.0
    rule: Source | None = None
    standing: Standing = Standing.REPORTED
    about: str = ""
    count: int = 1
    repaired: str = ""
    unlisted: str = ""

    @property
    def text(self) -> str:
        """What people read. Nothing is read back from it."""
        text = f"was until recently: {self.said}" if self.source.is_over else self.said
        if self.about:
            text = f"{self.about}: {text}"
        if self.standing is not Standing.REPORTED:
            text += _STANDS[self.standing]
        if self.count > 1:
            text += f" (the latest of {self.count})"
        return f"{text}; repaired: {self.repaired}" if self.repaired else text


_STANDS = {
    Standing.NOT_REPORTED: "; no longer reported",
    Standing.LATCHED: "; no longer reported, latched until it is cleared",
    Standing.NOT_CLEARED: "; not cleared since",
}
