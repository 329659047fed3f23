"""What a Node says: its conditions (`conditions.py`), what its labels and annotations say, devices
that plugins have withdrawn, an operator's hold, and GPUs that are cordoned for HAMi.

Polarity and weights come from the rules. What no rule names is listed.
"""

from collections.abc import Iterable, Iterator, Mapping

from fettle.api import core
from fettle.api.meta import ObjectMeta, rfc3339_at
from fettle.dra import is_device_resource, units_of
from fettle.health.signals import gpu_names, hami, nvsentinel, patterns
from fettle.health.signals.conditions import (
    CONDITIONS,
    MOST_UNKNOWN_SIGNALS,
    UNKNOWN_WEIGHT,
    of_conditions,
)
from fettle.health.signals.operator_words import (
    COUNT_SOURCES,
    EXPECTED_SOURCE,
    HOLD_SOURCE,
    REPAIRED_SOURCE,
    evidence_of_holds,
    holds_on_node,
    in_force,
    repairs_on_node,
    unread_expectations,
)
from fettle.health.signals.pods import refusals_on
from fettle.health.signals.reports import (
    NodeReport,
    SignalReport,
    heaviest,
    in_steps,
    is_part,
    node_reporter,
    one_line,
)
from fettle.health.signals.rule_rows import AnnotationRow, LabelRow
from fettle.health.signals.rule_tables import SignalRules
from fettle.model import (
    OWN_PREFIX,
    Evidence,
    EvidenceKind,
    Family,
    NodeId,
    Source,
    SourceKind,
    UnitId,
    UnknownSignal,
)
from fettle.pacing import pause

GAP_SOURCE = Source(SourceKind.ALLOCATABLE)
_CUT = Source(SourceKind.CUT)
_AMOUNTS = ("status.capacity", "status.allocatable")
LABELS, ANNOTATIONS = "metadata.labels", "metadata.annotations"
_CORDONED = Source(SourceKind.ANNOTATION, hami.CORDON)
_REGISTERED = Source(SourceKind.ANNOTATION, hami.REGISTER)


def report_of_node(node: core.Node, rules: SignalRules, now: float) -> SignalReport:
    """Conditions, labels, withdrawn devices, and the operator's holds."""
    parts = (
        of_conditions(node, rules, now, is_remediated=is_remediated(node, rules)),
        of_labels(node, rules, now),
        of_annotations(node, rules, now),
        _of_gaps(node, rules, now),
        of_cordons(node, now),
        of_registers(node, rules, now),
        _of_cuts(node, now),
    )
    name = node.metadata.name
    holds = in_force(holds_on_node(node.metadata), now)
    held = evidence_of_holds(holds, node_reporter(name), now)
    repairs, unread = repairs_on_node(node.metadata, now)
    unread += unread_expectations(node.metadata, now)
    info = node.status.node_info if node.status is not None else None
    return SignalReport(
        reporter=node_reporter(name),
        evidence=heaviest((*(e for part in parts for e in part.evidence), *held, *unread)),
        settled=frozenset((HOLD_SOURCE, REPAIRED_SOURCE, EXPECTED_SOURCE, *COUNT_SOURCES)).union(
            *(part.settled for part in parts)
        ),
        uid=node.metadata.uid,
        boot=info.boot_id if info is not None else "",
        ended_by_repair=frozenset((NodeId(name), source) for source in refusals_on(node)),
        stale=heaviest(e for part in parts for e in part.stale),
        remediated=parts[0].remediated,
        unknown_signals=(*parts[0].unknown_signals, *unknown_keys(node.metadata, rules)),
        holds=holds,
        node=NodeId(name),
        renewed=parts[0].renewed,
        repairs=repairs,
        named=frozenset(
            UnitId(name, nvsentinel.RESOURCE, uuid, (index,))
            for uuid, index in hami.names(node.metadata.annotations or {})
        ),
    )


def _of_gaps(node: core.Node, rules: SignalRules, now: float) -> NodeReport:
    """Units that device plugins have withdrawn: mild evidence about the node, by their share."""
    status = node.status
    if status is None or status.capacity is None or is_part(node, *_AMOUNTS):
        return NodeReport((), frozenset())
    allocatable = status.allocatable or {}
    gaps = []
    for resource, quantity in sorted(status.capacity.items()):
        capacity = units_of(quantity) if is_device_resource(resource) else 0
        missing = capacity - units_of(allocatable.get(resource, 0))
        if capacity and missing > 0:
            gaps.append((missing / capacity, f"{missing} of {capacity} {resource}"))
    settled = frozenset((GAP_SOURCE,))
    return NodeReport(tuple(_gap_evidence(node, gaps, rules, now)) if gaps else (), settled)


