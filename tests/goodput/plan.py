"""What fails in the fleet, when, and what work arrives: made from a seed before anything runs.

Times are hours. The figures were chosen before any setting of Fettle was tuned with them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple

GPUS = 8
"""Devices of each node."""
BEFORE_H = 40.0
"""Faults that began so long before the replay may last into it."""
DAILY_FAULTS = 19 / 1000
"""Remediation requests a node and day in large fleets (health-signals: 19 per 1000 node-days)."""
_SPREAD = 0.6
"""Of the lognormal distribution of how long a repair takes."""
_SPREAD_MEAN = 1.197
"""The mean of that distribution with median 1."""


class Shows(NamedTuple):
    """How a fault is reported.

    `condition` is a node condition as NVSentinel writes it, with an error `code`; `withdrawn`: the
    device plugin takes the unit back (DRA: the driver taints the device); `flaps`: the report comes
    and goes; `refuses`: the kubelet refuses pods, and nothing else shows; `starts_nothing`: pods
    are bound and never start, and only they show it.
    """

    condition: str = ""
    code: str = ""
    withdrawn: bool = False
    flaps: bool = False
    refuses: bool = False
    starts_nothing: bool = False

    @property
    def is_of_new_pods(self) -> bool:
        """Whether pods that run there are not concerned."""
        return self.refuses or self.starts_nothing

    @property
    def is_reported(self) -> bool:
        return bool(self.condition) or self.withdrawn


class FaultKind(NamedTuple):
    """`share` of all faults; `speed` of work on the device (0: stands still); `fails_h`: mean time
    until a pod on it fails (None: never); `delay_h` until it shows; `repair_h`: mean duration."""

    share: float
    speed: float
    fails_h: float | None
    shows: Shows
    delay_h: float
    repair_h: float
    whole_node: bool = False


FAULTS: Mapping[str, FaultKind] = {
    "lost": FaultKind(0.15, 0.0, 0.15, Shows("SysLogsXIDError", "79", withdrawn=True), 0.03, 8),
    "gsp": FaultKind(0.18, 0.0, 0.15, Shows("SysLogsXIDError", "119"), 0.03, 8),
    "withdrawn": FaultKind(0.08, 0.0, 0.15, Shows(withdrawn=True), 0.03, 8),
    "memory": FaultKind(
        0.08, 1.0, 1.0, Shows("GpuMemWatch", "DCGM_FR_VOLATILE_DBE_DETECTED"), 0.05, 8
    ),
    "thermal": FaultKind(
        0.12, 0.6, None, Shows("GpuThermalWatch", "DCGM_FR_CLOCKS_EVENT_THERMAL"), 0.2, 4
    ),
    "nvlink": FaultKind(0.08, 0.5, 8.0, Shows("GpuNvlinkWatch", "DCGM_FR_NVLINK_DOWN"), 0.2, 8),
    "flap": FaultKind(0.08, 0.9, 3.0, Shows("SysLogsXIDError", "74", flaps=True), 0.1, 16),
    "swallows": FaultKind(0.08, 1.0, None, Shows(refuses=True), 0.0, 3, whole_node=True),
    "kernel": FaultKind(0.08, 1.0, 1.0, Shows("KernelDeadlock"), 0.1, 3, whole_node=True),
    "silent": FaultKind(0.07, 0.7, None, Shows(), 0.0, 24),
}
FALSE_SIGNAL = FaultKind(
    0.0, 1.0, None, Shows("GpuMemWatch", "DCGM_FR_VOLATILE_DBE_DETECTED"), 0.0, 8
)
"""A report about a device that has nothing."""


STARTS_NOTHING = FaultKind(0.0, 1.0, None, Shows(starts_nothing=True), 0.0, 24, whole_node=True)
"""A driver that prepares nothing, until somebody looks."""


class JobKind(NamedTuple):
    """`share` of the device-hours of all work; `pods` run together, each with `gpus`."""

    share: float
    gpus: int
    pods: int
    mean_h: float
    policy: str


JOBS: Mapping[str, JobKind] = {
    "gang4x8": JobKind(0.25, 8, 4, 10, "training"),
    "train8": JobKind(0.30, 8, 1, 8, "training"),
    "train4": JobKind(0.05, 4, 1, 5, "training"),
    "train2": JobKind(0.05, 2, 1, 5, "training"),
    "train1": JobKind(0.05, 1, 1, 4, "training"),
    "serve1": JobKind(0.30, 1, 1, 8, "inference"),
}


class Scenario(NamedTuple):
    """One setting of the replay.

    - `load`: work that arrives, as a share of the capacity.
    - `rate`: times the rate at which faults occur (12 × `DAILY_FAULTS`, so that a short replay
      shows enough of them).
    - `gangs`: share of the work that runs in gangs of four pods; the rest of it runs in single
      8-device pods.
    - `checkpoint_h`: failed training falls back to its last checkpoint. `restart_h`: how long until
      a failed job's pods are made anew.
    - `false_signals`: share of device time with a report about nothing.
    - `starts_nothing`: share of node time in which no pod starts on a node.
    - `saves`: training that is evicted saves a checkpoint first.
    - `reboots`: a repair restarts the node, and its pods fail, unless the fault was a light one.
    - `dra`: a DRA driver publishes the devices, instead of a device plugin.
    - `packing`: how kube-scheduler scores what is requested of a node, `MostAllocated` or its
      default, `LeastAllocated`.
    """

    nodes: int = 100
    hours: float = 70.0
    warmup_h: float = 12.0
    load: float = 0.85
    rate: float = 1.0
    gangs: float = 0.25
    checkpoint_h: float = 1.0
    restart_h: float = 0.05
    false_signals: float = 0.0
    starts_nothing: float = 0.0
    saves: bool = False
    reboots: bool = False
    dra: bool = False
    packing: str = "MostAllocated"

    def validate(self) -> None:
        """Raises ValueError with one sentence: which field is wrong, and what to write."""
        for name, (least, most) in LIMITS.items():
            if not least <= (value := getattr(self, name)) <= most:
                raise ValueError(f"{name} {value}: write {least:g} to {most:g}")
        if self.hours <= self.warmup_h:
            raise ValueError(f"hours {self.hours}: write more than warmup_h, {self.warmup_h}")
        if self.packing not in PACKINGS:
            raise ValueError(f"packing {self.packing!r}: write one of {', '.join(PACKINGS)}")

    @property
    def capacity_h(self) -> float:
        """Device-hours after the warm-up."""
        return self.devices * (self.hours - self.warmup_h)

    @property
    def devices(self) -> int:
        return self.nodes * GPUS

    def jobs(self) -> dict[str, JobKind]:
        gang, single = JOBS["gang4x8"], JOBS["train8"]
        share = gang.share + single.share
        kinds = dict(JOBS)
        kinds["gang4x8"] = gang._replace(share=self.gangs)
        kinds["train8"] = single._replace(share=share - self.gangs)
        return {name: kind for name, kind in kinds.items() if kind.share > 0}


PACKINGS = ("MostAllocated", "LeastAllocated")
LIMITS: Mapping[str, tuple[float, float]] = {
    "nodes": (1, 10_000),
    "hours": (0.1, 10_000),
    "warmup_h": (0, 10_000),
    "load": (1e-9, 10),
    "rate": (1e-9, 1000),
    "gangs": (0, JOBS["gang4x8"].share + JOBS["train8"].share),
    "checkpoint_h": (0.001, 10_000),
    "restart_h": (0, 10_000),
    "false_signals": (0, 1),
    "starts_nothing": (0, 1),
}
"""The least and the most that fields of `Scenario` may be."""
STRESS = 12.0
COSTLY = {"checkpoint_h": 4.0, "restart_h": 0.25}
SATURATED = {"load": 1.6}
"""Work of every size always waits. With little more than 1, it is only whole nodes that jobs wait
for, and what is left of other nodes idles whoever places pods."""
SETTINGS: Mapping[str, Mapping[str, float]] = {
    "load 0.85": {},
    "load 1.15": {"load": 1.15},
    "saturated": SATURATED,
    "saturated, half the faults": {**SATURATED, "rate": 0.5},
    "saturated, twice the faults": {**SATURATED, "rate": 2.0},
    "saturated, 1 % false signals": {**SATURATED, "false_signals": 0.01},
    "saturated, costly failures": {**SATURATED, **COSTLY},
    "saturated, many gangs": {**SATURATED, "gangs": 0.55},
    "load 0.85, costly failures": COSTLY,
}
"""What is reported, as fields of `Scenario` that differ from their defaults."""


class PlannedFault(NamedTuple):
    name: str
    kind: FaultKind
    node: int
    gpu: int | None
    begins_h: float
    ends_h: float


class PlannedJob(NamedTuple):
    name: str
    kind: JobKind
    arrives_h: float
    work_h: float


class Plan(NamedTuple):
    faults: tuple[PlannedFault, ...]
    jobs: tuple[PlannedJob, ...]


def make_plan(scenario: Scenario, seed: int) -> Plan:
    """The same for all contenders."""
    rng = random.Random(seed)
    faults = [*_faults(scenario, rng), *_false_signals(scenario, rng)]
    jobs = sorted(_jobs(scenario, rng), key=lambda job: job.arrives_h)
    return Plan((*faults, *_starting_nothing(scenario, rng)), tuple(jobs))


def with_devices_taken_away(plan: Plan) -> Plan:
    """The same, but each device that is reported is withdrawn too (DRA: tainted)."""
    faults = []
    for fault in plan.faults:
        kind = fault.kind
        if fault.gpu is not None and kind.shows.is_reported:
            kind = kind._replace(shows=kind.shows._replace(withdrawn=True))
        faults.append(fault._replace(kind=kind))
    return plan._replace(faults=tuple(faults))


def _faults(scenario: Scenario, rng: random.Random) -> list[PlannedFault]:
    found = []
    names, shares = [*FAULTS], [kind.share for kind in FAULTS.values()]
    hourly = DAILY_FAULTS / 24 * STRESS * scenario.rate
    for node in range(scenario.nodes):
        at = -BEFORE_H
        while (at := at + rng.expovariate(hourly)) < scenario.hours:
            (name,) = rng.choices(names, shares)
            gpu = rng.randrange(GPUS)
            until = at + _duration(FAULTS[name], rng)
            if until > 0:
                kind = FAULTS[name]
                where = None if kind.whole_node else gpu
                found.append(PlannedFault(name, kind, node, where, max(at, 0.0), until))
    return found


def _false_signals(scenario: Scenario, rng: random.Random) -> list[PlannedFault]:
    found: list[PlannedFault] = []
    if not scenario.false_signals:
        return found
    hourly = scenario.false_signals / FALSE_SIGNAL.repair_h
    for node in range(scenario.nodes):
        for gpu in range(GPUS):
            at = -BEFORE_H
            while (at := at + rng.expovariate(hourly)) < scenario.hours:
                until = at + _duration(FALSE_SIGNAL, rng)
                if until > 0:
                    planned = PlannedFault("false", FALSE_SIGNAL, node, gpu, max(at, 0.0), until)
                    found.append(planned)
    return found


def _starting_nothing(scenario: Scenario, rng: random.Random) -> Iterator[PlannedFault]:
    if not scenario.starts_nothing:
        return
    hourly = scenario.starts_nothing / STARTS_NOTHING.repair_h
    for node in range(scenario.nodes):
        at = -BEFORE_H
        while (at := at + rng.expovariate(hourly)) < scenario.hours:
            until = at + _duration(STARTS_NOTHING, rng)
            if until > 0:
                begins_h = max(at, 0.0)
                yield PlannedFault("unstarted", STARTS_NOTHING, node, None, begins_h, until)


def _duration(kind: FaultKind, rng: random.Random) -> float:
    return rng.lognormvariate(0, _SPREAD) / _SPREAD_MEAN * kind.repair_h


def _jobs(scenario: Scenario, rng: random.Random) -> list[PlannedJob]:
    """Those that run as the replay begins, and those that arrive."""
    found: list[PlannedJob] = []
    for name, kind in scenario.jobs().items():
        running = kind.share * scenario.load * scenario.devices / (kind.gpus * kind.pods)
        arrivals = [0.0] * round(running)
        at, hourly = 0.0, running / kind.mean_h
        while (at := at + rng.expovariate(hourly)) < scenario.hours:
            arrivals.append(at)
        for arrives_h in arrivals:
            work_h = max(0.2, rng.expovariate(1 / kind.mean_h))
            found.append(PlannedJob(f"{name}-{len(found)}", kind, arrives_h, work_h))
    return found
