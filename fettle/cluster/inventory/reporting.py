"""Reports what objects say about health to the health book, and marks as dirty whose health
changes. Also keeps the holds that objects record.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from typing import TypeVar

import msgspec

from fettle.api import ObjectReported, core, kinds, resource
from fettle.api.kinds import Kind
from fettle.api.meta import unix_s
from fettle.cluster.inventory.devices import Devices, SliceDevices
from fettle.cluster.inventory.kept_events import EventUnits
from fettle.cluster.inventory.nodes import Nodes
from fettle.cluster.inventory.stores import Stores
from fettle.dra import allocated_node
from fettle.health import (
    HealthBook,
    SignalReport,
    SignalRules,
    devices_given,
    has_device_status,
    holds_on_node,
    object_reporter,
    report_of_claim,
    report_of_compute_domain,
    report_of_event,
    report_of_node,
    report_of_object,
    report_of_pod,
    report_of_slice,
    report_of_taint_rule,
    selects_device,
)
from fettle.model import DeviceId, Evidence, EvidenceKind, Hold, NodeId, ReporterId, Subject, UnitId
from fettle.pacing import pause

_About = TypeVar("_About", Evidence, Hold)
_HELD = "held"
"""Stands for holds among the kinds of which a view may show something new."""
_GRANULARITY_S = 1.0
"""Times of the API are whole seconds."""


class Reports:
    """Reports what objects say about health to the health book, and marks as dirty whose health
    changes."""

    def __init__(
        self, book: HealthBook, rules: SignalRules, stores: Stores, devices: Devices, nodes: Nodes
    ) -> None:
        self._book = book
        self._rules = rules
        self._stores = stores
        self._devices = devices
        self._nodes = nodes
        self._holds: dict[ReporterId, tuple[Kind, str, tuple[Hold, ...]]] = {}
        """By reporter: the object, and the holds that it records."""
        self._named: dict[str, frozenset[DeviceId]] = {}
        """The devices that each Node claims to hold."""
        self._event_units = EventUnits()
        self._object_units = EventUnits()
        self._shown_holds: Mapping[Subject, tuple[Hold, ...]] | None = {}

    def deliver(self, report: SignalReport, now: float) -> None:
        self._nodes.mark_dirty(self._book.ledger.report(report, now))

    def holds(self) -> Mapping[Subject, tuple[Hold, ...]]:
        """What operators hold now; the same mapping as long as nothing about it changes."""
        if self._shown_holds is None:
            shown: dict[Subject, tuple[Hold, ...]] = {}
            for _, _, holds in self._holds.values():
                for hold in holds:
                    shown[hold.subject] = (*shown.get(hold.subject, ()), hold)
            self._shown_holds = shown
        return self._shown_holds

    def end_holds(self, now: float) -> None:
        """Look again at the objects of which a hold is over."""
        over = [
            (kind, key)
            for kind, key, holds in self._holds.values()
            if any(hold.until <= now for hold in holds)
        ]
        for kind, key in over:
            found = self._stores.of(kind)[key]
            if kind is kinds.NODE:
                self.of_node(found, now)
            else:
                self._of_slices(self._devices.slices_of(found), now)

    def read_holds_again(self, now: float) -> None:
        """The clock was ahead, so a hold may have ended too early."""
        for node in self._stores.nodes.values():
            if holds_on_node(node.metadata):
                self.of_node(node, now)
            pause()
        for slice_ in self._stores.of(kinds.SLICE).values():
            if slice_.metadata.annotations:
                self._of_slices(self._devices.slices_of(slice_), now)
            pause()

    def renew(self, devices: Set[DeviceId], now: float) -> None:
        """These devices have come or gone, and with them who may speak of them: Nodes, claims and
        pods that do are read again."""
        names = {msgspec.structs.replace(one, node="") if one.node else one for one in devices}
        for name in [name for name, named in self._named.items() if named & names]:
            self.of_node(self._stores.nodes[name], now)
        for reporter in set().union(*map(self._book.ledger.reporters_of, names)):
            kind, key = reporter.kind, reporter.name
            if (claim := self._stores.claims.get(key)) is not None and kind == kinds.CLAIM.name:
                self.of_claim(claim, claim, now)
            if (pod := self._stores.pods.get(key)) is not None and kind == kinds.POD.name:
                self.of_pod(pod, pod, now)

    def _of_its_own(self, report: SignalReport, node: str) -> SignalReport:
        """Without holds and repairs of devices that others publish: a kubelet may annotate its own
        Node, and must not decide about devices of other nodes by that."""
        about = {hold.subject for hold in report.holds} | {r.subject for r in report.repairs}
        named = frozenset(subject for subject in about if isinstance(subject, DeviceId))
        if not named:
            self._named.pop(node, None)
            return report
        self._named[node] = named

        def own(device: DeviceId) -> DeviceId | None:
            publishers = self._devices.publishers(device)
            return self._devices.said_by(node, device) if publishers != {""} else None

        return _about(report, own)

    def _note_holds(self, kind: Kind, key: str, holds: tuple[Hold, ...]) -> None:
        who = ReporterId(kind.name, key)
        if holds == (self._holds[who][2] if who in self._holds else ()):
            return
        if holds:
            self._holds[who] = kind, key, holds
        else:
            del self._holds[who]
        self._shown_holds = None
        self._stores.touched.add(_HELD)

    def vanish(self, kind: Kind, key: str, now: float) -> None:
        """An object is gone and says nothing any more."""
        self._note_holds(kind, key, ())
        if kind is kinds.NODE:
            self._named.pop(key, None)
        self._nodes.mark_dirty(self._book.ledger.vanish(ReporterId(kind.name, key), now))

    def of_node(self, node: core.Node, now: float) -> None:
        report = self._of_its_own(report_of_node(node, self._rules, now), node.metadata.name)
        self._nodes.note_named_units(node.metadata.name, report.units)
        self._nodes.note_registered_units(node.metadata.name, report.named)
        self._nodes.note_unknown_signals(node.metadata.name, report.unknown_signals)
        self._note_holds(kinds.NODE, node.metadata.name, report.holds)
        self.deliver(report, now)

    def of_event(self, kind: Kind, event: core.WatchedEvent, now: float) -> bool:
        """An Event about a Node. Returns whether a rule names it."""
        who = ReporterId(kind.name, event.metadata.key)
        if (report := report_of_event(event, who, self._rules, now)) is None:
            return False
        units = self._event_units.named(event.involved_object.name, report.units, now)
        self.deliver(
            report._replace(
                evidence=tuple(e for e in report.evidence if _is_of(e, units)),
                stale=tuple(e for e in report.stale if _is_of(e, units)),
            ),
            now,
        )
        return True

    def retract_event(self, kind: Kind, key: str, now: float) -> None:
        """It gives way to later ones, and leaves no trace."""
        who = ReporterId(kind.name, key)
        said = frozenset(self._book.ledger.reported_by(who))
        self._event_units.forget(said)
        self.deliver(SignalReport(who, (), retracted=said), now)

    def of_slices(self, changed: resource.ResourceSlice, now: float) -> None:
        """What all changed slices of a pool say now. An older generation speaks only for devices
        that no newer one names."""
        self._of_slices(self._devices.changed_slices_of(changed), now)

    def _of_slices(self, slices: Iterable[SliceDevices], now: float) -> None:
        for slice_, _, known in slices:
            report = _about(report_of_slice(slice_.raw, self._rules, now), known.get)
            self._note_holds(kinds.SLICE, slice_.raw.metadata.name, report.holds)
            # What it said before a slice of others named these was of a device of its own.
            said = self._book.ledger.reported_by(report.reporter)
            others = {
                one
                for one in said
                if isinstance(one, DeviceId)
                and (publishers := self._devices.publishers(one))
                and slice_.node not in publishers
            }
            self.deliver(report._replace(retracted=report.retracted | others), now)

    def of_rule(self, name: str, now: float) -> None:
        rule = self._stores.rules.get(name)
        if rule is None:
            return
        candidates = self._devices.in_pools(self._devices.selected_pools(rule))
        devices = [device for device in candidates if selects_device(rule, device)]
        self.deliver(report_of_taint_rule(rule, devices, self._rules, now), now)

    def of_compute_domain(self, domain: resource.ComputeDomain, now: float) -> None:
        self.deliver(report_of_compute_domain(domain, self._rules, now), now)

    def of_object(self, reported: ObjectReported, now: float) -> None:
        """What rows say of an object, which is not kept. Of a tenant's only so many units of a node
        count."""
        who = object_reporter(reported.kind, reported.key)
        if reported.gone:
            self._nodes.mark_dirty(self._book.ledger.vanish(who, now))
            return
        report = report_of_object(reported, self._rules, now)
        by_node: defaultdict[str, set[UnitId]] = defaultdict(set)
        for one in report.evidence:
            if one.reporting_namespace and isinstance(one.subject, UnitId):
                by_node[one.subject.node].add(one.subject)
        named = [self._object_units.named(node, units, now) for node, units in by_node.items()]
        known = frozenset().union(*named)
        counted = (e for e in report.evidence if not e.reporting_namespace or _is_of(e, known))
        self.deliver(report._replace(evidence=tuple(counted)), now)

    def of_claim(
        self, old: resource.ResourceClaim | None, new: resource.ResourceClaim, now: float
    ) -> None:
        if any(has_device_status(claim) for claim in (old, new)):
            report = report_of_claim(new, self._rules, now)
            if node := allocated_node(new):
                report = _about(report, partial(self._devices.said_by, node))
            self.deliver(report, now)
        self.of_pods_with(new.metadata.key, now)

    def of_pods_with(self, claim: str, now: float) -> None:
        """A pod's status may name a claim whose object alone says which devices are meant."""
        for pod in self._stores.pods_mentioning(claim):
            self.of_pod(pod, pod, now)

    def of_pod(
        self,
        pod: core.Pod,
        before: core.Pod | None,
        now: float,
        is_full: Callable[[core.Pod, str], bool] = lambda *_: False,
    ) -> bool:
        """Whether it says that something is amiss."""
        report = report_of_pod(pod, self._rules, now, self._stores.claims.get, before, is_full)
        if pod.node_name:
            report = _about(report, partial(self._devices.said_by, pod.node_name))
        evidence = tuple(e for e in report.evidence if not self._happened_to_another(e, now))
        self.deliver(report._replace(evidence=evidence), now)
        return bool(report.evidence)

    def devices_of(self, pod: core.Pod) -> tuple[Subject, ...]:
        """The devices that a pod was given, of those that its node may speak for."""
        given = devices_given(pod, self._stores.claims.get)
        meant = (
            self._devices.said_by(pod.node_name, one) if isinstance(one, DeviceId) else one
            for one in given
        )
        return tuple(one for one in meant if one is not None)

    def _happened_to_another(self, evidence: Evidence, now: float) -> bool:
        """Whether it is an event that happened to an earlier node of the same name, or to a unit of
        it."""
        if evidence.kind is not EvidenceKind.DECAYING or isinstance(evidence.subject, DeviceId):
            return False
        return evidence.observed_at < self.since(evidence.subject.node, now)

    def node_came(self, name: str, now: float) -> None:
        """It is another Node than the one that had this name before, if there was one."""
        self._book.forget({NodeId(name)}, now, self.since(name, now))

    def node_left(self, name: str, now: float) -> None:
        """The Node was deleted, and what it said goes with it. What others say of it waits for its
        return."""
        self.vanish(kinds.NODE, name, now)
        for reporter in self._book.ledger.metric_reporters_on(
            name
        ):  # its devices are others, if it comes again
            self._nodes.mark_dirty(self._book.ledger.vanish(reporter, now))
        self.node_came(name, now)

    def since(self, name: str, now: float) -> float:
        """Events on a node of this name from before this time happened to an earlier Node.

        Only what is clearly earlier counts as such: API times are whole seconds. What was seen to
        happen since the Node came is its own, even if our clock is behind the API server's.
        """
        node = self._stores.nodes.get(name)
        created = node.metadata.creation_timestamp if node is not None else None
        return min(unix_s(created, 0.0) - _GRANULARITY_S, now)


