"""Logs nodes and devices whose state changes, with the reason, and counts devices by state. A
change of the score alone is not logged. Of many changes at once, the worst are logged and the rest
are counted.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple

from fettle.cluster import NodeView, View
from fettle.dra import DeviceView, PoolView
from fettle.logs import Logger
from fettle.model import DeviceId, Health, NodeId, State
from fettle.pacing import pause
from fettle.scheduling import allocatable_units

_LOG = Logger(__name__)

MOST = 20
"""Changes of one view that are logged one by one."""
MOST_UNITS = 10_000
"""More units of a resource on one node are an amount, such as bytes of a GPU's memory."""
NEW, GONE = "new", "gone"
_WORST_FIRST = (State.UNHEALTHY, State.DEGRADED, State.UNKNOWN, State.HEALTHY, GONE)


class HealthChange(NamedTuple):
    """`before` is None for what is new, `after` for what is gone."""

    subject: str
    before: Health | None
    after: Health | None

    @property
    def states(self) -> tuple[str, str]:
        return (
            self.before.shown_state if self.before is not None else NEW,
            self.after.shown_state if self.after is not None else GONE,
        )


def log_health_changes(before: View, after: View, changed: Collection[str]) -> None:
    """One line for each change that a view brings, the worst first. `changed` are the nodes that
    may differ. Of the first view only counts by state are logged."""
    if not before.synced:
        _log_counts(after)
        return
    by_state: dict[str, list[HealthChange]] = {state: [] for state in _WORST_FIRST}
    count = 0
    for change in _changes(before.nodes, after.nodes, changed):
        same = by_state[change.states[1]]
        if len(same) < MOST:
            same.append(change)
        count += 1
    for change in islice(chain.from_iterable(by_state.values()), MOST):
        _log(change)
        pause()
    if count > MOST:
        _LOG.info("health changed of more nodes and devices than are logged", more=count - MOST)


def _log(change: HealthChange) -> None:
    before, after = change.states
    details: dict[str, object] = {}
    if change.after is not None:
        details["score"] = round(change.after.score, 2)
        if change.after.evidence:
            details["why"] = change.after.evidence[0].evidence.text
    subject = change.subject
    _LOG.info("health changed", subject=subject, before=str(before), after=str(after), **details)


def _log_counts(view: View) -> None:
    nodes: Counter[str] = Counter()
    for node in view.nodes.values():
        nodes[str(node.health.shown_state)] += 1
        pause()
    devices: Counter[str] = Counter()
    for (_, state), number in count_devices(view).items():
        devices[str(state)] += number
    _LOG.info(
        "health at the start", nodes=dict(nodes), devices={s: n for s, n in devices.items() if n}
    )


def _changes(
    before: Mapping[str, NodeView], after: Mapping[str, NodeView], changed: Collection[str]
) -> Iterator[HealthChange]:
    shared: set[Hashable] = set()
    for name in changed:
        old, new = before.get(name), after.get(name)
        whole = HealthChange(str(NodeId(name)), _health(old), _health(new))
        if _is_worth_a_line(whole):
            yield whole
        for change in chain(_of_units(name, old, new), _of_devices(old, new, shared)):
            # A change that the node has in common is not logged again.
            if _is_worth_a_line(change) and change.states != whole.states:
                yield change
        pause()


def _is_worth_a_line(change: HealthChange) -> bool:
    """What comes or goes is worth a line only if it is not Healthy."""
    if change.before is change.after:
        return False
    before, after = change.states
    return before != after and {before, after} not in ({NEW, State.HEALTHY}, {State.HEALTHY, GONE})


def _of_units(name: str, old: NodeView | None, new: NodeView | None) -> Iterator[HealthChange]:
    """A unit that no evidence names has the health of its node."""
    before, after = _units(old), _units(new)
    for key in {**before, **after}:
        resource, unit = key
        yield HealthChange(
            f"{resource} {unit} on {name}",
            before.get(key, _health(old)),
            after.get(key, _health(new)),
        )


