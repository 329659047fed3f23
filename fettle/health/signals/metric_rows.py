"""The rows about metrics and alerts: by which labels series name devices, and which are faults."""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Literal

from fettle.health.signals.rule_rows import RuleRow, Seconds, Share
from fettle.model import EvidenceKind, Family

_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HOLE = re.compile(r"\{(\w+)\}")
_RULE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class ExporterRow(RuleRow, frozen=True, kw_only=True):
    """An exporter: by which labels its series name devices, each with all names it has had.
    Such as `{name: node-exporter, node: [node, nodename, hostname, kubernetes_node, instance]}`.

    - `resource`: the extended resource that its devices are units of. Without one, its series are
      about the node as a whole; with `pod`, about the devices that a pod holds.
    - `uuid`, `pci`, `index`, `node`, `pod`, `namespace`, `model`: names of labels.
    - `aliases`: other names that a metric has had, by the one that queries use.
    - `series`: a metric that each healthy device has. A device that had it within a day and has it
      no more is Unknown. `identity`: the labels that say which device that is.
    """

    resource: str = ""
    uuid: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    index: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    pod: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ("namespace", "kubernetes_namespace")
    model: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = {}
    series: str = ""
    identity: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.series) != bool(self.identity):
            raise ValueError("series and identity are needed together")
        for field in ("uuid", "pci", "index", "node", "pod", "namespace", "model", "identity"):
            for label in getattr(self, field):
                if not _LABEL_NAME.fullmatch(label):
                    raise ValueError(f"{field}: {label!r} is not the name of a label")
        if not self.namespace:
            raise ValueError("namespace: a label that says whose series it is is needed")
        if not (self.node or self.pod or self.uuid):
            raise ValueError("node: labels that name a node, a pod or a device's UUID are needed")

    @property
    def of_pods(self) -> bool:
        """Whether a series is about what a pod holds."""
        return bool(self.pod) and not (self.resource or self.node)

    def names_a_device(self, labels: frozenset[str]) -> bool:
        """Whether series with these labels only can say what they are about."""
        if self.of_pods:
            return bool(labels.intersection(self.pod) and labels.intersection(self.namespace))
        named = {*self.uuid, *self.pci, *self.index}
        where = {*self.uuid, *self.node}
        return not labels.isdisjoint(where) and not (
            self.resource and named and labels.isdisjoint(named)
        )

    @property
    def device(self) -> tuple[str, ...]:
        """All labels that say which device a series is about, and whose word it is."""
        return (
            *(*self.uuid, *self.pci, *self.index, *self.node),
            *(*self.pod, *self.model, *self.namespace),
        )

    @property
    def peers(self) -> tuple[str, ...]:
        """The labels that devices of one kind have in common. Those of another namespace are no
        peers: a tenant must not shift what is usual."""
        return (*self.model, *self.namespace)


