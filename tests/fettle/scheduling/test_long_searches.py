"""Long searches let other work go first, and one demand gets only so much time."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from fettle.api import resource
from fettle.cluster import NodeView
from fettle.dra import Alternative, Claim, DeviceView, PublishedDevice, Request
from fettle.dra.pools import PublishedCapacity
from fettle.dra.quantities import amount
from fettle.explain.wording import text
from fettle.model import DeviceId
from fettle.pacing import KeptParts, Pauses
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.tables import DEMAND_SECONDS, REST, Table
from tests.fettle import building as b
from tests.fettle.others import turns_during
from tests.fettle.scheduling.clusters import Cluster, anything


def sharing(devices: int, amounts: Iterable[int]) -> tuple[Demand, NodeView]:
    """Shared devices with a bandwidth of 10 each, and one claim for each of these amounts."""
    claims = []
    for wanted in amounts:
        alternative = Alternative("r", "any", capacity=(("bw", amount(str(wanted))),))
        claims.append(Claim("k", (Request("r", (alternative,)),)))
    shared = [
        DeviceView(
            PublishedDevice(
                DeviceId(b.DRIVER, "n", f"d{i}"),
                resource.Device(name=f"d{i}", allow_multiple_allocations=True),
                capacities={"bw": PublishedCapacity(amount("10"), None)},
                plain=False,
            ),
            (),
            b.health(1.0),
        )
        for i in range(devices)
    ]
    demand = msgspec.structs.replace(anything(), claims=tuple(claims))
    return demand, b.node("n", pools=(b.pool(*shared),))


def crowded(devices: int, claims: int) -> tuple[Demand, NodeView]:
    """Devices with room for one claim each: to find that there are too few takes long."""
    return sharing(devices, [6] * claims)


def laborious() -> tuple[Demand, NodeView]:
    """Small claims are tried together first: after a thousand steps it is found that each needs a
    large one beside it."""
    return sharing(4, [3] * 4 + [7] * 4)


async def test_a_long_search_lets_others_go_first() -> None:
    demand, hard = crowded(9, 10)
    cluster = Cluster()
    cluster.show({"n": hard})
    table, turns = await turns_during(cluster.answers.judged(demand))
    assert turns > 10
    assert table.undecided == {"n"}
    assert text(table.verdicts["n"].undecided[0]).startswith("no result within")


class SlowClock:
    """A clock that advances each time it is read. It has run for a day already."""

    now = 86_400.0
    step = 2.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


async def test_an_expensive_demand_gets_short_searches_until_it_has_rested() -> None:
    demand, node = laborious()
    clock = SlowClock()
    cluster = Cluster(clock, working_s=clock)
    cluster.show({name: msgspec.structs.replace(node, name=name) for name in ("a", "b", "c")})
    completing = asyncio.ensure_future(cluster.answers.keep_complete())
    table = await cluster.answers.judged(demand)
    assert len(table.undecided) == 2
    assert "steps" in text(table.verdicts[min(table.undecided)].undecided[0])
    for left in (1, 0):
        clock.now += table.spent_s / REST
        assert cluster.answers.at_once(demand, ["a", "b", "c"]) is table  # nobody waits for it
        async with asyncio.timeout(30):
            while len(table.undecided) > left:
                await asyncio.sleep(0)
        for _ in range(100):  # until the one that is left has been searched for briefly
            await asyncio.sleep(0)
    assert all(len(verdict.devices) == 8 for verdict in table.verdicts.values())
    completing.cancel()


async def test_a_demand_gets_no_credit_for_time_before_it_cost_anything() -> None:
    demand, node = laborious()
    clock = SlowClock()
    cluster = Cluster(clock, working_s=clock)
    for name in ("a", "b"):
        cluster.answers.table(demand)
        clock.now += 3600.0
        cluster.show({name: msgspec.structs.replace(node, name=name)})
        began = clock.now
        owed = (await cluster.answers.judged(demand)).spent_s
        assert DEMAND_SECONDS < owed < (1 - REST) * (clock.now - began)


def test_a_demand_pays_off_a_fifth_of_a_second_each_second() -> None:
    demand, _ = laborious()
    table = Table(demand, Acceptance(demand.policy.placement))
    table.rest(1000.0)
    table.spent_s = 1.0
    for now, owed in ((1001.0, 0.8), (1002.0, 0.6), (1004.0, 0.2), (1010.0, 0.0)):
        table.rest(now)
        assert table.spent_s == pytest.approx(owed)


async def test_a_search_that_fails_again_waits_for_the_next_view(
    kept_by: Callable[[Pauses], KeptParts],
) -> None:
    kept_by(Pauses(first_s=0.0))
    demand, node = laborious()
    clock = SlowClock()
    cluster = Cluster(clock, working_s=clock)
    nodes = {name: msgspec.structs.replace(node, name=name) for name in ("a", "b", "c")}
    cluster.show(nodes)
    table = await cluster.answers.judged(demand)
    assert len(table.cut_short) == 2
    completing = asyncio.ensure_future(cluster.answers.keep_complete())
    clock.now += (table.spent_s - 0.4) / REST
    clock.step = 0.01
    broken: Any = None
    cluster.show({**nodes, "bad": msgspec.structs.replace(node, name="bad", health=broken)})
    with capture_logs() as logs:
        cluster.answers.table(demand)
        for _ in range(100):
            await asyncio.sleep(0)
    assert [log["part"] for log in logs] == ["tables of verdicts"]
    assert table.may_try_again
    clock.step = 2.0
    cluster.show(nodes)
    cluster.answers.table(demand)
    for _ in range(2000):
        await asyncio.sleep(0)
    assert len(table.cut_short) == 1  # for which there is no time yet
    completing.cancel()


async def test_a_newer_view_ends_a_search_on_the_old_one() -> None:
    demand, hard = crowded(9, 10)
    cluster = Cluster()
    cluster.show({"n": hard})
    judging = asyncio.create_task(cluster.answers.judged(demand))
    await asyncio.sleep(0)
    cluster.show({"n": crowded(10, 10)[1]})
    table = await judging
    assert table.undecided == set()
    assert len(table.verdicts["n"].devices) == 10


async def test_nodes_after_preemption_are_judged_in_time_slices() -> None:
    demand, hard = crowded(9, 10)
    cluster = Cluster()
    names = [f"n{number}" for number in range(4)]
    cases = [(demand, msgspec.structs.replace(hard, name=name)) for name in names]
    match = cluster.answers.outcomes()
    verdicts, turns = await turns_during(cluster.answers.judge_apart(cases, match, emptied=True))
    assert set(verdicts) == set(names)
    assert turns > len(names)
