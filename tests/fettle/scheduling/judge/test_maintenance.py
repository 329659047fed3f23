"""What planned work on a node means for a pod: by how long its policy says that pods run."""

from __future__ import annotations

import msgspec
import pytest

from fettle.model import (
    Family,
    Policy,
    Standing,
    reasons,
)
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.verdicts import LAST_SCORE
from tests.fettle import building as b
from tests.fettle.scheduling.judge.judging import (
    INFERENCE,
    SCAVENGER,
    TRAINING,
    by,
    request,
    units,
    verdict,
    work,
)

HOUR = 3600.0
UNDER_WAY = None


def lasting(runtime: str | None, policy: Policy = INFERENCE) -> Policy:
    placement = msgspec.structs.replace(policy.placement, expected_runtime=runtime)
    return msgspec.structs.replace(policy, placement=placement)


@pytest.mark.parametrize("dra", [False, True])
@pytest.mark.parametrize("policy", [TRAINING, INFERENCE, SCAVENGER])
def test_a_node_whose_maintenance_begins_before_a_pod_ends_is_its_last_choice(
    policy: Policy, dra: bool
) -> None:
    health = by(work(2 * HOUR, weight=0.3))
    device = msgspec.structs.replace(b.device("gpu-0"), health=health)
    planned = b.node(pools=(b.pool(device),)) if dra else b.node(gpus=8)
    planned = msgspec.structs.replace(planned, health=health)
    sound = b.node(gpus=8, pools=(b.pool(b.device("gpu-0")),))

    def asked(runtime: str | None) -> Demand:
        made = lasting(runtime, policy)
        return request(made) if dra else units(made)

    long = verdict(asked("3h"), planned)
    assert long.fits
    assert long.score <= LAST_SCORE < verdict(asked("3h"), sound).score
    assert long.notes == (
        reasons.Maintenance("MaintenancePlanned is True", begins_in_s=2 * HOUR, runs_s=10_800),
    )
    for runtime in ("2h", "10m"):
        short = verdict(asked(runtime), planned)
        assert (short.score, short.notes) == (verdict(asked(runtime), sound).score, ())
        assert short.fits


def test_without_an_expected_runtime_planned_work_lowers_the_score_and_no_more() -> None:
    answer = verdict(units(INFERENCE), b.node(gpus=8, own=by(work(HOUR))))
    assert (answer.fits, answer.score, answer.notes) == (True, 8, ())


def test_the_soonest_of_several_plans_counts() -> None:
    health = by(work(30 * HOUR), msgspec.structs.replace(work(HOUR), source=b.SOURCE))
    assert verdict(units(lasting("2h")), b.node(gpus=8, own=health)).score == LAST_SCORE
    assert verdict(units(lasting("1h")), b.node(gpus=8, own=health)).score == 10


@pytest.mark.parametrize("runtime", [None, "10m", "72h"])
@pytest.mark.parametrize("policy", [INFERENCE, SCAVENGER])
def test_work_that_is_under_way_comes_after_work_that_is_planned(
    policy: Policy, runtime: str | None
) -> None:
    begun = b.node(gpus=8, own=by(work(UNDER_WAY, weight=0.65)))
    planned = b.node(gpus=8, own=by(work(HOUR)))
    answer = verdict(units(lasting(runtime, policy)), begun)
    assert answer.fits
    assert answer.score == 0 < verdict(units(lasting(runtime, policy)), planned).score
    assert answer.notes == (reasons.Maintenance("MaintenancePlanned is True"),)


def test_work_under_way_is_refused_by_a_policy_that_refuses_degraded_nodes() -> None:
    answer = verdict(units(TRAINING), b.node(gpus=8, own=by(work(UNDER_WAY, weight=0.65))))
    assert not answer.fits


def test_faults_of_the_node_count_whatever_is_planned_there() -> None:
    fault = msgspec.structs.replace(
        work(None, weight=0.5), family=Family.MEMORY, planned=False, source=b.SOURCE
    )
    node = b.node(gpus=8, own=by(work(HOUR), fault))
    assert verdict(units(lasting("10m")), node).value == 0.5
    assert not verdict(units(lasting("10m", TRAINING)), node).fits


def test_what_nobody_says_any_more_is_not_under_way() -> None:
    fading = msgspec.structs.replace(work(UNDER_WAY, weight=0.3), standing=Standing.NOT_REPORTED)
    assert verdict(units(INFERENCE), b.node(gpus=8, own=by(fading))).notes == ()
