"""All nodes and devices in one compact answer, from which the page draws the fleet: `/fleet`.

It is for the page alone and may change with it; `/devices` is for others.
"""

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from aiohttp import web
from cachetools import LRUCache

from fettle.api import core
from fettle.browse.access import DEVICES, Viewer
from fettle.browse.known import Known, Query, as_json
from fettle.cluster import NodeView, PluginView, View
from fettle.dra import DeviceView, PoolView
from fettle.explain import JSON_VERSION
from fettle.model import Evidence, Health, State
from fettle.pacing import pause, run_within
from fettle.scheduling import PluginUse, allocatable_units

GROUPS = {
    "pool": (
        "karpenter.sh/nodepool",
        "cloud.google.com/gke-nodepool",
        "eks.amazonaws.com/nodegroup",
        "kubernetes.azure.com/agentpool",
    ),
    "model": (
        "nvidia.com/gpu.product",
        "amd.com/gpu.product-name",
        "cloud.google.com/gke-accelerator",
        "node.kubernetes.io/instance-type",
    ),
    # https://docs.nvidia.com/topograph/reference/node-labels-and-annotations
    "rack": (
        "network.topology.nvidia.com/leaf",
        "nvidia.com/gpu.clique",
        "topology.kubernetes.io/zone",
    ),
}
"""By what the page groups nodes: the first of these labels that a node has."""
MOST_CELLS = 64
"""Devices of one kind on one node that are drawn; the others are counted."""
LONGEST_TEXT = 300
LONGEST_LABEL = 317
"""A prefix, a slash and a name."""
MOST_LABELS = 4
"""For so many labels that somebody groups by the answer is kept."""
REST = 5.0
"""For so many times the processor time of the last one no other answer is made."""
LONGEST_REST_S = 0.5
MOST_TEXTS = 2.0
"""Once there are so many times the texts of a new answer, all is told anew: each is there that was
told since."""
_LETTERS = {State.HEALTHY: "H", State.DEGRADED: "D", State.UNHEALTHY: "U", State.UNKNOWN: "K"}
_WITHDRAWN, _MISSING = "W", "M"
_HELD = 1


class _Made(NamedTuple):
    """An answer: of which view, from when, and until when there is no other one."""

    generation: int
    at: float
    until: float
    tag: str
    body: bytes


class FleetHandlers:
    def __init__(self, known: Known) -> None:
        self._known = known
        self._made: LRUCache[str, _Made] = LRUCache(MOST_LABELS)
        self._telling: LRUCache[str, CompactFleet] = LRUCache(MOST_LABELS)
        self._making = asyncio.Lock()

    async def fleet(self, query: Query, viewer: Viewer) -> web.Response:
        """?tag=TAG: only this tag, if the answer that had it is still right. ?label=KEY: grouped by
        that label of nodes, too. Whoever has a tag is told of the newest view, if need be after a
        moment; all others are told at once what is there."""
        await viewer.require(DEVICES)
        label = query.get("label", "")[:LONGEST_LABEL]
        made = await self._current(label, waits="tag" in query)
        if query.get("tag") == made.tag:
            return as_json({"version": JSON_VERSION, "tag": made.tag})
        return web.Response(body=made.body, content_type="application/json")

    async def _current(self, label: str, *, waits: bool) -> _Made:
        began = time.monotonic()
        while True:
            async with self._making:
                made = self._made.get(label)
                rest = 0.0 if made is None else made.until - time.monotonic()
                if made is None or (rest <= 0 and not self._is_of_now(made)):
                    return await self._make(label)
                if not waits or made.at >= began or self._is_of_now(made):
                    return made
            await asyncio.sleep(rest)

    async def _make(self, label: str) -> _Made:
        """One at a time is made, for all who ask."""
        view, now, spent = self._known.answers.view, time.monotonic(), time.thread_time()
        telling = self._telling.get(label)
        if telling is None:
            telling = self._telling[label] = CompactFleet(label)
        told = await run_within(lambda: telling.fleet(view))
        body = msgspec.json.encode(told)
        tag = hashlib.sha256(body).hexdigest()[:16]
        head = {"version": JSON_VERSION, "tag": tag, "generation": view.generation}
        body, spent = msgspec.json.encode(head)[:-1] + b"," + body[1:], time.thread_time() - spent
        until = time.monotonic() + min(REST * spent, LONGEST_REST_S)
        made = self._made[label] = _Made(view.generation, now, until, tag, body)
        return made

    def _is_of_now(self, made: _Made) -> bool:
        return made.generation == self._known.answers.view.generation


