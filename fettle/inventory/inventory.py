"""The cluster's devices as they stand: objects are put and removed, views of them are made.

Pools with their generations and completeness, what is allocated, what is in use, per node; health
of each from the health book. Only the writer task touches it. Stands between feeds and view; does
no I/O, the clock is an argument.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fettle.affinity import Malformed, Place
from fettle.asks import asks, claims
from fettle.evidence import gathering
from fettle.evidence.reports import Report, short
from fettle.evidence.rules import Rules
from fettle.health import HealthBook
from fettle.inventory import records
from fettle.inventory.devices import Devices, Effect
from fettle.inventory.pools import PoolId
from fettle.model import DeviceId, Evidence, Family, NodeId, Subject
from fettle.model import Kind as EvidenceKind
from fettle.view import NodeView, PoolView, View
from fettle.wire import core, kinds, resource
from fettle.wire.kinds import Kind, WireObject


class Inventory:
    """Put and remove objects in any order, `refresh`, then take a `view`."""

    def __init__(self, book: HealthBook, rules: Rules) -> None:
        self._book = book
        self._rules = rules
        self._stores: dict[str, dict[str, Any]] = {kind.name: {} for kind in kinds.KINDS}
        self._devices = Devices()
        self._network_views: dict[PoolId, PoolView] = {}
        self._restless_rules: set[str] = set()
        self._pods_on: dict[str, set[str]] = defaultdict(set)
        self._quarantined: dict[str, tuple[str, str]] = {}
        self._seen: dict[str, set[str]] = {}
        self._dirty: set[str] = set()
        self._records: dict[str, NodeView] = {}
        self._changed: set[str] = set()
        self._touched: set[str] = set()
        self._put: dict[str, Callable[[Any, Any, float], None]] = {
            kinds.NODE.name: self._put_node,
            kinds.SLICE.name: self._put_slice,
            kinds.TAINT_RULE.name: self._put_taint_rule,
            kinds.CLAIM.name: self._put_claim,
            kinds.POD.name: self._put_pod,
        }

    # -- changes in

    def put(self, kind: Kind, new: WireObject, now: float) -> None:
        """An object as it is now; pods that use no devices are not kept."""
        key = new.metadata.key
        if kind.name in self._seen:
            self._seen[kind.name].add(key)
        self._release(kind, key, now)
        store = self._stores[kind.name]
        old = store.get(key)
        if old is not None and _equal(old, new):
            return
        if isinstance(new, core.Pod) and not self._keeps(new, old, now):
            if old is not None:
                self._drop(kind, key, now, vanished=False)
            return
        store[key] = new
        self._touch(kind)
        if (fold := self._put.get(kind.name)) is not None:
            fold(old, new, now)

    def remove(self, kind: Kind, key: str, now: float) -> None:
        """An object was deleted."""
        self._release(kind, key, now)
        self._drop(kind, key, now, vanished=True)

    def quarantine(self, kind: Kind, key: str, reason: str, node: str, now: float) -> None:
        """An object cannot be read: what was known of it stays, its node becomes Unknown."""
        if kind.name in self._seen:
            self._seen[kind.name].add(key)
        text = short(f"{kind.name} {key}: {reason}")
        self._quarantined[f"{kind.name} {key}"] = (text, node)
        self._touched.add("quarantined")
        if node:
            self._report(_unreadable(kind, key, text, node, now), now)
            self._dirty.add(node)

    def begin_list(self, kind: Kind) -> None:
        self._seen[kind.name] = set()

    def end_list(self, kind: Kind, now: float) -> None:
        """Whatever the list did not name is gone."""
        seen = self._seen.pop(kind.name, None)
        if seen is None:
            return
        known = set(self._stores[kind.name])
        prefix = f"{kind.name} "
        known.update(k.removeprefix(prefix) for k in self._quarantined if k.startswith(prefix))
        for key in known - seen:
            self.remove(kind, key, now)

    # -- views out

    def age(self, now: float) -> None:
        """Mark what would be judged differently by time alone."""
        self._mark(self._book.moving(now))

    def refresh(self, now: float) -> Iterator[None]:
        """Bring the records of changed nodes up to date, one node a step."""
        for name in sorted(self._restless_rules):
            self._report_rule(name, now)
            yield
        self._restless_rules.clear()
        while self._dirty:
            self._refresh_node(self._dirty.pop(), now)
            yield

    def view(self, previous: View, *, synced: bool, served: dict[str, bool]) -> View | None:
        """The view after `previous`; None where nothing a reader could see has changed."""
        changed_nodes = frozenset(self._changed)
        based = bool(changed_nodes or self._touched & _BASIS) or synced != previous.synced
        if not based and not self._touched and served == previous.served:
            return None
        return View(
            generation=previous.generation + 1,
            basis=previous.basis + based,
            synced=synced,
            nodes=dict(self._records) if changed_nodes else previous.nodes,
            classes=self._copy(kinds.CLASS, previous.classes),
            claims=self._copy(kinds.CLAIM, previous.claims),
            templates=self._copy(kinds.TEMPLATE, previous.templates),
            namespaces=self._namespace_labels(previous),
            policies=self._policies(previous),
            pods=self._copy(kinds.POD, previous.pods),
            quarantined={k: text for k, (text, _) in self._quarantined.items()},
            served=served,
        )

    def settle(self) -> frozenset[str]:
        """The view was published: forget what changed, and return the nodes that did."""
        changed = frozenset(self._changed)
        self._changed.clear()
        self._touched.clear()
        return changed

    def _copy(self, kind: Kind, previous: Any) -> Any:
        return dict(self._stores[kind.name]) if kind.name in self._touched else previous

    def _namespace_labels(self, previous: View) -> Any:
        if kinds.NAMESPACE.name not in self._touched:
            return previous.namespaces
        store = self._stores[kinds.NAMESPACE.name]
        return {name: n.metadata.labels or {} for name, n in store.items()}

    def _policies(self, previous: View) -> Any:
        if kinds.POLICY.name not in self._touched:
            return previous.policies
        store = self._stores[kinds.POLICY.name]
        return {name: installed.policy() for name, installed in store.items()}

    # -- folding, by kind

    def _put_node(self, _old: object, new: core.Node, now: float) -> None:
        self._dirty.add(new.metadata.name)
        self._report(gathering.of_node(new, self._rules, now), now)

    def _put_slice(
        self, old: resource.ResourceSlice | None, new: resource.ResourceSlice, now: float
    ) -> None:
        for effect in self._devices.put_slice(old, new):
            self._take(effect)
        self._report_slices(new, now)

    def _report_slices(self, changed: resource.ResourceSlice, now: float) -> None:
        """What a pool's slices say: an older generation says nothing any more."""
        for slice_, current in self._devices.slices_of(changed):
            said = gathering.of_slice(slice_, self._rules, now)
            if not current:
                said = Report(said.reporter, (), absent_is_clear=True)
            self._report(said, now)

    def _put_taint_rule(
        self,
        old: resource.DeviceTaintRule | None,
        new: resource.DeviceTaintRule,
        now: float,
    ) -> None:
        for rule in (old, new):
            if rule is not None:
                self._dirty_selected(rule)
        if old is not None:
            self._devices.taints.remove(old)
        self._devices.taints.add(new)
        self._restless_rules.add(new.metadata.name)

    def _put_claim(
        self, old: resource.ResourceClaim | None, new: resource.ResourceClaim, now: float
    ) -> None:
        before = set(claims.holds(old) or ()) if old is not None else set()
        after = set(claims.holds(new) or ())
        for held in before - after:
            self._devices.holdings.release(held, new.metadata.key)
        for held in after - before:
            self._devices.holdings.hold(held, new.metadata.key)
        self._mark(held.device for held in before ^ after)
        if any(gathering.speaks_of_devices(claim) for claim in (old, new)):
            self._report(gathering.of_claim(new, self._rules, now), now)

    def _put_pod(self, old: core.Pod | None, new: core.Pod, now: float) -> None:
        """A node's record says of its pods only which units they hold by name."""
        before, after = _place(old), _place(new)
        if before == after:
            return
        for pod, (node, held), add in ((old, before, False), (new, after, True)):
            if node and pod is not None:
                (self._pods_on[node].add if add else self._pods_on[node].discard)(new.metadata.key)
                if held:
                    self._dirty.add(node)

    def _keeps(self, pod: core.Pod, before: core.Pod | None, now: float) -> bool:
        """Whether a pod is kept; what it says about devices is noted either way."""
        if not asks.uses_devices(pod):
            return False
        known_claims = self._stores[kinds.CLAIM.name].get
        report = gathering.of_pod(pod, now, known_claims, self._rules, before)
        if report is not None:
            self._report(report, now)
        return not pod.terminal

    def _drop(self, kind: Kind, key: str, now: float, *, vanished: bool) -> None:
        old = self._stores[kind.name].pop(key, None)
        if vanished:
            self._mark(self._book.vanish(f"{kind.name} {key}", now))
        if old is None:
            return
        self._touch(kind)
        if isinstance(old, core.Node):
            self._dirty.add(key)
            self._book.forget(NodeId(key))
        elif isinstance(old, resource.ResourceSlice):
            self._take(self._devices.drop_slice(old))
            self._report_slices(old, now)
        elif isinstance(old, resource.DeviceTaintRule):
            self._dirty_selected(old)
            self._devices.taints.remove(old)
            self._restless_rules.discard(key)
        elif isinstance(old, resource.ResourceClaim):
            for device in claims.holds(old) or ():
                self._devices.holdings.release(device, key)
                self._mark((device.device,))
        elif isinstance(old, core.Pod):
            node, held = _place(old)
            self._pods_on[node].discard(key)
            if held:
                self._dirty.add(node)

    def _release(self, kind: Kind, key: str, now: float) -> None:
        """The object can be read again, or is gone: out of quarantine."""
        if (entry := self._quarantined.pop(f"{kind.name} {key}", None)) is not None:
            self._touched.add("quarantined")
            report = Report(_quarantine_reporter(kind, key), (), absent_is_clear=True)
            self._report(report, now)
            self._dirty.add(entry[1])

    # -- what a change concerns

    def _take(self, effect: Effect) -> None:
        self._dirty.update(effect.nodes)
        if effect.everywhere:
            self._dirty_everywhere()
        for device in effect.gone:
            self._book.forget(device)
        self._restless_rules.update(effect.rules)

    def _dirty_everywhere(self) -> None:
        self._network_views.clear()
        self._dirty.update(self._stores[kinds.NODE.name])

    def _dirty_pool(self, pool: PoolId) -> None:
        nodes = self._devices.nodes_of(pool)
        if nodes is None:
            self._dirty_everywhere()
        else:
            self._dirty.update(nodes)

    def _dirty_selected(self, rule: resource.DeviceTaintRule) -> None:
        for pool in self._devices.selected_pools(rule):
            self._dirty_pool(pool)

    def _report_rule(self, name: str, now: float) -> None:
        rule = self._stores[kinds.TAINT_RULE.name].get(name)
        if rule is None:
            return
        candidates = self._devices.in_pools(self._devices.selected_pools(rule))
        devices = [device for device in candidates if gathering.selects(rule, device)]
        self._report(gathering.of_taint_rule(rule, devices, self._rules, now), now)

    def _touch(self, kind: Kind) -> None:
        """Note that a view must copy this kind anew; nodes and slices show through records."""
        if kind.name in _SHOWN:
            self._touched.add(kind.name)

    # -- health and records

    def _report(self, report: Report, now: float) -> None:
        self._mark(self._book.report(report, now))

    def _mark(self, subjects: Iterable[Subject]) -> None:
        for subject in subjects:
            if isinstance(subject, DeviceId):
                self._dirty_pool(PoolId(subject.driver, subject.pool))
            else:
                self._dirty.add(subject.node)

    def _refresh_node(self, name: str, now: float) -> None:
        node: core.Node | None = self._stores[kinds.NODE.name].get(name)
        before = self._records.get(name)
        if node is None:
            if before is not None:
                del self._records[name]
                self._changed.add(name)
            return
        pods = self._stores[kinds.POD.name]
        pools, malformed = self._pool_views(Place(name, node.metadata.labels or {}), now)
        after = NodeView(
            name=name,
            labels=node.metadata.labels or {},
            health=self._book.assess(NodeId(name), (NodeId(name),), now),
            plugins=records.plugins(
                node, self._book, [pods[k] for k in self._pods_on.get(name, ()) if k in pods], now
            ),
            pools=pools,
            quarantined=tuple(text for text, at in self._quarantined.values() if at == name),
            malformed=malformed,
            taints=(node.spec.taints or ()) if node.spec is not None else (),
            kubelet=_kubelet(node),
        )
        if after != before:
            self._records[name] = after
            self._changed.add(name)

    def _pool_views(self, place: Place, now: float) -> tuple[tuple[PoolView, ...], str]:
        """The pools of a node; and why they cannot be gathered, "" if they can."""
        units = self._book.units(place.name)
        views = []
        try:
            gathered = self._devices.pools_on(place)
        except Malformed as error:
            return (), str(error)
        for pool in gathered:
            view = self._network_views.get(pool.id)
            if view is None:
                view = records.pool(pool, self._devices, self._book, units, now)
                if self._devices.is_common(pool.id):
                    self._network_views[pool.id] = view
            views.append(view)
        return tuple(views), ""