def _about(report: SignalReport, who: Callable[[DeviceId], DeviceId | None]) -> SignalReport:
    """The report, with each DRA device under the name that `who` knows it by; nothing of those
    about which the reporter has no word. Before it was known who publishes them, what it said may
    have counted for another node's."""
    others: set[Subject] = set()

    def meant(subject: Subject) -> Subject | None:
        if not isinstance(subject, DeviceId):
            return subject
        device = who(subject)
        if device != subject and (device is not None or not report.absent_is_clear):
            others.add(subject)
        return device

    def about(said: Iterable[_About]) -> tuple[_About, ...]:
        return tuple(
            one if subject == one.subject else msgspec.structs.replace(one, subject=subject)
            for one in said
            if (subject := meant(one.subject)) is not None
        )

    report = report._replace(
        evidence=about(report.evidence),
        stale=about(report.stale),
        holds=about(report.holds),
        repairs=tuple(
            one._replace(subject=subject)
            for one in report.repairs
            if (subject := meant(one.subject)) is not None
        ),
        cleared=frozenset(
            (subject, source)
            for one, source in report.cleared
            if (subject := meant(one)) is not None
        ),
    )
    return report._replace(retracted=report.retracted | others) if others else report


def _is_of(evidence: Evidence, units: Set[UnitId]) -> bool:
    """Whether it is about one of these units, or about no unit."""
    return not isinstance(evidence.subject, UnitId) or evidence.subject in units