def _gap_evidence(
    node: core.Node, gaps: Iterable[tuple[float, str]], rules: SignalRules, now: float
) -> Iterator[Evidence]:
    signal = rules.signals["gap"]
    share = max(share for share, _ in gaps)
    yield Evidence(
        subject=NodeId(node.metadata.name),
        family=signal.family,
        kind=EvidenceKind.LEVEL,
        weight=min(signal.cap, signal.weight * share),
        source=GAP_SOURCE,
        reporter=node_reporter(node.metadata.name),
        said=one_line("not allocatable: " + ", ".join(text for _, text in gaps)),
        observed_at=now,
        half_life_s=rules.half_life_s(signal.family),
    )


def _of_cuts(node: core.Node, now: float) -> NodeReport:
    """Entries that were not read may tell of a fault."""
    settled = frozenset((_CUT,))
    if not is_part(node, CONDITIONS, LABELS, ANNOTATIONS, *_AMOUNTS):
        return NodeReport((), settled)
    unknown = Evidence(
        subject=NodeId(node.metadata.name),
        family=Family.NODE,
        kind=EvidenceKind.UNKNOWN,
        weight=UNKNOWN_WEIGHT,
        source=_CUT,
        reporter=node_reporter(node.metadata.name),
        said=one_line(f"the Node is too long to be read whole: {'; '.join(node.cut)}"),
        observed_at=now,
        planned=True,
    )
    return NodeReport((unknown,), settled)


def of_labels(node: core.Node, rules: SignalRules, now: float) -> NodeReport:
    """What health tools say in labels. Each look at a Node settles all label sources,
    or of labels that were cut those that it saw."""
    labels = node.metadata.labels or {}
    found = [*_labels(node, rules)]
    evidence = tuple(
        _label_evidence(node, row, match, rules, now)
        for row, match in found
        if not row.remediated and row.counts(labels, labels[match[0]], now)
    )
    seen = (row for row, _ in found) if is_part(node, LABELS) else rules.labels.values()
    return NodeReport(evidence, frozenset(map(_label_source, seen)))


def _labels(node: core.Node, rules: SignalRules) -> Iterator[tuple[LabelRow, patterns.Match]]:
    labels = node.metadata.labels or {}
    for key in _each(labels):
        value = labels[key]
        if (match := rules.label(key, value)) is not None and not key.startswith(OWN_PREFIX):
            yield match


def _each(keys: Iterable[str]) -> Iterator[str]:
    """A Node may have thousands of labels or annotations."""
    for key in keys:
        pause()
        yield key


def is_remediated(node: core.Node, rules: SignalRules) -> bool:
    return any(row.remediated for row, _ in _labels(node, rules))


def _label_source(row: LabelRow) -> Source:
    return Source(SourceKind.LABEL, row.name)


def _label_evidence(
    node: core.Node, row: LabelRow, found: patterns.Match, rules: SignalRules, now: float
) -> Evidence:
    name, value = node.metadata.name, (node.metadata.labels or {})[found[0]]
    unit = UnitId(name, row.resource, gpu_names.index(found[1])) if row.resource else None
    return Evidence(
        subject=unit or NodeId(name),
        family=row.family,
        kind=row.kind,
        weight=row.weighs(value, now),
        source=_label_source(row),
        reporter=node_reporter(name),
        said=one_line(_label_text(row, found[0], node.metadata.labels or {})),
        observed_at=now,
        half_life_s=rules.half_life_s(row.family),
        planned=row.family is Family.MAINTENANCE,
        begins_in_s=in_steps(row.begins(value, now)),
    )


def of_annotations(node: core.Node, rules: SignalRules, now: float) -> NodeReport:
    """What annotations say, of the node or of units that they name. Each look at a Node settles
    all of them."""
    if not rules.annotations:
        return NodeReport((), frozenset())
    annotations = node.metadata.annotations or {}
    found = tuple(
        evidence
        for key in _each(annotations)
        if not key.startswith(OWN_PREFIX)
        and (row := rules.annotation(key, annotations[key])) is not None
        for evidence in _annotation_evidence(
            node.metadata.name, key, annotations[key], row, rules, now
        )
    )
    settled = (
        {one.source for one in found}
        if is_part(node, ANNOTATIONS)
        else {Source(SourceKind.ANNOTATION, name) for name in rules.annotations}
    )
    return NodeReport(found, frozenset(settled))


