"""Plays a plan: devices fail and are mended, pods run, fail and are made anew, work gets done.

It knows nothing of schedulers. A `World` places the pods, and is told what kubelets, device plugins
and monitors say. Times are hours since the replay began; the world drives the clock.
"""

from __future__ import annotations

import heapq
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from fettle.model import State
from tests.goodput.plan import GPUS, FaultKind, JobKind, Plan, PlannedFault, PlannedJob, Scenario

REFUSAL_H = 10 / 3600
"""How long a kubelet takes to refuse a pod: 554 pods in 106 minutes (pytorch/ci-infra#1057)."""
REPAIR_SHOWS_H = 0.03
"""Until the report of a fault that is over is withdrawn."""
SLOW = 0.8
"""A rank so much slower than the others is a straggler."""
FLAP_H = 1.0
"""How long on average a report that comes and goes stays, or stays away."""
NOTHING_SAID: tuple[State, dict[str, State]] = (State.HEALTHY, {})
SWALLOWED = (
    "Pod was rejected: Allocate failed due to device plugin GetPreferredAllocation rpc failed with "
    "err: rpc error: code = Unknown desc = error getting list of preferred allocation devices: "
    "unable to retrieve list of available devices: error getting device handle from uuid: GPU is "
    "lost, which is unexpected"
)
"""What a kubelet says of a pod that it refuses (pytorch/ci-infra#1057)."""


@dataclass(eq=False)
class Fault:
    name: str
    kind: FaultKind
    node: Node
    device: Device | None
    draw: random.Random
    """Of when it is reported: the same whoever places pods."""
    reported: bool = False
    was_reported: bool = False

    @property
    def is_real(self) -> bool:
        return self.name != "false"


@dataclass(eq=False)
class Device:
    node: Node
    index: int
    uuid: str
    pci: str
    pod: Pod | None = None
    faults: list[Fault] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What a DRA driver calls it."""
        return f"gpu-{self.index}"

    @property
    def withdrawn(self) -> bool:
        return any(fault.reported and fault.kind.shows.withdrawn for fault in self.faults)

    @property
    def is_sound(self) -> bool:
        return not any(fault.is_real for fault in (*self.faults, *self.node.faults))


@dataclass(eq=False)
class Node:
    name: str
    devices: list[Device] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def all_faults(self) -> list[Fault]:
        return self.faults + [fault for device in self.devices for fault in device.faults]

    def reported(self) -> list[Fault]:
        return [fault for fault in self.all_faults() if fault.reported]

    @property
    def refuses(self) -> Fault | None:
        return next((fault for fault in self.faults if fault.kind.shows.refuses), None)

    @property
    def starts_nothing(self) -> Fault | None:
        return next((fault for fault in self.faults if fault.kind.shows.starts_nothing), None)


@dataclass(eq=False)
class Pod:
    """`state`: pending, running, then Succeeded, Failed or killed; stuck while it has its devices
    and does not start."""

    name: str
    job: Job
    created_h: float
    group: str
    """What it and the pods that its job made with it are called together."""
    state: str = "pending"
    node: Node | None = None
    bound_h: float = 0.0
    devices: list[Device] = field(default_factory=list)
    began_on: list[Fault] = field(default_factory=list)
    """The real faults of its devices and node as it began."""

    @property
    def place(self) -> str:
        """What it has in common with the pod that comes after it."""
        return self.name.rpartition("-")[0]

    @property
    def gpus(self) -> int:
        return self.job.kind.gpus

    @property
    def in_gang(self) -> bool:
        return self.job.kind.pods > 1

    @property
    def is_slow(self) -> bool:
        """Whether the device that it waits for most does less than most of its work."""
        return 0 < min((fault.kind.speed for fault in self.faults()), default=1.0) <= SLOW

    def faults(self) -> Iterator[Fault]:
        """The real faults that it runs on."""
        assert self.node is not None
        for fault in (*self.node.faults, *(f for device in self.devices for f in device.faults)):
            if fault.is_real and not fault.kind.shows.is_of_new_pods:
                yield fault


@dataclass(eq=False)
class Job:
    name: str
    kind: JobKind
    arrives_h: float
    work_h: float
    done_h: float = 0.0
    speed: float = 0.0
    avoidably: bool = False
    """What slows it was there when it began."""
    settled_h: float = 0.0
    attempt: int = 0
    version: int = 0
    ended: bool = False
    pods: dict[str, Pod] = field(default_factory=dict)


class World(Protocol):
    """What a replay tells whoever places pods."""

    def node_changed(self, node: Node) -> None:
        """What is reported about the node changed."""

    def pod_created(self, pod: Pod) -> None: ...

    def pod_started(self, pod: Pod) -> None: ...

    def pod_stuck(self, pod: Pod) -> None:
        """It is bound, and does not start."""

    def pod_ended(self, pod: Pod, phase: str, refusal: str) -> None:
        """`phase`: Succeeded, Failed, or "" if somebody deleted it; `refusal` is the kubelet's."""


