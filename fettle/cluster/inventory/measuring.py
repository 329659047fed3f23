"""Metrics and alerts, folded in: finds the device of each series that fires, and reports to the
health book for each rule or alert, and node.

A device that nothing fires for is well only if its series are there. If they are not, what was said
of it stays, and it is Unknown.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set

import msgspec

from fettle.api import Alert, Measured, Sample, resource
from fettle.cluster.inventory.devices import Devices
from fettle.cluster.inventory.stores import Stores
from fettle.dra import held_devices
from fettle.health import HealthBook, SignalReport, gpu_names, metrics
from fettle.model import DeviceId, Evidence, EvidenceKind, NodeId, ReporterId, Subject, UnitId
from fettle.pacing import pause

HYSTERESIS = 0.1
"""A graded weight that changed by less stays as it is: each change is written and read."""
_ROUNDING = 1e-9
MISSED_DAY_S = 86_400.0
"""How far back is looked for what nobody heard."""
MISSED = ", while metrics were not asked for"


class Measuring:
    """`queries`: the rules that Prometheus is asked by, `alerted`: those that alerts may stand for;
    none where that is switched off."""

    def __init__(
        self,
        book: HealthBook,
        stores: Stores,
        devices: Devices,
        deliver: Callable[[SignalReport, float], None],
        queries: Mapping[str, metrics.MetricQuery],
        alerted: Mapping[str, metrics.MetricQuery],
        evidence: metrics.MetricEvidence,
    ) -> None:
        self._ledger = book.ledger
        self._queries = queries
        self._alerted = alerted
        self._deliver = deliver
        self._evidence = evidence
        self._places = KnownPlaces(stores, devices)
        self._unplaced: dict[str, tuple[int, str]] = {}
        """By rule, how many series name no device that is known, and one of them."""
        self._lost: dict[metrics.MetricSource, Alert] = {}
        """Alerts that fire and name no device that is known."""
        self._foreign: dict[metrics.MetricSource, set[str]] = {}
        """The namespaces of series that would count in full from an exporter's."""
        self._located: dict[str, tuple[tuple[Sample, ...], list[Place]]] = {}
        """By rule, what the series that fire now are about."""

    def begin(self, *, polls: bool, now: float) -> None:
        """This process asks for metrics and takes alerts from now on, or does no more. What a rule
        said that was taken back is over: it may have been wrong about a whole fleet."""
        self._ledger.polls = polls
        if polls:
            self._leave(lambda metric_source: not self._rules_of(metric_source), now)
            self._leave(self._is_taken_back, now, are_over=True)
        else:
            self._lost.clear()

    def forget_all(self, now: float) -> None:
        """Nobody asks for metrics: what was remembered of them fades."""
        if not (self._queries or self._alerted):
            self._leave(lambda _: True, now)

    def _rules_of(self, metric_source: metrics.MetricSource) -> Mapping[str, metrics.MetricQuery]:
        return self._alerted if metric_source.alert else self._queries

    def _is_taken_back(self, metric_source: metrics.MetricSource) -> bool:
        rules = self._rules_of(metric_source)
        return bool(rules) and metric_source.rule not in rules

    def reporting_alerts(self) -> list[metrics.MetricSource]:
        """The alerts by which something was said that is not over."""
        return [
            metric_source
            for metric_source in self._ledger.metric_reporters()
            if metric_source.alert
        ]

    def latched(self, rule: str) -> bool:
        """Whether something that the rule said is latched."""
        return any(self._latched_by(name) for name in self._reporters(metrics.MetricSource(rule)))

    def _latched_by(self, reporter: ReporterId) -> bool:
        return any(topic.latched for topic in self._ledger.standing(reporter))

    def measure(self, found: Measured, now: float) -> None:
        query, metric_source = self._queries.get(found.rule), metrics.MetricSource(found.rule)
        if query is None:
            return
        self._foreign.pop(metric_source, None)
        placed = self._locate(query, found.samples)
        self._located.pop(found.rule, None)
        said_by, unplaced = self._by_reporter(query, metric_source, found.samples, placed, now)
        self._add_missed(query, metric_source, found.missed, said_by, now)
        kept, odd = self._placed(query, found.kept), self._placed(query, found.odd)
        present = self._placed(query, found.present or ())
        self._unplaced.pop(found.rule, None)
        if unplaced:
            self._unplaced[found.rule] = len(unplaced), _shown(unplaced[0])
        for reporter in sorted(said_by.keys() | self._reporters(metric_source)):
            pause()
            stays: Set[Subject] = kept.get(reporter, _NOTHING)
            if not found.complete:
                stays = self._ledger.reported_by(reporter)
            said = self._with_kept(
                query, reporter, said_by.get(reporter, {}), stays, latched_only=found.complete
            )
            if self._is_said(reporter, said):
                continue
            silent = odd.get(reporter, _NOTHING)
            if found.present is not None:
                silent |= self._ledger.reported_by(reporter) - present.get(reporter, _NOTHING)
            self._deliver(
                SignalReport(
                    reporter=reporter,
                    evidence=tuple(said.values()),
                    settled=frozenset((metric_source.source,)) if found.complete else frozenset(),
                    silent=silent,
                ),
                now,
            )

    def _add_missed(
        self,
        query: metrics.MetricQuery,
        metric_source: metrics.MetricSource,
        missed: tuple[Sample, ...],
        said_by: defaultdict[ReporterId, dict[Subject, Evidence]],
        now: float,
    ) -> None:
        """What began while nobody asked, where it is latched and nobody knows of it. Where anything
        was repaired on the node within the day, it may be from before that."""
        placed = self._locate(query, missed)
        self._located.pop(query.row.name, None)
        found, _ = self._by_reporter(query, metric_source, missed, placed, now)
        for reporter, evidence in found.items():
            known = said_by.get(reporter, {}).keys() | self._ledger.reported_by(reporter)
            repaired_at = self._ledger.repairs.last_on(NodeId(reporter.node))
            for subject, one in evidence.items():
                is_latched = one.kind is EvidenceKind.LATCHED
                if is_latched and subject not in known and repaired_at < now - MISSED_DAY_S:
                    said = f"{one.said}{MISSED}"
                    said_by[reporter][subject] = msgspec.structs.replace(one, said=said)

    def report_alerts(self, alerts: Iterable[Alert], now: float) -> None:
        """What Alertmanager says. An alert that fires says all that it knows, and one that is over
        ends what it said, and nothing that another alert says."""
        self._places.refresh()
        for alert in alerts:
            pause()
            if (query := self._alerted.get(alert.rule)) is not None:
                self._report_alert(
                    query, metrics.MetricSource(alert.rule, alert.fingerprint), alert, now
                )

    def _report_alert(
        self,
        query: metrics.MetricQuery,
        metric_source: metrics.MetricSource,
        alert: Alert,
        now: float,
    ) -> None:
        self._lost.pop(metric_source, None)
        self._foreign.pop(metric_source, None)
        said_by: Mapping[ReporterId, Mapping[Subject, Evidence]] = {}
        if alert.fires:
            place = metrics.place(alert.sample, query.exporter, self._places)
            said_by, lost = self._by_reporter(query, metric_source, (alert.sample,), (place,), now)
            if lost:
                self._lost[metric_source] = alert
                return  # what it said before, while its device was known, stands
        for reporter in sorted(said_by.keys() | self._reporters(metric_source)):
            said = self._with_kept(query, reporter, said_by.get(reporter, {}), _NOTHING)
            if self._is_said(reporter, said):
                continue
            # A query that gives a device no more does not say that it was repaired.
            ends = query.row.gone_is_over or said or not self._latched_by(reporter)
            settled = frozenset((metric_source.source,)) if ends else frozenset()
            self._deliver(SignalReport(reporter, tuple(said.values()), settled=settled), now)

    def are_placed(self, alerts: Iterable[Alert]) -> int:
        """How many of them name devices that are known, or have said something."""
        self._places.refresh()
        found = 0
        for alert in alerts:
            pause()
            query = self._alerted.get(alert.rule)
            known = query is not None and metrics.place(alert.sample, query.exporter, self._places)
            reported = self._reporters(metrics.MetricSource(alert.rule, alert.fingerprint))
            found += bool(reported or (known and known[1]))
        return found

    def lost_alerts(self) -> tuple[Alert, ...]:
        """Those that fire and name no device that is known: it may come yet."""
        return tuple(self._lost.values())

    def ended(self, rule: str, samples: tuple[Sample, ...]) -> frozenset[Subject]:
        """What the rule told of, and tells of no more by these samples."""
        reporters = self._reporters(metrics.MetricSource(rule))
        reported = {name: set(self._ledger.reported_by(name)) for name in reporters}
        if reported:
            query = self._queries[rule]
            for sample, (node, subjects) in zip(samples, self._locate(query, samples), strict=True):
                pause()
                reported.get(self._reporter(query, sample, node), set()).difference_update(subjects)
        return frozenset().union(*reported.values())

    def _locate(self, query: metrics.MetricQuery, samples: tuple[Sample, ...]) -> "list[Place]":
        """What each series is about."""
        known = self._located.get(query.row.name)
        if known is not None and known[0] is samples:
            return known[1]
        self._places.refresh()
        found = []
        for sample in samples:
            pause()
            found.append(metrics.place(sample, query.exporter, self._places))
        self._located[query.row.name] = samples, found
        return found

    def unmeasure(self, rule: str, alert: str, now: float) -> None:
        """What stood by the rule, or by one alert of it, fades, and what was latched stays."""
        metric_source = metrics.MetricSource(rule, alert)
        self._unplaced.pop(rule, None)
        self._lost.pop(metric_source, None)
        self._leave(lambda each: each == metric_source, now)

    def notes(self, *, alerts: bool) -> list[str]:
        """For `/readyz?verbose`: of alerts, or of series that Prometheus was asked for."""
        said = {t: found for t, found in self._foreign.items() if bool(t.alert) is alerts}
        foreign = sorted(set().union(*said.values()) - {metrics.NO_NAMESPACE})
        nameless = sorted({t.rule for t, found in said.items() if metrics.NO_NAMESPACE in found})
        what = "alerts" if alerts else "series"
        notes = []
        if foreign:
            notes.append(
                f"faults by {what} of namespace {', '.join(foreign[:5])} only lower scores; if "
                "exporters are there, name it in prometheus.exporterNamespaces"
            )
        if nameless:
            notes.append(
                f"faults by {what} of {', '.join(nameless[:5])} that name no namespace only lower "
                "scores, since a tenant's series may be behind them: keep the label namespace in "
                "the query, or write `tenant_caused: false` into the row of a recording rule or an "
                "alert that is of exporters' series only"
            )
        unplaced = self._lost_by_rule() if alerts else self._unplaced
        return notes + [
            f"{number} {what} of rule {rule} name no device that is known here, such as {one}"
            for rule, (number, one) in sorted(unplaced.items())
        ]

    def _lost_by_rule(self) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for alert in self._lost.values():
            number, one = found.get(alert.rule, (0, _shown(alert.sample)))
            found[alert.rule] = number + 1, one
        return found

    def _reporters(self, metric_source: metrics.MetricSource) -> list[ReporterId]:
        return list(self._ledger.metric_reporters().get(metric_source, ()))

    def _leave(
        self,
        concerns: Callable[[metrics.MetricSource], bool],
        now: float,
        *,
        are_over: bool = False,
    ) -> None:
        for metric_source in list(filter(concerns, self._ledger.metric_reporters())):
            settled = frozenset((metric_source.source,)) if are_over else frozenset()
            for name in sorted(self._reporters(metric_source)):
                pause()
                self._deliver(SignalReport(name, evidence=(), settled=settled), now)

    def _by_reporter(
        self,
        query: metrics.MetricQuery,
        metric_source: metrics.MetricSource,
        samples: Iterable[Sample],
        placed: "Iterable[Place]",
        now: float,
    ) -> tuple[defaultdict[ReporterId, dict[Subject, Evidence]], list[Sample]]:
        """By reporter, the heaviest evidence about each subject; and samples of unknown devices."""
        found: defaultdict[ReporterId, dict[Subject, Evidence]] = defaultdict(dict)
        foreign: set[str] = set()
        unplaced = []
        for sample, (node, subjects) in zip(samples, placed, strict=True):
            pause()
            if not subjects:
                unplaced.append(sample)
            for subject in subjects:
                one = self._evidence.of(query, sample, subject, node, now, metric_source)
                if one is None:
                    continue
                if one.reporting_namespace and not query.row.is_tenant_caused:
                    foreign.add(self._evidence.word_of(query, sample))
                said = found[one.reporter]
                if subject not in said or said[subject].weight < one.weight:
                    said[subject] = one
        if foreign:
            self._foreign[metric_source] = foreign
        return found, unplaced

    def _placed(
        self, query: metrics.MetricQuery, samples: Iterable[Sample]
    ) -> dict[ReporterId, frozenset[Subject]]:
        """By reporter: nobody's series end or keep what another one's told."""
        found: dict[ReporterId, set[Subject]] = defaultdict(set)
        for sample in samples:
            pause()
            node, subjects = metrics.place(sample, query.exporter, self._places)
            found[self._reporter(query, sample, node)].update(subjects)
        return {name: frozenset(subjects) for name, subjects in found.items()}

    def _reporter(self, query: metrics.MetricQuery, sample: Sample, node: str) -> ReporterId:
        metric_source = metrics.MetricSource(query.row.name)
        return metrics.reporter_of(metric_source, node, self._evidence.word_of(query, sample))

    def _is_said(self, reporter: ReporterId, said: Mapping[Subject, Evidence]) -> bool:
        """Whether it stands already, and nothing else that the reporter said is left."""
        standing = self._ledger.standing(reporter).values()
        return (
            len(standing) == len(said)
            and all(said.get(before.subject) is before for before in standing)
            and self._ledger.reported_by(reporter) == said.keys()
        )

    def _with_kept(
        self,
        query: metrics.MetricQuery,
        reporter: ReporterId,
        said: Mapping[Subject, Evidence],
        stays: Set[Subject],
        *,
        latched_only: bool = True,
    ) -> dict[Subject, Evidence]:
        """What is said, in the words that stand where it hardly changed; and what stood and is not
        over yet."""
        found = dict(said)
        for topic, before in self._ledger.standing(reporter).items():
            now = found.get(before.subject)
            if now is None:
                if before.subject in stays and (topic.latched or not latched_only):
                    found[before.subject] = before
            elif _is_hardly_changed(before, now, exactly=bool(query.row.xid)):
                found[before.subject] = before
        return found


