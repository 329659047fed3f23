"""What a driver that is new on a node means for a pod: only what its policy says."""

from __future__ import annotations

import msgspec
import pytest

from fettle.cluster import NewDriver, NodeView
from fettle.explain.wording import texts
from fettle.model import NewDriverPlacement, Policy, reasons
from fettle.scheduling.judge.scores import CANARY_BONUS, HIGHEST_SCORE
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

ALLOW, AVOID, PREFER = NewDriverPlacement
UPGRADED = NewDriver(b.RESOURCE, "580.95.05", "570.133.20", 0.0, 86_400.0)
IS_NEW = f"its driver of {b.RESOURCE} is new: 580.95.05 instead of 570.133.20"


def minding(what: NewDriverPlacement, policy: Policy = INFERENCE) -> Policy:
    placement = msgspec.structs.replace(policy.placement, new_driver=what)
    return msgspec.structs.replace(policy, placement=placement)


def upgraded(node: NodeView) -> NodeView:
    return msgspec.structs.replace(node, new_drivers=(UPGRADED,))


@pytest.mark.parametrize("dra", [False, True])
@pytest.mark.parametrize("policy", [TRAINING, INFERENCE, SCAVENGER])
def test_a_policy_that_avoids_new_drivers_takes_such_a_node_last_and_refuses_it_never(
    policy: Policy, dra: bool
) -> None:
    old = b.node(pools=(b.pool(b.device("gpu-0")),)) if dra else b.node(gpus=8)
    demand = request(minding(AVOID, policy)) if dra else units(minding(AVOID, policy))
    answer = verdict(demand, upgraded(old))
    assert answer.fits
    assert answer.score <= LAST_SCORE < verdict(demand, old).score
    assert texts(answer.notes) == [f"the last choice: {IS_NEW}"]


def test_a_policy_that_says_nothing_minds_no_new_driver() -> None:
    for policy in (TRAINING, INFERENCE, SCAVENGER, minding(ALLOW)):
        assert verdict(units(policy), upgraded(b.node(gpus=8))) == verdict(
            units(policy), b.node(gpus=8)
        )


@pytest.mark.parametrize("policy", [TRAINING, INFERENCE, SCAVENGER])
def test_a_policy_that_prefers_new_drivers_takes_such_a_node_first_of_equals(
    policy: Policy,
) -> None:
    demand = units(minding(PREFER, policy))
    old = verdict(demand, b.node(gpus=8))
    answer = verdict(demand, upgraded(b.node(gpus=8)))
    assert answer.score == min(HIGHEST_SCORE, old.score + CANARY_BONUS) > old.score
    assert texts(answer.notes) == [f"preferred: {IS_NEW}"]


def test_maintenance_counts_more_than_a_new_driver() -> None:
    begun = upgraded(b.node(gpus=8, own=by(work(None, weight=0.65))))
    for what in (AVOID, PREFER):
        answer = verdict(units(minding(what)), begun)
        assert answer.score == 0
        assert answer.notes == (reasons.Maintenance("MaintenancePlanned is True"),)


def test_a_node_that_is_refused_is_not_said_to_be_the_last_choice_or_preferred() -> None:
    withdrawn = upgraded(b.node(gpus=8, own=b.health(0.1)))
    for what in (AVOID, PREFER):
        answer = verdict(units(minding(what)), withdrawn)
        assert not answer.fits
        assert not any("is new" in text for text in texts(answer.notes))