@dataclass
class Figures:
    """Sums over the time after the warm-up, in device-hours unless it is said."""

    useful: float = 0.0
    lost: float = 0.0
    """Work that has to be done again."""
    occupied: float = 0.0
    avoidable: float = 0.0
    """Of what was lost, and of what devices did less than sound ones: where the fault was there
    when the pod began. Whoever only chooses where pods begin can gain no more than this, unless
    they pack better."""
    idle_bad: float = 0.0
    idle_beside_bad: float = 0.0
    """Sound, on a node of which a device is not."""
    idle_sound: float = 0.0
    """Sound, as all devices of the node are."""
    starts: int = 0
    starts_on_bad: int = 0
    starts_on_visibly_bad: int = 0
    failures: int = 0
    evictions: int = 0
    """Of pods that ran."""
    failures_by_job: Counter[str] = field(default_factory=Counter)
    """Of training: a service never gives up."""
    gangs: set[str] = field(default_factory=set)
    """The jobs of which a gang was placed."""
    stranded: float = 0.0
    """Sound devices idle while a job waits whose pods all fit on sound devices, on nodes where one
    of them fits."""
    sound: float = 0.0
    faults: int = 0
    refused: int = 0
    """Times that the scheduler had nodes for a pod, and Fettle none."""
    scheduler_s: float = 0.0
    """Processor time of the scheduler, if there is one."""
    bindings: dict[str, str] = field(default_factory=dict)
    """The node of each pod that was bound."""
    waits_h: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By job: how long its pods waited on average, all attempts together. A pod that fails soon and
    is bound again at once waited twice as often, not half as long."""
    whole_waits_h: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Those of jobs whose pods ask for a whole node."""
    bad_by_kind: Counter[str] = field(default_factory=Counter)
    failed_by_cause: Counter[str] = field(default_factory=Counter)
    state_changes: int = 0
    """Of devices, as Fettle saw them. Those that a whole node has in common count once."""
    called_bad_while_sound: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """In which Fettle called a device Degraded or Unhealthy that was sound and about which nothing
    was reported, by the state and the last fault."""


