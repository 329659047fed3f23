"""What must hold all along, whatever is done. First judgements of samples, which are pure; then
`Watch`, which takes the samples."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median, quantiles
from typing import Any, NamedTuple

import msgspec

from tests.controlplane.api import Object, Objects
from tests.controlplane.processes import Process, ProcessFailed
from tests.controlplane.waiting import node_of, refusal_of
from tests.soak.asking import TIMEOUT_S, Call
from tests.soak.house import EVERYDAY, House, Replica, fetch
from tests.soak.working import WORK

WAITS_S = 5.0
"""How long a pod may wait for nothing."""
WARM_S = 120.0
JUDGED_S = 240.0
"""Memory is judged over at least so long after the warm-up."""
FLAT_MB, FLAT_SHARE = 8.0, 0.05
MB_OF_POD, MOST_PODS = 0.01, 2000
"""What is kept of a pod that has ended, and of how many: ten minutes end too few to fill that."""
PARTS = 6
EXCUSED_S = 1.5
"""A call that breaks so soon before or after an extender is killed is no wonder."""
OURS = "fettle.dev/"
WRITTEN_BY_OTHERS = (f"{OURS}repaired", f"{OURS}hold")
RULES = "devicetaintrules"
OURS_SAY = re.compile(r"fettle|/filter|/prioritize")
LOOK_S = 1.0
MEMORY_EVERY_S = 5.0
MOST_EXPLAINED = 20


class Sample(NamedTuple):
    at: float
    mb: float


class Seen(NamedTuple):
    """A process of the house. `serving` is the pid of the one that serves, 0 if there is none."""

    pid: int
    exit_code: int | None
    serving: int = 0


# --- judgements


def unexplained(explained: Mapping[str, Any]) -> list[str]:
    """Nodes that `/explain` of a pod says do not do, without a word why."""
    return [
        name
        for name, node in explained.items()
        if not node["fits"] and not any(node["refusals"] + node["rejected"] + node["undecided"])
    ]


def fitting(explained: Mapping[str, Any], nodes: Objects) -> list[str]:
    """Nodes that would take the pod at once, as Fettle and the nodes themselves say."""
    closed = {
        node["metadata"]["name"]
        for node in nodes
        if node["spec"].get("unschedulable")
        or any(taint["effect"] != "PreferNoSchedule" for taint in node["spec"].get("taints") or ())
    }
    return [n for n, one in explained.items() if one["fits"] and n not in closed]


class Waits:
    """Since when pods wait though a node would take them."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self.longest_s = 0.0

    def look(self, now: float, fit: Mapping[str, Sequence[str]]) -> list[str]:
        """`fit`: the nodes that would take each pod that waits. Sentences about those that have
        waited too long, each once."""
        self._since = {pod: self._since.get(pod, now) for pod, nodes in fit.items() if nodes}
        found = []
        for pod, since in self._since.items():
            self.longest_s = max(self.longest_s, waited_s := now - since)
            if waited_s > WAITS_S:
                self._since[pod] = float("inf")
                found.append(f"{pod} has waited for {waited_s:.1f} s, and fits {fit[pod][:3]}")
        return found

    def forget(self) -> None:
        """Something was disturbed: they may wait anew."""
        self._since.clear()


def grown_mb(samples: Sequence[Sample]) -> float | None:
    """By how much memory grew after the warm-up, if it grew all along as by what it usually did in
    a part of that time; None before that can be said. A step, as after an attack, does not count.
    """
    if not samples:
        return None
    whole_s = samples[-1].at - samples[0].at
    warm = [s for s in samples if s.at >= samples[0].at + max(WARM_S, whole_s / 4)]
    if len(warm) < PARTS or warm[-1].at - warm[0].at < JUDGED_S:
        return None
    size = len(warm) // PARTS
    levels = [median(s.mb for s in warm[n * size : (n + 1) * size]) for n in range(PARTS)]
    return median(later - one for one, later in pairwise(levels)) * PARTS


def not_flat(name: str, samples: Sequence[Sample], pods: int = 0) -> list[str]:
    """`pods`: how many came and went meanwhile."""
    grown, kept = grown_mb(samples), MB_OF_POD * min(pods, MOST_PODS)
    if grown is None or grown <= kept + max(FLAT_MB, FLAT_SHARE * median(s.mb for s in samples)):
        return []
    return [f"{name} grew by {grown:.0f} MB, from {samples[0].mb:.0f} to {samples[-1].mb:.0f} MB"]


