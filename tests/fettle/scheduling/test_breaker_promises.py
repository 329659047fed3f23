"""What the breaker promises (decision 0074): no bad day puts a strict pod on a dead device while it
still waits, and no wrong rule stops a pool for longer than it must wait."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fettle.api import core, kinds
from fettle.cel import SelectorEngine
from fettle.cluster import Publisher, View
from fettle.config import HealthSettings, Settings
from fettle.health import load_rules
from fettle.model import BUILT_IN, Policy, State
from fettle.scheduling.answers import Answers, devices_counted
from fettle.scheduling.breaker import FEWEST
from fettle.scheduling.judge.acceptance import by_cause
from fettle.scheduling.placed.at_risk import AtRisk
from fettle.scheduling.placed.device_failures import find_failures
from fettle.scheduling.plans.node_healths import NodeHealths
from fettle.steward import AllowedNodes
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, node, slice_

GPU = "nvidia.com/gpu"
START = 1_000_000.0
HOUR = 3600.0
BREAKER = Settings().breaker
PATIENT = BUILT_IN["training"]
IMPATIENT = BUILT_IN["inference"]
ENDLESS = msgspec.structs.replace(
    PATIENT,
    name="endless",
    placement=msgspec.structs.replace(PATIENT.placement, patience=None, gang_patience=None),
)


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def dead_gpu(index: int, since: float) -> dict[str, Any]:
    return dead_gpus((index,), since)


def dead_gpus(indexes: Iterable[int], since: float) -> dict[str, Any]:
    """A monitor's word, by name: NVSentinel's form, of DCGM's volatile double-bit errors."""
    entry = (
        "ErrorCode:DCGM_FR_VOLATILE_DBE_DETECTED GPU:{} dead Recommended Action=CONTACT_SUPPORT;"
    )
    return {
        "type": "GpuMemWatch",
        "status": "True",
        "reason": "GpuMemWatchIsNotHealthy",
        "message": "".join(entry.format(index) for index in indexes),
        "lastTransitionTime": at(since),
        "lastHeartbeatTime": at(since),
    }


def xid(pci: int, since: float) -> dict[str, Any]:
    """The driver's own line under a monitor's condition."""
    return {
        "type": "GpuLost",
        "status": "True",
        "reason": "XID",
        "message": f"NVRM: Xid (PCI:0000:{pci + 16:x}:00): 79, GPU has fallen off the bus.",
        "lastTransitionTime": at(since),
    }


def wrong(since: float) -> dict[str, Any]:
    """What a monitor says of a whole node, by a regular expression that fits all."""
    return {
        "type": "KernelDeadlock",
        "status": "True",
        "reason": "DockerHung",
        "message": "hung task",
        "lastTransitionTime": at(since),
    }


OWN_ROWS = """
conditions:
  - {name: wild, type: "Check*", faulty: true, family: memory, weight: 0.9, source: wrong}
  - {name: latched, type: Board, faulty: true, family: memory, weight: 1.0, kind: latched,
     source: wrong}
taints:
  - {name: wild, key: "wrong.example.com/*", family: memory, weight: 0.9, source: wrong}
"""
RULES = load_rules("rules.yaml", OWN_ROWS)


def says(type_: str, since: float) -> dict[str, Any]:
    return wrong(since) | {"type": type_}


WRONG_RULES: dict[str, Callable[[int, int, float], list[dict[str, Any]]]] = {
    "of the node": lambda _number, _gpus, since: [wrong(since)],
    "of many types": lambda number, _gpus, since: [says(f"Check{number}", since)],
    "latched": lambda _number, _gpus, since: [says("Board", since)],
    "XIDs without a device": lambda _number, _gpus, since: [says("XIDError79", since)],
    "each device by name": lambda _number, gpus, since: [dead_gpus(range(gpus), since)],
}
"""What a rule or a monitor that is wrong says of a node, by its number and GPUs, and since when."""


def pod(policy: str, gpus: int, since: float = START, **spec: Any) -> core.Pod:
    raw = b.gpu_pod(gpus, annotations={"fettle.dev/policy": policy})
    raw["metadata"] |= {"creationTimestamp": at(since), "uid": f"{policy}-{gpus}"}
    amounts = {GPU: str(gpus)}
    containers = [{"name": "c", "resources": {"limits": amounts, "requests": amounts}}]
    raw["spec"] = {"containers": containers} | spec
    return b.pod(raw | {"status": {"phase": "Running" if "nodeName" in spec else "Pending"}})


