"""The group `fettle.dev/v1alpha1`: DeviceHealth, which is what is known of the health of a node's
devices, or of a pool that is on no node; and DevicePolicy, whose `spec` is `fettle.model.Sections`.

The steward writes DeviceHealths and every process reads them, so a restart forgets nothing. Their
fields are an interface for others, documented in `docs/devicehealth.md`. Nothing that Fettle does
follows from the `status` of a DevicePolicy, which the steward writes.
"""

import hashlib
from datetime import datetime
from typing import Annotated

import msgspec

from fettle.api.annotations import ApiObject
from fettle.api.meta import Condition, Wire
from fettle.model import (
    DeviceId,
    EvidenceKind,
    Family,
    NodeId,
    Policy,
    PoolRef,
    Sections,
    Standing,
    State,
    Subject,
    UnitId,
)

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
LONGEST_HALF_LIFE_S = 28 * 86_400.0
LARGEST_SUM = 1000.0
Seconds = Annotated[float, msgspec.Meta(gt=0.0, le=LONGEST_HALF_LIFE_S)]
SumOfWeights = Annotated[float, msgspec.Meta(ge=0.0, le=LARGEST_SUM)]
MOST_COUNTED = 999_999
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNTED)]
NODE_HEALTH = "Healthy"
"""The condition of every DeviceHealth."""
POLICY_READ = "Read"
"""The condition of every DevicePolicy."""