_BASIS = {
    kinds.CLASS.name,
    kinds.CLAIM.name,
    kinds.TEMPLATE.name,
    kinds.NAMESPACE.name,
    kinds.POLICY.name,
}

_SHOWN = _BASIS | {kinds.POD.name}


def _equal(old: Any, new: Any) -> bool:
    """Whether nothing but the resourceVersion differs."""
    if any(getattr(old, f, None) != getattr(new, f, None) for f in ("spec", "status")):
        return False
    a, b = old.metadata, new.metadata
    return bool(
        a.labels == b.labels
        and a.annotations == b.annotations
        and a.uid == b.uid
        and a.deletion_timestamp == b.deletion_timestamp
    )


def _kubelet(node: core.Node) -> str:
    info = node.status.node_info if node.status is not None else None
    return info.kubelet_version if info is not None else ""


def _place(pod: core.Pod | None) -> tuple[str, frozenset[tuple[str, str]]]:
    """The node of a pod, "" if it has none, and the units that it holds there by name."""
    if pod is None or pod.spec is None or not pod.spec.node_name:
        return "", frozenset()
    return pod.spec.node_name, frozenset(records.units_held((pod,)))


def _quarantine_reporter(kind: Kind, key: str) -> str:
    return f"quarantine of {kind.name} {key}"


def _unreadable(kind: Kind, key: str, text: str, node: str, now: float) -> Report:
    evidence = Evidence(
        subject=NodeId(node),
        family=Family.NODE,
        kind=EvidenceKind.UNKNOWN,
        weight=0.0,
        source="quarantine",
        reporter=_quarantine_reporter(kind, key),
        text=f"cannot be read: {text}",
        observed_at=now,
    )
    return Report(_quarantine_reporter(kind, key), (evidence,), absent_is_clear=True)
