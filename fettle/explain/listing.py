"""The devices of a view as plain data for people: what `/devices` answers. Pure.

`usedBy` are the pods that use what it stands beside (`users.py`).
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Any

from fettle.cluster import NodeView, View
from fettle.dra import DeviceView, PoolView
from fettle.explain import pods as explain
from fettle.explain.users import Users
from fettle.explain.wording import plain, why_withheld
from fettle.model import DeviceId, reasons
from fettle.model.reasons import Reason
from fettle.pacing import pause


def of_nodes(view: View, *, only_unsound: bool = False) -> list[dict[str, Any]]:
    """Every node with its resources and own devices; with `only_unsound`, those that there is
    evidence about, or that are not Healthy. `withheld` is why a device cannot be taken now, None
    if its pool is whole.

    Network devices belong to no node (`of_network`).
    """
    told, users = [], Users(view)
    for _, node in sorted(view.nodes.items()):
        if (one := _node(node, users, only_unsound=only_unsound)) is not None:
            told.append(one)
        pause()
    return told


def of_network(view: View, *, only_unsound: bool = False) -> list[dict[str, Any]]:
    """Each device that does not belong to a single node, once, with the nodes that can use it;
    where it is `withheld` from all of them, with the nodes that it is published for.
    """
    found: dict[DeviceId, DeviceView] = {}
    able: dict[DeviceId, list[str]] = defaultdict(list)
    unable: dict[DeviceId, list[str]] = defaultdict(list)
    why: dict[DeviceId, Reason] = {}
    users = Users(view)
    for name, node in sorted(view.nodes.items()):
        for device, withheld in _published(node, local=False, only_unsound=only_unsound):
            found.setdefault(device.id, device)
            if withheld:
                unable[device.id].append(name)
                why.setdefault(device.id, withheld)
            elif device.here:
                able[device.id].append(name)
        pause()
    return [
        {
            "device": str(id_),
            "nodes": able[id_] or unable[id_],
            "allocated": device.allocated,
            **_why(None if able[id_] else why.get(id_)),
            "usedBy": users.of_device(id_),
            **explain.health(device.health),
        }
        for id_, device in sorted(found.items())
    ]


def unknown_conditions(view: View) -> list[dict[str, Any]]:
    """Conditions that no rule names, of nodes with devices: how many have which status, and the
    first of them. Which status would mean a fault is not known."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, node in sorted(view.nodes.items()):
        if node.plugins or node.pools:
            for one in node.unknown_conditions:
                found[one.type][one.status].append(name)
        pause()
    return [
        {
            "condition": type_,
            "statuses": [
                {"status": status, "nodes": len(names), "first": names[0]}
                for status, names in sorted(statuses.items(), key=lambda each: len(each[1]))
            ],
        }
        for type_, statuses in sorted(found.items())
    ]


def _published(
    node: NodeView, *, local: bool, only_unsound: bool
) -> Iterator[tuple[DeviceView, Reason | None]]:
    """A node's own devices, or those of the network that it sees, with why each is withheld."""
    for pool in node.pools:
        why = _withheld(pool, node) if pool.withheld else None
        for device, withheld in chain(
            ((device, None) for device in pool.devices),
            ((device, why) for device in pool.withheld),
        ):
            is_wanted = not only_unsound or explain.speaks(device.health)
            if is_wanted and bool(device.published.local) == local:
                yield device, withheld


def _withheld(pool: PoolView, node: NodeView) -> Reason:
    """Why devices that the pool publishes for this node cannot be taken now."""
    if pool.flaw:
        return reasons.PoolNotWhole(pool.ref, pool.flaw)
    if node.malformed:
        return reasons.SchedulingError(reasons.NodeSelectorMalformed(node.malformed))
    return reasons.PoolBetweenGenerations(pool.ref)


def _why(reason: Reason | None) -> dict[str, Any]:
    """Why a device is withheld, in words, and as a reason."""
    if reason is None:
        return {"withheld": None, "withheldReason": None}
    return {"withheld": why_withheld(reason), "withheldReason": plain(reason)}


def _node(node: NodeView, users: Users, *, only_unsound: bool) -> dict[str, Any] | None:
    listed = [
        {
            "device": str(device.id),
            "allocated": device.allocated,
            **_why(withheld),
            "usedBy": users.of_device(device.id),
            **explain.health(device.health),
        }
        for device, withheld in _published(node, local=True, only_unsound=only_unsound)
    ]
    resources = [
        {
            "resource": plugin.resource,
            "capacity": plugin.capacity,
            "allocatable": plugin.allocatable,
            "units": [
                {
                    **explain.unit(one, plugin),
                    "usedBy": users.of_unit(node.name, plugin.resource, one),
                }
                for one in plugin.units
            ],
        }
        for plugin in node.plugins.values()
    ]
    if not listed and not resources and not explain.speaks(node.health):
        return None
    tells = explain.speaks(node.health) or listed or any(r["units"] for r in resources)
    if only_unsound and not tells:
        return None
    return {
        "node": node.name,
        "usedBy": users.on_node(node.name),
        **explain.health(node.health),
        "resources": resources,
        "devices": listed,
        "quarantined": list(node.quarantined),
    }
