"""What metrics say: which device each series is about, and what that weighs.

Rows of the table `metrics` are made into queries here, and their samples into evidence. What an
exporter says counts in full. What comes from a tenant's namespace, or a tenant can cause, is the
word of that namespace.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol

from fettle.api import Sample
from fettle.health.signals import gpu_names, promql, xids
from fettle.health.signals.metric_rows import HOLE, ExporterRow, MetricRow
from fettle.health.signals.reports import one_line
from fettle.health.signals.rule_tables import SignalRules
from fettle.model import (
    Evidence,
    EvidenceKind,
    Family,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    Subject,
    UnitId,
)

POLLED, ALERTED = "Prometheus", "Alertmanager"
"""Begin the names of reporters that only one process reads: the one that asks Prometheus, and takes
alerts. The others adopt what it stores."""
MISSING = "-missing"
"""Ends the name of the rule for devices of which an exporter says nothing any more."""
NO_NAMESPACE = "unknown"
"""Stands for the namespace of series that do not say whose they are."""


class MetricQuery(NamedTuple):
    """What to ask for one rule. `names`: the metrics that it needs, each by all its names. A device
    that has those of `vital` and for which nothing fires is well.

    `keeps_origin`: each series that it gives is made of those of one namespace, which its labels
    name. `is_derived`: its series are made of others, of namespaces that nobody knows any more if
    the labels name none.
    """

    row: MetricRow
    exporter: ExporterRow
    query: str
    until: str
    missed: str
    names: tuple[frozenset[str], ...]
    vital: tuple[frozenset[str], ...]
    keeps_origin: bool
    is_derived: bool

    @property
    def of_tenants(self) -> bool:
        """Whether all that it gives is a tenant's word: exporters have no such series."""
        return self.row.is_tenant_caused or self.exporter.of_pods

    def narrowed(self, query: str, exporters: Iterable[str]) -> str:
        """One of its queries, of series of exporters' namespaces (patterns) and of none only."""
        return promql.narrowed(query, self.exporter.namespace, exporters)

    def without_namespace(self, sample: Sample) -> Sample:
        """As a series of nobody knows which namespaces."""
        return Sample({**sample.labels, self.exporter.namespace[0]: NO_NAMESPACE}, sample.value)

    def of_devices(self, subjects: Iterable[Subject]) -> str:
        """Asks for the series of these devices, and perhaps of some more."""
        units = [subject for subject in subjects if isinstance(subject, UnitId)]
        label, values = "", [""]
        for labels, kind in (
            (self.exporter.uuid, gpu_names.is_uuid),
            (self.exporter.index, gpu_names.is_index),
        ):
            named = [next(filter(kind, unit.names), "") for unit in units]
            if len(labels) == 1 and units and all(named):
                label, values = labels[0], [name.removeprefix("index:") for name in named]
                break
        return promql.of_devices(self.vital, ", ".join(self.exporter.device), label, values)


class Places(Protocol):
    """Where things are, as far as names tell."""

    def node(self, name: str) -> str:
        """The node of this name, host name or address; "" if there is none."""

    def node_of_gpu(self, name: str) -> str:
        """The only node on which a device of this name is published; "" if there is none."""

    def devices_of_pod(self, key: str) -> tuple[str, tuple[Subject, ...]]:
        """The node of a pod (`namespace/name`), and what it holds there."""


def queries(rules: SignalRules) -> dict[str, MetricQuery]:
    """By the name of the rule. Those for missing devices come first: whoever is missing is neither
    ill nor well."""
    found = [_missing(one) for one in rules.exporters.values() if one.series]
    rows = [*found, *rules.metrics.values()]
    return {row.name: _query(row, rules.exporters[row.exporter]) for row in rows}


def alert_queries(rules: SignalRules) -> dict[str, MetricQuery]:
    """What alerts stand for, by the name of the rule: rows of `alerts`, and of `metrics` that
    somebody has evaluated as alerting rules."""
    rows = [*(row.as_metric() for row in rules.alerts.values()), *rules.metrics.values()]
    asked = [_query(row, rules.exporters[row.exporter]) for row in rows]
    return {
        one.row.name: one._replace(is_derived=one.is_derived or not one.keeps_origin)
        for one in asked
    }


_PARTS = re.compile("[-_.]")
RULE_LABEL = "fettleRule"
"""Names the rule of an alerting rule that `fettle rules` printed."""


