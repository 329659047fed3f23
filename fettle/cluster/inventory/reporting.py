"""What objects say about health: read as evidence, told to the health book; whatever is then judged
differently is to be refreshed. Pure, the clock is an argument.
"""

from fettle.api import core, kinds, resource
from fettle.api.kinds import Kind
from fettle.api.meta import unix_s
from fettle.cluster.inventory.devices import Devices
from fettle.cluster.inventory.nodes import Nodes
from fettle.cluster.inventory.stores import Stores
from fettle.health import HealthBook, SignalReport, SignalRules, gathering
from fettle.model import DeviceId, Evidence, NodeId
from fettle.model import EvidenceKind as EvidenceKind


class Reports:
    """Of objects as the stores have them."""

    def __init__(
        self, book: HealthBook, rules: SignalRules, stores: Stores, devices: Devices, nodes: Nodes
    ) -> None:
        self._book = book
        self._rules = rules
        self._stores = stores
        self._devices = devices
        self._nodes = nodes

    def tell(self, report: SignalReport, now: float) -> None:
        self._nodes.soil(self._book.report(report, now))

    def vanish(self, kind: Kind, key: str, now: float) -> None:
        """An object is gone, and speaks no more."""
        self._nodes.soil(self._book.vanish(f"{kind.name} {key}", now))

    def of_node(self, node: core.Node, now: float) -> None:
        report = gathering.of_node(node, self._rules, now)
        self._nodes.names(node.metadata.name, report.units)
        self._nodes.left_unheard(node.metadata.name, report.unheard)
        self.tell(report, now)

    def of_slices(self, changed: resource.ResourceSlice, now: float) -> None:
        """What a pool's slices say now: an older generation only of what no newer one names."""
        for slice_, _, ids in self._devices.news_of(changed):
            said = gathering.of_slice(slice_.raw, self._rules, now)
            evidence = tuple(e for e in said.evidence if e.subject in ids)
            self.tell(said._replace(evidence=evidence), now)

    def of_rule(self, name: str, now: float) -> None:
        rule = self._stores.rules.get(name)
        if rule is None:
            return
        candidates = self._devices.in_pools(self._devices.selected_pools(rule))
        devices = [device for device in candidates if gathering.selects(rule, device)]
        self.tell(gathering.of_taint_rule(rule, devices, self._rules, now), now)

    def of_claim(
        self, old: resource.ResourceClaim | None, new: resource.ResourceClaim, now: float
    ) -> None:
        if any(gathering.speaks_of_devices(claim) for claim in (old, new)):
            self.tell(gathering.of_claim(new, self._rules, now), now)
        self.of_pods_with(new.metadata.key, now)

    def of_pods_with(self, claim: str, now: float) -> None:
        """Which devices a pod means, its claim may be the only one to say."""
        for pod in self._stores.pods_speaking_of(claim):
            self.of_pod(pod, pod, now)

    def of_pod(self, pod: core.Pod, before: core.Pod | None, now: float) -> None:
        said = gathering.of_pod(pod, now, self._stores.claims.get, self._rules, before)
        evidence = tuple(e for e in said.evidence if not self._is_of_another(e, now))
        self.tell(said._replace(evidence=evidence), now)

    def _is_of_another(self, said: Evidence, now: float) -> bool:
        """Whether it is an event that befell an earlier node of the same name, or a unit of it."""
        if said.kind is not EvidenceKind.DECAYING or isinstance(said.subject, DeviceId):
            return False
        return said.observed_at < self._since(said.subject.node, now)

    def node_came(self, name: str, now: float) -> None:
        """It is another Node than the one that had this name, if one had."""
        self._book.forget({NodeId(name)}, now, self._since(name, now))

    def node_left(self, name: str, now: float) -> None:
        """It was deleted, and what it said with it; what others say waits for its return."""
        self.vanish(kinds.NODE, name, now)
        self.node_came(name, now)

    def _since(self, name: str, now: float) -> float:
        """What befell a node of this name before then, befell another: one that was deleted.

        Only what is clearly before. Times of the API are whole seconds; and what was seen to happen
        since the Node came is its own, even where our clock is behind the API server's.
        """
        node = self._stores.nodes.get(name)
        created = node.metadata.creation_timestamp if node is not None else None
        return min(unix_s(created, 0.0) - _GRANULARITY_S, now)


_GRANULARITY_S = 1.0
