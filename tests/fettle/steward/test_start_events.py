"""Events on pods whose workload starts on none of several nodes."""

from functools import partial
from pathlib import Path

import msgspec
import pytest

from fettle.api.meta import OwnerReference
from fettle.client import EventRecorder, Session
from fettle.health import FailedStart
from fettle.steward import STEWARD, EventsOnPods, news_of_starts
from tests.fettle import building as b
from tests.fettle.client.fake_api import FakeApi, fake_api
from tests.fettle.others import WatchedPublisher


def start(name: str, *blamed: str, message: str = "") -> FailedStart:
    raw = b.gpu_pod(name=name)
    raw["metadata"]["uid"] = f"uid-{name}"
    job = OwnerReference(kind="Job", name="train", uid="j")
    return FailedStart(pod=b.pod(raw), workload=job, message=message, at=0.0, blamed=blamed)


async def told(
    tmp_path: Path, *rounds: list[FailedStart], observed: frozenset[str] = frozenset()
) -> list[tuple[str, str]]:
    """The Events after the steward looked at a view with each of these, and a new leader, too."""
    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        for _ in range(2):
            publisher = WatchedPublisher()
            recorder = EventRecorder(session, STEWARD, "one")
            events = EventsOnPods(
                "pods that do not start",
                partial(news_of_starts, publisher),
                recorder,
                lambda pod: pod.metadata.name not in observed,
            )
            for starts in rounds:
                shown = {one.pod.metadata.key: one for one in starts}
                later = publisher.view.generation + 1
                view = msgspec.structs.replace(
                    publisher.view, generation=later, failed_starts=shown
                )
                publisher.publish(view, frozenset())
                events.record()
                events.record()
                await recorder.write()
        return told_by(api)


def told_by(api: FakeApi) -> list[tuple[str, str]]:
    events = api.objects.get("events", {}).values()
    return [(event["regarding"]["name"], event["note"]) for event in events]


async def test_the_pod_is_told_once_that_its_workload_is_the_likely_cause(tmp_path: Path) -> None:
    failing = start("p", "a", "b", message="NodePrepareResources: bad config")
    assert await told(tmp_path, [failing, start("q")], [failing]) == [
        (
            "p",
            "pods of Job train start on none of 2 nodes (a, b), so the cause is likely their own "
            "image, configuration or claims; Fettle holds it against no node: "
            "NodePrepareResources: bad config",
        )
    ]


async def test_a_long_list_of_nodes_is_cut(tmp_path: Path) -> None:
    ((_, note),) = await told(tmp_path, [start("p", *(f"n{i}" for i in range(7)))])
    assert "start on none of 7 nodes (n0, n1, n2, …)" in note


@pytest.mark.parametrize("starts", [[], [start("p")]])
async def test_nothing_is_told_of_starts_that_nobody_is_blamed_for(
    tmp_path: Path, starts: list[FailedStart]
) -> None:
    assert not await told(tmp_path, starts)


async def test_in_observe_mode_nothing_is_written_about_the_pod(tmp_path: Path) -> None:
    both = [start("p", "a", "b"), start("q", "a", "b")]
    assert [name for name, _ in await told(tmp_path, both, observed=frozenset("p"))] == ["q"]
