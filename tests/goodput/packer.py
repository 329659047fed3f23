"""A replay without a scheduler: pods are packed as kube-scheduler does, on a clock that jumps.

It knows capacity, packing (`MostAllocated`) and an extender's filter and scores, with the weight
that is shipped. It does not know time to bind, backoff, stale views or retries.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

import msgspec

from fettle.api import core, kinds
from fettle.api.kinds import Kind
from fettle.cel import SelectorEngine
from fettle.cluster import Inventory, NodeView, Publisher
from fettle.config import Settings
from fettle.health import HealthBook, load_rules
from fettle.model import State
from fettle.scheduling import Answers
from tests.goodput import objects
from tests.goodput.plan import GPUS, Scenario, make_plan
from tests.goodput.replay import Figures, Node, Pod, Replay

TICK_H = 0.1
"""How often waiting pods are tried though nothing happened: health changes with time too."""
KEPT_H = 3 / 1800
"""How long a failed pod is seen before its controller deletes it."""
FETTLE_WEIGHT = 5
EPOCH_S = 1_800_000_000.0


Tell = Callable[[str, State, dict[str, State]], None]
"""How a node is judged now, and those of its devices about which something is said."""


class Minder(Protocol):
    """Who minds the health of devices."""

    def takes_out(self, node: Node) -> bool:
        """Whether the node is cordoned."""

    def seen(self, kind: Kind, raw: objects.Object | None, key: str) -> None:
        """An object as it is now; None: it is gone."""

    def look(self) -> None:
        """Time has passed."""

    async def judge(self, pod: Pod, names: list[str]) -> tuple[list[str], dict[str, int]]:
        """The names that pass, and the score (0..10) of each."""


class Nobody:
    """The scheduler alone."""

    def takes_out(self, node: Node) -> bool:
        return False

    def seen(self, kind: Kind, raw: objects.Object | None, key: str) -> None:
        pass

    def look(self) -> None:
        pass

    async def judge(self, pod: Pod, names: list[str]) -> tuple[list[str], dict[str, int]]:
        return names, dict.fromkeys(names, 0)


class Cordons(Nobody):
    """A controller that cordons a node while anything is reported about it."""

    def takes_out(self, node: Node) -> bool:
        return bool(node.reported())


class Fettle(Nobody):
    """Fettle's own inventory, health and verdicts."""

    def __init__(
        self, settings: Settings, clock: Clock, tell: Tell, *, refuses: bool = True
    ) -> None:
        self._clock = clock
        self._refuses = refuses
        rules = load_rules(settings.health.rules_file)
        self._engine = SelectorEngine()
        self._publisher = Publisher()
        self.answers = Answers(
            self._publisher,
            self._engine,
            settings,
            clock=clock.now_s,
            now=clock.now_s,
        )
        self._inventory = Inventory(HealthBook(settings.health, rules), rules)
        self._tell = tell

    def seen(self, kind: Kind, raw: objects.Object | None, key: str) -> None:
        now = self._clock.now_s()
        if raw is None:
            self._inventory.remove(kind, key, now)
        else:
            self._inventory.put(kind, kind.decode(msgspec.json.encode(raw)), now)

    async def judge(self, pod: Pod, names: list[str]) -> tuple[list[str], dict[str, int]]:
        self.look()
        wanted = objects.pod_object(pod, self._clock.now_s())
        decoded = kinds.POD.decode(msgspec.json.encode(wanted))
        assert isinstance(decoded, core.Pod)
        demand = self.answers.demand_now(decoded)
        assert demand is not None
        table = await self.answers.judged(demand, names)
        passed = table.narrow(names).passed if self._refuses else names
        if passed:
            self.answers.answered(demand, decoded)
        return passed, {name: table.score_of(name) for name in passed}

    def look(self) -> None:
        now = self._clock.now_s()
        self._inventory.age(now)
        for _ in self._inventory.refresh(now):
            pass
        view = self._inventory.view(self._publisher.view, synced=True, served={})
        if view is not None:
            before = self._publisher.view.nodes
            self._publisher.publish(view, self._inventory.settle())
            for name, node in view.nodes.items():
                if node is not before.get(name):
                    self._tell(name, node.health.state, _units(node))


def _units(node: NodeView) -> dict[str, State]:
    plugin = node.plugins.get(objects.RESOURCE)
    return {one.unit: one.health.state for one in plugin.units} if plugin is not None else {}


