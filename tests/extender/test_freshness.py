"""Answers wait for a newer view where the scheduler seems to know more than the view shows."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fettle.api import resource
from fettle.api.meta import ObjectMeta
from fettle.cluster import NodeView
from fettle.dra import DeviceView
from tests.extender.conftest import Extender
from tests.fettle import building as b
from tests.fettle.others import settled

POD = b.gpu_pod()
DEAD = b.node("n", gpus=8, own=b.health(0.1))
CLAIM = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]}}
CLAIMING = {
    "metadata": {"name": "p", "namespace": "default", "uid": "1"},
    "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
}
CLAIMS: dict[str, Any] = {
    "classes": {"any": resource.DeviceClass(metadata=ObjectMeta(name="any"))},
    "templates": {
        "default/t": b.template(
            {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": CLAIM}}
        )
    },
}


def device_node(*devices: DeviceView) -> NodeView:
    return b.node("n", pools=(b.looked_at(b.pool(*devices)),))


@pytest.fixture
def patient(extender: Extender) -> None:
    extender.waits.newer_view_s = 60.0


@pytest.fixture
def hasty(extender: Extender) -> None:
    extender.waits.newer_view_s = 0.01


async def asked_before(extender: Extender, show: Callable[[], None], *names: str) -> Any:
    """What is answered to a question that comes before a view that explains it."""
    asking = asyncio.create_task(extender.filter(POD, *names))
    await extender.publisher.is_waited_for()
    assert not asking.done()
    show()
    async with asyncio.timeout(20):
        return await asking


@pytest.mark.usefixtures("patient")
async def test_a_node_where_nothing_was_free_is_judged_once_a_view_shows_what_came_free(
    extender: Extender,
) -> None:
    extender.show(b.node("n"))
    reply = await asked_before(extender, lambda: extender.show(DEAD), "n")
    assert list(reply["FailedAndUnresolvableNodes"]) == ["n"]
    assert extender.count("fettle_extender_nodes_total", result="refused") == 1
    assert extender.count("fettle_extender_nodes_total", result="unfit") == 0
    assert extender.count("fettle_extender_waits_total", result="caught_up") == 1


@pytest.mark.usefixtures("patient")
async def test_a_node_that_no_view_shows_yet_is_judged_once_one_does(extender: Extender) -> None:
    extender.show()
    reply = await asked_before(extender, lambda: extender.show(DEAD), "n")
    assert list(reply["FailedAndUnresolvableNodes"]) == ["n"]


@pytest.mark.usefixtures("patient")
async def test_a_view_that_does_not_explain_the_question_does_not_end_the_wait(
    extender: Extender,
) -> None:
    def show() -> None:
        extender.show(b.node("n"), b.node("other"))
        asyncio.get_running_loop().call_later(0.1, extender.show, DEAD)

    extender.show(b.node("n"))
    reply = await asked_before(extender, show, "n")
    assert list(reply["FailedAndUnresolvableNodes"]) == ["n"]


@pytest.mark.usefixtures("patient")
async def test_a_pod_that_fits_on_some_node_is_answered_without_a_wait(extender: Extender) -> None:
    extender.show(b.node("n"), b.node("good", gpus=8))
    async with asyncio.timeout(20):
        assert (await extender.filter(POD, "n", "good"))["NodeNames"] == ["n", "good"]


@pytest.mark.usefixtures("patient")
async def test_a_pod_that_is_refused_on_all_nodes_is_answered_without_a_wait(
    extender: Extender,
) -> None:
    extender.show(DEAD)
    async with asyncio.timeout(20):
        assert (await extender.filter(POD, "n"))["NodeNames"] == []
        assert (await extender.filter(POD))["NodeNames"] == []


@pytest.mark.usefixtures("hasty")
async def test_after_a_wait_that_brought_nothing_the_node_is_allowed_and_the_next_time_at_once(
    extender: Extender,
) -> None:
    extender.show(b.node("n"))
    assert (await extender.filter(POD, "n"))["NodeNames"] == ["n"]
    assert extender.count("fettle_extender_waits_total", result="in_vain") == 1
    extender.waits.newer_view_s = 60.0
    async with asyncio.timeout(20):
        assert (await extender.filter(POD, "n"))["NodeNames"] == ["n"]


async def test_where_a_bad_device_is_in_use_a_view_of_all_that_has_arrived_is_made_first(
    extender: Extender,
) -> None:
    """It is the first by order, and may have come free."""
    sound = b.device("1")
    extender.show(device_node(b.device("0", 0.1, allocated=True), sound), **CLAIMS)
    freed = device_node(b.device("0", 0.1), sound)
    extender.arrivals.show = lambda: extender.show(freed, **CLAIMS)
    reply = await extender.filter(CLAIMING, "n")
    assert list(reply["FailedAndUnresolvableNodes"]) == ["n"]
    assert extender.count("fettle_extender_waits_total", result="caught_up") == 0


RELEASED = device_node(b.device("0"), b.device("1", 0.1))
HELD = device_node(b.device("0", allocated=True), b.device("1", 0.1))


@pytest.mark.usefixtures("patient")
async def test_a_device_released_a_moment_ago_may_still_be_held_for_the_scheduler(
    extender: Extender,
) -> None:
    """It would then give the pod the next one, which is bad."""
    pool = b.looked_at(b.pool(b.device("0", pool="other"), name="other"))
    other = b.node("other", pools=(pool,))
    extender.show(HELD, other, **CLAIMS)
    extender.show(RELEASED, other, **CLAIMS)
    reply = await extender.filter(CLAIMING, "n", "other")
    assert (reply["NodeNames"], [*reply["FailedAndUnresolvableNodes"]]) == (["other"], ["n"])
    await settled()
    (decision,) = extender.recorder.select(0.0)
    assert (decision.refused_nodes, [*decision.reasons]) == (("n",), ["DeviceUnhealthy"])
    assert (await extender.filter(CLAIMING, "n"))["NodeNames"] == []


async def test_a_device_released_long_ago_is_free_for_the_scheduler_too(
    extender: Extender,
) -> None:
    extender.show(HELD, **CLAIMS)
    extender.show(RELEASED, **CLAIMS)
    extender.waits.newer_view_s = 0.0
    assert (await extender.filter(CLAIMING, "n"))["NodeNames"] == ["n"]


@pytest.mark.usefixtures("patient")
async def test_a_release_says_nothing_against_a_node_whose_other_devices_are_held_too(
    extender: Extender,
) -> None:
    """Without the release the scheduler would not ask."""
    bad = b.device("1", 0.1, allocated=True)
    extender.show(device_node(b.device("0", allocated=True), bad), **CLAIMS)
    extender.show(device_node(b.device("0"), bad), **CLAIMS)
    assert (await extender.filter(CLAIMING, "n"))["NodeNames"] == ["n"]


async def test_where_all_devices_are_sound_what_has_arrived_can_wait(extender: Extender) -> None:
    extender.show(device_node(b.device("0", allocated=True), b.device("1")), **CLAIMS)
    extender.arrivals.show = extender.show
    assert (await extender.filter(CLAIMING, "n"))["NodeNames"] == ["n"]
    assert extender.arrivals.stale


@pytest.mark.usefixtures("patient")
async def test_what_explains_the_question_may_have_arrived_already(extender: Extender) -> None:
    extender.show(device_node(b.device("0", 0.1, allocated=True)), **CLAIMS)
    freed = device_node(b.device("0", 0.1))
    extender.arrivals.show = lambda: extender.show(freed, **CLAIMS)
    async with asyncio.timeout(20):
        reply = await extender.filter(CLAIMING, "n")
    assert list(reply["FailedAndUnresolvableNodes"]) == ["n"]
    assert extender.count("fettle_extender_waits_total", result="caught_up") == 0


@pytest.mark.usefixtures("patient")
async def test_a_device_that_stays_undecided_whatever_comes_is_no_reason_to_wait(
    extender: Extender,
) -> None:
    extender.show(device_node(b.device("0", unclear="a field of the future")), **CLAIMS)
    async with asyncio.timeout(20):
        assert (await extender.filter(CLAIMING, "n"))["NodeNames"] == ["n"]
    assert extender.count("fettle_extender_nodes_total", result="undecided") == 1


@pytest.mark.usefixtures("patient")
async def test_a_pool_that_contradicts_itself_is_waited_for_since_it_may_be_whole_in_a_moment(
    extender: Extender,
) -> None:
    torn = msgspec.structs.replace(b.pool(b.device("0", 0.1)), unclear="its slices disagree")
    extender.show(b.node("n", pools=(torn,)), **CLAIMS)
    asking = asyncio.create_task(extender.filter(CLAIMING, "n"))
    await extender.publisher.is_waited_for()
    assert not asking.done()
    extender.show(device_node(b.device("0", 0.1)), **CLAIMS)
    async with asyncio.timeout(20):
        assert (await asking)["NodeNames"] == []


@pytest.mark.usefixtures("hasty")
async def test_waits_that_brought_nothing_to_one_namespace_do_not_keep_others_from_waiting(
    extender: Extender,
) -> None:
    extender.waits.any_pod_s = 0.0
    extender.show(b.node("n"))
    other = b.gpu_pod(2)
    other["metadata"]["namespace"] = "other"
    waits = [POD, b.gpu_pod(2), other]
    for expected, pod in zip((1, 1, 2), waits, strict=True):
        assert (await extender.filter(pod, "n"))["NodeNames"] == ["n"]
        assert extender.count("fettle_extender_waits_total", result="in_vain") == expected
