"""The objects themselves, by kind and key, and what a view shows of them. Pure."""

from collections import defaultdict
from collections.abc import Mapping, MutableMapping
from typing import Any

from fettle.api import core, kinds, nvidia, resource
from fettle.api.kinds import Kind, WireObject
from fettle.cluster.inventory.layers import LayeredDict
from fettle.cluster.view import View
from fettle.dra import extended_claim_owner
from fettle.health import gathering
from fettle.model import Policy


class Stores:
    """A store for each kind; `touched` are the kinds of which a view may show something new.

    `extended` are the claims for extended resources by the UIDs of their pods: of several, of which
    the scheduler finds any, the first by name.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, core.Node] = {}
        self.pods: LayeredDict[core.Pod] = LayeredDict()
        self.claims: LayeredDict[resource.ResourceClaim] = LayeredDict()
        self.classes: LayeredDict[resource.DeviceClass] = LayeredDict()
        self.templates: LayeredDict[resource.ResourceClaimTemplate] = LayeredDict()
        self.extended: LayeredDict[resource.ResourceClaim] = LayeredDict()
        self.rules: dict[str, resource.DeviceTaintRule] = {}
        self._of: dict[str, MutableMapping[str, Any]] = {name: {} for name in kinds.BY_NAME} | {
            kinds.NODE.name: self.nodes,
            kinds.POD.name: self.pods,
            kinds.CLAIM.name: self.claims,
            kinds.CLASS.name: self.classes,
            kinds.TEMPLATE.name: self.templates,
            kinds.TAINT_RULE.name: self.rules,
        }
        self._extended: dict[str, dict[str, resource.ResourceClaim]] = {}
        self._speaking: dict[str, set[str]] = defaultdict(set)
        self.touched: set[str] = set()

    def of(self, kind: Kind) -> MutableMapping[str, Any]:
        return self._of[kind.name]

    def touch(self, kind: Kind) -> None:
        """Nodes and slices show through records, so a view need not copy them.

        Also where it is not an object that changed, but whether it can be read.
        """
        if kind.name in _SHOWN:
            self.touched.add(kind.name)

    @property
    def moves_basis(self) -> bool:
        """Whether a kind was touched that verdicts rest on."""
        return not self.touched.isdisjoint(_BASIS)

    def follow(
        self, old: resource.ResourceClaim | None, new: resource.ResourceClaim | None
    ) -> None:
        """Know the claims for extended resources by their pods' UIDs."""
        if old is not None and (uid := extended_claim_owner(old)):
            of_pod = self._extended[uid]
            del of_pod[old.metadata.key]
            self._show_extended(uid, of_pod)
        if new is not None and (uid := extended_claim_owner(new)):
            of_pod = self._extended.setdefault(uid, {})
            of_pod[new.metadata.key] = new
            self._show_extended(uid, of_pod)

    def _show_extended(self, uid: str, of_pod: Mapping[str, resource.ResourceClaim]) -> None:
        if of_pod:
            self.extended[uid] = of_pod[min(of_pod)]
        else:
            del self._extended[uid], self.extended[uid]

    def follow_pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """Know the pods whose status says something of a claim's devices."""
        if old is not None:
            for claim in gathering.claims_meant(old):
                self._speaking[claim].discard(old.metadata.key)
                if not self._speaking[claim]:
                    del self._speaking[claim]
        if new is not None:
            for claim in gathering.claims_meant(new):
                self._speaking[claim].add(new.metadata.key)

    def pods_speaking_of(self, claim: str) -> list[core.Pod]:
        return [self.pods[key] for key in self._speaking.get(claim, ())]

    def namespace_labels(self, previous: View) -> Mapping[str, Mapping[str, str]]:
        if kinds.NAMESPACE.name not in self.touched:
            return previous.namespaces
        return {name: n.metadata.labels or {} for name, n in self.of(kinds.NAMESPACE).items()}

    def policies(self, previous: View) -> Mapping[str, Policy]:
        if kinds.POLICY.name not in self.touched:
            return previous.policies
        return {name: installed.policy() for name, installed in self.of(kinds.POLICY).items()}

    def quotas(
        self, previous: View, served: Mapping[str, bool]
    ) -> Mapping[str, tuple[core.ResourceQuota, ...]] | None:
        if not served.get(kinds.QUOTA.name):
            return None
        if kinds.QUOTA.name not in self.touched and previous.quotas is not None:
            return previous.quotas
        found: dict[str, tuple[core.ResourceQuota, ...]] = {}
        for quota in self.of(kinds.QUOTA).values():
            namespace = quota.metadata.namespace
            found[namespace] = (*found.get(namespace, ()), quota)
        return found

    def compute_domains(
        self, previous: View, served: Mapping[str, bool]
    ) -> Mapping[str, nvidia.ComputeDomain] | None:
        if not served.get(kinds.COMPUTE_DOMAIN.name):
            return None
        if kinds.COMPUTE_DOMAIN.name not in self.touched and previous.compute_domains is not None:
            return previous.compute_domains
        return {domain.metadata.uid: domain for domain in self.of(kinds.COMPUTE_DOMAIN).values()}


def equal(old: WireObject, new: WireObject) -> bool:
    """Whether nothing but the resourceVersion differs."""
    if any(getattr(old, f, None) != getattr(new, f, None) for f in ("spec", "status")):
        return False
    a, b = old.metadata, new.metadata
    return bool(
        a.labels == b.labels
        and a.annotations == b.annotations
        and a.uid == b.uid
        and a.owner_references == b.owner_references
        and a.creation_timestamp == b.creation_timestamp
        and a.deletion_timestamp == b.deletion_timestamp
    )


_BASIS = frozenset(
    kind.name for kind in (kinds.CLASS, kinds.CLAIM, kinds.TEMPLATE, kinds.NAMESPACE, kinds.POLICY)
)
_SHOWN = _BASIS | {kind.name for kind in (kinds.POD, *kinds.ON_DEMAND)}