def rule_of_alert(rules: SignalRules, labels: Mapping[str, str]) -> str:
    """The rule that an alert stands for; "" if none does."""
    if (named := labels.get(RULE_LABEL, "")) in rules.metrics:
        return named
    name = labels.get("alertname", "")
    return next((r.name for r in rules.alerts.values() if fnmatchcase(name, r.alert)), "")


def alerting_rules(rules: SignalRules) -> dict[str, object]:
    """The rows of `metrics` as a file of Prometheus' alerting rules."""
    listed = [
        {
            "alert": f"Fettle{''.join(part.capitalize() for part in _PARTS.split(row.name))}",
            "expr": one.query,
            "labels": {RULE_LABEL: row.name, "family": str(row.family)},
            "annotations": {
                "summary": HOLE.sub(_template, row.text) or row.name,
                "value": "{{ $value }}",
                "source": row.source,
            },
        }
        for row in rules.metrics.values()
        for one in [_query(row, rules.exporters[row.exporter])]
    ]
    return {"groups": [{"name": "fettle", "rules": listed}]}


def _template(hole: re.Match[str]) -> str:
    known = {"value": "{{ $value }}", "percent": "{{ $value | humanizePercentage }}"}
    return known.get(hole[1], f"{{{{ $labels.{hole[1]} }}}}")


def _missing(exporter: ExporterRow) -> MetricRow:
    names = (exporter.series, *exporter.aliases.get(exporter.series, ()))
    identity = ", ".join(exporter.identity)
    return MetricRow(
        name=f"{exporter.name}{MISSING}",
        source="derived",
        exporter=exporter.name,
        query=promql.gone(names, "$device", identity),
        family=Family.DRIVER,
        kind=EvidenceKind.UNKNOWN,
        text=f"no {exporter.series} of it for some minutes: it is gone, or its exporter is",
        metrics=(exporter.series,),
        gone_is_over=True,
    )


def _query(row: MetricRow, exporter: ExporterRow) -> MetricQuery:
    labels = {"device": exporter.device, "peers": exporter.peers}

    def written(query: str) -> str:
        return promql.with_labels(query, labels)

    query = written(row.query)
    names = row.metrics or sorted(promql.metric_names(query))
    if row.compared:
        peers = ", ".join(row.peers) or written("$peers")
        query = promql.apart_from_peers(
            query, peers, above=row.compared == "above", least=row.least
        )
    vital = sorted(promql.metric_names(row.until)) if row.until else names
    until, missed = (
        promql.for_all_names(written(each), exporter.aliases) if each else ""
        for each in (row.until, row.missed and promql.some_time_ago(row.missed, row.lost))
    )
    told = (promql.keeps(each, exporter.namespace) for each in (query, until, missed))
    return MetricQuery(
        row,
        exporter,
        promql.for_all_names(query, exporter.aliases),
        until,
        missed,
        _by_all_names(names, exporter),
        _by_all_names(vital, exporter),
        keeps_origin=all(told),
        is_derived=promql.is_recorded(query),
    )


def _by_all_names(names: Iterable[str], exporter: ExporterRow) -> tuple[frozenset[str], ...]:
    return tuple(frozenset((name, *exporter.aliases.get(name, ()))) for name in names)


def presence(names: Iterable[str]) -> str:
    """Asks which of these metrics there are."""
    return promql.presence(names)


class MetricSource(NamedTuple):
    """Who tells: a rule that Prometheus is asked by, or one `alert` of a rule, by its
    fingerprint."""

    rule: str
    alert: str = ""

    @property
    def source(self) -> Source:
        return Source(SourceKind.ALERT if self.alert else SourceKind.METRIC, self.rule)


def reporter_of(metric_source: MetricSource, node: str, namespace: str = "") -> ReporterId:
    """Who reports: a rule or an alert, for each node by itself, and for each namespace whose word
    it is."""
    kind = ALERTED if metric_source.alert else POLLED
    return ReporterId(kind, metric_source.rule, node, namespace, metric_source.alert)


def is_of_metrics(reporter: ReporterId) -> bool:
    """Whether only one process reads it, and the others adopt what that one stores."""
    return reporter.kind in (POLLED, ALERTED)


def metric_source_of(reporter: ReporterId) -> MetricSource:
    return MetricSource(reporter.name, reporter.alert)


