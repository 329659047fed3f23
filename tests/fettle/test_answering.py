"""Tables of verdicts, brought up to date by what changed."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.answering import Answers
from fettle.asks import Ask, Units
from fettle.policy import BUILT_IN
from fettle.selectors.engine import SelectorEngine
from fettle.settings import Settings
from fettle.view import NodeView, Publisher
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
