"""A view that is behind the scheduler's: it asks about nodes where by what we know nothing fits."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from extender import lagging
from tests.extender.conftest import Extender
from tests.fettle import building as b

POD = b.gpu_pod()
DEAD = b.node("n", gpus=8, own=b.health(0.1))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lagging, "WAIT_S", 60.0)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lagging, "WAIT_S", 0.01)


async def asked_before(extender: Extender, show: Callable[[], None], *names: str) -> Any:
    """What is answered to a question that comes before a view that explains it."""
    asking = asyncio.create_task(extender.filter(POD, *names))
    await asyncio.sleep(0.1)
    assert not asking.done()
    show()
    async with asyncio.timeout(20):
        return await asking


@pytest.mark.usefixtures("patient")
async def test_a_node_where_nothing_was_free_is_judged_once_it_is_seen_what_came_free(
    extender: Extender,
) -> None:
    extender.show(b.node("n"))
    reply = await asked_before(extender, lambda: extender.show(DEAD), "n")
    assert list(reply["FailedAndUnresolvableNodes"]) == ["n"]
    assert extender.count("fettle_extender_nodes_total", result="refused") == 1
    assert extender.count("fettle_extender_nodes_total", result="unfit") == 0
    assert extender.count("fettle_extender_waits_total", result="caught_up") == 1


@pytest.mark.usefixtures("patient")
async def test_a_node_that_is_not_known_yet_is_judged_once_it_is(extender: Extender) -> None:
    extender.show()
    reply = await asked_before(extender, lambda: extender.show(DEAD), "n")
    assert list(reply["FailedAndUnresolvableNodes"]) == ["n"]


@pytest.mark.usefixtures("patient")
async def test_views_of_other_things_are_not_the_one_that_is_waited_for(
    extender: Extender,
) -> None:
    def show() -> None:
        extender.show(b.node("n"), b.node("other"))
        asyncio.get_running_loop().call_later(0.1, extender.show, DEAD)

    extender.show(b.node("n"))
    reply = await asked_before(extender, show, "n")
    assert list(reply["FailedAndUnresolvableNodes"]) == ["n"]


@pytest.mark.usefixtures("patient")
async def test_nothing_is_waited_for_where_the_pod_fits_on_some_node(extender: Extender) -> None:
    extender.show(b.node("n"), b.node("good", gpus=8))
    async with asyncio.timeout(20):
        assert (await extender.filter(POD, "n", "good"))["NodeNames"] == ["n", "good"]


@pytest.mark.usefixtures("patient")
async def test_nothing_is_waited_for_where_all_nodes_are_refused(extender: Extender) -> None:
    extender.show(DEAD)
    async with asyncio.timeout(20):
        assert (await extender.filter(POD, "n"))["NodeNames"] == []
        assert (await extender.filter(POD))["NodeNames"] == []


@pytest.mark.usefixtures("hasty")
async def test_after_a_wait_in_vain_the_node_is_allowed_and_the_next_time_at_once(
    extender: Extender, monkeypatch: pytest.MonkeyPatch
) -> None:
    extender.show(b.node("n"))
    assert (await extender.filter(POD, "n"))["NodeNames"] == ["n"]
    assert extender.count("fettle_extender_waits_total", result="in_vain") == 1
    monkeypatch.setattr(lagging, "WAIT_S", 60.0)
    async with asyncio.timeout(20):
        assert (await extender.filter(POD, "n"))["NodeNames"] == ["n"]
