"""The simulated fleet and the one on the real kube-scheduler tell the same story."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.goodput import cluster, packer
from tests.goodput.plan import Scenario
from tests.goodput.replay import Figures

FAULTY = Scenario(nodes=12, hours=14.0, warmup_h=2.0, load=1.15, rate=4.0, gangs=0.0)
CONTENDERS = ("default", "enforce")
Player = Callable[[Scenario, int, str], Awaitable[Figures]]


async def ranked(player: Player, scenario: Scenario) -> tuple[list[str], list[str]]:
    """Contenders by starts on visibly bad devices, and by failures, the fewest first."""
    figures = {one: await player(scenario, 2, one) for one in CONTENDERS}
    return (
        sorted(CONTENDERS, key=lambda one: figures[one].starts_on_visibly_bad),
        sorted(CONTENDERS, key=lambda one: figures[one].failures),
    )


@pytest.mark.long
async def test_simulation_and_scheduler_rank_the_contenders_alike(
    controlplane_binary: Path,
) -> None:
    """By device plugin; `make goodput ARGS=--dra` plays DRA."""
    simulated = await ranked(packer.play, FAULTY)
    assert simulated == (["enforce", "default"], ["enforce", "default"])
    assert await ranked(cluster.play, FAULTY) == simulated
