"""The objects themselves, by kind and key, and the mappings that a view shows of them.

A view shows mappings that never change. Copying all claims and pods of a large cluster twenty times
a second would be most of the cost of a view. So a LayeredDict shows an Overlay, which costs as much
as what changed since it was last shown.
"""

from collections import UserDict, defaultdict
from collections.abc import ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import Any, TypeVar

from fettle.api import DeviceHealth, core, kinds, resource
from fettle.api.kinds import Kind, WireObject
from fettle.cluster.view import View
from fettle.dra import extended_claim_owner
from fettle.health import claims_mentioned
from fettle.model import Inherited, Policy
from fettle.pacing import pause

V = TypeVar("V")

_GONE: Any = object()
"""Stands for the value of a removed key."""
_SAME: Any = object()
MOST_INHERITED = 20_000
"""Controllers of which it is kept what their pods inherit."""
_LEAST = 64
"""So many changes never cost a copy of everything, however small the store is."""
_SHARE = 32
"""The upper layer holds at most this fraction (one in so many) of all entries, so copying it is
cheap, and copying everything is rare."""


class Overlay(Mapping[str, V]):
    """A dict that nobody changes any more, with the differences to it in a layer above.

    Iterating merges both into one dict, once. Entries come in the order of that dict.
    """

    __slots__ = ("_base", "_length", "_over")

    def __init__(self) -> None:
        self._base: dict[str, V] = {}
        self._over: dict[str, V] = {}
        self._length = 0

    def changed(self, changes: Mapping[str, V], length: int) -> "Overlay[V]":
        """A new overlay with these changes, in which `_GONE` removes a key; it has `length`
        entries."""
        made = Overlay[V]()
        made._base, made._over, made._length = self._base, {**self._over, **changes}, length
        if len(made._over) > max(_LEAST, length // _SHARE):
            made._whole()
        return made

    def _whole(self) -> dict[str, V]:
        if self._over:
            whole = self._base | self._over
            for key in [key for key, value in self._over.items() if value is _GONE]:
                del whole[key]
            self._base, self._over = whole, {}
        return self._base

    def __getitem__(self, key: str) -> V:
        value = self._over.get(key, _SAME)
        if value is _GONE:
            raise KeyError(key)
        return self._base[key] if value is _SAME else value

    def get(self, key: str, default: Any = None) -> Any:
        value = self._over.get(key, _SAME)
        if value is _GONE:
            return default
        return self._base.get(key, default) if value is _SAME else value

    def __contains__(self, key: object) -> bool:
        return self.get(key, _GONE) is not _GONE  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def keys(self) -> KeysView[str]:
        return self._whole().keys()

    def values(self) -> ValuesView[V]:
        return self._whole().values()

    def items(self) -> ItemsView[str, V]:
        return self._whole().items()


def changed_keys(before: Mapping[str, V], after: Mapping[str, V]) -> Iterator[str]:
    """The keys of two shown mappings under which they do not have the same object."""
    if before is after:
        return
    if isinstance(before, Overlay) and isinstance(after, Overlay):
        if before._base is after._base:
            keys = before._over | after._over
            yield from (key for key in keys if before.get(key) is not after.get(key))
            return
        before, after = before._whole(), after._whole()
    for key, value in after.items():
        if before.get(key) is not value:
            yield key
        pause()
    for key in before:
        if key not in after:
            yield key
        pause()


class LayeredDict(UserDict[str, V]):
    """A dict that can be `shown`: as the same mapping again, as long as nothing is put or
    removed."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: Overlay[V] = Overlay()
        self._changed: dict[str, None] = {}

    def __setitem__(self, key: str, value: V) -> None:
        self.data[key] = value
        self._changed[key] = None

    def __delitem__(self, key: str) -> None:
        del self.data[key]
        self._changed[key] = None

    def get(self, key: str, default: Any = None) -> Any:
        return self.data.get(key, default)

    def shown(self) -> Mapping[str, V]:
        if self._changed:
            changes = {key: self.data.get(key, _GONE) for key in self._changed}
            self._shown = self._shown.changed(changes, len(self.data))
            self._changed.clear()
        return self._shown


class Stores:
    """One store for each kind. `touched` are the kinds of which a view may show something new.

    `extended` are the claims for extended resources, by the identity of their pod. The scheduler
    would take any of several; here it is the first by name.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, core.Node] = {}
        self.pods: LayeredDict[core.Pod] = LayeredDict()
        self.claims: LayeredDict[resource.ResourceClaim] = LayeredDict()
        self.classes: LayeredDict[resource.DeviceClass] = LayeredDict()
        self.templates: LayeredDict[resource.ResourceClaimTemplate] = LayeredDict()
        self.device_healths: LayeredDict[DeviceHealth] = LayeredDict()
        self.extended: LayeredDict[resource.ResourceClaim] = LayeredDict()
        self.rules: LayeredDict[resource.DeviceTaintRule] = LayeredDict()
        self._of: dict[str, MutableMapping[str, Any]] = {name: {} for name in kinds.BY_NAME} | {
            kinds.NODE_EVENT.name: {},
            kinds.DEVICE_HEALTH.name: self.device_healths,
            kinds.NODE.name: self.nodes,
            kinds.POD.name: self.pods,
            kinds.CLAIM.name: self.claims,
            kinds.CLASS.name: self.classes,
            kinds.TEMPLATE.name: self.templates,
            kinds.TAINT_RULE.name: self.rules,
        }
        self.inherited: LayeredDict[Inherited] = LayeredDict()
        """By the identity of controllers; those last told of come last."""
        self._extended: dict[str, dict[str, resource.ResourceClaim]] = {}
        self._mentioning: dict[str, set[str]] = defaultdict(set)
        self.touched: set[str] = set()

    def of(self, kind: Kind) -> MutableMapping[str, Any]:
        return self._of[kind.name]

    def touch(self, kind: Kind) -> None:
        """A view may show something new of this kind: an object changed, or whether it can be read.

        Nodes and slices show through the nodes' records, so the view need not copy them.
        """
        if kind.name in _SHOWN:
            self.touched.add(kind.name)

    @property
    def moves_basis(self) -> bool:
        """Whether a kind was touched that verdicts depend on."""
        return not self.touched.isdisjoint(_BASIS)

    def index_claim(
        self, old: resource.ResourceClaim | None, new: resource.ResourceClaim | None
    ) -> None:
        """Index the claims for extended resources by the identity of their pod."""
        if old is not None and (owner := extended_claim_owner(old)):
            of_pod = self._extended[owner]
            del of_pod[old.metadata.key]
            self._show_extended(owner, of_pod)
        if new is not None and (owner := extended_claim_owner(new)):
            of_pod = self._extended.setdefault(owner, {})
            of_pod[new.metadata.key] = new
            self._show_extended(owner, of_pod)

    def _show_extended(self, owner: str, of_pod: Mapping[str, resource.ResourceClaim]) -> None:
        if of_pod:
            self.extended[owner] = of_pod[min(of_pod)]
        else:
            del self._extended[owner], self.extended[owner]

    def index_pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """Index the pods whose status says something of a claim's devices."""
        if old is not None:
            for claim in claims_mentioned(old):
                self._mentioning[claim].discard(old.metadata.key)
                if not self._mentioning[claim]:
                    del self._mentioning[claim]
        if new is not None:
            for claim in claims_mentioned(new):
                self._mentioning[claim].add(new.metadata.key)

    def inherit(self, identity: str, inherited: Inherited) -> None:
        if self.inherited.get(identity) != inherited:
            self.touched.add(_INHERITED)
        elif len(self.inherited) < MOST_INHERITED:
            return
        self.inherited.pop(identity, None)
        self.inherited[identity] = inherited
        if len(self.inherited) > MOST_INHERITED:
            del self.inherited[next(iter(self.inherited))]

    def pods_mentioning(self, claim: str) -> list[core.Pod]:
        return [self.pods[key] for key in self._mentioning.get(claim, ())]

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
    ) -> Mapping[str, resource.ComputeDomain] | None:
        if not served.get(kinds.COMPUTE_DOMAIN.name):
            return None
        if kinds.COMPUTE_DOMAIN.name not in self.touched and previous.compute_domains is not None:
            return previous.compute_domains
        return {domain.metadata.uid: domain for domain in self.of(kinds.COMPUTE_DOMAIN).values()}


def is_same_object(old: WireObject, new: WireObject) -> bool:
    """Whether nothing but the resourceVersion differs."""
    if any(getattr(old, f, None) != getattr(new, f, None) for f in ("spec", "status", "cut")):
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


_INHERITED = "inherited"
_BASIS = frozenset(
    kind.name for kind in (kinds.CLASS, kinds.CLAIM, kinds.TEMPLATE, kinds.NAMESPACE, kinds.POLICY)
) | {_INHERITED}
_SHOWN = _BASIS | {
    kind.name for kind in (kinds.POD, kinds.TAINT_RULE, kinds.DEVICE_HEALTH, *kinds.ON_DEMAND)
}
