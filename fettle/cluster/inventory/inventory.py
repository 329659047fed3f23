"""The inventory: objects are put and removed, the records of nodes follow, and views are taken.

This module folds in a change by its kind, and decides which nodes it concerns; `reporting.py` says
what the object tells of health. Only the writer task touches it. Pure: no I/O, and the clock is an
argument.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from fettle.api import (
    Bad,
    DeviceHealth,
    ObjectReported,
    Pools,
    complete_node,
    core,
    kinds,
    node_and_pools,
    resource,
)
from fettle.api.kinds import Kind, WireObject
from fettle.api.meta import ObjectMeta
from fettle.cluster.inventory.device_healths import Remembering
from fettle.cluster.inventory.devices import Devices, SliceChange
from fettle.cluster.inventory.driver_versions import DriverVersions
from fettle.cluster.inventory.gathered_pools import pool_of
from fettle.cluster.inventory.kept_events import NodeEvents
from fettle.cluster.inventory.measuring import Measuring
from fettle.cluster.inventory.missing_devices import MissingDevices, may_lack_others
from fettle.cluster.inventory.nodes import Nodes
from fettle.cluster.inventory.quarantine import Quarantine
from fettle.cluster.inventory.reporting import Reports
from fettle.cluster.inventory.starts import OnFailure, Starts
from fettle.cluster.inventory.stores import Stores, is_same_object
from fettle.cluster.inventory.units import node_and_held_units
from fettle.cluster.view import View
from fettle.config import HealthSettings, PrometheusSettings
from fettle.dra import (
    CURRENT,
    Features,
    device_units,
    held_devices,
    units_of,
    unreadable_shares,
    uses_devices,
)
from fettle.health import HealthBook, Recovery, SignalRules, is_device_refusal, metrics
from fettle.logs import Logger
from fettle.model import DeviceId, Inherited
from fettle.pacing import part, pause

_LOG = Logger(__name__)

_QUARANTINED = "quarantined"
"""Stands for the quarantine among the kinds of which a view may show something new."""
_STARTS = "starts"
"""Stands for failed starts among them."""


class Inventory:
    """Put and remove objects in any order, `refresh`, then take a `view`."""

    def __init__(
        self,
        book: HealthBook,
        rules: SignalRules,
        features: Features = CURRENT.features,
        on_failed_start: OnFailure = lambda *_: None,
        prometheus: PrometheusSettings | None = None,
        health: HealthSettings | None = None,
        *,
        alerts: bool = False,
        looks_once: bool = False,
    ) -> None:
        """`features`: the feature gates of the scheduler, as far as they are set.
        `on_failed_start` is called before a view shows it, and each second while it lasts.
        `prometheus`: without a URL, metrics are not asked for. `health`: when devices are missing,
        and drivers new.
        `alerts`: whether Alertmanager's are taken. `looks_once`: whether it sees the cluster at one
        moment alone, and so not for how long devices have been missing."""
        prometheus = prometheus or PrometheusSettings()
        self._book = book
        self._stores = Stores()
        self._devices = Devices(features)
        self._quarantine = Quarantine()
        health = health or HealthSettings()
        missing = MissingDevices(health, looks_once=looks_once)
        drivers = DriverVersions(health.new_driver_seconds)
        self._nodes = Nodes(
            self._stores, self._devices, book, self._quarantine, missing, drivers, rules
        )
        self._reports = Reports(book, rules, self._stores, self._devices, self._nodes)
        self._remembering = Remembering(book, self._devices, self._stores.nodes, missing, drivers)
        self._starts = Starts(
            rules,
            self._stores.pods,
            on_failed_start,
            self._reports.devices_of,
        )
        self.measuring = Measuring(
            book,
            self._stores,
            self._devices,
            self._reports.deliver,
            metrics.queries(rules) if prometheus.url else {},
            metrics.alert_queries(rules) if alerts else {},
            metrics.MetricEvidence(rules, prometheus.exporter_namespaces),
        )
        self._changed_rules: set[str] = set()
        self._refused: dict[str, tuple[core.Pod, core.Pod | None]] = {}
        """By key: refused pods of which nothing was said yet, and how they were before."""
        self._ended: dict[str, str] = {}
        """The UIDs of pods whose refusal says nothing, by key: they had ended before."""
        self._listed: dict[str, set[str]] = {}
        self._node_events = NodeEvents()
        self._aged_at = 0.0
        self._taking_in = part("objects", self._take_in)
        self._ageing = [
            part("ends of holds", self._end_holds),
            part("waits for starts", self._starts.age),
            part("fading", self._fade),
            part("missing devices", self._nodes.mark_expecting_dirty),
        ]
        # In this order: records of nodes are judged last, by all that the others changed.
        self._refreshing = [
            part("changed rules", self._read_rules),
            part("refused pods", self._report_refusals),
            part("failed starts", self._report_starts),
            part("what is remembered", self._recall_all),
            part("new drivers", self._prove_drivers),
            part("records of nodes", self._judge_nodes),
        ]
        self._put: dict[str, Callable[[Any, Any, float], None]] = {
            kinds.DEVICE_HEALTH.name: self._put_device_health,
            kinds.NODE.name: self._put_node,
            kinds.SLICE.name: self._put_slice,
            kinds.TAINT_RULE.name: self._put_taint_rule,
            kinds.CLAIM.name: self._put_claim,
            kinds.POD.name: self._put_pod,
            kinds.COMPUTE_DOMAIN.name: self._put_compute_domain,
        }

    # -- changes in

    def put(self, kind: Kind, new: WireObject, now: float) -> None:
        """An object as it is now. Pods that use no devices are not kept, nor are most Events."""
        self._note_listed(kind, new.metadata.key)
        if isinstance(new, resource.ResourceSlice) and (bad := self._unreadable(new)):
            self.quarantine(bad, now)
            return
        self._or_quarantine(kind, new.metadata.key, new, now)

    def _unreadable(self, new: resource.ResourceSlice) -> Bad | None:
        """A slice as one that cannot be read, if it is more than is read of a node."""
        reason = self._devices.why_too_many(self._stores.of(kinds.SLICE).get(new.metadata.key), new)
        if not reason:
            return None
        pools = (Pools(new.spec.driver, new.spec.pool.name),)
        return Bad(kinds.SLICE, new.metadata.key, reason, new.spec.node_name or "", pools)

    def remove(self, kind: Kind, key: str, now: float) -> None:
        """An object was deleted."""
        self._or_quarantine(kind, key, None, now)

    def _or_quarantine(self, kind: Kind, key: str, new: WireObject | None, now: float) -> None:
        try:
            self._taking_in.work(kind, key, new, now)
        except Exception as error:
            self._fail(kind, key, new, error, now)
        else:
            self._taking_in.succeeded()

    def _fail(
        self, kind: Kind, key: str, new: WireObject | None, error: Exception, now: float
    ) -> None:
        """An object that this fails on is quarantined with its name, and all others go on."""
        name = f"{kind.name} {key}"
        self._taking_in.failed(error, object=name)
        try:
            if new is not None:
                whole = msgspec.json.decode(msgspec.json.encode(new))
                reason = f"cannot be applied: {error!r}"
                if self.quarantine(Bad(kind, key, reason, *node_and_pools(kind, whole)), now):
                    _LOG.warning("object quarantined", kind=kind.name, key=key, reason=reason)
                return
            # It is gone, so nothing of it counts, nor is its node in doubt.
            self._put_in_quarantine(Bad(kind, key, f"cannot be removed: {error!r}"), now)
            if kind is kinds.NODE:
                self._nodes.dirty.add(key)
        except Exception as another:
            self._taking_in.failed(another, object=name)

    def _take_in(self, kind: Kind, key: str, new: WireObject | None, now: float) -> None:
        if new is None:
            self._release(kind, key, now)
            self._drop(kind, key, now, vanished=True)
            return
        if isinstance(new, core.WatchedEvent):
            self._put_event(kind, new, now)
            return
        released = self._release(kind, key, now)
        store = self._stores.of(kind)
        old = store.get(key)
        if old is not None and is_same_object(old, new) and not released:
            return
        if isinstance(new, core.Pod) and not self._keeps_pod(new, old, now):
            if old is not None:
                self._drop(kind, key, now, vanished=False)
            return
        store[key] = new
        self._stores.touch(kind)
        if (fold := self._put.get(kind.name)) is not None:
            fold(old, new, now)

    def _put_event(self, kind: Kind, new: core.WatchedEvent, now: float) -> None:
        """Of a Pod, the word of its kubelet; of a Node, what a rule names."""
        key = new.metadata.key
        if new.involved_object.kind == kinds.NODE.name:
            if self._reports.of_event(kind, new, now):
                # Of its text the reports keep what counts.
                self._stores.of(kind)[key] = key
                for over in self._node_events.add(new):
                    self._reports.retract_event(kind, over, now)
                    self._drop(kind, over, now, vanished=True)
            elif key in self._stores.of(kind):
                self._drop(kind, key, now, vanished=True)
        elif new.reason == kinds.PREPARE_FAILED:
            self._starts.observe_event(new, now)

    def inherit(self, identity: str, inherited: Inherited) -> None:
        """What the pods of this controller inherit."""
        self._stores.inherit(identity, inherited)

    def take_report(self, reported: ObjectReported, now: float) -> None:
        """What rows of the table `objects` say of an object."""
        self._reports.of_object(reported, now)

    def quarantine(self, bad: Bad, now: float) -> bool:
        """An object cannot be read: its node becomes Unknown, and its pools unclear. Returns
        whether that is news; it is not if the object changed but is as unreadable as before.

        The readable parts of a Node count. Of other objects nothing counts, whatever they were
        before: what they are now is unknown, and would be after a restart.
        """
        self._note_listed(bad.kind, bad.key)
        news = self._put_in_quarantine(bad, now)
        if bad.kind is not kinds.NODE:
            self._drop(bad.kind, bad.key, now, vanished=True)
        elif bad.key:
            self._salvage(bad, now)
        return news

    def _put_in_quarantine(self, bad: Bad, now: float) -> bool:
        before = self._quarantine.release(bad.kind, bad.key)
        is_same = before is not None and before.entry.node == bad.node
        added = self._quarantine.add(bad, before.entry.since if before and is_same else now)
        if before is not None and before.report is not None and not is_same:
            self._reports.deliver(before.report, now)
        if added.report is not None:
            self._reports.deliver(added.report, now)
        if before is not None and before.entry == added.entry:
            return False
        self._stores.touch(bad.kind)
        self._stores.touched.add(_QUARANTINED)
        self._mark_concerned(added.entry.node, added.pools)
        if before is not None:
            self._mark_concerned(before.entry.node, before.pools)
        return True

    def begin_list(self, kind: Kind) -> None:
        self._listed[kind.name] = set()

    def end_list(self, kind: Kind, now: float) -> None:
        """Remove what the list did not name. There may be many objects, so other work gets turns in
        between."""
        listed = self._listed.pop(kind.name, None)
        if listed is None:
            return
        store = self._stores.of(kind)
        if kind is kinds.POD:
            self._ended = {key: uid for key, uid in self._ended.items() if key in listed}
            self._starts.listed(listed)
        for key in (*store, *self._quarantine.keys(kind).difference(store)):
            if key not in listed:
                self.remove(kind, key, now)
            pause()

    def _note_listed(self, kind: Kind, key: str) -> None:
        """If a list is under way, this object was in it."""
        if (listed := self._listed.get(kind.name)) is not None:
            listed.add(key)

    # -- views out

    def age(self, now: float) -> None:
        """Mark as dirty what time alone has changed, also by a clock that was set back."""
        for one in self._ageing:
            one.attempt(now)

    def _end_holds(self, now: float) -> None:
        if now < self._aged_at:
            self._reports.read_holds_again(now)
        self._aged_at = now
        self._reports.end_holds(now)

    def _fade(self, now: float) -> None:
        self._nodes.mark_dirty(self._book.changed_by_time(now))

    def refresh(self, now: float) -> Iterator[None]:
        """Update the records of changed nodes, one node per step. Every kind has been read once."""
        for one in self._refreshing:
            yield from one.attempt_steps(now)

    def _prove_drivers(self, now: float) -> Iterator[None]:
        self._nodes.mark_upgraded_dirty(now)
        yield

    # What is taken up is no longer due, whether or not it fails: the rest has its turn.

    def _read_rules(self, now: float) -> Iterator[None]:
        for name in sorted(self._changed_rules):
            self._changed_rules.discard(name)
            try:
                self._reports.of_rule(name, now)
            except Exception as error:
                self._fail(kinds.TAINT_RULE, name, self._stores.rules.get(name), error, now)
            yield

    def _report_refusals(self, now: float) -> Iterator[None]:
        # Whether live pods hold all units of a node is known once all pods were read.
        while self._refused:
            self._report_refusal(next(iter(self._refused)), now)
            yield

    def _report_starts(self, now: float) -> Iterator[None]:
        for report in self._starts.reports():
            self._reports.deliver(report, now)
            yield
        if self._starts.changed:
            self._stores.touched.add(_STARTS)

    def _recall_all(self, now: float) -> Iterator[None]:
        if (changed := self._remembering.all_read(now, self._reports.since)) is not None:
            self._nodes.mark_dirty(changed)
            self.measuring.forget_all(now)
        yield from ()

    def _judge_nodes(self, now: float) -> Iterator[None]:
        while self._nodes.dirty:
            while self._nodes.dirty:
                self._nodes.refresh_one(now)
                yield
            # What was looked at later may say what to expect of nodes that were looked at before.
            self._nodes.mark_expecting_dirty(now)

    def view(self, previous: View, *, synced: bool, served: dict[str, bool]) -> View | None:
        """The view after `previous`; None if nothing that a reader could see has changed."""
        stores, changed = self._stores, bool(self._nodes.changed)
        based = changed or stores.moves_basis or synced != previous.synced
        if not based and not stores.touched and served == previous.served:
            return None
        return View(
            generation=previous.generation + 1,
            basis=previous.basis + based,
            synced=synced,
            nodes=self._nodes.records.shown(),
            classes=stores.classes.shown(),
            claims=stores.claims.shown(),
            extended_claims=stores.extended.shown(),
            templates=stores.templates.shown(),
            namespaces=stores.namespace_labels(previous),
            policies=stores.policies(previous),
            pods=stores.pods.shown(),
            quarantined=self._quarantined(previous),
            served=served,
            holds=self._reports.holds(),
            taint_rules=stores.rules.shown(),
            quotas=stores.quotas(previous, served),
            compute_domains=stores.compute_domains(previous, served),
            device_healths=stores.device_healths.shown(),
            failed_starts=self._starts.shown(),
            inherited=stores.inherited.shown(),
        )

    def _quarantined(self, previous: View) -> Mapping[str, str]:
        touched = _QUARANTINED in self._stores.touched
        return self._quarantine.texts() if touched else previous.quarantined

    def settle(self) -> frozenset[str]:
        """The view was published: return the nodes that changed, and forget them."""
        changed = frozenset(self._nodes.changed)
        self._nodes.changed.clear()
        self._stores.touched.clear()
        return changed

    def recall(self, name: str, before: DeviceHealth | None, now: float) -> DeviceHealth | None:
        """What is to be stored of a node, after what was stored before; None if nothing is."""
        return self._remembering.recall_node(name, before, now)

    def recall_pools(
        self, before: Mapping[str, DeviceHealth], now: float
    ) -> Iterator[DeviceHealth]:
        """What is to be stored of each pool that is on no node."""
        return self._remembering.recall_pools(before, now)

    def recovery(self, node: str, resource: str, unit: str, now: float) -> Recovery:
        """How healthy a node or a unit of it ("": the node) is, and when it is Healthy again."""
        return self._book.recovery(self._nodes.key_of(node, resource, unit), now)

    def recovery_of_device(self, device: DeviceId, now: float) -> Recovery:
        return self._book.recovery(device, now)

    # -- folding, by kind

    def _put_device_health(self, _: DeviceHealth | None, new: DeviceHealth, now: float) -> None:
        self._nodes.mark_dirty(self._remembering.adopt(new, now))

    def _put_node(self, old: core.Node | None, new: core.Node, now: float) -> None:
        name = new.metadata.name
        self._nodes.dirty.add(name)
        remembered = self._remembering.is_same_node(new) if old is None else None
        if old is None and remembered is None:
            self._reports.node_came(name, now)
        elif remembered is False or (old is not None and _replaced(old, new)):
            self._reports.node_left(name, now)
            self._nodes.forget_devices(name)
        self._nodes.note_capacities(name, new)
        was_under_way = self._nodes.is_worked_on(name)
        self._reports.of_node(new, now)
        is_changed = was_under_way != self._nodes.is_worked_on(name)
        if old is None or is_changed or may_lack_others(old, new):
            self._nodes.mark_devices_dirty((name,))

    def _salvage(self, bad: Bad, now: float) -> None:
        """The readable parts of a Node; the rest stays as it was, if it was ever known."""
        name, left = bad.key, bad.salvaged
        known = self._stores.nodes.get(name)
        if left is None and known is not None:
            return
        node = left.node if left is not None else core.Node(metadata=ObjectMeta(name=name))
        if left is None or known is None or name in self._nodes.partial or _replaced(known, node):
            self._nodes.partial.add(name)
        else:
            node = complete_node(left, known)
        self._stores.nodes[name] = node
        self._put_node(known, node, now)

    def _put_slice(
        self, old: resource.ResourceSlice | None, new: resource.ResourceSlice, now: float
    ) -> None:
        for effect in self._devices.put_slice(old, new):
            self._apply(effect, now)
        if old is not None and pool_of(old) != pool_of(new):
            self._reports.of_slices(old, now)
        self._reports.of_slices(new, now)

    def _put_taint_rule(
        self,
        old: resource.DeviceTaintRule | None,
        new: resource.DeviceTaintRule,
        now: float,
    ) -> None:
        for rule in (old, new):
            if rule is not None:
                self._mark_selected_dirty(rule)
        if old is not None:
            self._devices.taints.remove(old)
        self._devices.taints.add(new)
        self._changed_rules.add(new.metadata.name)

    def _put_claim(
        self, old: resource.ResourceClaim | None, new: resource.ResourceClaim, now: float
    ) -> None:
        self._stores.index_claim(old, new)
        self._nodes.mark_dirty(
            self._devices.holdings.put(new.metadata.key, held_devices(new) or ())
        )
        if doubtful := unreadable_shares(new):
            pools = tuple({Pools(held.driver, held.pool): None for held, _ in doubtful})
            self._put_in_quarantine(
                Bad(kinds.CLAIM, new.metadata.key, doubtful[0][1], pools=pools), now
            )
        self._reports.of_claim(old, new, now)

    def _put_pod(self, old: core.Pod | None, new: core.Pod, now: float) -> None:
        """A node's record depends on a pod only for the units that it holds by name, and their
        health."""
        self._stores.index_pod(old, new)
        self._starts.note_running(old, new)
        before, after = node_and_held_units(old), node_and_held_units(new)
        if before == after:
            return
        for pod, (node, held), add in ((old, before, False), (new, after, True)):
            if node and pod is not None:
                (self._nodes.pod_came if add else self._nodes.pod_left)(node, new.metadata.key)
                if held:
                    self._nodes.dirty.add(node)

    def _put_compute_domain(
        self, _: resource.ComputeDomain | None, new: resource.ComputeDomain, now: float
    ) -> None:
        self._reports.of_compute_domain(new, now)

    def _keeps_pod(self, pod: core.Pod, before: core.Pod | None, now: float) -> bool:
        """Whether a pod is kept. What it says about devices is recorded either way.

        A pod without devices says nothing, so whatever an earlier pod of its name said is gone.
        """
        key, uid = pod.metadata.key, pod.metadata.uid
        if not uses_devices(pod):
            self._reports.vanish(kinds.POD, key, now)
            self._refused.pop(key, None)
            self._starts.gone(key, now)
            return False
        self._starts.put(pod, now)
        if not is_device_refusal(pod):
            self._reports.of_pod(pod, before, now)
            if pod.terminal:
                self._ended[key] = uid
        elif self._ended.get(key) != uid:
            # A kubelet that restarts may refuse again what has ended: that is no news.
            waiting = self._refused.get(key)
            known = waiting is not None and waiting[0].metadata.uid == uid
            self._refused[key] = (pod, waiting[1] if waiting is not None and known else before)
        return not pod.terminal

    def _report_refusal(self, key: str, now: float) -> None:
        if (refused := self._refused.pop(key, None)) is not None:
            pod, before = refused
            try:
                said = self._reports.of_pod(pod, before, now, self._is_full)
            except Exception as error:
                self._fail(kinds.POD, key, pod, error, now)
                return
            if not said:
                self._ended[key] = pod.metadata.uid  # nor does it later, when units are free again

    def _is_full(self, refused: core.Pod, resource: str) -> bool:
        """Whether live pods hold so many units that the pod's node has no room for this one: of
        those that its plugin offers, if it offers any."""
        node = self._stores.nodes.get(refused.node_name)
        status = node.status if node is not None else None
        amounts = (status.allocatable, status.capacity) if status is not None else ()
        counts = [units_of((amount or {}).get(resource, 0)) for amount in amounts]
        has = next(filter(None, counts), 0)
        wanted = dict(device_units(refused)).get(resource, 0)
        held = sum(
            dict(device_units(pod)).get(resource, 0)
            for key in self._nodes.pods_on(refused.node_name)
            if (pod := self._stores.pods.get(key)) is not None and _may_hold_units(pod)
        )
        return 0 < has < held + wanted

    def _drop(self, kind: Kind, key: str, now: float, *, vanished: bool) -> None:
        old = self._stores.of(kind).pop(key, None)
        if kind in kinds.EVENTS:
            self._node_events.gone(key)
        if vanished:
            if kind is kinds.POD:
                self._report_refusal(key, now)
                self._ended.pop(key, None)
                self._starts.gone(key, now)
            self._reports.vanish(kind, key, now)
        if old is None:
            return
        self._stores.touch(kind)
        if isinstance(old, core.Node):
            self._nodes.dirty.add(key)
            self._nodes.note_named_units(key, frozenset())
            self._nodes.note_registered_units(key, frozenset())
            self._nodes.note_capacities(key, None)
            self._reports.node_left(key, now)
        elif isinstance(old, resource.ResourceSlice):
            self._apply(self._devices.drop_slice(old), now)
            self._reports.of_slices(old, now)
        elif isinstance(old, resource.DeviceTaintRule):
            self._mark_selected_dirty(old)
            self._devices.taints.remove(old)
            self._changed_rules.discard(key)
        elif isinstance(old, resource.ResourceClaim):
            self._nodes.mark_dirty(self._devices.holdings.put(key, ()))
            self._stores.index_claim(old, None)
            self._reports.of_pods_with(key, now)
        elif isinstance(old, core.Pod):
            self._stores.index_pod(old, None)
            self._starts.note_running(old, None)
            node, held = node_and_held_units(old)
            if node:
                self._nodes.pod_left(node, key)
            if held:
                self._nodes.dirty.add(node)

    def _release(self, kind: Kind, key: str, now: float) -> bool:
        """The object can be read again, or is gone: take it out of quarantine. Returns whether it
        was there."""
        released = self._quarantine.release(kind, key)
        if released is None:
            return False
        if kind is kinds.NODE:
            self._nodes.partial.discard(key)
        self._stores.touch(kind)
        self._stores.touched.add(_QUARANTINED)
        if released.report is not None:
            self._reports.deliver(released.report, now)
        self._mark_concerned(released.entry.node, released.pools)
        return True

    # -- which nodes a change concerns

    def _apply(self, effect: SliceChange, now: float) -> None:
        self._nodes.mark_pool_dirty(effect.pool, effect.nodes)
        self._nodes.mark_devices_dirty(effect.nodes)
        # A device that comes is another one than what had its name before, but for what is
        # remembered of it over our own start.
        self._book.forget(effect.gone | self._remembering.not_adopted(effect.come), now)
        self._reports.renew(effect.gone | effect.come, now)
        self._changed_rules.update(effect.rules)

    def _mark_concerned(self, node: str, doubted: Iterable[Pools]) -> None:
        """Mark as dirty what an object in quarantine concerns: its node ("" if none) and the pools
        that are unclear because of it."""
        if node:
            self._nodes.mark_devices_dirty((node,))
        for pools in doubted:
            if pools.anywhere:
                self._nodes.mark_all_dirty()
                self._nodes.mark_devices_dirty(None)
            for pool in self._devices.existing_pools(pools):
                self._nodes.mark_seen_dirty(pool)
                self._nodes.mark_devices_dirty(self._devices.nodes_of(pool))

    def _mark_selected_dirty(self, rule: resource.DeviceTaintRule) -> None:
        for pool in self._devices.selected_pools(rule):
            self._nodes.mark_seen_dirty(pool)


def _may_hold_units(pod: core.Pod) -> bool:
    """Whether the pod's kubelet has taken it, or may have: a pod that a scheduler did not place is
    at its kubelet as soon as it exists, and whoever created it may race a scheduler."""
    status = pod.status
    if status is None or status.phase == "Running" or status.start_time is not None:
        return True
    return not any(c.type == "PodScheduled" and c.status == "True" for c in status.conditions or ())


def _replaced(old: core.Node, new: core.Node) -> bool:
    """Whether it is another Node of the same name."""
    return bool(old.metadata.uid and new.metadata.uid and old.metadata.uid != new.metadata.uid)