class StoredTaint(Wire, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str = ""


class StoredReport(Wire, frozen=True, kw_only=True):
    """Who reported something, in words ("Node gpu-3", "Pod ns/x") and as a `ReporterId`, its UID,
    and when. The version before this wrote only the words.

    `left`: it is there but says this no longer, without an all-clear.
    """

    by: str
    kind: str = ""
    name: str = ""
    node: str = ""
    namespace: str = ""
    alert: str = ""
    uid: str = ""
    at: datetime | None = None
    left: bool = False


class StoredEvidence(Wire, frozen=True, kw_only=True):
    """One piece of evidence about one subject.

    - `weight`: the share of the score that one report takes. `sum`: what all reports added up to at
      `last_seen`, if that is not `weight`; it halves every `half_life_seconds`, and counts up to
      `cap`.
    - `last_seen` is absent while the fact stands. `reports` are the latest of `count`.
    - `gone`: the reporter does not exist any more. `silence_clears`: it is over when the reporter
      says nothing of it.
    - `began`: of the trace of a fault that is over, when the fault began.
    - `source` and `message` are for people. `source_kind`, `source_name`, `over`: the source, and
      whether it is of the trace of a fault that is over. `standing`: whether it is still reported.
      `said`: the reporter's words, where `message` adds to them. `unlisted`: an XID that no rule
      names. The version before this wrote only the words.
    - `namespace`: whose word it is, if a tenant could cause it; all such words take at most
      `together` of the rest of the score.
    """

    source: str
    source_kind: str = ""
    source_name: str = ""
    over: bool = False
    family: Family
    kind: EvidenceKind
    weight: Share = 0.0
    sum: SumOfWeights | None = None
    cap: Share = 1.0
    together: Share = 1.0
    half_life_seconds: Seconds = 3600.0
    first_seen: datetime | None = None
    last_seen: datetime | None = None
    count: int = 1
    message: str = ""
    said: str = ""
    standing: Standing | None = None
    unlisted: str = ""
    reports: tuple[StoredReport, ...] = ()
    gone: bool = False
    silence_clears: bool = False
    namespace: str = ""
    taints: tuple[StoredTaint, ...] = ()
    domain: str = ""
    planned: bool = False
    began: datetime | None = None


class Episode(Wire, frozen=True, kw_only=True):
    """A time in which something was Degraded or Unhealthy: until `end`, or still. `score` is the
    lowest that was written."""

    state: State
    start: datetime
    end: datetime | None = None
    score: Share
    message: str = ""


class StoredUnit(Wire, frozen=True, kw_only=True):
    resource: str
    id: str
    other_names: tuple[str, ...] = ()


class StoredDevice(Wire, frozen=True, kw_only=True):
    driver: str
    pool: str
    name: str


class StoredSubject(Wire, frozen=True, kw_only=True):
    """A unit of a device plugin, a DRA device, or the node as a whole if neither is named.

    `score` and `state` also count what is said of the node; `evidence` is only about the subject
    itself. `proven_score`: without what tenants could cause, where that differs. `faults`: when
    grave faults of the last 28 days were over.
    """

    unit: StoredUnit | None = None
    device: StoredDevice | None = None
    score: Share
    proven_score: Share | None = None
    state: State
    since: datetime | None = None
    evidence: tuple[StoredEvidence, ...] = ()
    episodes: tuple[Episode, ...] = ()
    faults: tuple[datetime, ...] = ()

    def subject(self, node: str) -> Subject:
        if self.unit is not None:
            return UnitId(node, self.unit.resource, self.unit.id, self.unit.other_names)
        if self.device is not None:
            return DeviceId(self.device.driver, self.device.pool, self.device.name)
        return NodeId(node)


class StoredPool(Wire, frozen=True, kw_only=True):
    driver: str
    name: str


class StoredLabel(Wire, frozen=True, kw_only=True):
    key: str
    value: str = ""


class StoredCount(Wire, frozen=True, kw_only=True):
    """So many units of a resource, or devices of a DRA driver."""

    name: str
    number: Count


class StoredMost(Wire, frozen=True, kw_only=True):
    """The most devices that a node has had since it runs with this boot ID and these labels about
    how its devices are shared and divided."""

    since: datetime
    labels: tuple[StoredLabel, ...] = ()
    counts: tuple[StoredCount, ...] = ()


class StoredShortage(Wire, frozen=True, kw_only=True):
    """A node has fewer devices than expected; `source` says who expects them."""

    name: str
    expected: Count
    found: Count = 0
    source: str = ""
    since: datetime


class StoredDriver(Wire, frozen=True, kw_only=True):
    """Which version of a driver the node runs since when, and which one it ran before; `name` is of
    the resource or DRA driver."""

    name: str
    version: str
    former: str = ""
    since: datetime


class DeviceHealthStatus(Wire, frozen=True, kw_only=True):
    """All of it, as of `observed_time`. What is not among `subjects` is sound. `rebooted` and
    `remediation`: when the node was last seen to have another boot ID, and when its monitor was
    first seen to say that its remediation had succeeded. `missing`: what the node has fewer of than
    expected, which changes no state and no score."""

    node_name: str = ""
    node_uid: str = msgspec.field(default="", name="nodeUID")
    boot_id: str = msgspec.field(default="", name="bootID")
    pool: StoredPool | None = None
    state: State
    score: Share
    worst: str = ""
    message: str = ""
    since: datetime | None = None
    observed_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    subjects: tuple[StoredSubject, ...] = ()
    remediated: tuple[str, ...] = ()
    rebooted: datetime | None = None
    remediation: datetime | None = None
    most_devices: StoredMost | None = None
    missing: tuple[StoredShortage, ...] = ()
    drivers: tuple[StoredDriver, ...] = ()
    checksum: str = ""

    @property
    def true_checksum(self) -> str:
        """What `checksum` is unless somebody else has edited the object."""
        plain = msgspec.structs.replace(self, checksum="")
        return hashlib.sha256(msgspec.json.encode(plain)).hexdigest()[:16]


NOTHING_KNOWN = DeviceHealthStatus(state=State.HEALTHY, score=1.0)


class DeviceHealth(ApiObject, frozen=True, kw_only=True):
    status: DeviceHealthStatus = NOTHING_KNOWN

    @property
    def is_ours(self) -> bool:
        """Whether it is as Fettle wrote it, and under the name that it was written for."""
        status = self.status
        pool = PoolRef(status.pool.driver, status.pool.name) if status.pool is not None else None
        name = name_of_pool(pool) if pool is not None else status.node_name
        return name == self.metadata.name and status.checksum == status.true_checksum


def name_of_pool(pool: PoolRef) -> str:
    """The name of the DeviceHealth of a pool that is on no node. Pools' names may have slashes, and
    two drivers may use one name."""
    readable = f"{pool.driver}.{pool.name}".replace("/", ".")[:200].strip("-.")
    digest = hashlib.sha256(f"{pool.driver}/{pool.name}".encode()).hexdigest()[:8]
    return f"{readable}-{digest}"


class DevicePolicy(ApiObject, frozen=True, kw_only=True):
    spec: Sections = Sections()

    def policy(self) -> Policy:
        sections = {field: getattr(self.spec, field) for field in Sections.__struct_fields__}
        return Policy(name=self.metadata.name, **sections)


class PolicyCondition(Wire, frozen=True, kw_only=True):
    """`observed_generation`: of the spec that it is about."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0


class PolicyStatus(Wire, frozen=True, kw_only=True):
    """`read_by`: the version of Fettle, such as "fettle 0.1.0"."""

    read_by: str = ""
    conditions: tuple[PolicyCondition, ...] = ()


class StoredPolicyStatus(ApiObject, frozen=True, kw_only=True):
    """A DevicePolicy, whatever is in its spec."""

    status: PolicyStatus | None = None
