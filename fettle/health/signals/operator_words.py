"""An operator's word in annotations: that a node, a device or a unit is out of use (a hold), or was
mended (a repair), and how many devices a node has. Also what else mended a node: a reboot, or a
monitor's remediation, which end evidence.

Each annotation `fettle.dev/hold` or `fettle.dev/hold-…` of a Node or ResourceSlice is one hold. Its
value is a JSON object with `reason`, `by`, `since`, `until` and `device`, each optional; any other
value is the reason, and `false` is no hold. `device` is written as `fettle devices` prints it:
DRIVER/POOL/DEVICE, or RESOURCE UNIT. What cannot be read never ends a hold, nor makes it smaller.

Each `fettle.dev/repaired` or `fettle.dev/repaired-…` of a Node is one repair. Its value is the time
as in RFC 3339, or a JSON object with `at`, and `device` and `by` if wanted. What cannot be read is
no repair.

`fettle.dev/expected-devices` of a Node is such as `nvidia.com/gpu=8, gpu.nvidia.com=8`: units of a
resource, devices of a DRA driver.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from fettle.api.meta import ObjectMeta, rfc3339_at, unix_s
from fettle.health import memory
from fettle.health.fading import Repair
from fettle.health.signals import gpu_names
from fettle.health.signals.reports import (
    TEXT_LIMIT,
    SignalReport,
    StatedRepair,
    one_line,
    unread_annotation,
)
from fettle.model import (
    EXPECTED_DEVICES,
    FURTHER_HOLD,
    FURTHER_REPAIRED,
    HOLD,
    REPAIRED,
    DeviceId,
    Evidence,
    EvidenceKind,
    Family,
    Hold,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    Subject,
    UnitId,
    is_device_name,
)

HOLD_SOURCE = Source(SourceKind.ANNOTATION, HOLD)
_LONGEST_TIME = 64
"""Characters. The parser looks at all of a longer text to say that it is none."""
EXPECTED_SOURCE = Source(SourceKind.ANNOTATION, EXPECTED_DEVICES)
GFD_COUNT = "nvidia.com/gpu.count"
"""GPU Feature Discovery (NVIDIA/k8s-device-plugin, internal/lm/resource.go, mig-strategy.go): GPUs,
also those in MIG mode; with the strategy "single", their MIG devices; 0 if that is not possible."""
NVSENTINEL_COUNT = "nvsentinel.dgxc.nvidia.com/gpu.count.expected"
"""NVSentinel's labeler (labeler.expectedDeviceCounts): by default, the most of that count among
nodes with the same labels."""
KARPENTER_MAKER = "karpenter.k8s.aws/instance-gpu-manufacturer"
_GPU, _NEURON = "nvidia.com/gpu", "aws.amazon.com/neuron"
INSTANCE_COUNTS = (
    # aws/karpenter-provider-aws, pkg/apis/v1/labels.go
    ("karpenter.k8s.aws/instance-gpu-count", KARPENTER_MAKER, "nvidia", _GPU),
    (
        "karpenter.k8s.aws/instance-accelerator-count",
        "karpenter.k8s.aws/instance-accelerator-manufacturer",
        "aws",
        _NEURON,
    ),
    (  # EKS's user guide, "Create a node pool for EKS Auto Mode"
        "eks.amazonaws.com/instance-gpu-count",
        "eks.amazonaws.com/instance-gpu-manufacturer",
        "nvidia",
        _GPU,
    ),
    (  # Azure/karpenter-provider-azure, labels LabelSKUGPUCount, LabelSKUGPUManufacturer
        "karpenter.azure.com/sku-gpu-count",
        "karpenter.azure.com/sku-gpu-manufacturer",
        "nvidia",
        _GPU,
    ),
    (  # GKE; GoogleCloudPlatform/PerfKitBenchmarker selects nodes by both
        "cloud.google.com/gke-accelerator-count",
        "cloud.google.com/gke-accelerator",
        "nvidia",
        _GPU,
    ),
    # CoreWeave, as in skypilot-org/skypilot, tests of its CoreWeaveLabelFormatter
    ("gpu.nvidia.com/count", "gpu.nvidia.com/class", "", _GPU),
)
"""Labels of the type of the instance: how many there are, of which maker or model, how its value
begins, and the resource."""
_COUNTS = (GFD_COUNT, NVSENTINEL_COUNT, *(row[0] for row in INSTANCE_COUNTS))
COUNT_SOURCES = tuple(Source(SourceKind.LABEL, label) for label in _COUNTS)
"""Labels that say how many devices a node should have."""
MOST_EXPECTED = 64
_SHOWN = 64
"""Characters of what cannot be read."""
_DIGITS = 6
"""Of a number of devices. No kubelet has a million."""
REPAIRED_SOURCE = Source(SourceKind.ANNOTATION, REPAIRED)
AHEAD_S = 60.0
"""An operator's clock may be ahead of ours by this much."""


