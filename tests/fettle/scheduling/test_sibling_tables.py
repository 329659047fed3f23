"""Demands that differ only in the number of pods in flight have the same fingerprints."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api.extender import host_priority
from fettle.cluster import NodeView
from fettle.dra import AMPLE
from fettle.pacing import SLICE_S, taking_turns
from fettle.scheduling import tables
from fettle.scheduling.in_flight import STEPS
from fettle.scheduling.tables import BATCH, FEW, Table
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import Cluster, anything


@pytest.fixture(autouse=True, scope="module")
def unhurried() -> Iterator[None]:
    """A machine that stands still for a moment cuts no search short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "AMPLE", msgspec.structs.replace(AMPLE, seconds=3600.0))
        yield


KINDS = ((1.0,), (1.0, 0.6), (0.6,), (0.1,), (0.1, 1.0), ())
"""The health of the devices of a node."""


def gpu_node(name: str, scores: tuple[float, ...]) -> NodeView:
    devices = [b.device(f"{name}-{i}", score, pool=name) for i, score in enumerate(scores)]
    return b.node(name, pools=(b.looked_at(b.pool(*devices, name=name)),))


def fleet(kinds: list[tuple[float, ...]]) -> dict[str, NodeView]:
    return {f"n{i}": gpu_node(f"n{i}", scores) for i, scores in enumerate(kinds)}


def said(table: Table) -> object:
    """All that a table says, without device names: a shared verdict has those of one node."""
    verdicts = {
        name: (v.fits, v.value, v.score, len(v.refusals), len(v.overruled), v.undecided, v.rejected)
        for name, v in table.verdicts.items()
    }
    sets = table.refused, table.undecided, table.rejected, table.provisional, table.cut_short
    names = sorted(table.verdicts)
    narrowed = table.narrow(names)
    ends = narrowed.passed, sorted(narrowed.refused)
    return verdicts, sets, table.scores_as(names, host_priority), ends


FLEETS = st.lists(st.sampled_from(KINDS), min_size=FEW + 1, max_size=3 * FEW)
TAKERS = st.lists(st.sampled_from(STEPS), min_size=2, max_size=4)


@given(FLEETS, TAKERS, st.data())
async def test_a_table_filled_from_a_sibling_equals_one_judged_by_itself(
    kinds: list[tuple[float, ...]], in_flight: list[int], data: st.DataObject
) -> None:
    cluster = Cluster()
    cluster.show(fleet(kinds))
    for number in in_flight:
        some = data.draw(st.none() | st.sets(st.sampled_from(sorted(cluster.answers.view.nodes))))
        assert said(await cluster.answers.judged(anything(in_flight=number), some))
    for number in in_flight:
        alone = Cluster()
        alone.show(fleet(kinds))
        expected = await alone.answers.judged(anything(in_flight=number))
        table = await cluster.answers.judged(anything(in_flight=number))
        assert said(table) == said(expected)


@given(FLEETS, FLEETS)
async def test_a_table_filled_from_a_sibling_is_updated_by_the_next_view(
    before: list[tuple[float, ...]], after: list[tuple[float, ...]]
) -> None:
    cluster, fresh = Cluster(), Cluster()
    for kinds in (before, after):
        cluster.show(fleet(kinds))
        for number in (0, 2):
            table = await cluster.answers.judged(anything(in_flight=number))
            assert said(table)
    fresh.show(fleet(after))
    assert said(table) == said(await fresh.answers.judged(anything(in_flight=2)))


@pytest.mark.parametrize("nodes", [4 * BATCH - 1, 4 * BATCH + 1])
async def test_verdicts_known_for_another_number_of_pods_in_flight_are_reused_within_a_time_slice(
    nodes: int,
) -> None:
    cluster = Cluster()
    cluster.show(fleet([(1.0, 0.6)] * nodes))
    names = list(cluster.answers.view.nodes)
    with taking_turns(clock=itertools.count(0.0, SLICE_S / 35).__next__):
        assert cluster.answers.at_once(anything(), names) is None
        await cluster.answers.judged(anything())
        table = cluster.answers.at_once(anything(in_flight=1), names)
    assert table is not None
    assert table.complete(cluster.answers.view)