class Day:
    """A cluster with a clock, by the real way from objects to answers."""

    def __init__(self, *policies: Policy) -> None:
        self.now = START
        self.fleet = Fleet(rules=RULES)
        self.publisher = Publisher()
        self.answers = Answers(self.publisher, SelectorEngine(), Settings(), now=lambda: self.now)
        self._policies = {one.name: one for one in policies}
        self._conditions: dict[str, list[dict[str, Any]]] = {}
        self._gpus: dict[str, int] = {}

    def add(self, name: str, gpus: int, *conditions: dict[str, Any]) -> None:
        self._gpus[name] = gpus
        self._conditions.setdefault(name, []).extend(conditions)
        amounts = {GPU: str(gpus)}
        self.fleet.now = self.now
        self.fleet.put(
            kinds.NODE,
            {
                "metadata": {"name": name, "uid": name},
                "status": {
                    "capacity": amounts,
                    "allocatable": amounts,
                    "conditions": self._conditions[name],
                },
            },
        )

    def view(self, *pods: core.Pod) -> View:
        before, found = self.publisher.view, self.fleet.look()
        made = msgspec.structs.replace(
            found,
            generation=before.generation + 1,
            basis=before.basis + 1,
            policies=self._policies,
            pods={one.metadata.key: one for one in pods},
        )
        self.publisher.publish(made, frozenset(made.nodes))
        return made

    async def refused(self, waiting: core.Pod) -> frozenset[str]:
        demand = self.answers.demand(waiting)
        assert demand is not None
        table = await self.answers.judged(demand)
        return frozenset(table.refused)

    def dead(self) -> set[str]:
        """The nodes with a device that is named and Unhealthy."""
        return {
            name
            for name, one in self.publisher.view.nodes.items()
            for plugin in one.plugins.values()
            if any(unit.health.state is State.UNHEALTHY for unit in plugin.units)
        }


class Fault(NamedTuple):
    node: int
    gpu: int
    after_s: float
    by_driver: bool


faults = st.lists(
    st.builds(
        Fault,
        st.integers(0, 13),
        st.integers(0, 7),
        st.sampled_from((0.0, 1.0, 60.0, 300.0)),
        st.booleans(),
    ),
    max_size=14,
)


@given(st.integers(1, 14), faults)
async def test_no_faults_put_a_strict_pod_on_a_dead_device_while_it_waits(
    nodes: int, found: list[Fault]
) -> None:
    day = Day(ENDLESS)
    for number in range(nodes):
        day.add(f"n{number}", 8)
    day.view()
    for fault in found:
        day.now = min(day.now + fault.after_s, START + 1.9 * HOUR)
        said = (xid if fault.by_driver else dead_gpu)(fault.gpu, day.now)
        day.add(f"n{fault.node % nodes}", 8, said)
        day.view()
        assert f"n{fault.node % nodes}" in day.dead()
        for policy in (PATIENT, ENDLESS):
            waits_s = 1.9 * HOUR if policy is PATIENT else BREAKER.patience_seconds - 1
            waiting = pod(policy.name, 8, max(START, day.now - waits_s))
            assert day.dead() <= await day.refused(waiting)


@pytest.mark.parametrize("burst", [True, False])
@pytest.mark.parametrize(
    ("policy", "waits_s"),
    [
        (PATIENT, 2 * HOUR),
        (IMPATIENT, BREAKER.patience_seconds),
        (ENDLESS, BREAKER.patience_seconds),
    ],
    ids=["patient", "impatient", "endless"],
)
@pytest.mark.parametrize("rule", WRONG_RULES)
@given(sizes=st.lists(st.sampled_from((1, 4, 8, 16)), min_size=1, max_size=16))
async def test_no_wrong_rule_stops_a_pool_for_longer_than_pods_must_wait(
    policy: Policy, waits_s: float, sizes: list[int], rule: str, *, burst: bool
) -> None:
    is_hard = rule in ("latched", "XIDs without a device")
    assume(not is_hard or len(sizes) >= FEWEST)  # on fewer nodes it may as well be true
    day = Day(ENDLESS)
    for number, gpus in enumerate(sizes):
        since = START - (0 if burst else 700 * number)
        day.add(f"n{number}", gpus, *WRONG_RULES[rule](number, gpus, since))
    day.view()
    everything = {f"n{number}" for number in range(len(sizes))}
    waiting = pod(policy.name, 1)
    if not await day.refused(waiting):
        return  # it takes what is only Degraded
    day.now = START + BREAKER.burst_patience_seconds - 1
    assert await day.refused(waiting) == everything
    demand = day.answers.demand(waiting)
    assert demand is not None
    assert day.answers.demands.refused_until(demand, waiting) <= START + waits_s
    day.now = START + waits_s
    assert await day.refused(waiting) == frozenset()
    demand = day.answers.demand(waiting)
    assert demand is not None
    table = await day.answers.judged(demand)
    assert all(verdict.score <= 2 for verdict in table.verdicts.values())