def acts(nodes: Objects, rules: Objects) -> list[str]:
    """What still keeps pods off, though all is mended."""
    found = [r["metadata"]["name"] for r in rules if r["spec"]["taint"]["effect"] != "None"]
    for node in nodes:
        name = node["metadata"]["name"]
        if node["spec"].get("unschedulable"):
            found.append(f"cordon of {name}")
        found += [f"taint of {name}: {t['key']}" for t in node["spec"].get("taints") or ()]
        found += [
            f"{condition['type']} of {name}: {condition['message']}"
            for condition in node["status"]["conditions"]
            if condition["type"].startswith("Fettle") and condition["status"] != "True"
        ]
    return found


def remains(nodes: Objects, rules: Objects) -> list[str]:
    """All that is left of what Fettle writes on nodes and devices, once that is switched off."""
    found = [*acts(nodes, rules), *(f"rule {r['metadata']['name']}" for r in rules)]
    for node in nodes:
        metadata, name = node["metadata"], node["metadata"]["name"]
        keys = [*metadata.get("labels", {}), *metadata.get("annotations", {})]
        found += [
            f"{key} of {name}"
            for key in keys
            if key.startswith(OURS) and not key.startswith(WRITTEN_BY_OTHERS)
        ]
        found += [
            f"{condition['type']} of {name}"
            for condition in node["status"]["conditions"]
            if condition["type"].startswith("Fettle")
        ]
    return found


def bad_call(call: Call, broken: Iterable[float]) -> list[str]:
    """`broken`: when extenders were taken away or came back, in Unix seconds."""
    if call.took_s >= TIMEOUT_S:
        load = os.getloadavg()[0]
        return [f"filter took {call.took_s:.2f} s ({call.broken or 'answered'}; load {load:.1f})"]
    if call.mute:
        return [f"filter refused {call.mute} without a reason"]
    ended = call.at + call.took_s
    excused = any(call.at - EXCUSED_S < at < ended + EXCUSED_S for at in broken)
    return [f"a filter call broke: {call.broken}"] if call.broken and not excused else []


class Ends:
    """Whether anything ended that nobody killed."""

    def __init__(self) -> None:
        self._known: dict[str, Seen] = {}

    def look(self, seen: Mapping[str, Seen], excused: Iterable[str]) -> dict[str, str]:
        """By name, what happened; what an action takes away is learnt anew afterwards."""
        found = {}
        for name in excused:
            self._known.pop(name, None)
        for name, one in seen.items():
            if name in excused:
                continue
            known = self._known.get(name)
            if one.exit_code is not None:
                if known is None or known.exit_code is None:
                    found[name] = f"{name} ended with {one.exit_code}"
            elif known is not None and known.pid == one.pid and known.serving != one.serving:
                found[name] = f"{name} serves by process {one.serving}, not {known.serving}"
            self._known[name] = one
        return found


# --- samples


