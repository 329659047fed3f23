"""The verdict on one node for units of device plugins, and what holds for every demand."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.cluster import NodeView
from fettle.explain.wording import text, texts
from fettle.model import BUILT_IN, SOUND, Policy, State, reasons
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.acceptance import Acceptance, Cause
from fettle.scheduling.judge.claims import Allocator
from fettle.scheduling.judge.verdicts import LAST_SCORE, judge
from tests.fettle import building as b
from tests.fettle.scheduling.judge.judging import (
    INFERENCE,
    SCAVENGER,
    TRAINING,
    every_device,
    request,
    units,
    verdict,
)

# -- device plugins


def test_a_sound_node_gets_the_full_score() -> None:
    answer = verdict(units(TRAINING, 8), b.node(gpus=8))
    assert answer.fits
    assert answer.score == 10


def test_one_bad_unit_among_eight_lowers_the_score_by_the_chance_to_draw_it() -> None:
    node = b.node(gpus=8, units={"GPU-a": 0.2})
    assert verdict(units(INFERENCE, 1), node).value == pytest.approx(0.9)
    assert verdict(units(INFERENCE, 1), node).fits


@pytest.mark.parametrize(("policy", "score"), [(INFERENCE, 7), (SCAVENGER, 0)])
def test_a_draw_that_may_have_a_dead_unit_scores_well_below_a_sound_one(
    policy: Policy, score: int
) -> None:
    risky = verdict(units(policy), b.node(gpus=8, units={"GPU-a": 0.0}))
    sound = verdict(units(policy), b.node(gpus=8))
    assert risky.fits
    assert risky.score == score < sound.score


def test_a_risk_above_that_of_the_policy_is_refused() -> None:
    node = b.node(gpus=8, units={"GPU-a": 0.2})
    answer = verdict(units(TRAINING, 1), node)
    (refusal,) = answer.refusals
    assert isinstance(refusal, reasons.RiskTooHigh)
    assert (refusal.acceptable, refusal.drawn, refusal.requested) == (7, 8, 1)
    assert refusal.risk == pytest.approx(0.125)
    assert refusal.max_risk == 0.1
    assert verdict(units(TRAINING, 1), b.node(gpus=11, units={"GPU-a": 0.2})).fits
    assert not verdict(units(TRAINING, 2), b.node(gpus=11, units={"GPU-a": 0.2})).fits


@pytest.mark.parametrize("policy", [TRAINING, INFERENCE])
def test_once_its_patience_is_over_a_pod_takes_even_odds_as_its_last_choice(policy: Policy) -> None:
    demand = msgspec.structs.replace(units(policy, 1), patience_over=True)
    acceptance = Acceptance(policy.placement, patience_over=True)
    units_of_nodes = ({"GPU-a": 0.2}, {"GPU-a": 0.2}, {"GPU-a": 0.2, "GPU-b": 0.2})
    risky, dead, rather_dead = (
        judge(demand, b.node(gpus=gpus, units=bad), acceptance, Allocator(every_device))
        for gpus, bad in zip((2, 1, 3), units_of_nodes, strict=True)
    )
    assert risky.fits
    assert risky.score <= LAST_SCORE
    assert risky.conceded
    assert not dead.fits
    assert not rather_dead.fits
    assert not verdict(units(policy, 1), b.node(gpus=2, units={"GPU-a": 0.2})).fits


def test_training_refuses_a_draw_that_must_contain_a_bad_unit() -> None:
    answer = verdict(units(TRAINING, 8), b.node(gpus=8, units={"GPU-a": 0.2}))
    assert not answer.fits
    assert "7 acceptable of 8, 8 requested" in text(answer.refusals[0])


def test_units_that_live_pods_hold_are_not_in_the_draw() -> None:
    node = b.node(gpus=8, units={"GPU-a": 0.2}, busy=frozenset({"GPU-a"}))
    assert verdict(units(TRAINING, 7), node).value == 1.0


def test_preemption_puts_units_in_use_back_into_the_draw() -> None:
    node = b.node(gpus=1, units={"GPU-a": 0.2}, busy=frozenset({"GPU-a"}))
    assert not verdict(units(TRAINING), node, emptied=True).fits


@pytest.mark.parametrize("count", range(1, 8))
@pytest.mark.parametrize("emptied", [True, False])
def test_a_withdrawn_unit_is_never_drawn(count: int, emptied: bool) -> None:
    """Whether a pod still holds it, or would be preempted, does not matter."""
    for busy in (frozenset[str](), frozenset({"GPU-a"})):
        withdrawn = frozenset({"GPU-a"})
        node = b.node(gpus=7, units={"GPU-a": 0.0}, busy=busy, withdrawn=withdrawn)
        answer = verdict(units(TRAINING, count), node, emptied=emptied)
        assert answer.fits
        assert answer.value == 1.0
        assert texts(answer.notes)[0] == (
            f"{b.RESOURCE}: 1 of 8 withdrawn by the device plugin: GPU-a"
        )


def test_a_withdrawn_unit_does_not_excuse_another_bad_one() -> None:
    node = b.node(gpus=7, units={"GPU-a": 0.0, "GPU-b": 0.0}, withdrawn=frozenset({"GPU-a"}))
    assert verdict(units(TRAINING, 1), node).value == pytest.approx(6 / 7, abs=1e-4)
    assert "6 acceptable of 7, 7 requested" in text(verdict(units(TRAINING, 7), node).refusals[0])


def test_known_withdrawn_units_are_named_in_a_note() -> None:
    known = b.node(gpus=6, units={"GPU-a": 0.0, "GPU-b": 0.9}, withdrawn=frozenset({"GPU-a"}))
    plugin = msgspec.structs.replace(known.plugins[b.RESOURCE], capacity=8)
    node = msgspec.structs.replace(known, plugins={b.RESOURCE: plugin})
    note = f"{b.RESOURCE}: 2 of 8 withdrawn by the device plugin, among them GPU-a"
    for count in (1, 8):  # also where that is why it does not fit
        assert texts(verdict(units(TRAINING, count), node).notes)[0] == note
    unnamed = msgspec.structs.replace(plugin, units=())
    other = msgspec.structs.replace(node, plugins={b.RESOURCE: unnamed})
    (leftover,) = verdict(units(TRAINING), other).notes
    assert leftover == reasons.NodeNotWhole(b.RESOURCE, (), unnamed=2)


def test_a_shared_gpu_is_drawn_as_often_as_it_has_units() -> None:
    node = b.node(gpus=8, units={"GPU-a": 0.2}, shared=4)
    assert verdict(units(TRAINING, 1), node).value == pytest.approx(0.6)
    assert "4 acceptable of 8, 5 requested" in text(verdict(units(TRAINING, 5), node).refusals[0])


def test_training_refuses_a_degraded_node_that_inference_uses_last() -> None:
    node = b.node(gpus=8, own=b.health(0.6))
    assert not verdict(units(TRAINING), node).fits
    answer = verdict(units(INFERENCE), node)
    assert answer.fits
    assert answer.score < verdict(units(INFERENCE), b.node(gpus=8)).score


def test_every_policy_refuses_an_unhealthy_node() -> None:
    node = b.node(gpus=8, own=b.health(0.1))
    assert not any(verdict(units(p), node).fits for p in BUILT_IN.values())


def test_an_unhealthy_state_is_refused_even_if_the_score_has_recovered() -> None:
    recovering = msgspec.structs.replace(b.health(0.4), state=State.UNHEALTHY)
    node = b.node(gpus=8, own=recovering)
    assert not any(verdict(units(p), node).fits for p in BUILT_IN.values())


def test_a_scavenger_prefers_degraded_nodes() -> None:
    sound, degraded = b.node(gpus=8), b.node(gpus=8, own=b.health(0.5))
    assert verdict(units(SCAVENGER), degraded).score > verdict(units(SCAVENGER), sound).score


def test_a_node_allowed_only_by_the_breaker_scores_below_sound_ones_even_for_a_scavenger() -> None:
    broken = Acceptance(SCAVENGER.placement, {b.RESOURCE: frozenset({Cause(b.SOURCE)})})
    dead = b.node(gpus=2, units={"GPU-a": 0.0, "GPU-b": 0.0})
    set_aside = judge(units(SCAVENGER), dead, broken, Allocator(every_device))
    assert set_aside.overruled
    sound = judge(units(SCAVENGER), b.node(gpus=2), broken, Allocator(every_device))
    assert set_aside.score < sound.score
    assert verdict(units(SCAVENGER), dead).score < sound.score  # who asks for scores alone


def test_a_scavenger_does_not_prefer_a_node_for_evidence_from_tenants() -> None:
    said = msgspec.structs.replace(SOUND, score=0.4, tenant_caused=0.6)
    accused = verdict(units(SCAVENGER), b.node(gpus=8, own=said))
    assert accused.fits
    assert accused.score < verdict(units(SCAVENGER), b.node(gpus=8)).score


@pytest.mark.parametrize("policy", BUILT_IN.values(), ids=str)
def test_a_node_that_several_namespaces_suspect_is_the_last_choice_and_refuses_nobody(
    policy: Policy,
) -> None:
    said = msgspec.structs.replace(SOUND, score=0.42, tenant_caused=0.58, suspected=2)
    accused = verdict(units(policy), b.node(gpus=8, own=said))
    assert accused.fits
    assert accused.score <= LAST_SCORE
    degraded = verdict(units(BUILT_IN["inference"]), b.node(gpus=8, own=b.health(0.42)))
    assert accused.score < degraded.score


def test_an_undecided_node_scores_below_sound_ones_even_for_a_scavenger() -> None:
    demand = Demand(SCAVENGER, unsettled=(reasons.ClaimNotFound("gpu", "ns/gpu"),))
    assert verdict(demand, b.node(gpus=8)).score < verdict(units(SCAVENGER), b.node(gpus=8)).score


@pytest.mark.parametrize("policy", BUILT_IN.values(), ids=str)
def test_unknown_health_refuses_nobody(policy: Policy) -> None:
    node = b.node(gpus=8, own=b.UNKNOWN)
    assert node.health.state is State.UNKNOWN
    answer = verdict(units(policy, 8), node)
    assert answer.fits
    assert answer.value == 0.75


def test_a_claim_that_is_not_seen_yet_is_undecided_allowed_and_scored_low() -> None:
    demand = Demand(TRAINING, unsettled=(reasons.ClaimNotFound("gpu", "ns/gpu"),))
    answer = verdict(demand, b.node(gpus=8))
    assert answer.fits
    assert answer.undecided
    assert answer.score == 5


@pytest.mark.parametrize(
    ("node", "demand"),
    [
        (b.node(gpus=4), units(TRAINING, 8)),
        (b.node(), units(TRAINING)),
        (b.node(pools=(b.pool(b.device("a", 0.0), incomplete=True),)), request(TRAINING)),
        (b.node(), request(TRAINING)),
    ],
    ids=["fewer units than asked for", "no units at all", "an incomplete pool", "no pool at all"],
)
def test_what_the_schedulers_own_checks_reject_is_allowed_and_scored_low(
    node: NodeView, demand: Demand
) -> None:
    answer = verdict(demand, node)
    assert answer.fits
    assert answer.rejected
    assert not answer.undecided
    assert answer.score == 5


def test_on_a_node_with_unreadable_objects_a_lack_is_undecided() -> None:
    node = msgspec.structs.replace(b.node(), quarantined=("ResourceSlice x: wrong",))
    answer = verdict(request(TRAINING), node)
    assert not answer.rejected
    assert text(answer.undecided[0]) == "ResourceSlice x: wrong"
    assert "no allocation is possible" in text(answer.undecided[1])


def test_a_resource_with_billions_of_units_is_judged_as_fast_as_others() -> None:
    node = b.node(gpus=10**27, units={"GPU-a": 0.2})
    answer = verdict(units(TRAINING, 10**26), node)
    assert answer.fits
    assert answer.value == pytest.approx(0.92)


# -- the breaker


def test_what_is_set_aside_only_scores_and_another_rule_still_refuses() -> None:
    demand = units(TRAINING)
    broken = Acceptance(TRAINING.placement, {b.RESOURCE: frozenset({Cause(b.SOURCE)})})
    degraded = judge(demand, b.node(gpus=8, own=b.health(0.5)), broken, Allocator(every_device))
    assert degraded.fits
    assert degraded.overruled
    assert degraded.score == LAST_SCORE
    other = b.ill(("test", 0.5), ("another rule", 0.5))
    refused = judge(demand, b.node(gpus=8, own=other), broken, Allocator(every_device))
    assert not refused.fits
    assert all("another rule" in text(why) for why in refused.refusals)


def test_what_is_set_aside_in_another_pool_changes_nothing() -> None:
    other = Acceptance(TRAINING.placement, {"amd.com/gpu": frozenset({Cause(b.SOURCE)})})
    worn = b.node(gpus=8, own=b.health(0.5))
    assert not judge(units(TRAINING), worn, other, Allocator(every_device)).fits


# -- properties


@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=8),
    st.integers(1, 8),
    st.sampled_from(sorted(BUILT_IN)),
)
def test_no_verdict_gives_a_device_twice_or_one_that_the_policy_refuses(
    scores: list[float], count: int, policy: str
) -> None:
    devices = [b.device(f"d{i}", round(s, 2)) for i, s in enumerate(scores)]
    demand = request(BUILT_IN[policy], count)
    answer = verdict(demand, b.node(pools=(b.pool(*devices),)))
    given_ = [c.device for c in answer.devices]
    assert len(set(given_)) == len(given_)
    acceptance = Acceptance(demand.policy.placement)
    if answer.fits and not answer.rejected:
        assert len(given_) == count
        assert all(acceptance.accepts(c.health) for c in answer.devices)


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 4))
def test_a_better_node_is_never_worth_less(low: float, high: float, count: int) -> None:
    low, high = sorted((low, high))
    worse = b.node(gpus=4, units={"u": low})
    better = b.node(gpus=4, units={"u": high})
    assert (
        verdict(units(INFERENCE, count), worse).value
        <= verdict(units(INFERENCE, count), better).value + 1e-9
    )
