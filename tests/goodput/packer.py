"""A replay without a scheduler: pods are packed as kube-scheduler does, on a clock that jumps.

It knows capacity, packing (by `NodeResourcesFit` alone) and an extender's filter and scores, with
the weight that is shipped. It does not know time to bind, backoff, stale views or retries.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import inf
from typing import Protocol

import msgspec

from fettle.api import core, kinds
from fettle.api.kinds import Kind
from fettle.cel import SelectorEngine
from fettle.cluster import Inventory, NodeView, Publisher
from fettle.config import Settings
from fettle.health import HealthBook, load_rules
from fettle.model import Mode, State
from fettle.scheduling import Answers, FormerNodes, Leanings, OwnerRefusals
from fettle.scheduling.placed import AtRisk, find_failures
from tests.goodput import objects
from tests.goodput.plan import GPUS, JobKind, Scenario, make_plan, with_devices_taken_away
from tests.goodput.replay import Device, Figures, Node, Pod, Replay

TICK_H = 0.1
"""How often waiting pods are tried though nothing happened: health changes with time too."""
KEPT_H = 3 / 1800
"""How long a failed pod is seen before its controller deletes it."""
SOON_H = 2.0
"""A pod that is expected to fail within so long is not worth a start."""
FETTLE_WEIGHT = 5
START_DEADLINE_S = 600.0
STRAGGLES_H = 1 / 6
EPOCH_S = 1_800_000_000.0


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

    def frees(self, pod: Pod) -> bool:
        """Whether a pod that does not start is evicted now."""

    async def evicted(self) -> Mapping[str, bool]:
        """The pods that are to be evicted while they run, by name; True: whether or not anything
        else is free now."""


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

    def frees(self, pod: Pod) -> bool:
        return False

    async def evicted(self) -> Mapping[str, bool]:
        return {}


class Cordons(Nobody):
    """A controller that cordons a node while anything is reported about it."""

    def takes_out(self, node: Node) -> bool:
        return bool(node.reported())


class Oracle(Nobody):
    """Somebody who knows each fault as it begins, and chooses devices. It packs as default does."""

    def __init__(self, replay: Replay) -> None:
        self._nodes = {node.name: node for node in replay.nodes}

    async def judge(self, pod: Pod, names: list[str]) -> tuple[list[str], dict[str, int]]:
        speeds = {name: _speed(best_devices(self._nodes[name]), pod.gpus) for name in names}
        passed = [name for name in names if speeds[name] > 0]
        return passed, {name: round(10 * speeds[name]) for name in passed}


def best_devices(node: Node) -> list[Device]:
    """Those that are free, the best first."""
    free = [each for each in node.devices if each.pod is None and not each.withdrawn]
    return sorted(free, key=_speed_of, reverse=True)


def _speed(devices: list[Device], count: int) -> float:
    """Of a pod that gets the first of them; 0 if it would soon fail."""
    return min(map(_speed_of, devices[:count])) if len(devices) >= count else 0.0


def _speed_of(device: Device) -> float:
    kinds = [fault.kind for fault in (*device.node.faults, *device.faults) if fault.is_real]
    if any(kind.shows.is_of_new_pods or (kind.fails_h or SOON_H) < SOON_H for kind in kinds):
        return 0.0
    return min((kind.speed for kind in kinds), default=1.0)


class Fettle(Nobody):
    """Fettle's own inventory, health and verdicts."""

    def __init__(
        self,
        replay: Replay,
        settings: Settings,
        clock: Clock,
        mode: Mode,
        *,
        deadline_s: float = inf,
        evicts: bool = False,
        stragglers: bool = False,
    ) -> None:
        """`stragglers`: somebody who compares the ranks of each job tells which are slow, and these
        are evicted, too."""
        self._replay = replay
        self._clock = clock
        self._mode = mode
        self._evicts = evicts
        self._stragglers = stragglers
        self._confirm_h = settings.device_failures.confirm_seconds / 3600
        self._slow_since: dict[str, float] = {}
        self._deadline_s = deadline_s
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
        self._former = FormerNodes(clock.now_s)
        self._refusals = OwnerRefusals(clock.now_s)
        self._inventory = Inventory(
            HealthBook(settings.health, rules),
            rules,
            on_failed_start=self._refusals.does_not_start,
        )
        self._leanings = Leanings(self.answers, self._refusals, self._former)
        self._at_risk = AtRisk(self.answers, now=clock.now_s)

    def seen(self, kind: Kind, raw: objects.Object | None, key: str) -> None:
        now = self._clock.now_s()
        if raw is None:
            self._inventory.remove(kind, key, now)
        else:
            new = kind.decode(msgspec.json.encode(raw))
            self._former.observe(new)
            self._inventory.put(kind, new, now)

    async def judge(self, pod: Pod, names: list[str]) -> tuple[list[str], dict[str, int]]:
        self.look()
        dra = self._replay.scenario.dra
        wanted = objects.pod_object(pod, self._clock.at_s(pod.created_h), dra=dra)
        decoded = kinds.POD.decode(msgspec.json.encode(wanted))
        assert isinstance(decoded, core.Pod)
        demand = self.answers.demand_now(decoded)
        assert demand is not None
        table = await self.answers.judged(demand, names)
        enforces = self._mode is Mode.ENFORCE
        passed = table.narrow(names).passed if enforces else names
        avoided = self._refusals.nodes_for(decoded) if enforces else {}
        passed = [name for name in passed if name not in avoided] or passed
        if passed:
            self.answers.note_nodes_given(demand, decoded)
        elif self._replay.counts:
            self._replay.figures.refused += 1
        if self._mode is Mode.OBSERVE:
            return await super().judge(pod, names)
        leaning = self._leanings.of(decoded, demand).among(passed, table.score_of)
        score = leaning.scores(table)
        return passed, {name: score(name) for name in passed}

    def frees(self, pod: Pod) -> bool:
        start = self._publisher.view.failed_starts.get(f"{objects.NAMESPACE}/{pod.name}")
        if start is None or not start.message or start.blamed:
            return False
        return self._clock.now_s() - start.at >= self._deadline_s

    async def evicted(self) -> Mapping[str, bool]:
        if not self._evicts:
            return {}
        due_s = self._clock.now_s() - 3600 * self._confirm_h
        failures = await find_failures(self.answers, self._at_risk)
        running = failures.running.values() if failures is not None else ()
        failed = {
            one.pod.metadata.name: one.is_dead
            for one in running
            if one.lasts and not one.set_aside and one.began_at <= due_s
        }
        return {**dict.fromkeys(self._slow_pods(), False), **failed}

    def _slow_pods(self) -> Iterator[str]:
        """Those that were slow for long enough."""
        now_h, running = self._replay.now_h, self._replay.pods.values()
        slow = [pod.name for pod in running if pod.state == "running" and pod.is_slow]
        self._slow_since = {name: self._slow_since.get(name, now_h) for name in slow}
        for name, since_h in self._slow_since.items():
            if self._stragglers and now_h - since_h >= STRAGGLES_H:
                yield name

    def look(self) -> None:
        now = self._clock.now_s()
        self._inventory.age(now)
        for _ in self._inventory.refresh(now):
            pass
        before = self._publisher.view
        view = self._inventory.view(before, synced=True, served={})
        if view is None:
            return
        changed = self._inventory.settle()
        self._publisher.publish(view, changed)
        self.answers.demands.gangs.observe_view(before, view)
        self.answers.demands.waits.observe_view(view)
        for name in changed:
            node = view.nodes[name]
            self._replay.judged(name, node.health.state, dict(_states(node)))


