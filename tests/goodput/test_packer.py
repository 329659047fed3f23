"""The replay without a scheduler, on a small fleet."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.goodput.packer import CONTENDERS, play
from tests.goodput.plan import FAULTS, JOBS, Scenario, make_plan
from tests.goodput.replay import Figures

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
