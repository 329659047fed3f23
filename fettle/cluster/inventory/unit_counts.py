"""How many units to expect: of one GPU that is shared or divided, and of a resource on a node.

Monitors name whole GPUs, as `nvidia.com/gpu`. NVIDIA's device plugin makes replicas (time slicing,
MPS) or MIG devices of one; the Node's labels and resource names say how many. A device plugin that
restarts counts only the GPUs that still answer, and the Node then says nothing of a lost one. Nodes
of one instance type or machine are built alike, so most of them tell how many there should be.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

from fettle.health import gpu_names

GPU = "nvidia.com/gpu"
_SHARED = ".shared"
"""With `renameByDefault`, ends the name of a resource whose units are replicas."""
_REPLICA = re.compile(r"(.+)::(\d{1,9})")
"""The plugin's id of a replica: the id of the GPU or MIG device, and a number."""
_MIG = re.compile(r"nvidia\.com/mig-(?:(\d)c\.)?(\d)g\..+")
"""`mig-1g.10gb`, and `mig-1c.3g.40gb` for a part of a MIG device."""
_MIG_DEVICE = "MIG-"
"""Begins the id of a MIG device."""
SLICES = 7
"""Into how many slices a GPU in MIG mode can be divided at most."""


def plain_resource(resource: str) -> str:
    """The resource's name without what renaming adds. Labels use this name."""
    return resource.removesuffix(_SHARED) if resource.startswith("nvidia.com/") else resource


def whole_device(id_: str) -> str:
    """The device that a replica belongs to, as monitors write its name."""
    found = _REPLICA.fullmatch(id_)
    return gpu_names.normal(found[1] if found is not None else id_)


def candidate_resources(resource: str, resources: Collection[str]) -> tuple[str, ...]:
    """Those of these resources of which a GPU, named as `resource`, may provide units.

    In MIG mode a GPU provides units of another resource, and nothing says which GPUs do.

    >>> candidate_resources("nvidia.com/gpu", ["nvidia.com/gpu.shared", "example.com/nic"])
    ('nvidia.com/gpu.shared',)
    """
    return tuple(
        sorted(
            name
            for name in resources
            if plain_resource(name) == plain_resource(resource)
            or (resource == GPU and _MIG.fullmatch(name))
        )
    )


