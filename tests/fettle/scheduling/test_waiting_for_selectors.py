"""A demand waits within a bound for selectors that are not evaluated yet: with the real engine."""

import asyncio
from typing import Any

import msgspec
from structlog.testing import capture_logs

from fettle.cel import Engines, SelectorEngine
from fettle.config import Settings
from fettle.dra import Alternative, Claim, Request
from fettle.explain.wording import text
from fettle.model import BUILT_IN
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Demand
from fettle.scheduling.preemption import Preemption
from fettle.scheduling.tables import MANY
from fettle.scheduling.warmup import Evaluations
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import PATIENT, POD, Cluster, claim_view


def waiting(seconds: float) -> Settings:
    settings = Settings()
    extender = msgspec.structs.replace(settings.extender, wait_seconds=seconds)
    return msgspec.structs.replace(settings, extender=extender)


async def test_a_demand_waits_for_its_selector_to_be_evaluated() -> None:
    cluster = Cluster()
    engine = SelectorEngine()
    cluster.answers = Answers(cluster.publisher, engine, PATIENT)
    await engine.start()
    try:
        bad = b.node("n", pools=(b.pool(b.device("a", 0.1)),))
        cluster.show({"n": bad}, **claim_view())
        demand = cluster.answers.demand(POD)
        assert demand is not None
        table = await cluster.answers.judged(demand)
        assert table.refused == {"n"}
        assert not table.provisional
    finally:
        await engine.close()


async def test_preemption_waits_for_a_selector_too() -> None:
    """A pod that finds all nodes full is sent to no other verb."""
    cluster = Cluster()
    engine = SelectorEngine()
    cluster.answers = Answers(cluster.publisher, engine, PATIENT)
    await engine.start()
    try:
        cluster.show({"n": b.node("n", pools=(b.pool(b.device("a", 0.1)),))}, **claim_view())
        verdicts = await Preemption(cluster.answers).verdicts(POD, {"n": ["victim"], "x": []})
        assert [(name, verdict.fits) for name, verdict in verdicts.items()] == [("n", False)]
    finally:
        await engine.close()


async def test_a_selector_not_evaluated_in_time_is_known_a_moment_later() -> None:
    """The engine is not even started, and that takes longer than any request waits."""
    cluster = Cluster()
    engine = SelectorEngine()
    cluster.answers = Answers(cluster.publisher, engine, waiting(0.001))
    try:
        bad = b.node("n", pools=(b.pool(b.device("a", 0.1)),))
        cluster.show({"n": bad}, **claim_view())
        demand = cluster.answers.demand(POD)
        assert demand is not None
        async with asyncio.timeout(20):
            while (await cluster.answers.judged(demand)).refused != {"n"}:
                await asyncio.sleep(0.01)
    finally:
        await engine.close()


async def test_equal_nodes_are_judged_once_for_each_request_that_waits() -> None:
    cluster, engine = Cluster(), SelectorEngine()
    cluster.answers = Answers(cluster.publisher, engine, waiting(0.0))
    try:
        devices = {name: b.device("x", pool=name) for name in ("n", "o")}
        pools = {name: b.looked_at(b.pool(d, name=name)) for name, d in devices.items()}
        cluster.show({n: b.node(n, pools=(pool,)) for n, pool in pools.items()}, **claim_view())
        demand = cluster.answers.demand(POD)
        assert demand is not None
        table, first = cluster.answers.table(demand), cluster.answers.outcomes()
        for name in ("n", "o"):
            table.judge(cluster.answers.view.nodes[name], first)
        assert table.provisional == {"n", "o"}
        open_verdict = table.verdicts["n"]
        assert table.verdicts["o"] is open_verdict
        table.judge(cluster.answers.view.nodes["o"], cluster.answers.outcomes())
        assert table.verdicts["o"] is not open_verdict
    finally:
        await engine.close()


async def test_an_explanation_waits_for_selectors_that_the_verdict_did_not_need() -> None:
    """The search does not try a device again that it has used; the explanation does."""
    cluster = Cluster()
    engine = SelectorEngine()
    cluster.answers = Answers(cluster.publisher, engine, PATIENT)
    await engine.start()
    try:
        device = b.device("a")
        cluster.show({"n": b.node("n", pools=(b.pool(device),))})
        known, unknown = "device.driver != ''", "device.driver != 'x'"
        await engine.evaluate([known], [(device.id.driver, device.device)])
        alternatives = (Alternative("x", "any", (known,)), Alternative("y", "any", (unknown,)))
        claim = Claim("k", tuple(Request(a.name, (a,)) for a in alternatives))
        demand = Demand(BUILT_IN["training"], claims=(claim,))
        assert not (await cluster.answers.judged(demand)).undecided
        verdict = (await cluster.answers.explained(demand))["n"]
        assert "compete for the same devices" in text(verdict.rejected[0])
    finally:
        await engine.close()


async def test_without_an_answer_in_time_the_node_is_undecided_and_allowed() -> None:
    cluster = Cluster()  # its engine was never started
    bad = b.node("n", pools=(b.pool(b.device("a", 0.1)),))
    cluster.show({"n": bad}, **claim_view())
    demand = cluster.answers.demand(POD)
    assert demand is not None
    table = cluster.answers.table(demand)
    table.judge(bad, cluster.answers.outcomes())
    assert table.verdicts["n"].fits
    assert table.undecided == table.provisional == {"n"}


async def test_scores_of_many_nodes_differ_once_their_selector_is_evaluated() -> None:
    cluster, engine = Cluster(), SelectorEngine()
    cluster.answers = Answers(cluster.publisher, engine, PATIENT)
    await engine.start()
    try:
        undecided = 5
        names = ["worn", *(f"n{number}" for number in range(MANY))]
        scores = {"worn": undecided / 10}
        nodes = {n: b.node(n, pools=(b.pool(b.device("a", scores.get(n, 1.0))),)) for n in names}
        cluster.show(nodes, **claim_view())
        demand = cluster.answers.demand(POD)
        assert demand is not None
        table, match = cluster.answers.table(demand), cluster.answers.outcomes()
        for node in nodes.values():
            table.judge(node, match)
        assert {verdict.score for verdict in table.verdicts.values()} == {undecided}
        assert table.scored_otherwise(names, table.usual_score) == []
        await cluster.answers.judged(demand)
        assert table.verdicts["worn"].score == undecided
        assert table.usual_score == 10
        assert table.scored_otherwise(names, 10) == ["worn"]
        assert table.score_of("worn") == undecided
    finally:
        await engine.close()


async def test_an_evaluation_that_fails_is_logged_with_its_error() -> None:
    nonsense: Any = None
    request = Request("x", (Alternative("x", "any", (nonsense,)),))
    demand = Demand(BUILT_IN["training"], claims=(Claim("k", (request,)),))
    with capture_logs() as logs:
        await Evaluations(Engines(SelectorEngine()), wait_s=10.0).wait(demand, ())
    (logged,) = logs
    assert logged["log_level"] == "error"
    assert isinstance(logged["exc_info"], TypeError)