def place(sample: Sample, exporter: ExporterRow, places: Places) -> tuple[str, tuple[Subject, ...]]:
    """The node of a series, and what on it the series is about; () if that is not known."""
    labels = sample.labels
    if exporter.of_pods:
        namespace, pod = _first(labels, exporter.namespace), _first(labels, exporter.pod)
        return places.devices_of_pod(f"{namespace}/{pod}") if namespace and pod else ("", ())
    names = tuple(_names(labels, exporter))
    node = next(filter(None, (places.node(labels[x]) for x in exporter.node if labels.get(x))), "")
    if not node and names:
        node = places.node_of_gpu(names[0])
    if not node:
        return "", ()
    if not exporter.resource:
        return node, (NodeId(node),)
    return node, (UnitId(node, exporter.resource, names[0], names[1:]),) if names else ()


_NAME = re.compile(r"[!-~]{1,100}")


def _names(labels: Mapping[str, str], exporter: ExporterRow) -> Iterator[str]:
    """The most reliable first, as `gpu_names` ranks them; none that could be no name of a GPU."""
    if (uuid := _first(labels, exporter.uuid)) and _NAME.fullmatch(uuid):
        yield gpu_names.uuid(uuid)
    if (address := _first(labels, exporter.pci)) and _NAME.fullmatch(address):
        yield gpu_names.pci(address)
    if (number := _first(labels, exporter.index)) and xids.is_code(number):
        yield gpu_names.index(int(number))


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    for name in names:
        if found := labels.get(name):
            return found
    return ""


class MetricEvidence:
    """Makes evidence of samples. `trusted`: patterns for the namespaces of exporters."""

    def __init__(self, rules: SignalRules, trusted: Iterable[str]) -> None:
        self._rules = rules
        self._trusted = tuple(trusted)

    def of(
        self,
        asked: MetricQuery,
        sample: Sample,
        subject: Subject,
        node: str,
        now: float,
        metric_source: MetricSource,
    ) -> Evidence | None:
        """None where it does not count, as a tenant's word that a device is Unknown."""
        row = asked.row
        word = self.word_of(asked, sample)
        family, kind = row.family, row.kind
        weight, text = row.weighs(sample.value), row.says(sample.value, sample.labels)
        unlisted = ""
        if row.xid:
            code = sample.labels.get(row.xid, "") if row.xid != "value" else f"{sample.value:g}"
            if not xids.is_code(code) or int(code) > xids.LARGEST:
                return None  # such as DCGM's values for "not supported"
            family, kind, weight, text = self._rules.xid(code)
            unlisted = self._rules.unlisted_xid(code)
        cap = together = 1.0
        if word:
            bound = self._rules.signals["tenant-caused-metric"]
            if kind is EvidenceKind.UNKNOWN:
                return None
            kind, weight = EvidenceKind.LEVEL, min(weight, bound.weight)
            cap, together = bound.cap, bound.together
            whose = f"of namespace {word}" if word != NO_NAMESPACE else "that name no namespace"
            text = f"{text} (by series {whose})"
        return Evidence(
            subject=subject,
            family=family,
            kind=kind,
            weight=weight,
            source=metric_source.source,
            reporter=reporter_of(metric_source, node, word),
            said=one_line(f"{_reported_as(sample, metric_source)}: {text}"),
            observed_at=now,
            half_life_s=row.half_life_s or self._rules.half_life_s(family),
            cap=cap,
            together=together,
            reporting_namespace=word,
            unlisted=unlisted,
        )

    def word_of(self, asked: MetricQuery, sample: Sample) -> str:
        """The namespace whose word a series is; "" for an exporter's, which counts in full."""
        namespace = _first(sample.labels, asked.exporter.namespace)
        if not namespace and asked.is_derived and asked.row.tenant_caused is not False:
            namespace = NO_NAMESPACE
        in_full = not asked.row.is_tenant_caused and self._is_exporter(namespace)
        return "" if in_full else namespace or NO_NAMESPACE

    def _is_exporter(self, namespace: str) -> bool:
        return not namespace or any(fnmatchcase(namespace, each) for each in self._trusted)


def _reported_as(sample: Sample, metric_source: MetricSource) -> str:
    return (
        f"alert {sample.labels.get('alertname', '')}".strip() if metric_source.alert else "metrics"
    )