def test_what_one_row_says_of_many_taint_keys_is_one_cause() -> None:
    fleet = Fleet(rules=RULES)
    fleet.put(kinds.NODE, node("n"))
    taints = [{"key": f"wrong.example.com/{key}", "effect": "NoSchedule"} for key in "ab"]
    raw = slice_()
    for device, taint in zip(raw["spec"]["devices"], taints, strict=True):
        device["taints"] = [taint]
    fleet.put(kinds.SLICE, raw)
    (pool,) = fleet.look().nodes["n"].pools
    found = [cause for one in pool.devices for cause, _ in by_cause(one.health, HealthSettings())]
    assert [str(cause.source) for cause in found] == ["taint wrong.example.com/*"] * 2


async def test_what_came_slowly_is_waited_for_longer_than_what_came_at_once() -> None:
    for apart_s, longer in ((700.0, True), (10.0, False)):
        day = Day()
        for number in range(14):
            day.add(f"n{number}", 8, wrong(START - apart_s * number))
        day.view()
        day.now = START + BREAKER.burst_patience_seconds
        assert bool(await day.refused(pod("training", 8))) is longer
        (aside,) = day.answers.set_aside()
        assert aside.burst is not longer


def month() -> Day:
    """Fourteen nodes of eight GPUs, four of which got one dead GPU each."""
    day = Day()
    for number in range(14):
        day.add(f"n{number}", 8, *([xid(3, START - number * HOUR)] if number < 4 else ()))
    return day


async def test_a_bad_month_lets_nobody_onto_a_dead_device_and_hides_nothing() -> None:
    day = month()
    held = {"nodeName": "n0"}
    runs = pod("training", 8, START - 2 * HOUR, **held)
    day.view(runs)
    assert await day.refused(pod("training", 8)) == {"n0", "n1", "n2", "n3"}
    assert day.answers.set_aside() == []
    found = await AtRisk(day.answers, now=lambda: day.now).current()
    assert found[runs.metadata.key].certain


def all_named_dead(since: float) -> Day:
    """Twelve nodes of which one source says that all devices are dead."""
    day = Day()
    for number in range(12):
        day.add(f"n{number}", 8, *(xid(gpu, since) for gpu in range(8)))
    return day


async def test_while_a_cause_is_set_aside_marks_labels_and_explanations_say_what_is_known() -> None:
    day = all_named_dead(START)
    runs = pod("training", 8, START - HOUR, nodeName="n0")
    day.view(runs)
    (aside,) = day.answers.set_aside()
    assert (aside.condemned, aside.devices) == (96, 96)
    at_risk = AtRisk(day.answers, now=lambda: day.now)
    assert (await at_risk.current())[runs.metadata.key].certain
    healths = NodeHealths(day.answers).look(day.publisher.view.nodes)
    assert healths is not None
    assert {one.state for one in healths.values()} == {State.UNHEALTHY}
    failures = await find_failures(day.answers, at_risk)
    assert failures is not None
    assert [one.set_aside for one in failures.running.values()] == [True]


async def test_a_pod_is_woken_for_what_is_set_aside_only_when_its_wait_ends() -> None:
    day = all_named_dead(START)
    view, waiting = day.view(), pod("training", 8)
    allowed, last_choice = AllowedNodes(day.answers), AllowedNodes(day.answers, overruled=True)
    assert await last_choice.find(waiting, view) == set()
    day.now += 2 * HOUR
    assert await allowed.find(waiting, view) == set()
    assert len(await last_choice.find(waiting, view)) == 12


@pytest.mark.parametrize("claimed", [8, 64, 1000, 1_000_000])
async def test_one_node_counts_at_most_as_two_ordinary_ones(claimed: int) -> None:
    """Be it a kubelet that lies, or a plugin that shares each GPU among many."""
    day = Day()
    for number in range(20):
        day.add(f"n{number}", 8, *([wrong(START)] if number == 0 else ()))
    day.add("evil", claimed, wrong(START))
    day.view()
    assert day.answers.set_aside() == []
    day.now += 3 * HOUR
    assert await day.refused(pod("training", 8)) == {"n0", "evil"}
    # What the shares of taints and evictions are of.
    assert devices_counted(day.answers, GPU) == 20 * 8 + min(claimed, 16)


@pytest.mark.parametrize("claimed", [8, 1000, 1_000_000])
async def test_one_node_that_claims_sound_devices_shields_no_wrong_rule(claimed: int) -> None:
    day = Day()
    for number in range(20):
        day.add(f"n{number}", 8, *([wrong(START)] if number < 12 else ()))
    day.add("evil", claimed)
    day.view()
    (aside,) = day.answers.set_aside()
    assert str(aside.rule) == "condition KernelDeadlock"


async def test_few_nodes_with_many_devices_open_no_breaker() -> None:
    """The nodes have to be over the share, too."""
    day = Day()
    for number in range(20):
        day.add(f"n{number}", 8 if number < 3 else 4, *([wrong(START)] if number < 3 else ()))
    day.view()
    assert day.answers.set_aside() == []