def _units(node: NodeView | None) -> dict[tuple[str, str], Health]:
    plugins = node.plugins if node is not None else {}
    return {(r, one.unit): one.health for r, plugin in plugins.items() for one in plugin.units}


def _of_devices(
    old: NodeView | None, new: NodeView | None, shared: set[Hashable]
) -> Iterator[HealthChange]:
    """Changes of a node's devices. A network device, which many nodes see, is taken from the first
    of them; `shared` has those pairs of pools, and devices, that were compared already."""
    before, after = _pools(old), _pools(new)
    for key in {**before, **after}:
        was, is_ = before.get(key), after.get(key)
        pair = id(was), id(is_)
        if was is is_ or pair in shared:
            continue
        there, here = _devices(was), _devices(is_)
        for device, published in {**there, **here}.items():
            if not published.published.local:
                shared.add(pair)
                if old is None or new is None or device in shared:
                    continue
                shared.add(device)
            yield HealthChange(str(device), _health(there.get(device)), _health(here.get(device)))


def _pools(node: NodeView | None) -> dict[tuple[str, str], PoolView]:
    return {(pool.driver, pool.name): pool for pool in (node.pools if node is not None else ())}


def _devices(pool: PoolView | None) -> dict[DeviceId, DeviceView]:
    if pool is None:
        return {}
    return {device.id: device for device in chain(pool.devices, pool.withheld)}


def _health(of: NodeView | DeviceView | None) -> Health | None:
    return of.health if of is not None else None


def count_devices(view: View) -> Counter[tuple[str, State]]:
    """How many devices there are by driver or resource, and state; of device plugins, units that
    may be allocated. A device that many nodes see is one. Amounts, such as of memory, are left out.
    """
    counts: Counter[tuple[str, State]] = Counter()
    network: dict[DeviceId, State] = {}
    for node in view.nodes.values():
        for plugin in node.plugins.values():
            if plugin.capacity > MOST_UNITS:
                continue
            drawn = allocatable_units(plugin)
            for health, number in (*drawn.named, (node.health, drawn.rest)):
                counts[plugin.resource, health.shown_state] += number
        for pool in node.pools:
            for device in pool.devices:
                if device.published.local:
                    counts[pool.driver, device.health.shown_state] += 1
                else:
                    network[device.id] = device.health.shown_state
        pause()
    for id_, state in network.items():
        counts[id_.driver, state] += 1
    return counts


def count_lost(view: View, now: float) -> Counter[str]:
    """How many devices nodes have lost, by driver or resource; 0 where they lack none. Amounts are
    left out."""
    lost: Counter[str] = Counter()
    for node in view.nodes.values():
        lost.update(dict.fromkeys(node.plugins, 0))
        lost.update({pool.driver: 0 for pool in node.pools})
        pause()
    missing = count_missing(view, now)
    lost.update({name: one.lost for name, one in missing.items() if one.lost})
    return lost


class MissingCount(NamedTuple):
    """How many devices are missing, how many of them are lost, and on how many nodes; and of how
    many nobody knows for how long."""

    devices: int = 0
    lost: int = 0
    nodes: int = 0
    undated: int = 0


def count_missing(view: View, now: float) -> dict[str, MissingCount]:
    """By driver or resource of which nodes have fewer than expected. Amounts are left out."""
    found: dict[str, MissingCount] = {}
    for node in view.nodes.values():
        for one in node.missing:
            if one.expected <= MOST_UNITS:
                so_far, lost = found.get(one.name, MissingCount()), now >= one.lost_at
                found[one.name] = MissingCount(
                    so_far.devices + one.number,
                    so_far.lost + lost * one.number,
                    so_far.nodes + 1,
                    so_far.undated + (one.since is None) * one.number,
                )
        pause()
    return found
