"""Whose devices are meant, where slices of several nodes name the same pool.

A kubelet may write slices with its own `nodeName` only, but with any `pool.name` (NodeRestriction;
`validateNodeSelectorAuth` of kube-apiserver). So what a slice says counts for its own node. If
several nodes publish a device under the same three names, those names mean one of them: that of the
network, whose slices no kubelet can write, else of the node that the pool is named after, as
drivers do. Else nothing tells whose they are, and what is written by names alone, as a
DeviceTaintRule is, would hit both: the one whose slices are oldest keeps what was known by these
names, but nothing is written by them. Each other one is known with its node.

A pool that is spread over nodes on purpose has a name for each device, one generation and one
count: nothing of it is in doubt.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import partial
from math import inf
from typing import NamedTuple

import msgspec

from fettle.api.meta import unix_s
from fettle.dra import PublishedSlice
from fettle.model import DeviceId

Known = Mapping[DeviceId, DeviceId]
"""By the device's names, what it is known as; those that are known by their names are left out."""


class Claims(NamedTuple):
    """How the nodes of a pool share it.

    - `known`: for each node, which of its devices are namesakes of others.
    - `meant`: of devices that several nodes publish, the node whose device is known by the names.
    - `unclear`: those of them whose names may as well mean another node's device.
    - `rivals`: the nodes that contradict each other about the pool; none if all is well.
    """

    known: Mapping[str, Known]
    meant: Mapping[DeviceId, str]
    unclear: frozenset[DeviceId]
    rivals: frozenset[str]

    def of(self, node: str) -> Known:
        return self.known.get(node, _NONE)


_NONE: Known = {}
UNDISPUTED = Claims({}, {}, frozenset(), frozenset())


def claims_on(slices: Collection[PublishedSlice]) -> Claims:
    """Of all slices of one pool."""
    if len({slice_.node for slice_ in slices}) < 2:
        return UNDISPUTED  # as nearly all pools
    since: dict[str, float] = defaultdict(lambda: inf)
    publishers: dict[DeviceId, set[str]] = defaultdict(set)
    for slice_ in slices:
        created = unix_s(slice_.raw.metadata.creation_timestamp, inf)
        since[slice_.node] = min(since[slice_.node], created)
        for published in slice_.devices:
            publishers[published.id].add(slice_.node)

    def claim(device: DeviceId, node: str) -> tuple[bool, bool, float, str]:
        """The best one is the least."""
        return node != "", node != device.pool, since[node], node

    known: dict[str, dict[DeviceId, DeviceId]] = defaultdict(dict)
    meant: dict[DeviceId, str] = {}
    unclear: set[DeviceId] = set()
    rivals: set[str] = set()
    for device, nodes in publishers.items():
        if len(nodes) > 1:
            rivals |= nodes
            meant[device] = min(nodes, key=partial(claim, device))
            if meant[device] not in ("", device.pool):
                unclear.add(device)
            for node in nodes - {meant[device]}:
                known[node][device] = msgspec.structs.replace(device, node=node)
    pools = {(s.generation, s.raw.spec.pool.resource_slice_count) for s in slices}
    if len(pools) > 1:
        rivals.update(slice_.node for slice_ in slices)
    return Claims(known, meant, frozenset(unclear), frozenset(rivals - {""}))
