"""Where pods are bound and how they end, and pods that no scheduler asks about."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from fettle.api import core
from fettle.cel import SelectorEngine
from fettle.cluster import NodeView
from fettle.config import Settings
from fettle.model import Mode
from fettle.observing import DecisionMetrics
from fettle.records import Became, Decided, DecisionLog, Journal, PodFates, Recorder, Verb
from fettle.records.fates import ASKED_WITHIN_S
from fettle.scheduling import Answers
from fettle.scheduling.placed import AtRisk, Crashes, PodClaims
from tests.fettle import building as b
from tests.fettle.others import WatchedPublisher, settled
from tests.fettle.scheduling.placed.builders import failed

GOOD, BAD = b.node("good", gpus=8), b.node("bad", gpus=8, own=b.health(0.0))


def pod(node: str = "", phase: str = "Pending", name: str = "p", **status: Any) -> core.Pod:
    raw = b.gpu_pod(2, name=name)
    raw["metadata"]["uid"] = f"uid-{name}"
    raw["spec"]["nodeName"] = node or None
    raw["status"] = {"phase": phase, **status}
    return b.pod(raw)


class Watch:
    """Fates over a view that a test lays out."""

    def __init__(self, mode: str, asked_within_s: float = ASKED_WITHIN_S) -> None:
        self.publisher = WatchedPublisher()
        self.now = 1000.0
        answers = Answers(self.publisher, SelectorEngine(), Settings(mode=Mode(mode)))
        metrics = DecisionMetrics(CollectorRegistry())
        log, journal = DecisionLog(100, 2**20), Journal(None, 2**20)
        self.recorder = Recorder(answers, log, journal, metrics, lambda: self.now)
        self.answers = answers
        self.fates = PodFates(
            answers, self.recorder, clock=lambda: self.now, asked_within_s=asked_within_s
        )
        self.show()

    def show(self, *pods: core.Pod, nodes: tuple[NodeView, ...] = (GOOD, BAD)) -> None:
        before = self.publisher.view
        by_key = {one.metadata.key: one for one in pods}
        view = b.view(*nodes, pods=by_key)
        after = msgspec.structs.replace(
            view, generation=before.generation + 1, basis=before.basis + 1
        )
        self.publisher.publish(after, frozenset(n.name for n in nodes))

    async def asked(self, one: core.Pod, *names: str) -> None:
        """As the filter verb does."""
        demand = self.answers.demand(one)
        assert demand is not None
        table = await self.answers.judged(demand, names)
        self.recorder.filtered(one, table, table.narrow(list(names)))

    async def put(self, one: core.Pod) -> None:
        """It arrives, and a view shows it."""
        self.fates.observe(one)
        self.show(*([] if one.terminal else [one]))
        working = asyncio.create_task(self.recorder.run())
        await settled()
        working.cancel()

    @property
    def only(self) -> Any:
        (found,) = self.recorder.log
        return found


async def test_a_pod_is_followed_from_its_node_to_its_end() -> None:
    watch = Watch("enforce")
    await watch.asked(pod(), "good", "bad")
    await watch.put(pod("good"))
    assert (watch.only.became, watch.only.placed.node) == (Became.BOUND, "good")
    assert (watch.only.placed.reasons, watch.only.placed.sound) == ((), True)
    watch.now = 1010.0
    await watch.put(pod("good", "Running"))
    assert (watch.only.became, watch.only.became_at) == (Became.RUNNING, 1010.0)
    ended = {"terminated": {"exitCode": 3, "reason": "Error"}}
    await watch.put(pod("good", "Failed", containerStatuses=[{"name": "c", "state": ended}]))
    assert watch.only.became is Became.FAILED
    assert watch.only.end == "c Error (exit code 3)"


async def test_the_end_of_a_pod_names_the_fault_that_explains_it_also_if_that_is_told_later() -> (
    None
):
    watch = Watch("enforce")
    watch.now = time.time()
    crashes = Crashes(
        watch.publisher,
        AtRisk(watch.answers, started_at=watch.now + 100),
        PodClaims(watch.publisher),
    )
    watch.fates = PodFates(watch.answers, watch.recorder, crashes, lambda: watch.now)
    await watch.asked(pod(), "good")
    await watch.put(pod("good", "Running"))
    ended = {
        "terminated": {
            "exitCode": 139,
            "reason": "Error",
            "finishedAt": datetime.fromtimestamp(watch.now, UTC).isoformat(),
        }
    }
    over = pod("good", "Failed", containerStatuses=[{"name": "c", "state": ended}])
    crashes.observe(over)
    await watch.put(over)
    await crashes.explain()
    assert watch.only.end == "c Error (exit code 139)"
    lost = failed(at=watch.now + 10)
    watch.show(nodes=(b.node("good", gpus=8, own=lost), BAD))
    await crashes.explain()
    await crashes.explain()
    assert watch.only.end.startswith("container c ended with exit code 139 at ")
    assert "10 s before a device of its node was seen to fail" in watch.only.end
    assert watch.only.end.endswith("XID 79: GPU has fallen off the bus; c Error (exit code 139)")


TERMINATED = "Pod was terminated in response to imminent node shutdown."


def at(second: int) -> str:
    return f"2026-07-01T10:00:{second:02}Z"


def over(
    code: int,
    ended: int | None,
    *,
    why: str = "",
    asked: bool = True,
    how: str = "Error",
    **status: Any,
) -> core.Pod:
    """A failed pod whose container ended then; `asked`: it was deleted at 10:00:20, with 30 s of
    grace; `why`: the reason of its condition DisruptionTarget."""
    state = {"exitCode": code, "reason": how, "finishedAt": at(ended) if ended else None}
    if why:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": why}]
    containers = [{"name": "c", "state": {"terminated": state}}]
    found = pod("good", "Failed", containerStatuses=containers, **status)
    if not asked:
        return found
    moment = datetime.fromisoformat(at(50))
    metadata = msgspec.structs.replace(
        found.metadata, deletion_timestamp=moment, deletion_grace_period_seconds=30
    )
    return msgspec.structs.replace(found, metadata=metadata)


@pytest.mark.parametrize(
    ("ended", "end"),
    [
        pytest.param(over(143, 20), "c Error (exit code 143)", id="a rollout"),
        pytest.param(over(143, 17), "c Error (exit code 143)", id="a node's clock is late"),
        pytest.param(over(137, 50), "c Error (exit code 137)", id="killed after its grace"),
        pytest.param(over(1, 21), "c Error (exit code 1)", id="it ends with an error of its own"),
        pytest.param(
            over(137, None, how="ContainerStatusUnknown"),
            "c ContainerStatusUnknown (exit code 137)",
            id="its node was lost",
        ),
        pytest.param(
            over(143, 21, why="PreemptionByScheduler"),
            "PreemptionByScheduler; c Error (exit code 143)",
            id="a preemption",
        ),
        pytest.param(
            over(137, 50, why="EvictionByEvictionAPI"),
            "EvictionByEvictionAPI; c Error (exit code 137)",
            id="a drain",
        ),
        pytest.param(
            over(137, 19, why="TerminationByKubelet", asked=False, reason="Evicted"),
            "Evicted; TerminationByKubelet; c Error (exit code 137)",
            id="a full disk",
        ),
        pytest.param(
            over(143, 5, why="TerminationByKubelet", reason="Terminated", message=TERMINATED),
            f"Terminated; TerminationByKubelet; c Error (exit code 143); {TERMINATED}",
            id="a node's shutdown, removed afterwards",
        ),
    ],
)
async def test_a_pod_that_somebody_ended_has_not_failed(ended: core.Pod, end: str) -> None:
    watch = Watch("enforce")
    await watch.asked(pod(), "good")
    await watch.put(pod("good", "Running"))
    await watch.put(ended)
    assert (watch.only.became, watch.only.end) == (Became.DELETED, end)


@pytest.mark.parametrize("why", ["", "EvictionByEvictionAPI"])
async def test_one_that_had_crashed_before_it_was_deleted_has_failed(why: str) -> None:
    """As a pod that was restarted again and again, and runs until somebody deletes it."""
    watch = Watch("enforce")
    await watch.asked(pod(), "good")
    await watch.put(pod("good", "Running"))
    await watch.put(over(139, 2, why=why))
    assert watch.only.became is Became.FAILED
    assert watch.only.end.endswith("c Error (exit code 139)")


async def test_one_that_was_removed_as_soon_as_it_had_failed_has_failed() -> None:
    watch = Watch("enforce")
    await watch.asked(pod(), "good")
    await watch.put(over(139, 19, asked=False))
    await watch.put(over(139, 19))
    assert watch.only.became is Became.FAILED


async def test_what_fettle_would_have_said_of_the_node_is_noted_as_it_is_bound() -> None:
    watch = Watch("observe")
    await watch.asked(pod(), "good", "bad")
    await watch.put(pod("bad"))
    placed = watch.only.placed
    assert placed.reasons[0] == "NodeUnhealthy"
    assert (placed.devices, placed.withheld, placed.sound) == (2, 2, False)
    assert placed.refused_devices[0] == "node bad"
    assert placed.why


async def test_a_pod_that_was_deleted_is_noticed_by_and_by() -> None:
    watch = Watch("enforce")
    await watch.asked(pod(), "good")
    await watch.put(pod("good", "Running"))
    await watch.fates.sweep()
    assert str(watch.only.became) == "running"
    watch.show()
    await watch.fates.sweep()
    assert str(watch.only.became) == "running", "it may not be in the view yet"
    watch.now += 60
    await watch.fates.sweep()
    assert watch.only.became is Became.DELETED


@pytest.mark.parametrize(("mode", "verbs"), [("observe", [Verb.SEEN]), ("enforce", [])])
async def test_a_pod_that_no_scheduler_asks_about_is_decided_on_only_where_it_is_observed(
    mode: str, verbs: list[Verb]
) -> None:
    watch = Watch(mode)
    await watch.put(pod())
    await watch.put(pod("bad"))
    assert [one.verb for one in watch.recorder.log] == verbs
    if verbs:
        assert (watch.only.decided, watch.only.refused) == (Decided.NARROWED, 1)
        assert watch.only.placed.reasons[0] == "NodeUnhealthy"


async def test_one_that_ends_before_it_is_decided_on_is_followed_to_its_end() -> None:
    """Its end arrives before the task that decides on it runs, and is told once."""
    watch = Watch("observe")
    await watch.put(pod())
    watch.fates.observe(pod("bad"))
    watch.fates.observe(pod("bad", "Running"))
    await watch.put(pod("bad", "Succeeded"))
    assert watch.only.became is Became.SUCCEEDED
    assert watch.only.placed.node == "bad"


async def test_one_that_waits_unasked_is_decided_on_too() -> None:
    watch = Watch("observe", asked_within_s=0.01)
    await watch.put(pod())
    assert watch.only.verb is Verb.SEEN
    assert watch.only.placed is None


async def test_one_that_is_asked_about_meanwhile_is_not_decided_on_twice() -> None:
    watch = Watch("observe")
    await watch.put(pod())
    await watch.asked(pod(), "good", "bad")
    await watch.put(pod("good"))
    assert watch.only.verb is Verb.FILTER


async def test_it_is_noted_when_a_pod_would_no_longer_wait() -> None:
    watch = Watch("observe")
    watch.show(nodes=(BAD,))
    await watch.asked(pod(), "bad")
    running = pod("bad", "Running")
    watch.show(running, nodes=(BAD,))
    watch.now = 1030.0
    await watch.fates.sweep()
    assert watch.only.allowed_at is None
    watch.show(running)
    watch.now = 1060.0
    await watch.fates.sweep()
    assert watch.only.allowed_at == 1060.0


async def test_pods_without_devices_are_let_alone() -> None:
    watch = Watch("observe")
    raw = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "c"}]}}
    await watch.put(b.pod(raw))
    assert list(watch.recorder.log) == []
