"""The devices of a view as plain data for people: what `/devices` answers. Pure.

`usedBy` are the pods that certainly use a node, device or unit, `possiblyUsedBy` those that may.
"""

from collections import defaultdict
from collections.abc import Container, Iterator
from heapq import nsmallest
from itertools import chain
from typing import Any

from fettle.cluster import NodeView, PluginView, UnitView, View
from fettle.dra import DeviceView, PoolView
from fettle.explain.marks import plain_missing
from fettle.explain.pods import is_noteworthy, plain_health, plain_unit
from fettle.explain.users import Users, plain_users
from fettle.explain.wording import plain_reason, why_withheld
from fettle.model import DeviceId, SourceKind, UnknownSignal, reasons
from fettle.model.reasons import Reason
from fettle.pacing import pause
from fettle.scheduling import UnitUsers, count_taken
from fettle.scheduling.plans import devices_by_state

MOST_STATUSES = 5
"""A label may have another value on each node."""


def list_nodes(
    view: View, *, only_unsound: bool = False, names: Container[str] | None = None
) -> list[dict[str, Any]]:
    """Every node, or those of these `names`, with its resources and its own devices.

    With `only_unsound`, only those with evidence, that are not Healthy, or that lack devices.
    `withheld` says why a device cannot be allocated now; it is None if the device's pool is whole.
    Network devices belong to no node; see `list_network_devices`.
    """
    listed, users = [], Users(view)
    for name, node in sorted(view.nodes.items()):
        if (names is None or name in names) and (not only_unsound or _is_unsound(node)):
            one = plain_node(node, users, only_unsound=only_unsound)
            if one["devices"] or one["resources"] or node.missing or is_noteworthy(node.health):
                listed.append(one)
        pause()
    return listed


def list_network_devices(
    view: View, *, only_unsound: bool = False, names: Container[str] | None = None
) -> list[dict[str, Any]]:
    """Each device that does not belong to a single node, with the nodes that can use it; of these
    `names`, if they are given.

    If it is `withheld` from all of them: with the nodes that it is published for.
    """
    found: dict[DeviceId, DeviceView] = {}
    able: dict[DeviceId, list[str]] = defaultdict(list)
    unable: dict[DeviceId, list[str]] = defaultdict(list)
    why: dict[DeviceId, Reason] = {}
    users = Users(view)
    nodes = ((n, node) for n, node in sorted(view.nodes.items()) if names is None or n in names)
    for name, node in nodes:
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
            # Those that can use it; if it is withheld from all, those that it is published for.
            "nodes": able[id_] or unable[id_],
            "allocated": device.allocated,
            **_why(None if able[id_] else why.get(id_)),
            **plain_users(users.of_device(device)),
            **plain_health(device.health),
        }
        for id_, device in sorted(found.items())
    ]


def list_unknown_signals(view: View) -> list[dict[str, Any]]:
    """The conditions of nodes with devices that no rule names, and such labels and annotations that
    may tell of health.

    For each status or value: how many nodes have it, and the first of them. Of many values the
    rarest. Which one would mean a fault is not known.
    """
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, node in sorted(view.nodes.items()):
        if node.plugins or node.pools:
            for one in dict.fromkeys((*node.unknown_signals, *_unknown_xids(node))):
                found[one.type][one.status].append(name)
        pause()
    return [
        {
            "condition": type_,
            "statuses": [
                {
                    "status": status,
                    # How many have it; `first` is one of them.
                    "nodes": len(names),
                    "first": names[0],
                }
                for status, names in nsmallest(
                    MOST_STATUSES, statuses.items(), key=lambda each: len(each[1])
                )
            ],
        }
        for type_, statuses in sorted(found.items())
    ]


def _unknown_xids(node: NodeView) -> Iterator[UnknownSignal]:
    """XIDs without a row, and what stands where an XID should, that others than the Node's
    conditions tell of."""
    units = (unit.health for plugin in node.plugins.values() for unit in plugin.units)
    devices = (one.health for pool in node.pools for one in (*pool.devices, *pool.withheld))
    evidence = {w.evidence for health in chain(units, devices) for w in health.evidence}
    for one in evidence:
        if one.unlisted and one.source.kind is not SourceKind.CONDITION:
            yield UnknownSignal(f"{one.source}: XID {one.unlisted}", "set")


def _published(
    node: NodeView, *, local: bool, only_unsound: bool
) -> Iterator[tuple[DeviceView, Reason | None]]:
    """A node's own devices, or (not `local`) its network devices, with why each is withheld."""
    for pool in node.pools:
        why = _withheld(pool, node) if pool.withheld else None
        for device, withheld in chain(
            ((device, None) for device in pool.devices),
            ((device, why) for device in pool.withheld),
        ):
            is_wanted = not only_unsound or is_noteworthy(device.health)
            if is_wanted and bool(device.published.local) == local:
                yield device, withheld


