"""The replay without a scheduler, on a small fleet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.goodput.packer import CONTENDERS, play
from tests.goodput.plan import Scenario, make_plan
from tests.goodput.replay import Figures

SMALL = Scenario(nodes=6, hours=20.0, warmup_h=2.0, load=1.1, rate=3.0, gangs=0.0)
CALM = SMALL._replace(rate=1e-9)


async def played(contender: str, scenario: Scenario = SMALL, seed: int = 1) -> Figures:
    return await play(scenario, seed, contender)


def comparable(figures: Figures) -> dict[str, Any]:
    return vars(figures) | {"waits_h": sorted(figures.waits_h)}


def test_a_plan_follows_from_its_seed_alone() -> None:
    assert make_plan(SMALL, 1) == make_plan(SMALL, 1)
    assert make_plan(SMALL, 1) != make_plan(SMALL, 2)


@pytest.mark.parametrize("contender", CONTENDERS)
async def test_a_replay_follows_from_its_seed_alone(contender: str) -> None:
    assert comparable(await played(contender)) == comparable(await played(contender))


@pytest.mark.parametrize("contender", CONTENDERS)
async def test_without_faults_all_contenders_place_alike(contender: str) -> None:
    assert comparable(await played(contender, CALM)) == comparable(await played("default", CALM))


@pytest.mark.parametrize("contender", CONTENDERS)
async def test_no_more_is_done_than_devices_are_there_for(contender: str) -> None:
    figures = await played(contender)
    capacity = SMALL.devices * (SMALL.hours - SMALL.warmup_h)
    assert 0 < figures.useful <= figures.occupied <= capacity + 1e-6
    assert figures.stranded <= figures.sound <= capacity * 1.02


async def test_whoever_minds_health_starts_fewer_pods_on_bad_devices() -> None:
    default, enforced = await played("default"), await played("enforce")
    assert enforced.starts_on_visibly_bad < default.starts_on_visibly_bad / 2
