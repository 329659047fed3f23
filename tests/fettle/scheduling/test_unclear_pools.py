"""A node with a pool whose devices are unclear, beside the pools that a demand is about."""

from typing import Any

import msgspec
import pytest

from fettle.api.resource import DeviceAttribute
from fettle.cel import SelectorEngine
from fettle.dra import ALL, Alternative, Claim, PoolView, Request
from fettle.explain.wording import text
from fettle.model import BUILT_IN, SOME_DRIVER
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Demand
from fettle.scheduling.tables import Table
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import PATIENT, Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")  # that of the worker, which all share
OURS = f'device.driver == "{b.DRIVER}"'
MODEL = f'device.attributes["{b.DRIVER}"].model == "A100"'
ODD = b.device("x")
ABORTS = msgspec.structs.replace(
    ODD, published=msgspec.structs.replace(ODD.published, abort="an attribute is no version")
)
DEAD = b.pool(b.device("a", 0.1, attributes={"model": DeviceAttribute(string="A100")}), name="z")


def unclear(driver: str = "net.example.com", *devices: Any) -> PoolView:
    pool = PoolView(driver, "a", devices)
    return msgspec.structs.replace(pool, unclear="a slice cannot be read")


def demand(*selectors: str, mode: str = "ExactCount") -> Demand:
    alternative = Alternative("r", "any", selectors, mode=mode)
    return Demand(BUILT_IN["training"], claims=(Claim("k", (Request("r", (alternative,)),)),))


@pytest.fixture
def cluster(engine: SelectorEngine) -> Cluster:
    cluster = Cluster()
    cluster.answers = Answers(cluster.publisher, engine, PATIENT)
    return cluster


async def judged(cluster: Cluster, demand: Demand, *pools: PoolView) -> Table:
    cluster.show({"n": b.node("n", pools=pools)})
    return await cluster.answers.judged(demand)


@pytest.mark.parametrize("selectors", [(OURS,), (f"{OURS} && {MODEL}",), (OURS, MODEL)])
async def test_an_unclear_pool_of_a_driver_that_no_claim_asks_for_does_not_matter(
    cluster: Cluster, selectors: tuple[str, ...]
) -> None:
    table = await judged(cluster, demand(*selectors), unclear(), DEAD)
    assert table.refused == {"n"}
    verdict = (await cluster.answers.explained(demand(*selectors)))["n"]
    assert not verdict.undecided
    assert verdict.refusals == table.verdicts["n"].refusals


async def test_an_incomplete_pool_of_another_driver_does_not_matter_on_1_34(
    cluster: Cluster,
) -> None:
    cluster.answers.predict_as("v1.34.2")
    other = PoolView("net.example.com", "a", incomplete=True, slices=(1, 2))
    table = await judged(cluster, demand(OURS), other, DEAD)
    assert table.refused == {"n"}
    table = await judged(cluster, demand(MODEL), other, DEAD)
    assert not table.refused
    assert "1 of 2 slices" in text(table.verdicts["n"].undecided[0])


async def test_a_node_with_only_an_unclear_pool_of_another_driver_has_no_devices(
    cluster: Cluster,
) -> None:
    table = await judged(cluster, demand(OURS), unclear())
    assert table.rejected == {"n"}
    assert not table.undecided


@pytest.mark.parametrize(
    ("wanted", "pool"),
    [
        pytest.param(demand(OURS), unclear(b.DRIVER), id="its driver is asked for"),
        pytest.param(demand(OURS), unclear(SOME_DRIVER), id="whose it is cannot be read"),
        pytest.param(demand(MODEL), unclear(), id="its driver may be asked for"),
        pytest.param(demand(MODEL, OURS), unclear(), id="something else is looked at before"),
        pytest.param(demand(), unclear(), id="any device will do"),
        pytest.param(
            demand(OURS, mode=ALL), unclear(), id="all pools must be whole for all devices"
        ),
        pytest.param(
            demand(OURS),
            unclear("net.example.com", ABORTS),
            id="no selector can be evaluated on one of its devices",
        ),
    ],
)
async def test_an_unclear_pool_that_may_be_used_leaves_the_node_undecided_and_allowed(
    cluster: Cluster, wanted: Demand, pool: PoolView
) -> None:
    table = await judged(cluster, wanted, pool, DEAD)
    assert table.undecided == {"n"}
    assert not table.refused