def _states(node: NodeView) -> Iterator[tuple[str, State]]:
    """Of its devices, by the name that the replay gives them."""
    for plugin in node.plugins.values():
        yield from ((unit.unit, unit.health.state) for unit in plugin.units)
    for pool in node.pools:
        published = (*pool.devices, *pool.withheld)
        yield from ((each.id.device, each.health.state) for each in published)


class Clock:
    """The replay's time as Fettle sees it."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def now_s(self) -> float:
        return self.at_s(self._replay.now_h)

    def at_s(self, hour: float) -> float:
        return EPOCH_S + hour * 3600


class Packer:
    """Places the pods of a replay."""

    def __init__(self, replay: Replay, clock: Clock, minder: Minder, seed: int) -> None:
        self._replay = replay
        self._dra = replay.scenario.dra
        self._clock = clock
        self._minder = minder
        self._spreads = replay.scenario.packing == "LeastAllocated"
        self._generation = 0
        self._claimed: dict[str, list[Device]] = {}
        self._taken: set[Device] = set()
        """Devices that were chosen for pods: by pod, and together."""
        self._ties = random.Random(seed + 2)
        self._used: dict[str, int] = defaultdict(int)
        self._room: dict[str, int] = {}
        """How many more devices a node can give; reckoned anew whenever that may have changed."""
        self._said: dict[str, objects.Said] = {}
        self._conditions: dict[str, dict[str, objects.Object]] = defaultdict(dict)
        self._nodes = {node.name: node for node in replay.nodes}
        self._waiting: dict[str, Pod] = {}
        self._leaving: list[tuple[float, str]] = []
        self._freed: set[str] = set()
        """Places whose pod was evicted because it did not start, and in which none has since."""
        self._left: dict[str, set[str]] = defaultdict(set)
        """By job: the nodes on which a pod of it was evicted while it ran."""
        if self._dra:
            # Without a selector: a CEL worker answers within wall time, which is not the replay's.
            anything = objects.class_object() | {"spec": {}}
            self._minder.seen(kinds.CLASS, anything, objects.DEVICE_CLASS)
        for node in replay.nodes:
            self.node_changed(node)

    # --- what happens

    def node_changed(self, node: Node) -> None:
        before, now = self._said.get(node.name, {}), objects.said_of(node)
        changed = objects.conditions(before, now, self._clock.now_s())
        self._said[node.name] = now
        kept = self._conditions[node.name]
        kept.update({one["type"]: one for one in changed})
        seen = objects.node_object(node, [*kept.values()], dra=self._dra)
        self._minder.seen(kinds.NODE, seen, node.name)
        if self._dra:
            self._generation += 1
            published = objects.slice_object(node, self._generation)
            self._minder.seen(kinds.SLICE, published, node.name)
        self._reckon(node)

    def pod_created(self, pod: Pod) -> None:
        self._waiting[pod.name] = pod
        if self._dra:
            self._minder.seen(kinds.CLAIM, objects.claim_object(pod), pod.name)
        created = objects.pod_object(pod, self._clock.now_s(), dra=self._dra)
        self._minder.seen(kinds.POD, created, pod.name)

    def pod_started(self, pod: Pod) -> None:
        self._freed.discard(pod.place)
        self._see(pod, objects.running_status(pod, self._clock.now_s(), dra=self._dra))

    def pod_stuck(self, pod: Pod) -> None:
        self._see(pod, objects.stuck_status(self._clock.now_s()))

    def pod_ended(self, pod: Pod, phase: str, refusal: str) -> None:
        self._waiting.pop(pod.name, None)
        self._taken.difference_update(self._claimed.pop(pod.name, ()))
        if self._dra:
            self._minder.seen(kinds.CLAIM, None, f"{objects.NAMESPACE}/{pod.name}")
        if pod.node is None:
            self._gone(pod.name)
            return
        self._used[pod.node.name] -= pod.gpus
        self._reckon(pod.node)
        if phase:
            self._see(pod, objects.ended_status(phase, refusal, self._clock.now_s()))
        if refusal:
            self._leaving.append((self._replay.now_h + KEPT_H, pod.name))
        else:
            self._gone(pod.name)

    def _see(self, pod: Pod, status: objects.Object) -> None:
        assert pod.node is not None
        seen = objects.pod_object(pod, self._clock.at_s(pod.created_h), dra=self._dra)
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
        # The oldest first: what it does not take, no younger one takes that is as patient.
        full: set[JobKind] = set()
        for pod in [*self._waiting.values()]:
            kind = pod.job.kind
            if kind in full or pod.name not in self._waiting:
                continue
            together = [one for one in pod.job.pods.values() if one.name in self._waiting]
            if not await self._place_all(together):
                full.add(kind)

    async def free(self) -> None:
        """Evict pods that do not start, each place once, where another node takes them now."""
        stuck = [pod for pod in self._replay.pods.values() if pod.state == "stuck"]
        for pod in stuck:
            if pod.place in self._freed or not self._minder.frees(pod):
                continue
            others = [n for n, room in self._room.items() if room >= pod.gpus]
            others = [name for name in others if self._nodes[name] is not pod.node]
            if others and (await self._minder.judge(pod, others))[0]:
                self._freed.add(pod.place)
                self._replay.free(pod)

    async def evict(self) -> None:
        """Evict pods while they run, where another node takes them now, or nothing can be expected
        of what they are on. Their next pods do not go to that node."""
        for name, anyway in (await self._minder.evicted()).items():
            pod = self._replay.pods.get(name)
            if pod is None or pod.state != "running" or pod.node is None:
                continue
            others = [
                n for n, room in self._room.items() if room >= pod.gpus and n != pod.node.name
            ]
            if anyway or (others and (await self._minder.judge(pod, others))[0]):
                self._left[pod.job.name].add(pod.node.name)
                self._replay.evict(pod)

    async def _place_all(self, pods: list[Pod]) -> bool:
        """A gang's pods are placed together or not at all, as kube-scheduler does with a PodGroup:
        each is asked about in turn, and nothing is bound before all have passed."""
        chosen: list[tuple[Pod, Node, list[Device]]] = []
        for pod in pods:
            if (node := await self._choose(pod)) is None:
                break
            self._used[node.name] += pod.gpus
            chosen.append((pod, node, self._take(pod, node)))
            self._reckon(node)
        whole = len(chosen) == len(pods)
        for pod, node, devices in chosen:
            if whole:
                del self._waiting[pod.name]
                self._bind(pod, node, devices)
            else:
                self._used[node.name] -= pod.gpus
                self._taken.difference_update(devices)
                self._reckon(node)
        return whole

    def _take(self, pod: Pod, node: Node) -> list[Device]:
        """Its devices; none where nobody chooses. kube-scheduler's allocator takes the first that
        are free."""
        if isinstance(self._minder, Oracle):
            devices = [one for one in best_devices(node) if one not in self._taken]
        elif self._dra:
            devices = self._free(node)
        else:
            return []
        self._taken.update(devices[: pod.gpus])
        return devices[: pod.gpus]

    def _bind(self, pod: Pod, node: Node, devices: list[Device]) -> None:
        self._claimed[pod.name] = devices
        if self._dra:
            claim = objects.claim_object(pod) | {"status": objects.allocation(pod, node, devices)}
            self._minder.seen(kinds.CLAIM, claim, pod.name)
        self._replay.bind(pod, node, devices or None)

    def _free(self, node: Node) -> list[Device]:
        """Devices that no claim holds and no taint keeps away."""
        return [one for one in node.devices if one not in self._taken and not one.withdrawn]

    def _reckon(self, node: Node) -> None:
        room = objects.allocatable(node) - self._used[node.name]
        self._room[node.name] = len(self._free(node)) if self._dra else room

    async def _choose(self, pod: Pod) -> Node | None:
        gpus = pod.gpus
        names = [
            node.name
            for node in self._replay.nodes
            if self._room[node.name] >= gpus and not self._minder.takes_out(node)
        ]
        if not names:
            return None
        left = self._left.get(pod.job.name, ())
        passed, scores = await self._minder.judge(pod, [n for n in names if n not in left] or names)
        if not passed:
            return None

        def total(name: str) -> int:
            used = self._used[name] + pod.gpus
            packed = 100 * (GPUS - used if self._spreads else used) // GPUS
            return packed + FETTLE_WEIGHT * 10 * scores[name]

        best = max(map(total, passed))
        return self._nodes[self._ties.choice([name for name in passed if total(name) == best])]


CONTENDERS = (
    "default",
    "again",
    "cordon",
    "observe",
    "steer",
    "enforce",
    "frees",
    "evicts",
    "stragglers",
    "taints",
    "oracle",
)
"""`again`: default with other luck, so what differs from default by no more is chance.
`frees`: Fettle enforces, and evicts pods that do not start. `evicts`: Fettle enforces, and evicts
pods whose device has failed. `stragglers`: the same, and pods that are slow for ten minutes.
`taints`: Fettle enforces, and whoever runs the fleet takes each reported device away, by a taint (a
device plugin: by withdrawing it). `oracle`: see there."""
WITHOUT_SCHEDULER = ("frees", "evicts", "stragglers", "oracle")
"""Those of the simulation alone."""


async def play(
    scenario: Scenario, seed: int, contender: str, settings: Settings | None = None
) -> Figures:
    """One contender's figures on one seed."""
    return await play_out(make_replay(scenario, seed, contender), seed, contender, settings)


