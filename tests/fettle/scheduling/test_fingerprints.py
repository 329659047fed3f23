"""Nodes with one fingerprint share a verdict, which each of them would get by itself."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fettle.cel import SelectorEngine
from fettle.cluster import NodeView, View
from fettle.dra import CURRENT, Profile
from fettle.explain.wording import texts
from fettle.model import BUILT_IN
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.verdicts import Verdict
from fettle.scheduling.tables import SelectorOutcomes, Table
from tests.fettle.scheduling.similar_fleets import (
    GPU,
    NIC,
    OLD,
    PROFILES,
    UNORDERED,
    WARM,
    XID,
    Place,
    Pool,
    Raw,
    both,
    build,
    claim_of,
    demands,
    device,
    fleets,
    full,
    memory,
    numbered,
    selecting,
    taint,
    x,
)

Compare = Callable[[dict[str, "Place"], Demand, Profile], "Judged"]


@pytest.fixture(scope="module")
def compare() -> Iterator[Compare]:
    """Compares with a real selector engine, started once for all."""
    engine = SelectorEngine()
    with asyncio.Runner() as runner:
        runner.run(engine.start())

        def compared(places: dict[str, Place], demand: Demand, profile: Profile) -> Judged:
            return runner.run(judged(engine, build(places, profile), demand, profile))

        yield compared
        runner.run(engine.close())


class Judged(NamedTuple):
    together: dict[str, object]
    alone: dict[str, object]
    shared: int
    """How many nodes got the verdict of another."""


async def judged(engine: SelectorEngine, view: View, demand: Demand, profile: Profile) -> Judged:
    nodes = view.nodes.values()
    seen = [(d.id.driver, d.device) for n in nodes for p in n.pools for d in p.devices]
    await engine.evaluate(demand.selectors, seen)
    acceptance = Acceptance(demand.policy.placement)
    match = SelectorOutcomes(engine)
    table = Table(demand, acceptance, profile)
    plain = plainly(nodes)
    alone: dict[str, object] = {}
    for node in nodes:
        table.judge(node, match)
        own = Table(demand, acceptance, profile)
        own.judge(node, match)
        alone[node.name] = plain(own.verdicts[node.name])
    assert not table.provisional
    return Judged(
        {name: plain(verdict) for name, verdict in table.verdicts.items()},
        alone,
        len(nodes) - len({id(verdict) for verdict in table.verdicts.values()}),
    )


def plainly(nodes: Collection[NodeView]) -> Callable[[Verdict], object]:
    """Makes verdicts of nodes comparable: devices have positions instead of names.

    The text of evidence is left out: only its weight counts.
    """
    names = {str(pool.ref): "a pool" for node in nodes for pool in node.pools}
    for node in nodes:
        for number, pool in enumerate(node.pools):
            names |= {str(d.id): f"device {number}.{at}" for at, d in enumerate(pool.devices)}
    named = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "$")

    def unnamed(said: str) -> str:
        placed = named.sub(lambda found: names.get(found.group(), ""), said)
        return re.sub(r"(\(\d\.\d\d\)): .*", r"\1", placed)

    def plain(verdict: Verdict) -> object:
        said = (verdict.refusals, verdict.undecided, verdict.rejected, verdict.overruled)
        return (
            (verdict.fits, verdict.value, verdict.score),
            [[*map(unnamed, texts(reasons))] for reasons in (*said, verdict.notes)],
            [(c.request, unnamed(str(c.device)), c.tolerated, c.met) for c in verdict.devices],
        )

    return plain


@pytest.mark.long
def test_nodes_that_share_a_verdict_would_each_get_the_same_one_alone(compare: Compare) -> None:
    count: Counter[str] = Counter()

    @given(fleets(), demands(), st.sampled_from(PROFILES))
    @settings(max_examples=300)
    def holds(places: dict[str, Place], demand: Demand, profile: Profile) -> None:
        found = compare(places, demand, profile)
        count.update(nodes=len(places), shared=found.shared)
        assert found.together == found.alone

    holds()
    assert count["shared"] > count["nodes"] / 5, "the fleets have too little in common"


# -- what was left out of a shape once

ONE: Raw = {"deviceClassName": "any", "count": 1}
TWO: Raw = {"deviceClassName": "any", "count": 2}


def local(*devices: Raw, **fields: Any) -> Place:
    return Place((Pool(GPU, devices, **fields),))


def ask_for(wanted: Raw, *constraints: Raw) -> Demand:
    return Demand(BUILT_IN["training"], claims=(claim_of(wanted, *constraints),))


def of_one_driver_each(**fields: Any) -> Place:
    """A device each of two drivers; one driver has one counter, the other two."""
    first = Pool(GPU, (device("gpu-0", counted=True),), 1, **fields)
    return Place((first, Pool(NIC, (device("nic-0", counted=True),), 2, **fields)))


SWAPPED = numbered(**{f"{GPU}/x": 1, "x": 2})
SHARED = local(device("gpu-0", capacity=memory("4"), allowMultipleAllocations=True))
HALF = ask_for(ONE | {"capacity": {"requests": {"memory": "2"}}})
GOOD, BAD = device("gpu-0"), device("gpu-1", taints=[taint(XID)])


def of_two_drivers(gpu: int, nic: int) -> Place:
    """A device each of two drivers, with a number under one attribute name."""
    first = Pool(GPU, (device("gpu-0", **full(gpu)),), 1)
    return Place((first, Pool(NIC, (device("nic-0", **full(nic)),), 2)))


def listed(*values: int) -> Raw:
    return {"attributes": {"x": {"ints": values}}}


@pytest.mark.parametrize(
    ("one", "other", "demand", "profile"),
    [
        (local(GOOD, BAD), local(GOOD, BAD, slices=2), ask_for(ONE), UNORDERED),
        (
            local(GOOD, where=selecting()),
            local(GOOD, where=selecting("other")),
            ask_for(ONE),
            CURRENT,
        ),
        (
            local(GOOD, where=selecting("other")),
            local(device("gpu-0", bindsToNode=True), where=selecting("other")),
            ask_for(ONE),
            CURRENT,
        ),
        (
            local(device("gpu-0", **x(1)), device("gpu-1", **x(1))),
            local(device("gpu-0", **x(1)), device("gpu-1", **x(2))),
            ask_for(TWO, {"matchAttribute": "x"}),
            CURRENT,
        ),
        (
            local(device("gpu-0", **x(1)), device("gpu-1", **x(1))),
            local(device("gpu-0", **full(1)), device("gpu-1", **full(1))),
            ask_for(TWO, {"matchAttribute": "x"}),
            CURRENT,
        ),
        (
            local(device("gpu-0", **both(1, 2)), device("gpu-1", **both(1, 2))),
            local(device("gpu-0", **both(1, 2)), device("gpu-1", **SWAPPED)),
            ask_for(TWO, {"matchAttribute": f"{GPU}/x"}),
            CURRENT,
        ),
        (
            of_two_drivers(1, 1),
            of_two_drivers(1, 2),
            ask_for(TWO, {"matchAttribute": f"{GPU}/x"}),
            CURRENT,
        ),
        (
            local(device("gpu-0", **x(1)), device("gpu-1", **x(1))),
            local(device("gpu-0", **listed(1)), device("gpu-1", **listed(1))),
            ask_for(TWO, {"matchAttribute": f"{GPU}/x"}),
            CURRENT,
        ),
        (
            local(device("gpu-0", taints=[taint(WARM)])),
            local(GOOD)._replace(tainted=WARM),
            ask_for(ONE),
            OLD,
        ),
        (of_one_driver_each(), of_one_driver_each(name="p"), ask_for(TWO), OLD),
        (SHARED._replace(held="share of 1"), SHARED._replace(held="share of 3"), HALF, CURRENT),
    ],
    ids=[
        "slices where they have no order",
        "terms of a node selector",
        "a device that binds to its node",
        "an attribute that is named without a domain",
        "a domain where none is looked for",
        "an attribute with and without its domain",
        "a value that devices of two drivers have in common",
        "values that are lists",
        "taints of rules where those do not count",
        "names of pools where their counters are taken for one another's",
        "how much of a device its shares consume",
    ],
)
def test_nodes_that_differ_in_what_the_demand_sees_share_no_verdict(
    compare: Compare, one: Place, other: Place, demand: Demand, profile: Profile
) -> None:
    found = compare({"ann": one, "bob": other}, demand, profile)
    assert found.together == found.alone
    assert found.alone["ann"] != found.alone["bob"]


def test_nodes_share_a_verdict_if_their_devices_agree_in_the_same_pattern(
    compare: Compare,
) -> None:
    def of(one: int, other: int) -> Place:
        return local(device("gpu-0", **x(one)), device("gpu-1", **x(other)))

    demand = ask_for(TWO, {"matchAttribute": f"{GPU}/x"})
    fleet = {"ann": of(1, 1), "bob": of(7, 7), "cid": of(1, 2), "dan": of(7, 8)}
    found = compare(fleet, demand, CURRENT)
    assert found.together == found.alone
    assert found.shared == 2