class _ToldNode(NamedTuple):
    """What was told of a node as it was, None for nothing; which `pods` were on it then; and its
    pools of devices that are not its own."""

    node: NodeView
    pods: tuple[core.Pod, ...]
    record: msgspec.Raw | None
    network: tuple[PoolView, ...]


class CompactFleet:
    """Tells views one after the other; what is told of a node is kept until the node is another.

    - `texts`: what the other parts name by its place.
    - `nodes`: each a list: name, group values, score, state, since, cause, its text, flags, kinds.
    - `missing`: how many devices there are too few, among them those that are withdrawn.
    - A kind is a resource or a driver on a node, a list: name, DRA pool, names of its devices, a
      letter for each (small where it is in use), how many more there are, what is to be said of
      some: place, score, since, cause, its text, flags; and how many more are in use, of which
      nobody can say which they are, or which are not drawn.
    """

    def __init__(self, label: str = "") -> None:
        self._keys = [*GROUPS.values(), *([(label,)] if label else [])]
        self._groups = [*GROUPS, *([label] if label else [])]
        self._forget()

    def _forget(self) -> None:
        self._texts: dict[str, int] = {"": 0}
        self._layouts: dict[tuple[str, ...], int] = {}
        self._told: dict[str, _ToldNode] = {}
        self._fresh = 0

    def fleet(self, view: View) -> dict[str, Any]:
        size = len(self._texts) + len(self._layouts)
        if self._fresh and size > MOST_TEXTS * self._fresh:
            self._forget()
        pods = _pods_by_node(view)
        nodes, network = [], dict[tuple[str, str], PoolView]()
        told: dict[str, _ToldNode] = {}
        for name, node in sorted(view.nodes.items()):
            told[name] = one = self._of_node(node, tuple(pods.get(name, ())))
            for pool in one.network:
                network[pool.driver, pool.name] = pool
            if one.record is not None:
                nodes.append(one.record)
            pause()
        self._told = told
        self._fresh = self._fresh or len(self._texts) + len(self._layouts)
        return {
            "groups": self._groups,
            "nodes": nodes,
            "network": [self._pool(pool, local=False) for _, pool in sorted(network.items())],
            "missing": sum(one.number for node in view.nodes.values() for one in node.missing),
            "texts": [*self._texts],
            "layouts": [*self._layouts],
        }

    def _of_node(self, node: NodeView, pods: tuple[core.Pod, ...]) -> _ToldNode:
        before = self._told.get(node.name)
        if before is not None and before.node is node and before.pods == pods:
            return before
        record, kinds = None, [*self._kinds(node, pods)]
        if kinds or node.health.evidence:
            labels = [self._text(_label(node, keys)) for keys in self._keys]
            said = [node.name, labels, *self._health(node.health), kinds]
            record = msgspec.Raw(msgspec.json.encode(said))
        shared = (p for p in node.pools if not all(one.published.local for one in p.devices))
        return _ToldNode(node, pods, record, tuple(shared))

    def _text(self, text: str) -> int:
        if len(text) > LONGEST_TEXT:
            text = f"{text[:LONGEST_TEXT]}…"
        return self._texts.setdefault(text, len(self._texts))

    def _health(self, health: Health) -> list[Any]:
        """Score, state, since, cause, its text, flags."""
        worst = health.evidence[0].evidence if health.evidence else None
        return [
            round(health.score, 3),
            _LETTERS[health.shown_state],
            round(health.since),
            self._text(_cause(worst) if worst is not None else ""),
            self._text(worst.text if worst is not None else ""),
            _HELD if health.held else 0,
        ]

    def _kinds(self, node: NodeView, pods: Sequence[core.Pod]) -> Iterator[list[Any]]:
        missing = {one.name: one.number for one in node.missing}
        for plugin in node.plugins.values():
            if plugin.capacity or plugin.units or plugin.resource in missing:
                use = PluginUse(plugin, pods)
                yield self._plugin(node, plugin, use, missing.pop(plugin.resource, 0))
        for pool in node.pools:
            if any(one.published.local for one in chain(pool.devices, pool.withheld)):
                yield self._pool(pool, local=True, missing=missing.pop(pool.driver, 0))
        for name, number in sorted(missing.items()):
            yield self._kind(name, "", [("", _MISSING, None)] * min(number, MOST_CELLS), number)

    def _plugin(
        self, node: NodeView, plugin: PluginView, use: PluginUse, missing: int
    ) -> list[Any]:
        """Units without a name are in use as far as what pods have taken is not on named ones."""
        cells: list[_Cell] = []
        taken, unsure = use.taken, 0
        for unit in plugin.units:
            letter = _LETTERS[unit.health.shown_state]
            in_use = use.of(unit).in_use
            taken -= max(1, unit.allocated) if in_use else 0
            unsure += not in_use
            cells.append((unit.unit, letter.lower() if in_use else letter, unit.health))
        room = max(0, use.existing - sum(unit.count for unit in plugin.units))
        rest, letter = min(allocatable_units(plugin).rest, room), _LETTERS[node.health.shown_state]
        gone = plugin.withdrawn - sum(unit.withdrawn for unit in plugin.units)
        gone = min(max(0, gone), room - rest)
        missing = max(0, missing - plugin.withdrawn)  # those are missing too, and are drawn
        total = len(cells) + rest + gone + missing
        health = node.health if node.health.evidence else None
        taken = min(max(0, taken), unsure + rest + gone)
        used = min(taken, rest, MOST_CELLS)
        used_gone = min(taken - min(taken, rest), gone, MOST_CELLS)
        cells += [("", letter.lower(), health)] * used
        cells += [("", letter, health)] * (min(rest, MOST_CELLS) - used)
        cells += [("", _WITHDRAWN.lower(), None)] * used_gone
        cells += [("", _WITHDRAWN, None)] * (min(gone, MOST_CELLS) - used_gone)
        cells += [("", _MISSING, None)] * min(missing, MOST_CELLS)
        return self._kind(plugin.resource, "", cells, total, taken - used - used_gone)

    def _pool(self, pool: PoolView, *, local: bool, missing: int = 0) -> list[Any]:
        cells = [*map(_device, self._of(pool, local=local))]
        cells += [("", _MISSING, None)] * min(missing, MOST_CELLS)
        return self._kind(pool.driver, pool.name, cells, len(cells))

    def _of(self, pool: PoolView, *, local: bool) -> Iterable[DeviceView]:
        return (
            one
            for one in chain(pool.devices, pool.withheld)
            if bool(one.published.local) == local and (one.here or not local)
        )

    def _kind(
        self, name: str, pool: str, cells: "list[_Cell]", total: int, used: int = 0
    ) -> list[Any]:
        """`used`: how many more are in use than the cells say."""
        shown = cells[:MOST_CELLS]
        names = tuple(cell[0] for cell in shown)
        details = [
            [place, *self._detail(health)]
            for place, (_, _, health) in enumerate(shown)
            if health is not None and (health.evidence or health.state is not State.HEALTHY)
        ]
        return [
            self._text(name),
            self._text(pool),
            self._layouts.setdefault(names, len(self._layouts)),
            "".join(letter for _, letter, _ in shown),
            total - len(shown),
            details,
            used + sum(letter.islower() for _, letter, _ in cells[MOST_CELLS:]),
        ]

    def _detail(self, health: Health) -> list[Any]:
        score, _, *rest = self._health(health)
        return [score, *rest]


def _cause(worst: Evidence) -> str:
    """What it came from: devices whose evidence has one rule have one cause, unless the rule is
    about whatever is not named elsewhere, such as all taints that no other knows."""
    rule = worst.rule
    return str(worst.source if rule is None or "*" in rule.name else rule)


_Cell = tuple[str, str, Health | None]
"""A device's name, its letter, and its health if there may be something to say."""


def _device(device: DeviceView) -> _Cell:
    id_ = device.subject
    name = f"{id_.device} of node {id_.node}" if id_.node else id_.device
    letter = _LETTERS[device.health.shown_state]
    in_use = device.allocated or device.shares > 0
    return name, letter.lower() if in_use else letter, device.health


def _pods_by_node(view: View) -> dict[str, list[core.Pod]]:
    """Those that have devices there, or will once they start."""
    found: dict[str, list[core.Pod]] = defaultdict(list)
    for pod in view.pods.values():
        if pod.node_name and not pod.terminal:
            found[pod.node_name].append(pod)
        pause()
    return found


def _label(node: NodeView, keys: Iterable[str]) -> str:
    return next((value for key in keys if (value := node.labels.get(key))), "")