class Watch:
    """Looks all along, and tells `violated(invariant, what)`."""

    def __init__(self, house: House, asking: Process, violated: Callable[[str, str], None]) -> None:
        self._house, self._asking, self._violated = house, asking, violated
        self.calls: list[float] = []
        """How long each took, in seconds."""
        self.broken = 0
        self.errors: dict[str, int] = {}
        self.memory: dict[str, list[Sample]] = {}
        """By replica and process."""
        self.waits = Waits()
        self.explained = 0
        self.explained_in_vain = 0
        self._ends = Ends()
        self._read = 0
        self._traces: dict[str, int] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for every_s, look in (
                (0.2, self._look_for_ends),
                (LOOK_S, self._look_at_calls),
                (LOOK_S, self._look_at_pods),
                (MEMORY_EVERY_S, self._look_at_memory),
                (MEMORY_EVERY_S, self._look_at_logs),
            ):
                group.create_task(self._again(every_s, look))

    async def _again(self, every_s: float, look: Callable[[], Any]) -> None:
        while True:
            await look()
            await asyncio.sleep(every_s)

    async def _look_for_ends(self) -> None:
        house = self._house
        processes = house.processes().items()
        seen = {name: _seen(one, house.replicas.get(name)) for name, one in processes}
        excused = [name for name, count in house.down.items() if count]
        for name, what in self._ends.look(seen, excused).items():
            tail = house.processes()[name].tail(10)
            self._violated("nothing ends but what was killed", f"{what}\n{tail}")
            if name in house.replicas and seen[name].exit_code is not None:
                with house.taken(name):  # as a kubelet would
                    await house.start_replica(house.replicas[name])

    async def _look_at_calls(self) -> None:
        if not self._asking.running:
            raise ProcessFailed(f"nobody asks any more\n{self._asking.tail()}")
        house = self._house
        extenders = [one.name for one in house.of_role("extender")]
        broken = [time.time() for name in extenders if house.down[name]]
        broken += [house.broken[name] for name in extenders if name in house.broken]
        for call in self._new_calls():
            self.calls.append(call.took_s)
            self.broken += bool(call.broken)
            if call.error:
                self.errors[call.error] = self.errors.get(call.error, 0) + 1
            for what in bad_call(call, broken):
                slow = call.took_s >= TIMEOUT_S
                name = "filter is never slower than its timeout" if slow else "filter answers"
                self._violated(name, what)

    def _new_calls(self) -> Iterator[Call]:
        with self._asking.log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                yield msgspec.json.decode(line, type=Call)

    async def _look_at_pods(self) -> None:
        if (calm := self._house.calm_since) is None:
            self.waits.forget()
            return
        try:
            async with asyncio.timeout(10):
                fit = await self._fitting()
        except EVERYDAY:
            self.explained_in_vain += 1
            return
        if self._house.calm_since != calm:
            return
        for what in self.waits.look(time.monotonic(), fit):
            self._violated("nobody waits longer than what they wait for", what)

    async def _fitting(self) -> dict[str, list[str]]:
        """The nodes that would take each pod of the work that waits."""
        api, extender = self._house.api, self._house.replicas["extender-b"].fettle
        (label,) = WORK.items()
        pods = [p for p in await api.list("pods", "default", labels="=".join(label)) if _waits(p)]
        nodes, found = await api.list("nodes"), {}
        for pod in pods[:MOST_EXPLAINED]:
            name = pod["metadata"]["name"]
            status, explained = await fetch(extender, "/explain", pod=f"default/{name}")
            if status == 404:  # it has just come, or gone
                continue
            self.explained += 1
            if status != 200:
                self._violated("no refusal without a reason", f"/explain of {name}: {explained}")
            elif mute := unexplained(explained := _wanted(pod, explained["nodes"])):
                said = refusal_of(pod)
                self._violated("no refusal without a reason", f"{name} on {mute}: {said}")
            else:
                found[name] = fitting(explained, nodes)
        return found

    async def _look_at_memory(self) -> None:
        for name, replica in self._house.replicas.items():
            with contextlib.suppress(OSError, ProcessFailed, ValueError):
                key = f"{name} ({replica.fettle.serving_pid})"
                samples = self.memory.setdefault(key, [])
                samples.append(Sample(time.monotonic(), replica.fettle.resident_mb()))

    def judge_memory(self, pods_per_s: float) -> None:
        for name, samples in self.memory.items():
            lived_s = samples[-1].at - samples[0].at if samples else 0.0
            for what in not_flat(name, samples, round(pods_per_s * lived_s)):
                self._violated("memory is flat", what)

    async def _look_at_logs(self) -> None:
        """No error that nobody expected."""
        for name, replica in self._house.replicas.items():
            log = replica.fettle.process.log
            with log.open("rb") as file:
                file.seek(self._traces.get(name, 0))
                text = file.read()
            self._traces[name] = self._traces.get(name, 0) + len(text)
            for line in text.splitlines():
                if b"Traceback" in line:
                    told = line.decode(errors="replace").replace("\\n", "\n")
                    self._violated("no unexpected error is logged", f"{name}: {told[-1500:]}")

    async def until_undone(self, *, switched_off: bool, within_s: float) -> None:
        """Nothing is left of what Fettle wrote."""
        judge = remains if switched_off else acts
        deadline, left = time.monotonic() + within_s, ["unknown"]
        while left and time.monotonic() < deadline:
            await asyncio.sleep(1)
            with contextlib.suppress(*EVERYDAY):
                nodes, rules = [await self._house.api.list(what) for what in ("nodes", RULES)]
                left = judge(nodes, rules)
        if left:
            when = "after it was switched off" if switched_off else "after all was mended"
            self._violated("no write without its undo", f"{when}: {'; '.join(left)}")

    def percentiles_ms(self) -> tuple[float, float, float]:
        """p50, p99 and the slowest, of filter."""
        if len(self.calls) < 2:
            return (0.0, 0.0, 0.0)
        cuts = quantiles(self.calls, n=100)
        return cuts[49] * 1000, cuts[98] * 1000, max(self.calls) * 1000


def _wanted(pod: Object, explained: Mapping[str, Any]) -> Mapping[str, Any]:
    """Only the node that the pod asks for, if it asks for one."""
    asked = pod["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname")
    return {asked: explained[asked]} if asked in explained else explained


def _waits(pod: Object) -> bool:
    """Whether it has no node because of Fettle, as its scheduler says."""
    ends = pod["metadata"].get("deletionTimestamp")
    return not node_of(pod) and not ends and OURS_SAY.search(refusal_of(pod)) is not None


def _seen(process: Process, replica: Replica | None) -> Seen:
    serving = 0
    if replica is not None:
        with contextlib.suppress(ProcessFailed, OSError):
            serving = replica.fettle.serving_pid
    return Seen(process.pid, process.exit_code, serving)