class _Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of an annotation. Times are as in RFC 3339, without an offset in UTC."""

    device: str = ""
    reason: str = ""
    by: str = ""
    since: str = ""
    until: str = ""


def written(hold: Hold) -> str:
    """The value of the annotation that records a hold."""
    value = _Written(
        device="" if isinstance(hold.subject, NodeId) else name_of_held(hold.subject),
        reason=hold.reason,
        by=hold.by,
        since=hold_time(hold.since) or "",
        until=hold_time(hold.until) or "",
    )
    return msgspec.json.encode(value).decode()


def name_of_held(subject: Subject) -> str:
    """A device or unit as `fettle devices` prints it, or the name of a node."""
    match subject:
        case UnitId():
            return f"{subject.resource} {subject.unit}"
        case NodeId():
            return subject.node
    return str(subject)


def hold_time(seconds: float | None) -> str | None:
    """When a hold began or ends, as in RFC 3339; None if nobody said, or if it has no end."""
    if seconds is None or seconds == math.inf:
        return None
    return rfc3339_at(seconds)


def holds_on_node(metadata: ObjectMeta) -> tuple[Hold, ...]:
    """All holds that a Node records, also those that are over."""
    return tuple(_read(metadata, NodeId(metadata.name)))


def holds_on_devices(metadata: ObjectMeta, devices: Iterable[DeviceId]) -> tuple[Hold, ...]:
    """All holds that a ResourceSlice records, each on every device of it."""
    found = [*_read(metadata, NodeId(""))]
    return tuple(
        msgspec.structs.replace(hold, subject=device) for device in devices for hold in found
    )


def in_force(holds: Iterable[Hold], now: float) -> tuple[Hold, ...]:
    return tuple(hold for hold in holds if hold.until > now)


def _read(metadata: ObjectMeta, node: NodeId) -> Iterator[Hold]:
    for key, value in sorted((metadata.annotations or {}).items()):
        is_hold = key == HOLD or key.startswith(FURTHER_HOLD)
        if is_hold and value.strip().lower() != "false":
            yield _hold(key, value.strip(), node)


def _hold(key: str, value: str, node: NodeId) -> Hold:
    try:
        said = msgspec.json.decode(value, type=_Written)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        said = _Written(reason=value)
    subject = subject_called(said.device, node)
    remarks = []
    if subject is None:
        remarks.append(
            f"device {said.device[:TEXT_LIMIT]!r} cannot be read, so the whole node is held"
        )
    until = read_time(said.until)
    if said.until and until is None:
        remarks.append(f"until {said.until[:TEXT_LIMIT]!r} cannot be read, so it has no end")
    return Hold(
        subject=subject or node,
        annotation=key,
        reason=one_line("; ".join(filter(None, (said.reason.strip(), *remarks)))),
        by=one_line(said.by),
        since=read_time(said.since),
        until=math.inf if until is None else until,
    )


def subject_called(device: str, node: NodeId) -> Subject | None:
    """The device or unit that is meant, or the node; None if that cannot be read.

    >>> subject_called("nvidia.com/gpu 3", NodeId("gpu-01"))
    UnitId(node='gpu-01', resource='nvidia.com/gpu', unit='index:3', others=())
    >>> subject_called("gpu.nvidia.com/gpu-01/gpu-3", NodeId("gpu-01"))
    DeviceId(driver='gpu.nvidia.com', pool='gpu-01', device='gpu-3', node='')
    """
    if not device:
        return node
    resource, _, unit = device.partition(" ")
    if unit:
        return UnitId(node.node, resource, gpu_names.normal(unit.strip()))
    driver, _, rest = device.partition("/")
    pool, _, name = rest.rpartition("/")
    return DeviceId(driver, pool, name) if driver and pool and name else None


def read_time(text: str) -> float | None:
    """Unix seconds; None if it is not a time as in RFC 3339."""
    if len(text) > _LONGEST_TIME:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


class _Said(NamedTuple):
    texts: list[str]
    since: float


def evidence_of_holds(
    holds: Iterable[Hold], reporter: ReporterId, now: float
) -> Iterator[Evidence]:
    """One piece of evidence for each subject, which names all holds on it."""
    about: dict[Subject, _Said] = {}
    for hold in holds:
        said = about.get(hold.subject, _Said([], now))
        since = said.since if hold.since is None else min(said.since, hold.since)
        about[hold.subject] = _Said([*said.texts, describe_hold(hold)], since)
    for subject, said in about.items():
        yield Evidence(
            subject=subject,
            family=Family.OPERATOR,
            kind=EvidenceKind.LATCHED,
            weight=1.0,
            source=HOLD_SOURCE,
            reporter=reporter,
            said=one_line("; ".join(said.texts)),
            observed_at=said.since,
        )


def describe_hold(hold: Hold) -> str:
    """By whom, until when and why, in words."""
    ends = hold_time(hold.until)
    until = f" until {ends}" if ends else ""
    return f"held by {hold.by or 'an operator'}{until}: {hold.reason or 'no reason given'}"


def expected_on_node(metadata: ObjectMeta) -> Mapping[str, int] | None:
    """By resource or driver, how many a node should have; None if the annotation cannot be read."""
    written = (metadata.annotations or {}).get(EXPECTED_DEVICES, "").strip()
    if not written:
        return {}
    found: dict[str, int] = {}
    for entry in written.split(",", MOST_EXPECTED):
        name, _, number = (part.strip() for part in entry.partition("="))
        if not is_device_name(name) or (count := to_count(number)) is None or name in found:
            return None
        found[name] = count
    return found


def to_count(number: str) -> int | None:
    """A number of devices as a label or annotation has it; None if it cannot be one."""
    is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS
    return int(number) if is_number else None


def unread_expectations(metadata: ObjectMeta, now: float) -> tuple[Evidence, ...]:
    """Evidence without weight that says which annotation and labels cannot be read; () if none."""
    said: list[tuple[Source, str]] = []
    if expected_on_node(metadata) is None:
        written = (metadata.annotations or {})[EXPECTED_DEVICES]
        hint = "write a number for each resource or driver, such as nvidia.com/gpu=8"
        said.append((EXPECTED_SOURCE, f"{EXPECTED_DEVICES}={written[:_SHOWN]!r} {_IGNORED} {hint}"))
    for source, written in unread_counts(metadata):
        said.append((source, f"label {source.name}={written[:_SHOWN]!r} {_IGNORED} {COUNT_HINT}"))
    return tuple(unread_annotation(metadata.name, source, text, now) for source, text in said)


def unread_counts(metadata: ObjectMeta) -> Iterator[tuple[Source, str]]:
    """Labels that should say how many devices there are, and do not."""
    labels = metadata.labels or {}
    for source in COUNT_SOURCES:
        written = labels.get(source.name)
        if written is not None and to_count(written) is None:
            yield source, written


_IGNORED = "counts for nothing:"
COUNT_HINT = "it must be a number, such as 8; what sets the label is wrong, or somebody wrote it"


class _WrittenRepair(msgspec.Struct, frozen=True):
    at: str = ""
    device: str = ""
    by: str = ""


def repairs_on_node(
    metadata: ObjectMeta, now: float
) -> tuple[tuple[StatedRepair, ...], tuple[Evidence, ...]]:
    """The repairs, and evidence without weight that says which cannot be read."""
    found: list[StatedRepair] = []
    unread: list[Evidence] = []
    node = NodeId(metadata.name)
    for key, value in _annotations(metadata):
        try:
            said = msgspec.json.decode(value, type=_WrittenRepair)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            said = _WrittenRepair(at=value)
        at = read_time(said.at)
        subject = subject_called(said.device, node)
        if at is not None and at <= now + AHEAD_S and subject is not None:
            by = f" by {one_line(said.by)}" if said.by.strip() else ""
            found.append(StatedRepair(subject, at, f"{key}={rfc3339_at(at)}{by}"))
        else:
            unread.append(_unread(key, value, node, now))
    return tuple(found), tuple(unread)


def _annotations(metadata: ObjectMeta) -> Iterator[tuple[str, str]]:
    for key, value in sorted((metadata.annotations or {}).items()):
        if key == REPAIRED or key.startswith(FURTHER_REPAIRED):
            yield key, value.strip()


def _unread(key: str, value: str, node: NodeId, now: float) -> Evidence:
    said = (
        f"{key}={value[:TEXT_LIMIT]!r} counts as no repair: write a time that is past, such as "
        f'{rfc3339_at(now)}, or {{"at": TIME, "device": DEVICE}} with a device as `fettle devices` '
        "prints it"
    )
    return unread_annotation(node.node, REPAIRED_SOURCE, said, now)


# What was mended on nodes, and when

_REBOOT, _REMEDIATION = "a reboot", "the monitor's remediation"


class NodeRepairs:
    """By node. `mended_by_reboot`: the families whose faults a reboot mends."""

    def __init__(self, mended_by_reboot: frozenset[Family]) -> None:
        self.mended_by_reboot = mended_by_reboot
        self._stated: dict[NodeId, tuple[StatedRepair, ...]] = {}
        """What operators say was mended on a node."""
        self._reboots: dict[NodeId, float] = {}
        self._remediations: dict[NodeId, float] = {}
        """When we first heard that a monitor's remediation of the node had succeeded."""

    def take_report(
        self, report: SignalReport, node: NodeId, now: float, *, rebooted: bool
    ) -> bool:
        """What a node's report says of them. Returns whether that is news."""
        if rebooted:
            self._reboots[node] = now
        before = self._remediations.get(node), self._stated.get(node, ())
        if report.remediated is None:
            self._remediations.pop(node, None)
        else:
            self._remediations.setdefault(node, now)
        self._stated[node] = report.repairs
        if not report.repairs:
            del self._stated[node]
        return rebooted or before != (self._remediations.get(node), report.repairs)

    def forget(self, node: NodeId) -> None:
        for known in (self._stated, self._reboots, self._remediations):
            known.pop(node, None)

    def rebooted_at(self, node: NodeId) -> float | None:
        """When we heard of its last reboot."""
        return self._reboots.get(node)

    def last_on(self, node: NodeId) -> float:
        """When something was last repaired on a node, whatever it was; 0 if nothing was."""
        known = self._reboots.get(node, 0.0), self._remediations.get(node, 0.0)
        return max(*known, *(stated.at for stated in self._stated.get(node, ())))

    def of(self, subjects: Sequence[Subject]) -> tuple[Repair, ...]:
        """What was mended on something that has all these names: on itself, or on its node."""
        found = []
        for node in {NodeId(s.node) for s in subjects if isinstance(s, NodeId | UnitId)}:
            if at := self._reboots.get(node):
                found.append(Repair(at, _said(_REBOOT, at), self.mended_by_reboot))
            if at := self._remediations.get(node):
                found.append(Repair(at, _said(_REMEDIATION, at)))
            found += [
                Repair(stated.at, stated.how)
                for stated in self._stated.get(node, ())
                if stated.subject == node or any(_is_about(stated, s) for s in subjects)
            ]
        return tuple(found)

    def recall(self, node: NodeId) -> tuple[datetime | None, datetime | None]:
        """When a node was last rebooted, and first said to be remediated."""
        times = self._reboots.get(node, 0.0), self._remediations.get(node, 0.0)
        return memory.time_of(times[0]), memory.time_of(times[1])

    def adopt(self, node: NodeId, rebooted: datetime | None, remediation: datetime | None) -> None:
        """What another process, or the one before, knew of them. Only at a start."""
        for known, at in ((self._reboots, rebooted), (self._remediations, remediation)):
            if at is not None:
                known[node] = unix_s(at, 0.0)


def _said(how: str, at: float) -> str:
    return f"{how}, heard {rfc3339_at(at)}"


def _is_about(repair: StatedRepair, subject: Subject) -> bool:
    """A unit may be meant by any of its names."""
    meant = repair.subject
    if isinstance(meant, UnitId) and isinstance(subject, UnitId):
        same = (meant.node, meant.resource) == (subject.node, subject.resource)
        return same and meant.unit in (subject.unit, *subject.others)
    return meant == subject
