from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.steward.waking import WAKES, Waking, is_waiting, waiting
from fettle.view import EMPTY
from fettle.wire import core, kinds

REFUSED = "0/4 nodes are available: 4 fettle: no sound devices (nvidia.com/gpu). preemption: none."


def pod(
    message: str = REFUSED, *, node: str = "", phase: str = "Pending", status: str = "False"
) -> core.Pod:
    condition = {"type": "PodScheduled", "status": status, "message": message}
    whole = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": [condition]},
    }
    read = kinds.POD.decode(msgspec.json.encode(whole))
    assert isinstance(read, core.Pod)
    return read


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


def test_a_pod_is_due_when_a_node_is_gained() -> None:
    waking = Waking()
    waking.look({"p": {"a"}, "q": set()})
    while waking.due:
        waking.woken()
    waking.look({"p": {"a"}, "q": set()})
    assert not waking.due
    waking.look({"p": {"a"}, "q": {"b"}})
    assert set(waking.due) == {"q"}


def test_a_pod_seen_for_the_first_time_is_due_if_any_node_is_allowed() -> None:
    waking = Waking()
    waking.look({"p": {"a"}, "q": set()})
    assert set(waking.due) == {"p"}


def test_a_lost_node_wakes_nobody_and_its_return_does() -> None:
    waking = Waking()
    waking.look({"p": {"a", "b"}})
    waking.woken()
    waking.woken()
    waking.look({"p": {"a"}})
    assert not waking.due
    waking.look({"p": {"a", "b"}})
    assert set(waking.due) == {"p"}


def test_one_gain_wakes_a_pod_that_still_waits_a_bounded_number_of_times() -> None:
    assert WAKES > 1, "a replica with an older view may have refused it again"
    waking = Waking()
    waking.look({"p": {"a"}})
    for _ in range(WAKES):
        assert set(waking.due) == {"p"}
        waking.woken()
        waking.look({"p": {"a"}})
    assert not waking.due


def test_a_pod_that_waits_no_more_is_not_due() -> None:
    waking = Waking()
    waking.look({"p": {"a"}})
    waking.look({})
    assert not waking.due


NODES = st.frozensets(st.sampled_from("abc"))


@given(st.lists(st.dictionaries(st.sampled_from("pqr"), NODES)))
def test_no_gain_goes_unwoken_and_nobody_is_woken_without_one(
    looks: list[dict[str, frozenset[str]]],
) -> None:
    waking, before = Waking(), dict[str, frozenset[str]]()
    for look in looks:
        waking.look(look)
        assert set(waking.due) == {p for p in look if look[p] - before.get(p, frozenset())}
        while waking.due:
            waking.woken()
        before = look
