"""What is due about pods on failed devices, by what was done: without an API server."""

from __future__ import annotations

from typing import Any

import pytest

from fettle.config import DeviceFailureSettings
from fettle.scheduling.placed import find_failures
from fettle.steward.eviction_plans import (
    EVICTED,
    FIRST_WAIT_S,
    MARKED,
    DueEvictions,
    FailureStep,
    MarkReason,
    PendingEvictions,
    steps_for,
)
from tests.fettle import building as b
from tests.fettle.scheduling.placed.builders import Watched
from tests.fettle.steward.failing import condition, having, on

SETTINGS = DeviceFailureSettings(allow="Evict", confirm_seconds=60.0, max_share=0.05)
NODES = [b.node(name, gpus=1, own=b.health(0.1)) for name in ("a", "b")]
MARKS = [having(on(f"on-{name}", name), condition()) for name in ("a", "b")]
BARE = [on(f"on-{name}", name) for name in ("a", "b")]


class Plan:
    """What is due about these pods, at times that a test sets."""

    def __init__(self, steps: list[FailureStep], watched: Watched, *, writes: bool) -> None:
        self.steps = steps
        self.pending = PendingEvictions(SETTINGS, lambda _: 2, writes=writes)
        self._watched = watched

    def due(self, monotonic: float = 0.0) -> DueEvictions:
        view, now = self._watched.publisher.view, self._watched.now
        return self.pending.due(self.steps, (), view, now, monotonic)

    def evicted(self, monotonic: float = 0.0) -> list[str]:
        return [step.pod.metadata.name for step in self.due(monotonic).evicted]


async def plan(*pods: dict[str, Any], writes: bool) -> Plan:
    watched = Watched()
    await watched.see(*NODES, pods=pods)
    found = await find_failures(watched.answers, watched.at_risk)
    assert found is not None
    return Plan([*steps_for(found.running.values(), SETTINGS)], watched, writes=writes)


async def test_a_pod_is_evicted_once_it_is_seen_to_be_marked() -> None:
    bare, marked = await plan(BARE[0], writes=True), await plan(MARKS[0], writes=True)
    assert (len(bare.due().marked), bare.evicted()) == (1, [])
    assert (len(marked.due().marked), marked.evicted()) == (0, ["on-a"])


async def test_where_nothing_is_written_each_thing_is_due_once() -> None:
    dry = await plan(BARE[0], writes=False)
    (step,) = dry.steps
    assert ([*dry.due().marked], dry.evicted()) == ([step], ["on-a"])
    assert dry.pending.would(step, MARKED)
    assert dry.pending.would(step, EVICTED)
    assert not dry.pending.would(step, EVICTED)
    assert ([*dry.due().marked], dry.evicted()) == ([], [])


@pytest.mark.parametrize(("pods", "writes"), [(MARKS, True), (BARE, False)])
async def test_what_a_pod_that_ends_holds_counts_until_it_is_seen_to_end_or_would_have(
    pods: list[dict[str, Any]], *, writes: bool
) -> None:
    found = await plan(*pods, writes=writes)
    first, _ = found.steps
    assert found.due().over_share == 0
    found.pending.evicted(first, 0.0)
    found.pending.would(first, EVICTED)
    due = found.due(1.0)
    assert (due.evicted, due.over_share, due.held[b.RESOURCE]) == ([], 1, 1)
    assert found.due(31.0).held[b.RESOURCE] == 0


async def test_a_pod_that_waits_says_why_and_is_tried_again_after_a_pause() -> None:
    found = await plan(MARKS[0], writes=True)
    (step,) = found.steps
    assert found.pending.waits(step, MarkReason.OVER_BUDGET, "spent", 0.0)
    assert [found.pending.mark_of(one) for one in found.due().marked] == [
        (MarkReason.OVER_BUDGET, "spent")
    ]
    assert found.evicted(FIRST_WAIT_S / 4) == []
    assert found.evicted(2 * FIRST_WAIT_S) == ["on-a"]
    assert not found.pending.waits(step, MarkReason.OVER_BUDGET, "spent", 10.0)


async def test_what_is_known_of_a_pod_goes_with_its_failure() -> None:
    found = await plan(MARKS[0], writes=True)
    (step,) = found.steps
    found.pending.waits(step, MarkReason.DENIED, "no", 0.0)
    found.steps = []
    assert not found.due().waits
    assert found.pending.mark_of(step) == (MarkReason.MARKED, "")