class Clock:
    """The replay's time as Fettle sees it."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def now_s(self) -> float:
        return EPOCH_S + self._replay.now_h * 3600


class Packer:
    """Places the pods of a replay."""

    def __init__(self, replay: Replay, clock: Clock, minder: Minder, seed: int) -> None:
        self._replay = replay
        self._clock = clock
        self._minder = minder
        self._ties = random.Random(seed + 2)
        self._used: dict[str, int] = defaultdict(int)
        self._said: dict[str, objects.Said] = {}
        self._conditions: dict[str, dict[str, objects.Object]] = defaultdict(dict)
        self._nodes = {node.name: node for node in replay.nodes}
        self._waiting: dict[str, Pod] = {}
        self._leaving: list[tuple[float, str]] = []
        for node in replay.nodes:
            self.node_changed(node)

    # --- what happens

    def node_changed(self, node: Node) -> None:
        before, now = self._said.get(node.name, {}), objects.said_of(node)
        changed = objects.conditions(before, now, self._clock.now_s())
        self._said[node.name] = now
        kept = self._conditions[node.name]
        kept.update({one["type"]: one for one in changed})
        self._minder.seen(kinds.NODE, objects.node_object(node, [*kept.values()]), node.name)

    def pod_created(self, pod: Pod) -> None:
        self._waiting[pod.name] = pod

    def pod_started(self, pod: Pod) -> None:
        self._see(pod, objects.running_status(pod))

    def pod_ended(self, pod: Pod, phase: str, refusal: str) -> None:
        self._waiting.pop(pod.name, None)
        if pod.node is None:
            return
        self._used[pod.node.name] -= pod.gpus
        if phase:
            self._see(pod, objects.ended_status(phase, refusal, self._clock.now_s()))
        if refusal:
            self._leaving.append((self._replay.now_h + KEPT_H, pod.name))
        else:
            self._gone(pod.name)

    def _see(self, pod: Pod, status: objects.Object) -> None:
        assert pod.node is not None
        seen = objects.pod_object(pod, self._clock.now_s())
        seen["spec"]["nodeName"] = pod.node.name
        self._minder.seen(kinds.POD, {**seen, "status": status}, pod.name)

    def _gone(self, name: str) -> None:
        self._minder.seen(kinds.POD, None, f"{objects.NAMESPACE}/{name}")

    # --- placing

    async def place(self) -> None:
        """Place what can be placed, the oldest pod first."""
        now_h = self._replay.now_h
        for _, name in [one for one in self._leaving if one[0] <= now_h]:
            self._gone(name)
        self._leaving = [one for one in self._leaving if one[0] > now_h]
        full: set[tuple[int, str]] = set()
        for pod in [*self._waiting.values()]:
            alike = (pod.gpus, pod.job.kind.policy)
            if alike in full or pod.name not in self._waiting:
                continue
            if (node := await self._choose(pod)) is None:
                full.add(alike)
                continue
            del self._waiting[pod.name]
            self._used[node.name] += pod.gpus
            self._replay.bind(pod, node)

    async def _choose(self, pod: Pod) -> Node | None:
        names = [
            node.name
            for node in self._replay.nodes
            if objects.allocatable(node) - self._used[node.name] >= pod.gpus
            and not self._minder.takes_out(node)
        ]
        if not names:
            return None
        passed, scores = await self._minder.judge(pod, names)
        if not passed:
            return None

        def total(name: str) -> int:
            packed = 100 * (self._used[name] + pod.gpus) // GPUS
            return packed + FETTLE_WEIGHT * 10 * scores[name]

        best = max(map(total, passed))
        return self._nodes[self._ties.choice([name for name in passed if total(name) == best])]


CONTENDERS = ("default", "cordon", "steer", "enforce")


async def play(
    scenario: Scenario, seed: int, contender: str, settings: Settings | None = None
) -> Figures:
    """One contender's figures on one seed."""
    replay = Replay(scenario, make_plan(scenario, seed), seed)
    clock = Clock(replay)
    minder = _minder(contender, settings or Settings(), clock, replay.judged)
    packer = Packer(replay, clock, minder, seed)
    replay.begin(packer)
    tick_h = 0.0
    while replay.now_h < scenario.hours:
        upcoming_h = replay.next_h()
        if upcoming_h is None or upcoming_h > tick_h:
            replay.advance(tick_h)
            minder.look()
            replay.sample(TICK_H)
            tick_h += TICK_H
        else:
            replay.advance(upcoming_h)
        await packer.place()
    return replay.finish()


def _minder(contender: str, settings: Settings, clock: Clock, tell: Tell) -> Minder:
    match contender:
        case "default":
            return Nobody()
        case "cordon":
            return Cordons()
        case "steer":
            return Fettle(settings, clock, tell, refuses=False)
        case "enforce":
            return Fettle(settings, clock, tell)
    raise ValueError(f"contender {contender!r}: write one of {', '.join(CONTENDERS)}")
