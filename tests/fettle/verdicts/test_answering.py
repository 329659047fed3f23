"""Tables of verdicts, brought up to date by what changed."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.asks.asks import Ask, Bound, Units
from fettle.asks.claims import Alternative, Claim, Constraint, Held, Request
from fettle.policy import BUILT_IN
from fettle.selectors.engine import SelectorEngine
from fettle.settings import Settings
from fettle.verdicts.answering import Answers
from fettle.view import NodeView, Publisher
from fettle.wire import core
from tests.fettle import building as b

TRAINING = Ask(BUILT_IN["training"], units=(Units(b.RESOURCE, 4),))


class Cluster:
    """Publishes views one after another, saying what changed as the writer does."""

    def __init__(self) -> None:
        self.publisher = Publisher()
        self.answers = Answers(self.publisher, SelectorEngine(), Settings())

    def show(self, nodes: dict[str, NodeView], **fields: Any) -> None:
        before = self.publisher.view
        after = b.view(*nodes.values(), **fields)
        after = msgspec.structs.replace(
            after, generation=before.generation + 1, basis=before.basis + 1
        )
        names = {*before.nodes, *after.nodes}
        changed = {n for n in names if before.nodes.get(n) is not after.nodes.get(n)}
        self.publisher.publish(after, frozenset(changed))


SCORES = st.sampled_from([1.0, 0.9, 0.6, 0.1])
VIEWS = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(SCORES, SCORES), max_size=6),
    min_size=1,
    max_size=6,
)


def nodes_of(layout: dict[str, tuple[float, float]]) -> dict[str, NodeView]:
    return {
        name: b.node(name, gpus=8, own=b.health(own), units={"u": unit})
        for name, (own, unit) in layout.items()
    }


@given(VIEWS)
async def test_a_table_that_followed_the_views_is_the_same_as_a_fresh_one(
    layouts: list[dict[str, tuple[float, float]]],
) -> None:
    followed = Cluster()
    for layout in layouts:
        followed.show(nodes_of(layout))
        await followed.answers.judged(TRAINING)
    fresh = Cluster()
    fresh.show(nodes_of(layouts[-1]))
    old = await followed.answers.judged(TRAINING)
    new = await fresh.answers.judged(TRAINING)
    assert old.verdicts == new.verdicts
    assert old.refused == new.refused
    assert old.entries == new.entries


async def test_nodes_that_look_alike_share_one_verdict() -> None:
    cluster = Cluster()
    cluster.show({n: b.node(n, gpus=8) for n in ("a", "b")})
    table = await cluster.answers.judged(TRAINING)
    assert table.verdicts["a"] is table.verdicts["b"]


async def test_only_the_nodes_asked_about_are_judged() -> None:
    cluster = Cluster()
    cluster.show({n: b.node(n, gpus=8) for n in ("a", "b")})
    table = await cluster.answers.judged(TRAINING, ["b", "unknown"])
    assert set(table.verdicts) == {"b"}


async def test_nodes_that_were_not_asked_about_are_judged_in_the_background() -> None:
    cluster = Cluster()
    cluster.show({n: b.node(n, gpus=8) for n in ("a", "b")})
    work = asyncio.ensure_future(cluster.answers.keep_complete())
    table = await cluster.answers.judged(TRAINING, ["a"])
    while len(table.verdicts) < 2:
        await asyncio.sleep(0)
    cluster.show({"a": b.node("a", gpus=8), "b": b.node("b", gpus=8, own=b.health(0.1))})
    table = cluster.answers.table(TRAINING)
    while table.refused != {"b"}:
        await asyncio.sleep(0)
    work.cancel()


async def test_a_view_that_changes_no_verdict_keeps_the_table() -> None:
    cluster = Cluster()
    nodes = {"a": b.node("a", gpus=8)}
    cluster.show(nodes)
    before = (await cluster.answers.judged(TRAINING)).verdicts["a"]
    cluster.show(nodes)
    assert (await cluster.answers.judged(TRAINING)).verdicts["a"] is before


@pytest.mark.parametrize("how_many", [3, 300])
async def test_however_many_views_were_missed_the_newest_counts(how_many: int) -> None:
    cluster = Cluster()
    cluster.show({"a": b.node("a", gpus=8)})
    assert not (await cluster.answers.judged(TRAINING)).refused
    for _ in range(how_many):
        cluster.show({"a": b.node("a", gpus=8)})
    cluster.show({"a": b.node("a", gpus=8, own=b.health(0.1))})
    assert (await cluster.answers.judged(TRAINING)).refused == {"a"}


# -- selectors, with the real engine


def claim_view() -> dict[str, Any]:
    template = b.template(
        {
            "metadata": {"name": "t", "namespace": "default"},
            "spec": {
                "spec": {
                    "devices": {
                        "requests": [{"name": "r", "exactly": {"deviceClassName": b.DRIVER}}]
                    }
                }
            },
        }
    )
    return {"templates": {"default/t": template}, "classes": {b.DRIVER: b.device_class()}}


POD = b.pod(
    {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "annotations": {"fettle.dev/policy": "training"},
        },
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
    }
)


async def test_an_ask_waits_for_its_selector_to_be_evaluated() -> None:
    cluster = Cluster()
    engine = SelectorEngine()
    settings = Settings()
    patient = msgspec.structs.replace(settings.extender, wait_seconds=10.0)
    settings = msgspec.structs.replace(settings, extender=patient)
    cluster.answers = Answers(cluster.publisher, engine, settings)
    await engine.start()
    try:
        bad = b.node("n", pools=(b.pool(b.device("a", 0.1)),))
        cluster.show({"n": bad}, **claim_view())
        ask = cluster.answers.ask(POD)
        assert ask is not None
        table = await cluster.answers.judged(ask)
        assert table.refused == {"n"}
        assert not table.provisional
    finally:
        await engine.close()


async def test_what_was_not_evaluated_in_time_is_known_a_moment_later() -> None:
    """The engine is not even started, and nobody ever waits for it as long as that takes."""
    cluster = Cluster()
    engine = SelectorEngine()
    settings = Settings()
    hasty = msgspec.structs.replace(settings.extender, wait_seconds=0.001)
    settings = msgspec.structs.replace(settings, extender=hasty)
    cluster.answers = Answers(cluster.publisher, engine, settings)
    try:
        bad = b.node("n", pools=(b.pool(b.device("a", 0.1)),))
        cluster.show({"n": bad}, **claim_view())
        ask = cluster.answers.ask(POD)
        assert ask is not None
        async with asyncio.timeout(20):
            while (await cluster.answers.judged(ask)).refused != {"n"}:
                await asyncio.sleep(0.01)
    finally:
        await engine.close()


async def test_without_an_answer_in_time_the_node_is_undecided_and_allowed() -> None:
    cluster = Cluster()  # its engine was never started
    bad = b.node("n", pools=(b.pool(b.device("a", 0.1)),))
    cluster.show({"n": bad}, **claim_view())
    ask = cluster.answers.ask(POD)
    assert ask is not None
    table = cluster.answers.table(ask)
    table.judge(bad, cluster.answers.matching())
    assert table.verdicts["n"].fits
    assert table.undecided == table.provisional == {"n"}


# -- claims, without selectors: nothing has to be evaluated


def anything(count: int = 1, takers: int = 0, *constraints: Constraint) -> Ask:
    requests = (Request("r", (Alternative("r", "any", count=count),)),)
    return Ask(BUILT_IN["training"], claims=(Claim("gpu", requests, constraints),), takers=takers)


def gpu_node(name: str, *scores: float, **fields: Any) -> NodeView:
    devices = [b.device(f"{name}-{i}", score, pool=name) for i, score in enumerate(scores)]
    return b.node(name, pools=(b.looked_at(b.pool(*devices, name=name)),), **fields)


async def test_nodes_with_devices_alike_share_one_verdict_and_are_explained_one_by_one() -> None:
    cluster = Cluster()
    cluster.show({n: gpu_node(n, 1.0, 0.9) for n in ("a", "b")})
    table = await cluster.answers.judged(anything())
    assert table.verdicts["a"] is table.verdicts["b"]
    explained = await cluster.answers.explained(anything())
    assert [c.device.device for c in explained["b"].devices] == ["b-0"]


@given(st.dictionaries(st.sampled_from("abcd"), st.lists(SCORES, min_size=1, max_size=3)))
async def test_a_shared_verdict_says_what_one_of_the_node_s_own_would(
    layout: dict[str, list[float]],
) -> None:
    cluster = Cluster()
    cluster.show({name: gpu_node(name, *scores) for name, scores in layout.items()})
    for ask in (anything(), anything(2), anything(takers=1)):
        shared = (await cluster.answers.judged(ask)).verdicts
        own = await cluster.answers.explained(ask)
        for name, verdict in shared.items():
            assert (verdict.fits, verdict.score) == (own[name].fits, own[name].score)
            assert len(verdict.refusals) == len(own[name].refusals)


async def test_a_pool_without_digests_shares_nothing() -> None:
    cluster = Cluster()
    cluster.show({n: b.node(n, pools=(b.pool(b.device(n)),)) for n in ("a", "b")})
    table = await cluster.answers.judged(anything())
    assert table.verdicts["a"] is not table.verdicts["b"]


async def test_pods_on_their_way_lower_a_score_and_refuse_nothing() -> None:
    cluster = Cluster()
    cluster.show({"a": gpu_node("a", 1.0, 0.1), "b": gpu_node("b", 1.0, 1.0)})
    now = await cluster.answers.judged(anything())
    later = await cluster.answers.judged(anything(takers=1))
    assert (now.verdicts["a"].score, later.verdicts["a"].score) == (10, 0)
    assert (now.verdicts["b"].score, later.verdicts["b"].score) == (10, 10)
    assert not later.refused


async def test_a_pod_that_was_just_answered_is_expected_by_the_next() -> None:
    cluster = Cluster()
    nodes = {"a": gpu_node("a", 1.0)}
    cluster.show(nodes, **claim_view())
    first, second = (
        msgspec.structs.replace(POD, metadata=msgspec.structs.replace(POD.metadata, name=name))
        for name in ("first", "second")
    )
    ask = cluster.answers.ask_now(first)
    assert ask is not None
    assert ask.takers == 0
    cluster.answers.answered(ask, first)
    assert cluster.answers.ask_now(first) == ask
    again = cluster.answers.ask_now(second)
    assert again is not None
    assert again.takers == 1


async def test_a_long_search_lets_others_go_first() -> None:
    hard = b.node("n", pools=(b.pool(*[b.device(f"d{i}") for i in range(16)]),))
    ask = msgspec.structs.replace(anything(), claims=anything(8).claims * 2 + anything().claims)
    cluster = Cluster()
    cluster.show({"n": hard})
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    table = await cluster.answers.judged(ask)
    counting.cancel()
    assert turns > 10
    assert table.undecided == {"n"}
    assert "steps" in table.verdicts["n"].undecided[0]


async def test_a_newer_view_ends_a_search_on_the_old_one() -> None:
    ask = msgspec.structs.replace(anything(), claims=anything(8).claims * 2 + anything().claims)
    cluster = Cluster()
    cluster.show({"n": b.node("n", pools=(b.pool(*[b.device(f"d{i}") for i in range(16)]),))})
    judging = asyncio.create_task(cluster.answers.judged(ask))
    await asyncio.sleep(0)
    cluster.show({"n": b.node("n", pools=(b.pool(*[b.device(f"d{i}") for i in range(17)]),))})
    table = await judging
    assert table.undecided == set()
    assert len(table.verdicts["n"].devices) == 17


def test_another_version_of_kubernetes_is_predicted_from_then_on() -> None:
    answers = Cluster().answers
    before = answers.table(anything())
    answers.follow("v1.37.1")
    assert answers.table(anything()) is before
    answers.follow("v1.36.3")
    assert answers.table(anything()).profile.quirks.counters_by_pool_name


async def test_where_a_whole_pool_vanished_its_claims_node_is_not_like_the_others() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    raw = msgspec.json.encode({"nodeSelectorTerms": [{"matchFields": [field]}]})
    nodes = msgspec.json.decode(raw, type=core.NodeSelector)
    bound = Bound("k", (Held(b.device("gone").id),), nodes)
    cluster = Cluster()
    cluster.show({n: b.node(n) for n in ("b", "a")})
    table = await cluster.answers.judged(Ask(BUILT_IN["inference"], bound=(bound,)))
    assert (table.verdicts["a"].unfit, table.verdicts["a"].value) == ((), 0.75)
    assert table.unfit == {"b"}
