"""Events on pods that are stuck on a failed device, or that crashed as one failed."""

from pathlib import Path

from fettle.client import EventRecorder, Session
from fettle.steward import STEWARD, EventsOnPods, news_of_failures
from tests.fettle import building as b
from tests.fettle.client.fake_api import fake_api
from tests.fettle.scheduling.placed.builders import (
    BOUND_S,
    FAILED_AT,
    claim,
    claimed,
    failed,
    looping,
    unwell,
)
from tests.fettle.scheduling.placed.test_crashes import Followed, crashed_beside, ended


async def told(tmp_path: Path, observed: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    """The Events on a pod that is stuck and on one that crashed, also after the next leader's."""
    cluster = Followed()
    cluster.now = BOUND_S
    await cluster.run()
    cluster.now = FAILED_AT + 90
    cluster.crashes.observe(b.pod(ended(FAILED_AT + 5)))
    loops = claimed("loops") | {"status": looping()}
    lost = unwell(failed())
    await cluster.see(lost, pods=(loops,), claims=(claim("loops", "gpu-0"),))
    await cluster.at_risk.current()
    await cluster.crashes.explain()
    return await written(cluster, tmp_path, observed)


async def written(
    cluster: Followed, tmp_path: Path, observed: frozenset[str] = frozenset()
) -> list[tuple[str, str]]:
    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        for _ in range(2):
            recorder = EventRecorder(session, STEWARD, "one")
            events = EventsOnPods(
                "pods on failed devices",
                lambda: news_of_failures(cluster.at_risk, cluster.crashes, lambda: cluster.now),
                recorder,
                lambda pod: pod.metadata.name not in observed,
            )
            for _ in range(2):
                events.record()
                await recorder.write()
        found = api.objects.get("events", {}).values()
        return sorted((event["regarding"]["name"], event["reason"]) for event in found)


async def test_each_pod_is_told_once_that_it_is_stuck_or_crashed_by_its_device(
    tmp_path: Path,
) -> None:
    assert await told(tmp_path) == [("loops", "StuckOnFailedDevice"), ("p", "CrashedByDevice")]


async def test_a_crash_that_may_be_of_a_device_is_told_as_a_possibility(tmp_path: Path) -> None:
    cluster = await crashed_beside(2.0, wanted=1)
    assert await written(cluster, tmp_path) == [("p", "MaybeCrashedByDevice")]


async def test_in_observe_mode_nothing_is_written_about_the_pods(tmp_path: Path) -> None:
    assert await told(tmp_path, frozenset(("loops",))) == [("p", "CrashedByDevice")]
