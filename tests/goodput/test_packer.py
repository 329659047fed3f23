"""The replay without a scheduler, on a small fleet."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fettle.config import Settings
from fettle.model import Mode
from tests.goodput.packer import (
    CONTENDERS,
    Clock,
    Cordons,
    Fettle,
    Minder,
    Nobody,
    Packer,
    play,
    play_out,
)
from tests.goodput.plan import (
    FAULTS,
    JOBS,
    Plan,
    PlannedFault,
    PlannedJob,
    Scenario,
    make_plan,
)
from tests.goodput.replay import Figures, Pod, Replay

pytestmark = pytest.mark.long

SMALL = Scenario(nodes=6, hours=20.0, warmup_h=2.0, load=1.1, rate=3.0, gangs=0.0)
CALM = SMALL._replace(rate=1e-9)
BOTH = pytest.mark.parametrize("dra", [False, True], ids=["device plugin", "DRA"])


async def played(contender: str, scenario: Scenario = SMALL, seed: int = 1) -> Figures:
    return await play(scenario, seed, contender)


def comparable(figures: Figures) -> dict[str, Any]:
    return vars(figures)


def test_a_plan_follows_from_its_seed_alone() -> None:
    assert make_plan(SMALL, 1) == make_plan(SMALL, 1)
    assert make_plan(SMALL, 1) != make_plan(SMALL, 2)


@BOTH
@pytest.mark.parametrize("contender", CONTENDERS)
async def test_a_replay_follows_from_its_seed_alone(contender: str, dra: bool) -> None:
    small = SMALL._replace(dra=dra)
    assert comparable(await played(contender, small)) == comparable(await played(contender, small))


@BOTH
@pytest.mark.parametrize("contender", CONTENDERS)
async def test_without_faults_all_contenders_place_alike(contender: str, dra: bool) -> None:
    calm = CALM._replace(dra=dra)
    assert comparable(await played(contender, calm)) == comparable(await played("default", calm))


@BOTH
@pytest.mark.parametrize("contender", CONTENDERS)
async def test_no_more_is_done_than_devices_are_there_for(contender: str, dra: bool) -> None:
    figures = await played(contender, SMALL._replace(dra=dra))
    assert 0 < figures.useful <= figures.occupied <= SMALL.capacity_h + 1e-6
    assert figures.stranded <= figures.sound <= SMALL.capacity_h * 1.02
    idle = figures.idle_bad + figures.idle_beside_bad + figures.idle_sound
    assert figures.occupied + idle == pytest.approx(SMALL.capacity_h, rel=0.01)


@BOTH
async def test_observing_binds_every_pod_where_default_does(dra: bool) -> None:
    small = SMALL._replace(dra=dra)
    observed, default = await played("observe", small), await played("default", small)
    assert observed.bindings == default.bindings
    assert observed.state_changes > 0


@BOTH
@pytest.mark.parametrize("contender", ["enforce", "oracle"])
async def test_whoever_minds_health_starts_fewer_pods_on_bad_devices(
    contender: str, dra: bool
) -> None:
    small = SMALL._replace(dra=dra)
    default, minded = await played("default", small), await played(contender, small)
    assert minded.starts_on_visibly_bad < default.starts_on_visibly_bad / 2


@BOTH
@pytest.mark.parametrize("contender", CONTENDERS)
async def test_a_gang_is_bound_whole_or_not_at_all(contender: str, dra: bool) -> None:
    figures = await played(contender, SMALL._replace(dra=dra, nodes=16, gangs=0.4))
    bound = Counter(_without_index(name) for name in figures.bindings if name.startswith("gang"))
    assert len(bound) > 1
    assert set(bound.values()) == {JOBS["gang4x8"].pods}


def _without_index(pod: str) -> tuple[str, str]:
    """What pods that a job made together have in common: the job and the attempt."""
    job, _, attempt = pod.rsplit("-", 2)
    return job, attempt


@BOTH
async def test_a_device_that_is_taken_away_gets_no_pod(dra: bool) -> None:
    small = SMALL._replace(dra=dra)
    taken = await played("taints", small)
    on_devices = {kind: n for kind, n in taken.bad_by_kind.items() if not FAULTS[kind].whole_node}
    untouched = await played("default", small)
    assert sum(on_devices.values()) < untouched.starts_on_bad / 2


async def test_a_wrong_monitor_fails_no_pod() -> None:
    wrong = CALM._replace(false_signals=0.05)
    figures = await played("enforce", wrong)
    assert figures.failures == figures.starts_on_bad == 0
    assert figures.state_changes > 0


# --- by hand


class Prefers(Nobody):
    """Gives one node the least score that there is, and the others none."""

    def __init__(self, node: str) -> None:
        self.node = node

    async def judge(self, pod: Pod, names: list[str]) -> tuple[list[str], dict[str, int]]:
        return names, {name: int(name == self.node) for name in names}


def three_services(**scenario: Any) -> Replay:
    """One arrives each hour."""
    jobs = tuple(PlannedJob(f"serve1-{at}", JOBS["serve1"], float(at), 9.0) for at in range(3))
    return Replay(Scenario(hours=10.0, warmup_h=0.0, **scenario), Plan((), jobs), seed=1)


async def placed(replay: Replay, minder: Minder, *hours: float) -> list[str]:
    """The nodes of all pods that are bound when the packer has placed pods at these hours."""
    packer = Packer(replay, Clock(replay), minder, seed=1)
    replay.begin(packer)
    for hour in hours:
        replay.advance(hour)
        await packer.place()
    return [*replay.figures.bindings.values()]


@pytest.mark.parametrize(("packing", "nodes"), [("MostAllocated", 1), ("LeastAllocated", 3)])
async def test_pods_go_together_or_apart_as_the_scheduler_is_set(packing: str, nodes: int) -> None:
    replay = three_services(nodes=9, packing=packing)
    assert len(set(await placed(replay, Nobody(), 0.0, 1.0, 2.0))) == nodes


async def test_a_score_outweighs_packing() -> None:
    replay = three_services(nodes=9)
    prefers = Prefers("gpu-004")
    packer = Packer(replay, Clock(replay), prefers, seed=1)
    replay.begin(packer)
    replay.advance(0.0)
    await packer.place()
    prefers.node = "gpu-007"
    replay.advance(2.0)
    await packer.place()
    assert [*replay.figures.bindings.values()] == ["gpu-004", "gpu-007", "gpu-007"]


def one_job_on_a_bad_node() -> Replay:
    """It arrives when that has been reported, and its node is mended at the sixth hour."""
    bad = PlannedFault("kernel", FAULTS["kernel"], 0, None, 0.0, 6.0)
    plan = Plan((bad,), (PlannedJob("train8", JOBS["train8"], 1.0, 9.0),))
    return Replay(Scenario(nodes=1, hours=10.0, warmup_h=0.0), plan, seed=1)


async def test_a_cordoned_node_gets_no_pod_until_it_is_mended() -> None:
    assert await placed(one_job_on_a_bad_node(), Nobody(), 1.0) == ["gpu-000"]
    assert await placed(one_job_on_a_bad_node(), Cordons(), 1.0, 5.0) == []
    assert await placed(one_job_on_a_bad_node(), Cordons(), 1.0, 5.0, 7.0) == ["gpu-000"]


@pytest.mark.parametrize(
    ("mode", "refused"), [(Mode.OBSERVE, 0), (Mode.STEER, 0), (Mode.ENFORCE, 2)]
)
async def test_each_try_that_fettle_alone_refuses_counts(mode: Mode, refused: int) -> None:
    replay = one_job_on_a_bad_node()
    fettle = Fettle(replay, Settings(), Clock(replay), mode)
    nodes = await placed(replay, fettle, 0.5, 1.0, 1.1)
    assert nodes == ([] if refused else ["gpu-000"])
    assert replay.figures.refused == refused


@BOTH
@pytest.mark.parametrize(
    ("contender", "kind", "evictions"),
    [
        ("enforce", "gsp", 0),
        ("evicts", "gsp", 1),
        ("evicts", "thermal", 0),
        ("stragglers", "gsp", 1),
        ("stragglers", "thermal", 1),
        ("stragglers", "silent", 1),
        ("evicts", "silent", 0),
    ],
)
async def test_pods_that_run_are_evicted_from_what_has_failed_and_stragglers_from_what_is_slow(
    contender: str, kind: str, evictions: int, dra: bool
) -> None:
    scenario = Scenario(nodes=2, hours=10.0, warmup_h=0.0, dra=dra)
    job = PlannedJob("train8", JOBS["train8"], 0.5, 5.0)

    async def figures(*faults: PlannedFault) -> Figures:
        replay = Replay(scenario, Plan(faults, (job,)), seed=1)
        return await play_out(replay, 1, contender)

    (node,) = (await figures()).bindings.values()
    lasting = FAULTS[kind]._replace(fails_h=None)
    with_fault = await figures(
        PlannedFault(kind, lasting, int(node.removeprefix("gpu-")), 3, 2.0, 9.9)
    )
    moved = [other for other in with_fault.bindings.values() if other != node]
    assert (with_fault.evictions, len(moved), with_fault.failures) == (evictions, evictions, 0)


async def test_again_is_default_with_other_luck() -> None:
    default, again = await played("default"), await played("again")
    assert default.faults == again.faults > 0
    assert default.useful != again.useful
