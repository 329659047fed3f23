"""What a node's verdict is once the pod has waited as long as its policy lets it."""

import msgspec
import pytest

from fettle.cluster import NodeView
from fettle.explain.wording import texts
from fettle.model import BUILT_IN, SOUND, Policy
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.acceptance import Acceptance, Cause
from fettle.scheduling.judge.claims import Allocator
from fettle.scheduling.judge.requirements import Requirements
from fettle.scheduling.judge.verdicts import LAST_SCORE, Verdict, judge
from tests.fettle import building as b
from tests.fettle.scheduling.judge.judging import TRAINING, every_device, request, units, verdict

LATE = Acceptance(TRAINING.placement, patience_over=True)


def late(demand: Demand, node: NodeView, acceptance: Acceptance = LATE) -> Verdict:
    return judge(demand, node, acceptance, Allocator(every_device))


def with_device(score: float) -> NodeView:
    return b.node(pools=(b.pool(b.device("gpu-0", score)),))


@pytest.mark.parametrize(
    ("demand", "node"),
    [
        (units(TRAINING, 8), b.node(gpus=8, units={"GPU-a": 0.5})),
        (units(TRAINING, 8), b.node(gpus=8, own=b.health(0.5))),
        (request(TRAINING), with_device(0.5)),
    ],
)
def test_degraded_devices_are_refused_before_and_are_the_last_choice_afterwards(
    demand: Demand, node: NodeView
) -> None:
    before, after = verdict(demand, node), late(demand, node)
    assert not before.fits
    assert after.fits
    assert after.score <= LAST_SCORE
    assert texts(after.conceded) == texts(before.refusals)


@pytest.mark.parametrize(
    ("demand", "node"),
    [
        (units(TRAINING, 8), b.node(gpus=8, units={"GPU-a": 0.2})),
        (units(TRAINING, 8), b.node(gpus=8, own=b.health(0.2))),
        (units(TRAINING, 8), b.node(gpus=8, own=b.health(0.0, held=True))),
        (request(TRAINING), with_device(0.2)),
    ],
)
def test_what_is_unhealthy_or_held_is_never_taken(demand: Demand, node: NodeView) -> None:
    assert not late(demand, node).fits


def test_what_the_policy_accepts_comes_before_the_last_choice() -> None:
    worst = b.node(gpus=8, own=b.health(0.81))
    assert late(units(TRAINING, 8), b.node(gpus=8)).score == 10
    assert late(units(TRAINING, 8), worst).score > LAST_SCORE
    # A pod that gets the bad unit with a small chance only is refused nothing, before as after.
    assert late(units(TRAINING), b.node(gpus=16, units={"GPU-a": 0.5})).conceded == ()


def test_a_low_score_alone_is_waited_for_as_well() -> None:
    picky = msgspec.structs.replace(TRAINING.placement, min_score=0.95)
    policy = msgspec.structs.replace(TRAINING, placement=picky)
    fair = b.node(gpus=1, own=b.health(0.9))
    assert not verdict(units(policy), fair).fits
    assert late(units(policy), fair, Acceptance(picky, patience_over=True)).conceded


def test_unknown_health_stays_what_the_policy_makes_of_it() -> None:
    strict = msgspec.structs.replace(TRAINING.placement, unknown="Refuse")
    assert strict.after_patience().unknown == "Refuse"


def test_what_a_breaker_sets_aside_is_no_concession() -> None:
    hot = b.ill(("rule", 0.9))
    (source,) = {weighed.evidence.source for weighed in hot.evidence}
    aside = Acceptance(
        TRAINING.placement, {b.RESOURCE: frozenset({Cause(source)})}, patience_over=True
    )
    answer = late(units(TRAINING), b.node(gpus=1, own=hot), aside)
    assert answer.fits
    assert answer.overruled
    assert answer.conceded == ()
    assert answer.score <= LAST_SCORE
    warm = late(units(TRAINING), b.node(gpus=1, own=b.ill(("rule", 0.5))), aside)
    assert (bool(warm.conceded), warm.overruled) == (True, ())


@pytest.mark.parametrize("policy", BUILT_IN.values())
def test_sound_devices_are_judged_alike_before_and_after(policy: Policy) -> None:
    acceptance = Acceptance(policy.placement, requirements=Requirements())
    over = msgspec.structs.replace(acceptance, patience_over=True)
    node = b.node(gpus=8, own=SOUND)
    before, after = (late(units(policy), node, each) for each in (acceptance, over))
    assert after == msgspec.structs.replace(before, score=max(before.score, LAST_SCORE + 1))