def _annotation_evidence(
    name: str, key: str, value: str, row: AnnotationRow, rules: SignalRules, now: float
) -> Iterator[Evidence]:
    units = [found[1] for found in patterns.find_each(row.units, value)] if row.units else []
    named = map(gpu_names.normal, units)
    subjects = (
        (UnitId(name, row.resource, unit) for unit in named) if row.units else (NodeId(name),)
    )
    for subject in subjects:
        yield Evidence(
            subject=subject,
            family=row.family,
            kind=row.kind,
            weight=row.weight,
            source=Source(SourceKind.ANNOTATION, row.name),
            reporter=node_reporter(name),
            said=one_line(f"annotation {key}={value}"),
            observed_at=now,
            half_life_s=rules.half_life_s(row.family),
            planned=row.family is Family.MAINTENANCE,
        )


def _label_text(row: LabelRow, key: str, labels: Mapping[str, str]) -> str:
    at = row.due_at(labels[key])
    than = f", less than {row.below}={labels.get(row.below)}" if row.below else ""
    return f"label {key}={labels[key]}{than}" + (f": {rfc3339_at(at)}" if at is not None else "")


def unknown_keys(metadata: ObjectMeta, rules: SignalRules) -> Iterator[UnknownSignal]:
    """Labels and annotations that may tell of health and that no rule names, or whose value no
    rule knows; the first of each. An annotation's value may be long, and different on each node."""
    labels, annotations = metadata.labels or {}, metadata.annotations or {}
    unread = [
        key for key in _each(labels) if rules.is_unknown(key) or rules.is_unread(key, labels[key])
    ]
    for key in sorted(unread)[:MOST_UNKNOWN_SIGNALS]:
        yield UnknownSignal(f"label {one_line(key)}", one_line(labels[key]))
    for key in sorted(filter(rules.is_unknown, _each(annotations)))[:MOST_UNKNOWN_SIGNALS]:
        yield UnknownSignal(f"annotation {one_line(key)}", "set")
    if not hami.cordoned(annotations)[1]:
        yield UnknownSignal(f"annotation {hami.CORDON}", "names more than UUIDs of NVIDIA GPUs")


def of_cordons(node: core.Node, now: float) -> NodeReport:
    """GPUs that an operator takes out of use for HAMi, by their UUIDs."""
    name, (uuids, _) = node.metadata.name, hami.cordoned(node.metadata.annotations or {})
    evidence = tuple(
        Evidence(
            subject=UnitId(name, nvsentinel.RESOURCE, uuid),
            family=Family.OPERATOR,
            kind=EvidenceKind.LATCHED,
            weight=1.0,
            source=_CORDONED,
            reporter=node_reporter(name),
            said=f"cordoned for HAMi (annotation {hami.CORDON})",
            observed_at=now,
        )
        for uuid in uuids
    )
    is_seen = hami.CORDON in (node.metadata.annotations or {}) or not is_part(node, ANNOTATIONS)
    return NodeReport(evidence, frozenset((_CORDONED,) if is_seen else ()))


def of_registers(node: core.Node, rules: SignalRules, now: float) -> NodeReport:
    """GPUs that HAMi's device plugin calls unhealthy. Once it answers no more, it says nothing, and
    what it said fades."""
    annotations = node.metadata.annotations or {}
    name, signal = node.metadata.name, rules.signals["registered-unhealthy"]
    evidence = tuple(
        Evidence(
            subject=UnitId(name, nvsentinel.RESOURCE, uuid),
            family=signal.family,
            kind=EvidenceKind.LEVEL,
            weight=signal.weight,
            source=_REGISTERED,
            reporter=node_reporter(name),
            said=f"HAMi's device plugin calls it unhealthy (annotation {hami.REGISTER})",
            observed_at=now,
            half_life_s=rules.half_life_s(signal.family),
        )
        for uuid in hami.unhealthy(annotations)
    )
    allocatable = (node.status.allocatable if node.status is not None else None) or {}
    has_allocatable = units_of(allocatable.get(nvsentinel.RESOURCE, 0)) > 0
    if hami.is_outdated(annotations, has_allocatable, now):
        return NodeReport((), frozenset())
    is_seen = hami.REGISTER in annotations or not is_part(node, ANNOTATIONS)
    return NodeReport(evidence, frozenset((_REGISTERED,) if is_seen else ()))