async def play_out(
    replay: Replay, seed: int, contender: str, settings: Settings | None = None
) -> Figures:
    """To its end."""
    scenario, clock = replay.scenario, Clock(replay)
    minder = _minder(replay, contender, settings or Settings(), clock)
    packer = Packer(replay, clock, minder, seed)
    replay.begin(packer)
    tick_h = 0.0
    while replay.now_h < scenario.hours:
        upcoming_h = replay.next_h()
        if upcoming_h is None or upcoming_h > tick_h:
            replay.advance(tick_h)
            minder.look()
            replay.sample(TICK_H)
            await packer.free()
            await packer.evict()
            tick_h += TICK_H
        else:
            replay.advance(upcoming_h)
        await packer.place()
    return replay.finish()


def make_replay(scenario: Scenario, seed: int, contender: str) -> Replay:
    plan = make_plan(scenario, seed)
    if contender == "taints":
        plan = with_devices_taken_away(plan)
    return Replay(scenario, plan, seed, luck=2 if contender == "again" else 1)


def mode_of(contender: str) -> Mode | None:
    """Fettle's; None without it."""
    match contender:
        case "default" | "again" | "cordon" | "oracle":
            return None
        case "taints" | "frees" | "evicts" | "stragglers":
            return Mode.ENFORCE
    if contender in CONTENDERS:
        return Mode(contender)
    raise ValueError(f"contender {contender!r}: write one of {', '.join(CONTENDERS)}")


def _minder(replay: Replay, contender: str, settings: Settings, clock: Clock) -> Minder:
    if (mode := mode_of(contender)) is not None:
        deadline_s = START_DEADLINE_S if contender == "frees" else inf
        return Fettle(
            replay,
            settings,
            clock,
            mode,
            deadline_s=deadline_s,
            evicts=contender in ("evicts", "stragglers"),
            stragglers=contender == "stragglers",
        )
    if contender == "oracle":
        return Oracle(replay)
    return Cordons() if contender == "cordon" else Nobody()