class MetricRow(RuleRow, frozen=True, kw_only=True):
    """A query of PromQL whose series are evidence, each about the device that its labels name.
    Such as `{name: amd-health, exporter: amd, query: max by ($device) (gpu_health) < 1, family:
    driver, weight: 0.75, text: the AMD exporter calls it unhealthy}`.

    - `exporter`: names a row of `exporters`, for whose labels `$device` and `$peers` in the query
      stand.
    - `query`: gives only series that are a fault, so that few travel.
    - `weight`, or `graded`: two values with the weight that each has; between them it grows evenly.
    - `text`: what people read; `{value}` and `{percent}` stand for the value, a label's name for
      the label's.
    - `compared`: `above` or `below`: only series that are so, far from their `peers` (labels that
      these have in common), are a fault. Its value is by what share of the median. `least`: what is
      not above this is no fault.
    - `xid`: the label with the XID, or `value`. Then the table of XIDs says what it means.
    - `until`: of a latched fault: it is over when this query does not give the device any more.
    - `metrics`: the names of the metrics that must be there, if the query does not show them.
    - `gone_is_over`: its series exist only while the fault does, as those of alerts do.
    - `missed`: of a latched fault: a query for what began while nobody asked, such as before a
      start. `$ago` stands for times within a day before. `lost`: another one, for devices whose
      series have ended since; looking at ranges costs much, so it is asked once and not by `$ago`.
    - `tenant_caused`: `true`: a tenant can cause it, so it counts as evidence from the series'
      namespace. `false`: no tenant can, so it also counts in full where a recording rule or an
      alert has dropped the namespace.
    """

    exporter: str
    query: str
    family: Family
    weight: Share = 0.0
    graded: Mapping[float, Share] = {}
    kind: EvidenceKind = EvidenceKind.LEVEL
    text: str = ""
    compared: Literal["", "above", "below"] = ""
    peers: tuple[str, ...] = ()
    least: float = 0.0
    xid: str = ""
    until: str = ""
    metrics: tuple[str, ...] = ()
    half_life_s: Seconds | None = None
    gone_is_over: bool = False
    tenant_caused: bool | None = None
    missed: str = ""
    lost: str = ""

    def __post_init__(self) -> None:
        if not _RULE_NAME.fullmatch(self.name):
            raise ValueError(f"name: {self.name!r} must be letters, digits, '-', '_' and '.'")
        if self.kind is EvidenceKind.DECAYING:
            raise ValueError("kind: the fault of a metric stands: level, latched or unknown")
        if self.graded and (len(self.graded) != 2 or self.weight):
            raise ValueError("graded: two values with their weights, and no weight beside it")
        for field in ("until", "missed", "lost"):
            if getattr(self, field) and not (self.kind is EvidenceKind.LATCHED or self.xid):
                raise ValueError(f"{field}: only what is latched can last longer than its query")
        if self.missed and not self.until:
            raise ValueError("missed: it needs until, which says whether what began is over")
        if self.lost and not self.missed:
            raise ValueError("lost: it needs missed, beside which it is asked")
        if (self.peers or self.least) and not self.compared:
            raise ValueError("compared: it is needed with peers or least: above or below")
        if self.is_tenant_caused and self.kind is EvidenceKind.LATCHED:
            raise ValueError("tenant_caused: what a tenant can cause cannot be latched")

    @property
    def asked(self) -> dict[str, str]:
        """Its queries by their fields, one of the times for `$ago`."""
        found = {"query": self.query, "until": self.until, "lost": self.lost}
        found["missed"] = self.missed.replace("$ago", "1h")
        return {field: query for field, query in found.items() if query or field == "query"}

    @property
    def is_tenant_caused(self) -> bool:
        """A straggler is mostly software, which is a tenant's."""
        return bool(self.tenant_caused) or self.family is Family.STRAGGLER

    def weighs(self, value: float) -> float:
        """The weight of a value, in steps of 0.05 where it is graded; of NaN, the lightest."""
        if not self.graded:
            return self.weight
        (low, light), (high, heavy) = sorted(self.graded.items())
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return round((light + share * (heavy - light)) * 20) / 20

    def says(self, value: float, labels: Mapping[str, str]) -> str:
        is_known = isfinite(value)
        number = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        known = {
            **labels,
            "value": number if is_known else "an unknown number of",
            "percent": f"{value:.0%}" if is_known else "an unknown share",
        }
        return HOLE.sub(lambda hole: known.get(hole[1], ""), self.text).strip() or self.name


class AlertRow(RuleRow, frozen=True, kw_only=True):
    """Alerts of Alertmanager that are evidence, about the device that their labels name.
    Such as `{name: our-gpu-alert, alert: GpuBroken, exporter: dcgm, family: driver, weight: 0.75}`.

    `alert` is a pattern for `alertname`. `exporter` says by which labels devices are named. The
    rest is as in `metrics`; without a `text`, people read the alert's summary.
    """

    alert: str
    exporter: str
    family: Family
    weight: Share
    kind: EvidenceKind = EvidenceKind.LEVEL
    text: str = "{summary}"
    tenant_caused: bool | None = None

    def __post_init__(self) -> None:
        self.as_metric()

    def as_metric(self) -> MetricRow:
        return MetricRow(
            name=self.name,
            source=self.source,
            exporter=self.exporter,
            query="ALERTS",
            family=self.family,
            weight=self.weight,
            kind=self.kind,
            text=self.text,
            gone_is_over=True,
            tenant_caused=self.tenant_caused,
        )