class Replay:
    """`luck` is of what differs by placement anyway: which free units a kubelet gives out, and how
    soon a pod fails on a bad one."""

    def __init__(self, scenario: Scenario, plan: Plan, seed: int, *, luck: int = 1) -> None:
        self.scenario = scenario
        self.now_h = 0.0
        self.figures = Figures()
        self.pods: dict[str, Pod] = {}
        """Those that are pending or running."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._draw = random.Random(seed * 7 + luck)
        self._world: World
        self._judged: dict[str, tuple[State, dict[str, State]]] = {}
        self._last_fault: dict[Device, str] = {}
        self.nodes = _make_nodes(scenario, random.Random(seed + 1))
        for number, fault in enumerate(plan.faults):
            draw = random.Random(f"{seed} {number}")
            self._at(fault.begins_h, partial(self._begin, fault, draw))
        for job in plan.jobs:
            self._at(job.arrives_h, partial(self._arrive, job))

    def begin(self, world: World) -> None:
        self._world = world

    # --- the clock

    def next_h(self) -> float | None:
        """When something happens next; None if nothing will."""
        return self._events[0][0] if self._events else None

    def advance(self, to_h: float) -> None:
        """Let everything happen that happens until then."""
        while self._events and self._events[0][0] <= to_h:
            at_h, _, happen = heapq.heappop(self._events)
            self.now_h = max(self.now_h, at_h)
            happen()
        self.now_h = max(self.now_h, to_h)

    def _at(self, hour: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (hour, self._count, happen))

    @property
    def counts(self) -> bool:
        """Whether the warm-up is over."""
        return self.scenario.warmup_h <= self.now_h <= self.scenario.hours

    # --- faults

    def _begin(self, planned: PlannedFault, draw: random.Random) -> None:
        node = self.nodes[planned.node]
        device = None if planned.gpu is None else node.devices[planned.gpu]
        fault = Fault(planned.name, planned.kind, node, device, draw)
        (device or node).faults.append(fault)
        if self.counts and fault.is_real:
            self.figures.faults += 1
        for each in [device] if device is not None else node.devices:
            self._last_fault[each] = fault.name
        self._changed(fault)
        shows = fault.kind.shows
        if shows.is_reported:
            delay_h = fault.kind.delay_h * draw.uniform(0.5, 1.5)
            self._at(self.now_h + delay_h, lambda: self._report(fault, reported=True))
        self._at(planned.ends_h, lambda: self._end(fault))

    def _report(self, fault: Fault, *, reported: bool) -> None:
        if fault not in (fault.device or fault.node).faults:
            return
        fault.reported = reported
        fault.was_reported |= reported
        self._world.node_changed(fault.node)
        if fault.kind.shows.flaps:
            pause_h = fault.draw.expovariate(1 / FLAP_H)
            self._at(self.now_h + pause_h, lambda: self._report(fault, reported=not reported))

    def _end(self, fault: Fault) -> None:
        (fault.device or fault.node).faults.remove(fault)
        self._changed(fault)
        if fault.kind.shows.starts_nothing and fault.node.starts_nothing is None:
            for pod in _pods_of(fault.node.devices):
                if pod.state == "stuck":
                    self._start(pod)
        if self.scenario.reboots and fault.is_real and fault.name not in ("thermal", "silent"):
            for pod in _pods_of(fault.node.devices):
                self.fail(pod, "reboot")
        node = fault.node
        self._at(self.now_h + REPAIR_SHOWS_H, lambda: self._world.node_changed(node))

    def _changed(self, fault: Fault) -> None:
        """A fault began or ended: work on it goes on at another speed, or fails some time."""
        devices = [fault.device] if fault.device is not None else fault.node.devices
        for pod in _pods_of(devices):
            self._settle(pod.job)
            self._doom(pod, fault)

    def _doom(self, pod: Pod, fault: Fault) -> None:
        if not fault.kind.fails_h or not fault.is_real:
            return
        fails_h = self.now_h + self._draw.expovariate(1 / fault.kind.fails_h)
        self._at(fails_h, lambda: self._fail_by(pod, fault))

    def _fail_by(self, pod: Pod, fault: Fault) -> None:
        if pod.state == "running" and fault in (fault.device or fault.node).faults:
            self.fail(pod, fault.name, avoidable=fault in pod.began_on)

    # --- pods

    def bind(self, pod: Pod, node: Node, devices: list[Device] | None = None) -> None:
        """A pod was placed. Without `devices` they are drawn as the kubelet draws them."""
        assert pod.state == "pending"
        pod.node, pod.bound_h = node, self.now_h
        self.figures.bindings[pod.name] = node.name
        if pod.in_gang and self.counts:
            self.figures.gangs.add(pod.job.name)
        if self.counts:
            self._count_wait(pod)
        if (fault := node.refuses) is not None:
            self._count_start(pod, [fault], visible=fault.was_reported)
            fault.was_reported = True
            self._refuse(pod, "refused", SWALLOWED)
            return
        if devices is None:
            free = [each for each in node.devices if each.pod is None and not each.withdrawn]
            if len(free) < pod.gpus:
                lacking = f"Requested: {pod.gpus}, Available: {len(free)}"
                self._refuse(
                    pod,
                    "too few",
                    "Pod was rejected: Allocate failed due to requested number of devices "
                    f"unavailable for nvidia.com/gpu. {lacking}, which is unexpected",
                )
                return
            devices = self._draw.sample(free, pod.gpus)
        pod.devices = devices
        for device in devices:
            device.pod = pod
        if (fault := node.starts_nothing) is not None:
            pod.state = "stuck"
            self._count_start(pod, [fault], visible=fault.was_reported)
            fault.was_reported = True
            self._world.pod_stuck(pod)
        else:
            self._start(pod)

    def free(self, pod: Pod) -> None:
        """A pod that does not start is evicted, and made anew."""
        job = pod.job
        self._release(pod, "")
        job.attempt += 1
        again = Pod(f"{pod.place}-{job.attempt}", job, self.now_h, pod.group)
        self.pods[again.name] = job.pods[again.name] = again
        self._world.pod_created(again)

    def _start(self, pod: Pod) -> None:
        pod.state = "running"
        faults = pod.began_on = [*pod.faults()]
        visible = any(f.reported or (f.was_reported and f.kind.shows.flaps) for f in faults)
        self._count_start(pod, faults, visible=visible)
        for fault in faults:
            self._doom(pod, fault)
        self._settle(pod.job)
        self._world.pod_started(pod)

    def _count_wait(self, pod: Pod) -> None:
        wait_h = self._until_h() - max(pod.created_h, self.scenario.warmup_h)
        share_h = wait_h / pod.job.kind.pods
        self.figures.waits_h[pod.job.name] += share_h
        if pod.gpus == GPUS:
            self.figures.whole_waits_h[pod.job.name] += share_h

    def _refuse(self, pod: Pod, cause: str, why: str) -> None:
        def refuse() -> None:
            if pod.name in self.pods:  # its job may have failed meanwhile
                self.fail(pod, cause, why, avoidable=cause == "refused")

        self._at(self.now_h + REFUSAL_H, refuse)

    def _count_start(self, pod: Pod, faults: list[Fault], *, visible: bool) -> None:
        if not self.counts:
            return
        figures = self.figures
        figures.starts += 1
        if faults:
            figures.starts_on_bad += 1
            figures.starts_on_visibly_bad += visible
            figures.bad_by_kind[faults[0].name] += 1

    def fail(self, pod: Pod, cause: str, refusal: str = "", *, avoidable: bool = False) -> None:
        """A pod failed; its job falls back to its last checkpoint, and its pods are made anew.
        `avoidable`: because of a fault that was there when it began."""
        job = pod.job
        self._settle(job)
        if self.counts:
            self.figures.failures += 1
            self.figures.failed_by_cause[cause] += 1
        if job.kind.policy == "training":
            self.figures.failures_by_job[job.name] += self.counts
            self._fall_back(job, avoidable=avoidable)
        self._end_all(pod, "Failed", refusal)

    def evict(self, pod: Pod) -> None:
        """A running pod is evicted; its job's pods are made anew, and it has not failed."""
        self._settle(pod.job)
        self.figures.evictions += self.counts
        if pod.job.kind.policy == "training" and not self.scenario.saves:
            self._fall_back(pod.job)
        self._end_all(pod, "")

    def _fall_back(self, job: Job, *, avoidable: bool = False) -> None:
        """To its last checkpoint."""
        every_h = self.scenario.checkpoint_h
        kept_h = int(job.done_h / every_h + 1e-9) * every_h
        lost = (job.done_h - kept_h) * job.kind.gpus * job.kind.pods
        if self.counts:
            self.figures.useful -= lost
            self.figures.lost += lost
            self.figures.avoidable += lost * avoidable
        job.done_h = kept_h

    def _end_all(self, pod: Pod, phase: str, refusal: str = "") -> None:
        """A pod has ended so; its job's others are deleted, and all are made anew."""
        job = pod.job
        self._release(pod, phase, refusal)
        for other in [*job.pods.values()]:
            self._release(other, "")
        job.speed, job.avoidably, job.version = 0.0, False, job.version + 1
        self._at(self.now_h + self.scenario.restart_h, lambda: self._make_pods(job))

    def _release(self, pod: Pod, phase: str, refusal: str = "") -> None:
        for device in pod.devices:
            device.pod = None
        if pod.state in ("running", "stuck"):
            since_h = max(pod.bound_h, self.scenario.warmup_h)
            self.figures.occupied += max(0.0, self._until_h() - since_h) * pod.gpus
        pod.state = phase or "killed"
        del pod.job.pods[pod.name], self.pods[pod.name]
        self._world.pod_ended(pod, phase, refusal)

    def _until_h(self) -> float:
        return min(self.now_h, self.scenario.hours)

    # --- jobs

    def _arrive(self, planned: PlannedJob) -> None:
        job = Job(planned.name, planned.kind, self.now_h, planned.work_h, settled_h=self.now_h)
        self._make_pods(job)

    def _make_pods(self, job: Job) -> None:
        job.attempt += 1
        for index in range(job.kind.pods):
            name = f"{job.name}-{index}-{job.attempt}"
            pod = Pod(name, job, self.now_h, f"{job.name}-{job.attempt}")
            self.pods[pod.name] = job.pods[pod.name] = pod
            self._world.pod_created(pod)

    def _settle(self, job: Job) -> None:
        """Credit the work that was done at the old speed, and reckon the new one."""
        spent_h = self.now_h - job.settled_h
        done_h = min(job.speed * spent_h, job.work_h - job.done_h)
        devices = job.kind.gpus * job.kind.pods
        since_h = max(job.settled_h, self.scenario.warmup_h)
        counted_h = max(0.0, self._until_h() - since_h)
        if done_h > 0:
            job.done_h += done_h
            self.figures.useful += min(done_h, counted_h * job.speed) * devices
        if job.avoidably:
            self.figures.avoidable += counted_h * (1 - job.speed) * devices
        job.settled_h = self.now_h
        pods = job.pods.values()
        together = len(pods) == job.kind.pods and all(pod.state == "running" for pod in pods)
        job.speed, job.avoidably = _slowest(pods) if together else (0.0, False)
        job.version += 1
        if job.speed > 0:
            version = job.version
            ends_h = self.now_h + (job.work_h - job.done_h) / job.speed
            self._at(ends_h, lambda: self._finish(job, version))

    def _finish(self, job: Job, version: int) -> None:
        if version != job.version or job.ended:
            return
        self._settle(job)
        job.ended = True
        for pod in [*job.pods.values()]:
            self._release(pod, "Succeeded")

    # --- figures

    def judged(self, name: str, whole: State, units: dict[str, State]) -> None:
        """Fettle calls a node, and those of its devices about which something is said, so."""
        before, of_units = self._judged.get(name, NOTHING_SAID)
        self._judged[name] = whole, units
        if self.counts:
            changes = [
                (of_units.get(unit, before), units.get(unit, whole)) for unit in of_units | units
            ]
            apart = [one for one in changes if one != (before, whole)]
            self.figures.state_changes += sum(old is not new for old, new in apart)
            self.figures.state_changes += before is not whole

    def sample(self, span_h: float, *, waited_h: float = 0.25) -> None:
        """Add what is idle now, for so many hours."""
        if not self.counts:
            return
        idle: dict[Node, int] = {}
        """Sound devices, by node."""
        for node in self.nodes:
            sound = [device.is_sound for device in node.devices]
            self.figures.sound += sum(sound) * span_h
            self._sample_states(node, span_h)
            free = [ok for device, ok in zip(node.devices, sound, strict=True) if not device.pod]
            idle[node] = sum(free)
            self.figures.idle_bad += (len(free) - idle[node]) * span_h
            if all(sound):
                self.figures.idle_sound += idle[node] * span_h
            else:
                self.figures.idle_beside_bad += idle[node] * span_h
        fitting = [
            kind.gpus
            for kind in {
                pod.job.kind
                for pod in self.pods.values()
                if pod.node is None and self.now_h - pod.created_h > waited_h
            }
            if sum(free // kind.gpus for free in idle.values()) >= kind.pods
        ]
        if fitting:
            usable = sum(free for free in idle.values() if free >= min(fitting))
            self.figures.stranded += usable * span_h

    def _sample_states(self, node: Node, span_h: float) -> None:
        whole, units = self._judged.get(node.name, NOTHING_SAID)
        for device in node.devices:
            state = units.get(device.uuid) or units.get(device.name, whole)
            bad = state in (State.DEGRADED, State.UNHEALTHY)
            if bad and not node.faults and not device.faults:
                last = self._last_fault.get(device, "none")
                self.figures.called_bad_while_sound[f"{last} {state}"] += span_h

    def finish(self) -> Figures:
        """At the end: what still runs and waits counts too."""
        jobs = {pod.job.name: pod.job for pod in self.pods.values()}
        for job in jobs.values():
            self._settle(job)
        for pod in self.pods.values():
            if pod.state in ("running", "stuck"):
                since_h = max(pod.bound_h, self.scenario.warmup_h)
                self.figures.occupied += max(0.0, self.scenario.hours - since_h) * pod.gpus
            elif pod.node is None and pod.created_h < self.scenario.hours:
                self._count_wait(pod)
        return self.figures


def _slowest(pods: Iterable[Pod]) -> tuple[float, bool]:
    """The speed of pods that run together, and whether what slows them was there as they began."""
    speeds = [(fault.kind.speed, fault in pod.began_on) for pod in pods for fault in pod.faults()]
    return min(speeds, default=(1.0, False))


def _pods_of(devices: Iterable[Device]) -> list[Pod]:
    return [*dict.fromkeys(device.pod for device in devices if device.pod is not None)]


def _make_nodes(scenario: Scenario, rng: random.Random) -> list[Node]:
    nodes = []
    for number in range(scenario.nodes):
        node = Node(f"gpu-{number:03d}")
        for index in range(GPUS):
            name = f"GPU-{uuid.UUID(int=rng.getrandbits(128), version=4)}"
            pci = f"0000:{0x18 + 0x10 * index:02x}:00.0"
            node.devices.append(Device(node, index, name, pci))
        nodes.append(node)
    return nodes