def expected_units(
    device: str,
    resource: str,
    homes: Collection[str],
    capacities: Mapping[str, int],
    labels: Mapping[str, str],
    shown: int = 1,
) -> int:
    """How many units of a resource to expect of a device that may belong to any of `homes`; at
    least one.

    For a GPU it is its share: it is equally likely to be each of the GPUs behind all these
    resources. `shown`: how many units of one device known ids of the resource show.

    >>> gpu = "nvidia.com/gpu"
    >>> expected_units("GPU-5a", gpu, [gpu], {gpu: 32}, {"nvidia.com/gpu.replicas": "4"})
    4
    """
    each = {r: _replicas(r, capacities[r], labels, shown if r == resource else 1) for r in homes}
    if device.startswith(_MIG_DEVICE):
        return min(each[resource], capacities[resource])
    whole_gpus, slices, fewest = 0, 0, 0
    for home in homes:
        devices = _ceil(capacities[home], each[home])
        if size := _slices(home, labels):
            slices += size * devices
            fewest = max(fewest, _ceil(devices, SLICES // size))
        else:
            whole_gpus += devices
    return _ceil(capacities[resource], whole_gpus + max(fewest, _ceil(slices, SLICES)))


def _ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def shown_replicas(ids: Iterable[str]) -> int:
    """At least how many units one device provides, by the ids of units."""
    found = (int(match[2]) for match in map(_REPLICA.fullmatch, ids) if match is not None)
    most = max(found, default=-1)
    return 1 if most < 0 else max(2, 1 + most)


def _replicas(resource: str, capacity: int, labels: Mapping[str, str], least: int) -> int:
    """How many units one device of the resource provides: the number in the Node's label, if that
    is possible, and at least so many."""
    told = _to_number(labels.get(f"{plain_resource(resource)}.replicas", ""))
    return max(least, told) if told and capacity % told == 0 else least


def _slices(resource: str, labels: Mapping[str, str]) -> int:
    """How many slices of a GPU one device of the resource has; 0: it is not a MIG device.

    Where MIG devices are called GPUs (the strategy "single"), only a label says so.
    """
    found = _MIG.fullmatch(resource)
    named = int(found[1] or found[2]) if found is not None else 0
    number = named or _to_number(labels.get(f"{plain_resource(resource)}.slices.ci", ""))
    return min(number, SLICES)


def _to_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0


KIND_LABELS = ("node.kubernetes.io/instance-type", "nvidia.com/gpu.machine")
"""Labels that say of what kind a node is. The first one that a node has counts."""
_OF_ALL_NODES = ("k3s", "rke2")
"""What these distributions call the instance type of each of their nodes, whatever it is made of
(k3s-io/k3s, pkg/cloudprovider/instances.go)."""

_NOTHING_MISSING: Mapping[str, int] = {}


class Usual(NamedTuple):
    """The number that more than half of those nodes of a kind have that have any, and how many have
    it. `common`: they are more than half of all nodes of the kind."""

    number: int
    nodes: int
    common: bool = True


MOST_RESOURCES = 64
"""Resources of a node that count for its peers. Its kubelet may name thousands."""
FEW_PEERS = 3
"""Where at least so many peers have what a node has, it was meant to have less than before."""


def machine(labels: Mapping[str, str]) -> Hashable | None:
    """The label that says of what kind a node is, and its value; None without one."""
    found = ((key, labels[key]) for key in KIND_LABELS if key in labels)
    return next((one for one in found if one[1] not in _OF_ALL_NODES), None)


class Peers:
    """The capacities of all nodes, by the kind that `kind_of` finds in their labels; a node without
    a kind has no peers."""

    def __init__(self, kind_of: Callable[[Mapping[str, str]], Hashable | None] = machine) -> None:
        self._kind_of = kind_of
        self._of: dict[str, tuple[Hashable, Mapping[str, int]]] = {}
        self._names: dict[Hashable, set[str]] = defaultdict(set)
        self._counts: dict[Hashable, dict[str, Counter[int]]] = {}

    def put(
        self, name: str, labels: Mapping[str, str], capacities: Mapping[str, int] | None
    ) -> set[str]:
        """A node as it is now, its capacities None if it is gone. Returns the nodes whose expected
        capacities changed."""
        before = self._of.pop(name, None)
        kind = self._kind_of(labels)
        if capacities is not None and len(capacities) > MOST_RESOURCES:
            capacities = {what: capacities[what] for what in sorted(capacities)[:MOST_RESOURCES]}
        after = (kind, capacities) if kind is not None and capacities is not None else None
        if before == after:
            if after is not None:
                self._of[name] = after
            return set()
        comes_or_goes = before is None or after is None or before[0] != after[0]
        concerned = {
            (kind, resource)
            for kind, counted in filter(None, (before, after))
            for resource in (*counted, *(self._near_half(kind) if comes_or_goes else ()))
        }
        expected = {one: self._usual(*one) for one in concerned}
        if before is not None:
            self._count(name, *before, -1)
        if after is not None:
            self._of[name] = after
            self._count(name, *after, 1)
        return {
            peer
            for kind, resource in concerned
            if self._usual(kind, resource) != expected[kind, resource]
            for peer in self._names.get(kind, ())
        }

    def missing(self, name: str) -> Mapping[str, int]:
        """By resource, how many units fewer a node has than most nodes of its kind, if it has
        fewer."""
        if name not in self._of:
            return _NOTHING_MISSING
        kind, capacities = self._of[name]
        short = {
            resource: self._usual(kind, resource).number - n for resource, n in capacities.items()
        }
        return {resource: number for resource, number in short.items() if number > 0}

    def usual(self, labels: Mapping[str, str]) -> Mapping[str, Usual]:
        """By resource, what most nodes have that are of the kind of these labels."""
        kind = self._kind_of(labels)
        of, by_resource = len(self._names.get(kind, ())), self._counts.get(kind, {})
        found = {resource: _most(counts, of) for resource, counts in by_resource.items()}
        return {resource: usual for resource, usual in found.items() if usual is not None}

    def _near_half(self, kind: Hashable) -> Iterator[str]:
        """The resources that about half of all nodes of a kind have, or more: whether they are
        common changes with each node that comes or goes."""
        of = len(self._names.get(kind, ()))
        for resource, counts in self._counts.get(kind, {}).items():
            if 2 * counts.total() >= of:
                yield resource

    def _usual(self, kind: Hashable, resource: str) -> Usual:
        """As far as anybody goes by it: `FEW_PEERS` are as good as more."""
        counts = self._counts.get(kind, {}).get(resource, Counter())
        usual = _most(counts, len(self._names.get(kind, ()))) or Usual(0, 0)
        return usual._replace(nodes=min(usual.nodes, FEW_PEERS))

    def _count(self, name: str, kind: Hashable, capacities: Mapping[str, int], change: int) -> None:
        names = self._names[kind]
        (names.add if change > 0 else names.discard)(name)
        if not names:
            del self._names[kind]
        by_resource = self._counts.setdefault(kind, {})
        for resource, number in capacities.items():
            counts = by_resource.setdefault(resource, Counter())
            counts[number] += change
            if not counts[number]:
                del counts[number]
            if not counts:
                del by_resource[resource]
        if not by_resource:
            del self._counts[kind]


def _most(counts: Counter[int], of: int) -> Usual | None:
    """Of so many nodes. A kubelet writes its own capacity and type: no node may decide about
    another one."""
    if not counts:
        return None
    [(number, nodes)] = counts.most_common(1)
    return Usual(number, nodes, 2 * nodes > of) if 2 * nodes > counts.total() else None
