"""When pods are woken, and the write that wakes them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import core
from fettle.client import Session
from fettle.cluster import EMPTY
from fettle.pacing import run_within
from fettle.steward.waking import SCHEDULER_RETRIES_S, Nudge, WakeUps, is_waiting, waiting
from tests.fettle.client.fake_api import FakeApi
from tests.fettle.steward.failing import pod


def test_a_pod_waits_for_us_while_our_text_is_its_reason() -> None:
    assert is_waiting(pod())
    assert list(waiting(msgspec.structs.replace(EMPTY, pods={"ns/p": pod()}))) == [
        ("ns/p/u", pod())
    ]


@pytest.mark.parametrize(
    "other",
    [
        pod("0/4 nodes are available: 4 Insufficient nvidia.com/gpu."),
        pod(node="n"),
        pod(phase="Failed"),
        pod(status="True"),
        msgspec.structs.replace(pod(), status=None),
        msgspec.structs.replace(pod(), spec=None),
        msgspec.structs.replace(
            pod(),
            metadata=msgspec.structs.replace(
                pod().metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC)
            ),
        ),
    ],
)
def test_other_pods_do_not_wait_for_us(other: core.Pod) -> None:
    assert not is_waiting(other)


@pytest.mark.usefixtures("turns_at_each_pause")
async def test_requests_are_answered_while_thousands_of_pods_are_searched() -> None:
    running = {f"ns/p{i}": pod(node="n") for i in range(5000)}
    view = msgspec.structs.replace(EMPTY, pods=running | {"ns/p": pod()})
    turns = 0
    task = asyncio.create_task(run_within(lambda: [*waiting(view)]))
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert task.result() == [("ns/p/u", pod())]
    assert turns >= len(running)


INTERVAL_S = 1.0


def woken_at(wake_ups: WakeUps, now: float) -> list[float]:
    """The times at which pods are woken from now on, each as soon as one is due."""
    times = []
    while (at := wake_ups.next_at()) is not None:
        now = max(now, at)
        times.append(now)
        wake_ups.woken(now)
    return times


def test_a_pod_is_due_when_a_node_is_gained() -> None:
    wake_ups = WakeUps(INTERVAL_S)
    wake_ups.update({"p": {"a"}, "q": set()}, 0.0)
    woken_at(wake_ups, 0.0)
    wake_ups.update({"p": {"a"}, "q": set()}, 1000.0)
    assert not wake_ups.due(1000.0)
    wake_ups.update({"p": {"a"}, "q": {"b"}}, 1001.0)
    assert wake_ups.due(1001.0) == {"q"}


def test_a_pod_seen_for_the_first_time_is_due_if_any_node_is_allowed() -> None:
    wake_ups = WakeUps(INTERVAL_S)
    wake_ups.update({"p": {"a"}, "q": set()}, 0.0)
    assert wake_ups.due(0.0) == {"p"}


def test_a_node_that_is_no_longer_allowed_wakes_nobody_and_its_return_does() -> None:
    wake_ups = WakeUps(INTERVAL_S)
    wake_ups.update({"p": {"a", "b"}}, 0.0)
    woken_at(wake_ups, 0.0)
    wake_ups.update({"p": {"a"}}, 1000.0)
    assert not wake_ups.due(1000.0)
    wake_ups.update({"p": {"a", "b"}}, 1001.0)
    assert wake_ups.due(1001.0) == {"p"}


def test_a_pod_that_still_waits_is_woken_again_after_pauses_that_double() -> None:
    """Another replica may hold a fault against the node for longer than we do."""
    wake_ups = WakeUps(INTERVAL_S)
    wake_ups.update({"p": {"a"}}, 10.0)
    wake_ups.woken(10.0)
    wake_ups.update({"p": {"a"}}, 10.5)
    assert not wake_ups.due(10.5)
    assert woken_at(wake_ups, 10.5) == [11, 13, 17, 25, 41, 73, 137, 265]


def test_a_pod_whose_wake_up_costs_much_is_woken_again_for_a_moment_only() -> None:
    wake_ups = WakeUps(INTERVAL_S, longest_pause_s=2.0)
    wake_ups.update({"p": {"a"}}, 10.0)
    assert woken_at(wake_ups, 10.0) == [10, 11, 13]


def test_a_pod_is_woken_at_least_twice_and_until_the_scheduler_retries_by_itself() -> None:
    for interval_s in (0.01, 1.0, 100.0, 1000.0):
        wake_ups = WakeUps(interval_s)
        wake_ups.update({"p": {"a"}}, 0.0)
        times = woken_at(wake_ups, 0.0)
        assert len(times) >= 2
        last, end = times[-2], times[-1]
        assert last < SCHEDULER_RETRIES_S <= end + 2 * (end - last)


@pytest.mark.parametrize("allowed", [{}, {"p": set[str]()}])
def test_a_pod_that_stops_waiting_or_has_no_allowed_node_is_not_due(
    allowed: dict[str, set[str]],
) -> None:
    wake_ups = WakeUps(INTERVAL_S)
    wake_ups.update({"p": {"a"}}, 0.0)
    wake_ups.update(allowed, 0.0)
    assert wake_ups.next_at() is None


NODES = st.frozensets(st.sampled_from("abc"))


@given(st.lists(st.dictionaries(st.sampled_from("pqr"), NODES)))
def test_a_pod_is_woken_exactly_when_it_gains_a_node(
    looks: list[dict[str, frozenset[str]]],
) -> None:
    wake_ups, before = WakeUps(INTERVAL_S), dict[str, frozenset[str]]()
    for now, look in enumerate(looks):
        wake_ups.update(look, 1000.0 * now)
        gained = {p for p in look if look[p] - before.get(p, frozenset())}
        assert wake_ups.due(1000.0 * now) == gained
        woken_at(wake_ups, 1000.0 * now)
        before = look


CLAIM = "fettle-system/wake-up"


@pytest.mark.parametrize("made", [False, True])
async def test_pods_are_woken_by_an_annotation_also_if_the_claim_must_be_created(
    made: bool, api: FakeApi, session: Session
) -> None:
    if made:
        api.put("resourceclaims", {"metadata": {"name": "wake-up", "namespace": "fettle-system"}})
    await Nudge(session, "fettle-system", "wake-up").wake(EMPTY, 1_700_000_000.5)
    stamps = api.objects["resourceclaims"][CLAIM]["metadata"]["annotations"]
    assert stamps["fettle.dev/woken-at"] == "2023-11-14T22:13:20.500000Z"
