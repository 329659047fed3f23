"""Tables of verdicts, kept up to date by what changed between views."""

import asyncio
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import core, resource
from fettle.api.extender import host_priority
from fettle.cel import SelectorEngine
from fettle.cluster import NodeView, Publisher
from fettle.config import Settings
from fettle.dra import AllocatedDevice, DeviceView
from fettle.explain.wording import text
from fettle.model import BUILT_IN
from fettle.pacing import SLICE_S, taking_turns
from fettle.scheduling import kept_tables
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Bound, Demand, Units
from fettle.scheduling.tables import FEW
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import (
    POD,
    Cluster,
    anything,
    claim_view,
    kept_complete,
    share,
)

TRAINING = Demand(BUILT_IN["training"], units=(Units(b.RESOURCE, 4),))


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


ASKED = st.none() | st.lists(st.sampled_from("abcdefgh"), unique=True)


@given(VIEWS, st.lists(ASKED, min_size=6, max_size=6))
async def test_a_table_that_followed_views_equals_a_new_one(
    layouts: list[dict[str, tuple[float, float]]], asked: list[list[str] | None]
) -> None:
    followed = Cluster()
    for layout, names in zip(layouts, asked, strict=False):
        followed.show(nodes_of(layout))
        table = await followed.answers.judged(TRAINING, names)
        assert set(layout).intersection(layout if names is None else names) <= set(table.verdicts)
    fresh = Cluster()
    fresh.show(nodes_of(layouts[-1]))
    old = await followed.answers.judged(TRAINING)
    new = await fresh.answers.judged(TRAINING)
    assert old.verdicts == new.verdicts
    assert old.refused == new.refused
    names = sorted(layouts[-1])
    assert old.scores_as(names, host_priority) == new.scores_as(names, host_priority)


async def test_nodes_with_the_same_fingerprint_share_one_verdict() -> None:
    cluster = Cluster()
    cluster.show({n: b.node(n, gpus=8) for n in ("a", "b")})
    table = await cluster.answers.judged(TRAINING)
    assert table.verdicts["a"] is table.verdicts["b"]


async def test_only_the_nodes_of_a_request_are_judged() -> None:
    cluster = Cluster()
    cluster.show({n: b.node(n, gpus=8) for n in ("a", "b")})
    table = await cluster.answers.judged(TRAINING, ["b", "unknown"])
    assert set(table.verdicts) == {"b"}


async def test_names_are_refused_by_the_tables_verdicts_of_that_moment() -> None:
    cluster = Cluster()
    bad = {n: b.node(n, gpus=8, own=b.health(0.1)) for n in ("a", "c", "d")}
    cluster.show({"b": b.node("b", gpus=8)} | bad)

    def refused() -> list[str]:
        return sorted(table.narrow(["a", "b", "c", "d"]).refused)

    table = await cluster.answers.judged(TRAINING, ["b"])
    assert refused() == []
    await cluster.answers.judged(TRAINING, ["a"])
    assert refused() == ["a"]
    table.take_over("a", ["c"])
    assert refused() == ["a", "c"]
    table.drop(frozenset({"a"}))
    assert refused() == ["c"]
    table.clear()
    assert refused() == []


async def test_once_pods_share_a_demand_all_nodes_are_judged_in_the_background() -> None:
    cluster = Cluster()
    cluster.show({n: b.node(n, gpus=8) for n in ("a", "b")})
    work = asyncio.ensure_future(cluster.answers.keep_complete())
    table = await cluster.answers.judged(TRAINING, ["a"])
    share(cluster.answers, TRAINING)
    while len(table.verdicts) < 2:
        await asyncio.sleep(0)
    work.cancel()


@pytest.mark.parametrize(("changed", "judged"), [(FEW, 0), (FEW + 1, FEW + 1)])
async def test_changed_nodes_are_judged_in_the_background_only_if_they_are_many(
    changed: int, judged: int
) -> None:
    cluster = Cluster()
    nodes = {f"n{i}": b.node(f"n{i}", gpus=8) for i in range(10 * FEW)}
    worse = {f"n{i}": b.node(f"n{i}", gpus=8, own=b.health(0.1)) for i in range(changed)}
    cluster.show(nodes)
    async with kept_complete(cluster.answers):
        await cluster.answers.judged(TRAINING)
        share(cluster.answers, TRAINING)
        await settle()
        assert cluster.answers.at_once(TRAINING, ["n0"])
        cluster.show(nodes | worse)
        table = cluster.answers.at_once(TRAINING, [f"n{changed}"])
        await settle()
        assert table is not None
        assert len(table.refused) == judged
        assert (await cluster.answers.judged(TRAINING, list(nodes))).refused == set(worse)