_NOTHING: frozenset[Subject] = frozenset()
Place = tuple[str, tuple[Subject, ...]]
"""A node, and what on it is meant."""


def _is_hardly_changed(before: Evidence, now: Evidence, *, exactly: bool) -> bool:
    """Whether it says the same, but for a number that is a little different."""
    if (before.kind, before.family, before.standing) != (now.kind, now.family, now.standing):
        return False
    if before.weight != now.weight and (
        exactly or abs(now.weight - before.weight) > HYSTERESIS - _ROUNDING
    ):
        return False
    return before.said == now.said or (not exactly and _words(before.said) == _words(now.said))


_NUMBER = re.compile(r"[\d.]+(e[+-]?\d+)?")


def _words(text: str) -> str:
    return _NUMBER.sub("", text)


def _shown(sample: Sample) -> str:
    return "{" + ", ".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items())) + "}"


class KnownPlaces:
    """Finds nodes by their names, and devices by theirs."""

    def __init__(self, stores: Stores, devices: Devices) -> None:
        self._stores = stores
        self._devices = devices
        self._hosts: dict[str, str] = {}
        self._gpus: dict[str, str] | None = None
        self._pods: dict[str, tuple[str, tuple[Subject, ...]]] = {}

    def refresh(self) -> None:
        """What is known now."""
        self._hosts.clear()
        self._gpus = None
        self._pods.clear()

    def node(self, name: str) -> str:
        if name in self._stores.nodes:
            return name
        if not self._hosts:
            self._hosts = self._by_host()
        return self._hosts.get(name.lower()) or self._hosts.get(_without_port(name), "")

    def node_of_gpu(self, name: str) -> str:
        if not gpu_names.is_uuid(name):
            return ""
        # Other rules look while this one pauses, and objects come and go.
        if (gpus := self._gpus) is None:
            gpus = self._gpus = self._by_gpu()
        return gpus.get(name, "")

    def _by_gpu(self) -> dict[str, str]:
        """Nodes by the GPUs that their slices publish. A GPU that several publish is no one's."""
        found: dict[str, str] = {}
        for node in [*self._stores.nodes]:
            pause()
            for published in self._devices.published_by(node):
                for each in gpu_names.published(published.device):
                    if gpu_names.is_uuid(each):
                        found[each] = node if found.get(each, node) == node else ""
        return found

    def devices_of_pod(self, key: str) -> tuple[str, tuple[Subject, ...]]:
        if key not in self._pods:
            self._pods[key] = self._held(key)
        return self._pods[key]

    def _held(self, key: str) -> tuple[str, tuple[Subject, ...]]:
        pod = self._stores.pods.get(key)
        if pod is None or not (node := pod.node_name):
            return "", ()
        held: list[Subject] = []
        statuses = (pod.status.resource_claim_statuses if pod.status is not None else None) or ()
        names = {s.name: s.resource_claim_name for s in statuses}
        for entry in pod.resource_claims:
            name = names.get(entry.name) or entry.resource_claim_name
            claim = self._stores.claims.get(f"{pod.metadata.namespace}/{name}")
            held += self._allocated(claim, node)
        for container in pod.container_statuses():
            for status in container.allocated_resources_status or ():
                if not status.name.startswith("claim:"):
                    held += [
                        UnitId(node, status.name, one.resource_id)
                        for one in status.resources or ()
                        if one.resource_id
                    ]
        held += self._allocated(self._stores.extended.get(pod.metadata.identity), node)
        return node, tuple(dict.fromkeys(held))

    def _allocated(self, claim: resource.ResourceClaim | None, node: str) -> Iterator[DeviceId]:
        for one in (held_devices(claim) if claim is not None else None) or ():
            if (device := self._devices.said_by(node, one.device)) is not None:
                yield device

    def _by_host(self) -> dict[str, str]:
        """Nodes by host name and address, as far as these name only one. A node's own name is its
        alone, whatever the addresses of other nodes are said to be."""
        found: dict[str, str] = {"": ""}
        own = {name.lower(): name for name in self._stores.nodes}
        for name, node in [*self._stores.nodes.items()]:
            pause()
            hosts = {name.lower(), (node.metadata.labels or {}).get("kubernetes.io/hostname", "")}
            addresses = (node.status.addresses if node.status is not None else None) or ()
            hosts.update(each.address for each in addresses)
            for host in hosts - {""}:
                found[host] = name if found.get(host, name) == name else ""
        return found | own


def _without_port(name: str) -> str:
    """The host of `10.0.0.3:9100`, `[fd00::3]:9100` or a name with a port."""
    host, _, port = name.rpartition(":")
    return host.strip("[]").lower() if host and port.isdecimal() else name.strip("[]").lower()
