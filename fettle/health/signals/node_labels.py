"""What a Node's labels and annotations say: what health tools state there, which GPUs are cordoned
for HAMi, and what no rule names.
"""

from collections.abc import Iterable, Iterator, Mapping

from fettle.api import core
from fettle.api.meta import ObjectMeta, rfc3339_at
from fettle.health.signals import gpu_names, hami, nvsentinel, patterns
from fettle.health.signals.reports import (
    NodeReport,
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

LABELS, ANNOTATIONS = "metadata.labels", "metadata.annotations"
MOST_UNKNOWN_SIGNALS = 16
"""So many labels, so many annotations, and so many XIDs and reasons of one Node are listed at
most."""
_CORDONED = Source(SourceKind.ANNOTATION, hami.CORDON)
_REGISTERED = Source(SourceKind.ANNOTATION, hami.REGISTER)


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
    if hami.is_outdated(annotations, now):
        return NodeReport((), frozenset())
    is_seen = hami.REGISTER in annotations or not is_part(node, ANNOTATIONS)
    return NodeReport(evidence, frozenset((_REGISTERED,) if is_seen else ()))