async def test_for_a_single_pod_no_further_nodes_are_judged() -> None:
    cluster = Cluster()
    cluster.show({n: b.node(n, gpus=8) for n in ("a", "b")})
    async with kept_complete(cluster.answers):
        for number in range(3):
            demand = msgspec.structs.replace(TRAINING, unsettled=(f"claim {number} is not seen",))
            await cluster.answers.judged(demand, ["a"])
            cluster.answers.note_nodes_given(demand, POD)
            await settle()
            assert set(cluster.answers.table(demand).verdicts) == {"a"}
        cluster.answers.note_nodes_given(demand, POD)
        await settle()
        assert set(cluster.answers.table(demand).verdicts) == {"a", "b"}


async def test_the_number_of_verdicts_in_all_tables_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_tables, "MAX_VERDICTS", 10)
    cluster = Cluster()
    cluster.show({str(n): b.node(str(n), gpus=8) for n in range(4)})
    demands = [msgspec.structs.replace(TRAINING, unsettled=(str(number),)) for number in range(4)]
    tables = [await cluster.answers.judged(demand) for demand in demands]
    tables.append(await cluster.answers.judged(demands[0]))
    assert [len(table.verdicts) for table in tables] == [4] * 5
    again = [cluster.answers.table(demand) for demand in (demands[0], demands[3], demands[1])]
    assert again[0] is tables[4]
    assert again[0] is not tables[0]
    assert again[1] is tables[3]
    assert again[2] is not tables[1]


async def test_verdicts_kept_by_fingerprint_count_towards_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_tables, "MAX_VERDICTS", 50)
    cluster = Cluster()
    for number in range(60):
        cluster.show({"a": b.node("a", gpus=8, own=b.health(1 - number / 1000))})
        first = await cluster.answers.judged(TRAINING)
    assert cluster.answers.table(TRAINING) is first
    await cluster.answers.judged(msgspec.structs.replace(TRAINING, in_flight=1))
    assert cluster.answers.table(TRAINING) is not first


