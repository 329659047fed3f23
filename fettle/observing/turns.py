"""Turns of state in the log: what was Healthy, Degraded, Unhealthy or Unknown, and is something
else now, with the reason. Mere changes of a score are none.

What happens to thousands of nodes at once is told by the worst of it and a count.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple

import structlog

from fettle.cluster import NodeView, View
from fettle.dra import DeviceView, PoolView
from fettle.model import DeviceId, Health, NodeId, State
from fettle.observing import counting
from fettle.pacing import pause

_LOG = structlog.get_logger(__name__)

MOST = 20
"""Turns of one view that are told."""
NEW, GONE = "new", "gone"
_WORST_FIRST = (State.UNHEALTHY, State.DEGRADED, State.UNKNOWN, State.HEALTHY, GONE)


class HealthChange(NamedTuple):
    """`before` and `after` are None for what was not there, or is no longer."""

    subject: str
    before: Health | None
    after: Health | None

    @property
    def states(self) -> tuple[str, str]:
        return (
            self.before.state if self.before is not None else NEW,
            self.after.state if self.after is not None else GONE,
        )


def log_health_changes(before: View, after: View, changed: Collection[str]) -> None:
    """One line for each turn that a view brought, the worst first, among the nodes that changed; of
    the first view only how many are in which state."""
    if not before.synced:
        _log_counts(after)
        return
    told: dict[str, list[HealthChange]] = {state: [] for state in _WORST_FIRST}
    count = 0
    for turn in _turns(before.nodes, after.nodes, changed):
        same = told[turn.states[1]]
        if len(same) < MOST:
            same.append(turn)
        count += 1
    for turn in islice(chain.from_iterable(told.values()), MOST):
        _log(turn)
        pause()
    if count > MOST:
        more = "health turned of more nodes and devices than are told"
        _LOG.info(more, more=count - MOST)


def _log(turn: HealthChange) -> None:
    before, after = turn.states
    seen: dict[str, object] = {}
    if turn.after is not None:
        seen["score"] = round(turn.after.score, 2)
        if turn.after.evidence:
            seen["why"] = turn.after.evidence[0].evidence.text
    _LOG.info("health turned", subject=turn.subject, before=str(before), after=str(after), **seen)


def _log_counts(view: View) -> None:
    nodes: Counter[str] = Counter()
    for node in view.nodes.values():
        nodes[str(node.health.state)] += 1
        pause()
    devices: Counter[str] = Counter()
    for (_, state), number in counting.devices(view).items():
        devices[str(state)] += number
    _LOG.info(
        "health at the start", nodes=dict(nodes), devices={s: n for s, n in devices.items() if n}
    )


def _turns(
    before: Mapping[str, NodeView], after: Mapping[str, NodeView], changed: Collection[str]
) -> Iterator[HealthChange]:
    shared: set[Hashable] = set()
    for name in changed:
        old, new = before.get(name), after.get(name)
        whole = HealthChange(str(NodeId(name)), _health(old), _health(new))
        if _tells(whole):
            yield whole
        for turn in chain(_of_units(name, old, new), _of_devices(old, new, shared)):
            if _tells(turn) and turn.states != whole.states:  # else it follows its node
                yield turn
        pause()


def _tells(turn: HealthChange) -> bool:
    """What comes or goes is worth a line where it is not Healthy."""
    if turn.before is turn.after:
        return False
    before, after = turn.states
    return before != after and {before, after} not in ({NEW, State.HEALTHY}, {State.HEALTHY, GONE})


def _of_units(name: str, old: NodeView | None, new: NodeView | None) -> Iterator[HealthChange]:
    """A unit that no evidence names is as well as its node."""
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
    """Devices of the network, which come and go with no node, as the first of them sees it; what
    was looked at of them is `shared`."""
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