def _withheld(pool: PoolView, node: NodeView) -> Reason:
    """Why the devices that a pool publishes for this node cannot be allocated now."""
    if pool.flaw:
        return reasons.PoolNotWhole(pool.ref, pool.flaw)
    if node.malformed:
        return reasons.SchedulingError(reasons.NodeSelectorMalformed(node.malformed))
    return reasons.PoolBetweenGenerations(pool.ref)


def _why(reason: Reason | None) -> dict[str, Any]:
    """Why a device is withheld, in words, and as a reason."""
    if reason is None:
        return {"withheld": None, "withheldReason": None}
    return {
        # Why it cannot be allocated now, or `null`.
        "withheld": why_withheld(reason),
        # The same as a reason.
        "withheldReason": plain_reason(reason),
    }


def _unit(one: UnitView, plugin: PluginView, users: UnitUsers) -> dict[str, Any]:
    return {**plain_unit(one, plugin), **plain_users(users), "allocated": users.in_use}


def plain_node(node: NodeView, users: Users, *, only_unsound: bool = False) -> dict[str, Any]:
    """A node with its resources and its own devices."""
    return {
        "node": node.name,
        # All pods with devices that are bound to it.
        "usedBy": users.on_node(node.name),
        **plain_health(node.health),
        # Of device plugins.
        "resources": [
            {
                "resource": plugin.resource,
                "capacity": plugin.capacity,
                "allocatable": plugin.allocatable,
                # Each with its health and users.
                "units": [
                    _unit(one, plugin, users.of_unit(node.name, plugin, one))
                    for one in plugin.units
                ],
            }
            for plugin in node.plugins.values()
        ],
        # Each with its health and users.
        "devices": [
            plain_device(device, users, withheld)
            for device, withheld in _published(node, local=True, only_unsound=only_unsound)
        ],
        # What it has [fewer of than expected](missing-devices.md).
        "missing": plain_missing(node),
        # Drivers whose version [is new there](policies.md#new-drivers); `name` is of the resource
        # or DRA driver.
        "newDrivers": [
            {
                "name": one.name,
                "version": one.version,
                "former": one.former,
                "since": one.since,
                "until": one.until,
            }
            for one in node.new_drivers
        ],
        # Reasons (`PoolDisputed`): its pools that slices of other nodes contradict.
        "disputed": [
            plain_reason(reasons.PoolDisputed(pool.ref, pool.rivals))
            for pool in node.pools
            if node.name in pool.rivals
        ],
        "quarantined": list(node.quarantined),
    }


def plain_device(device: DeviceView, users: Users, withheld: Reason | None) -> dict[str, Any]:
    """A DRA device, with its users and why it is withheld, if it is."""
    return {
        "device": str(device.subject),
        # Whether a claim holds it. If not, it need not be idle: see `use`.
        "allocated": device.allocated,
        **_why(withheld),
        **plain_users(users.of_device(device)),
        **plain_health(device.health),
    }


def withheld_from(node: NodeView, device: DeviceView) -> Reason | None:
    """Why a device cannot be allocated on a node now; None if it can."""
    pools = (pool for pool in node.pools if device in pool.withheld)
    return next((_withheld(pool, node) for pool in pools), None)


def _is_unsound(node: NodeView) -> bool:
    if is_noteworthy(node.health) or any(plugin.units for plugin in node.plugins.values()):
        return True
    if node.missing or any(node.name in pool.rivals for pool in node.pools):
        return True
    return any(_published(node, local=True, only_unsound=True))


def list_usage(view: View) -> list[dict[str, Any]]:
    """Each node with devices: how many it has, how many of them are in use, how many are in which
    state, how many are missing, and how many pods have some."""
    users, taken = Users(view), count_taken(view.pods.values())
    listed = []
    for name, node in sorted(view.nodes.items()):
        own = [d for pool in node.pools for d in pool.devices if d.published.local and d.here]
        units = sum(plugin.capacity for plugin in node.plugins.values())
        if own or units or node.missing:
            given = sum(sum(taken.get((name, res), {}).values()) for res in node.plugins)
            listed.append(
                {
                    "node": name,
                    "state": str(node.health.shown_state),
                    "score": round(node.health.score, 4),
                    # Whether an operator holds it.
                    "held": node.health.held,
                    # Its capacity.
                    "devices": units + len(own),
                    # What pods and claims have taken of it.
                    "inUse": given + sum(d.allocated or d.shares > 0 for d in own),
                    # How many are in each state; those that no evidence names are as their node
                    # is.
                    "byState": {str(state): n for state, n in devices_by_state(node).items()},
                    # How many.
                    "missing": sum(one.expected - one.found for one in node.missing),
                    # How many have devices there.
                    "pods": len(users.on_node(name)),
                }
            )
        pause()
    return listed