async def settle() -> None:
    """Let everything run that is ready to."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_node_that_changed_is_judged_within_the_request() -> None:
    cluster = Cluster()
    cluster.show({n: b.node(n, gpus=8) for n in ("a", "b")})
    await cluster.answers.judged(TRAINING)
    cluster.show({"a": b.node("a", gpus=8), "b": b.node("b", gpus=8, own=b.health(0.1))})
    with taking_turns(clock=lambda: 0.0):
        table = cluster.answers.at_once(TRAINING, ["a", "b"])
    assert table is not None
    assert table.refused == {"b"}


async def test_a_request_judges_for_at_most_one_time_slice() -> None:
    cluster = Cluster()
    cluster.show({str(n): b.node(str(n), gpus=8) for n in range(500)})
    names = list(cluster.answers.view.nodes)
    with taking_turns(clock=itertools.count(0.0, SLICE_S / 10).__next__):
        assert cluster.answers.at_once(TRAINING, names) is None
        table = await cluster.answers.judged(TRAINING, names)
        assert cluster.answers.at_once(TRAINING, names) is table


async def test_a_demand_that_waits_for_a_selector_is_not_answered_at_once() -> None:
    cluster = Cluster()
    cluster.show({"a": gpu_node("a", 1.0)}, **claim_view())
    demand = cluster.answers.demand(POD)
    assert demand is not None
    assert cluster.answers.at_once(demand, ["a"]) is None


async def test_a_view_that_changes_no_verdict_keeps_the_table() -> None:
    cluster = Cluster()
    nodes = {"a": b.node("a", gpus=8)}
    cluster.show(nodes)
    before = (await cluster.answers.judged(TRAINING)).verdicts["a"]
    cluster.show(nodes)
    assert (await cluster.answers.judged(TRAINING)).verdicts["a"] is before


@pytest.mark.parametrize("how_many", [3, 300])
async def test_the_newest_view_counts_however_many_were_missed(how_many: int) -> None:
    cluster = Cluster()
    cluster.show({"a": b.node("a", gpus=8)})
    assert not (await cluster.answers.judged(TRAINING)).refused
    for _ in range(how_many):
        cluster.show({"a": b.node("a", gpus=8)})
    cluster.show({"a": b.node("a", gpus=8, own=b.health(0.1))})
    assert (await cluster.answers.judged(TRAINING)).refused == {"a"}


def gpu_node(name: str, *scores: float, **fields: Any) -> NodeView:
    devices = [b.device(f"{name}-{i}", score, pool=name) for i, score in enumerate(scores)]
    return b.node(name, pools=(b.looked_at(b.pool(*devices, name=name)),), **fields)


async def test_nodes_with_equal_devices_share_a_verdict_but_are_explained_one_by_one() -> None:
    cluster = Cluster()
    cluster.show({n: gpu_node(n, 1.0, 0.9) for n in ("a", "b")})
    table = await cluster.answers.judged(anything())
    assert table.verdicts["a"] is table.verdicts["b"]
    explained = await cluster.answers.explained(anything())
    assert [c.device.device for c in explained["b"].devices] == ["b-0"]


@given(st.dictionaries(st.sampled_from("abcd"), st.lists(SCORES, min_size=1, max_size=3)))
async def test_a_shared_verdict_equals_the_nodes_own(
    layout: dict[str, list[float]],
) -> None:
    cluster = Cluster()
    cluster.show({name: gpu_node(name, *scores) for name, scores in layout.items()})
    for demand in (anything(), anything(2), anything(in_flight=1)):
        shared = (await cluster.answers.judged(demand)).verdicts
        own = await cluster.answers.explained(demand)
        for name, verdict in shared.items():
            assert (verdict.fits, verdict.score) == (own[name].fits, own[name].score)
            assert len(verdict.refusals) == len(own[name].refusals)


async def test_a_node_with_a_malformed_slice_selector_shares_no_verdict_with_others() -> None:
    cluster = Cluster()
    odd = msgspec.structs.replace(gpu_node("b", 1.0), malformed="no such operator")
    cluster.show({"a": gpu_node("a", 1.0), "b": odd})
    table = await cluster.answers.judged(anything())
    assert not table.verdicts["a"].rejected
    assert "no such operator" in text(table.verdicts["b"].rejected[0])


async def test_a_node_that_was_never_fully_read_shares_no_verdict_with_others() -> None:
    cluster = Cluster()
    unread = msgspec.structs.replace(b.node("b", gpus=8), unread=True)
    cluster.show({"a": b.node("a", gpus=8), "b": unread})
    table = await cluster.answers.judged(TRAINING)
    assert table.verdicts["a"] is not table.verdicts["b"]


async def test_nodes_with_a_pool_without_digests_share_no_verdict() -> None:
    cluster = Cluster()
    cluster.show({n: b.node(n, pools=(b.pool(b.device(n)),)) for n in ("a", "b")})
    table = await cluster.answers.judged(anything())
    assert table.verdicts["a"] is not table.verdicts["b"]


async def test_pods_in_flight_lower_a_score_and_refuse_nothing() -> None:
    cluster = Cluster()
    cluster.show({"a": gpu_node("a", 1.0, 0.1), "b": gpu_node("b", 1.0, 1.0)})
    now = await cluster.answers.judged(anything())
    later = await cluster.answers.judged(anything(in_flight=1))
    assert (now.verdicts["a"].score, later.verdicts["a"].score) == (12, 0)
    assert (now.verdicts["b"].score, later.verdicts["b"].score) == (10, 10)
    assert not later.refused


async def test_pods_in_flight_use_up_shared_counters_too() -> None:
    drawn = resource.DeviceCounterConsumption(
        counter_set="gpu", counters={"slices": resource.Counter(value="1")}
    )

    def partition(name: str, score: float) -> DeviceView:
        view = b.device(name, score)
        published = msgspec.structs.replace(
            view.published,
            device=resource.Device(name=name, consumes_counters=(drawn,)),
            consumes=((("gpu", "slices"), 1),),
        )
        return msgspec.structs.replace(view, published=published)

    for slices, score in ((2, 0), (1, 12)):
        pool = b.pool(partition("a", 1.0), partition("b", 0.1))
        pool = msgspec.structs.replace(pool, counters={("gpu", "slices"): slices})
        cluster = Cluster()
        cluster.show({"n": b.node("n", pools=(pool,))})
        later = await cluster.answers.judged(anything(in_flight=1))
        assert later.verdicts["n"].score == score


async def test_a_pod_that_was_just_answered_is_in_flight_for_the_next_one() -> None:
    cluster = Cluster()
    nodes = {"a": gpu_node("a", 1.0)}
    cluster.show(nodes, **claim_view())
    first, second = (
        msgspec.structs.replace(POD, metadata=msgspec.structs.replace(POD.metadata, name=name))
        for name in ("first", "second")
    )
    demand = cluster.answers.demand_now(first)
    assert demand is not None
    assert demand.in_flight == 0
    cluster.answers.note_nodes_given(demand, first)
    assert cluster.answers.demand_now(first) == demand
    again = cluster.answers.demand_now(second)
    assert again is not None
    assert again.in_flight == 1


def test_a_new_version_of_kubernetes_changes_predictions_from_then_on() -> None:
    answers = Cluster().answers
    before = answers.table(anything())
    answers.predict_as("v1.37.1")
    assert answers.table(anything()) is before
    edition = answers.edition
    answers.predict_as("v1.36.3")
    assert answers.table(anything()).profile.quirks.counters_by_pool_name
    assert answers.edition != edition


async def test_a_demand_that_cannot_be_judged_does_not_affect_others() -> None:
    cluster = Cluster()
    cluster.show({"a": b.node("a", gpus=8)})
    units = msgspec.structs.replace(TRAINING.units[0], count="many")
    hopeless = msgspec.structs.replace(TRAINING, units=(units,))
    for demand in (hopeless, TRAINING):
        share(cluster.answers, demand)
    work = asyncio.ensure_future(cluster.answers.keep_complete())
    for _ in range(20):
        await asyncio.sleep(0)
    assert set(cluster.answers.table(TRAINING).verdicts) == {"a"}
    assert not work.done()
    work.cancel()


def test_a_feature_gate_in_the_settings_applies_to_every_version() -> None:
    settings = msgspec.convert({"scheduler": {"featureGates": "DRADeviceTaints=false"}}, Settings)
    answers = Answers(Publisher(), SelectorEngine(), settings)
    assert not answers.profile.features.device_taints
    answers.predict_as("v1.36.3")
    assert not answers.profile.features.device_taints
    assert answers.allocator_notes() == [
        "allocations are predicted as of Kubernetes v1.36.3 with the feature gates "
        "DRADeviceTaints=false"
    ]


def test_the_version_in_the_settings_overrides_the_api_servers() -> None:
    settings = msgspec.convert({"scheduler": {"version": "v1.36.1"}}, Settings)
    answers = Answers(Publisher(), SelectorEngine(), settings)
    assert answers.profile.quirks.undoes_in_part
    answers.predict_as("v1.37.1")
    assert answers.profile.quirks.undoes_in_part
    assert answers.allocator_notes() == ["allocations are predicted as of Kubernetes v1.36.1"]


def test_the_time_of_day_decides_whether_an_allocation_has_waited_too_long() -> None:
    now = [1_000_000_000.0]
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x", "bindingConditions": ["R"]}
    allocation = {"devices": {"results": [result]}, "allocationTimestamp": "2001-09-09T01:46:40Z"}
    claim = b.claim(
        {
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {},
            "status": {"allocation": allocation},
        }
    )
    publisher = Publisher()
    publisher.publish(b.view(claims={"default/c": claim}), frozenset())
    answers = Answers(publisher, SelectorEngine(), Settings(), now=lambda: now[0])
    pod = b.pod(
        {
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
        }
    )
    waiting = answers.demand(pod)
    now[0] += 601
    late = answers.demand(pod)
    assert waiting is not None
    assert late is not None
    assert (len(waiting.bound), waiting.barred) == (1, ())
    assert (late.bound, len(late.barred)) == ((), 1)


async def test_a_node_whose_allocated_pool_vanished_shares_no_verdict_with_others() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    raw = msgspec.json.encode({"nodeSelectorTerms": [{"matchFields": [field]}]})
    nodes = msgspec.json.decode(raw, type=core.NodeSelector)
    bound = Bound("k", (AllocatedDevice(b.device("gone").id),), nodes)
    cluster = Cluster()
    cluster.show({n: b.node(n) for n in ("b", "a")})
    table = await cluster.answers.judged(Demand(BUILT_IN["inference"], bound=(bound,)))
    assert (table.verdicts["a"].rejected, table.verdicts["a"].value) == ((), 0.75)
    assert table.rejected == {"b"}
