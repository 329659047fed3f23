"""Events: written by a task, counted where they repeat, and within a budget."""

import asyncio
from collections import Counter

import pytest

from fettle.client import event_recorder
from fettle.client.event_recorder import Event, EventRecorder, Regarding
from fettle.client.session import Session
from tests.fettle.client.fake_api import FakeApi, Object


class Recording:
    """A recorder whose clock a test sets, and what it counts."""

    def __init__(self, session: Session) -> None:
        self.now = 1000.0
        self.results: Counter[str] = Counter()
        self.recorder = EventRecorder(
            session, "fettle.dev/webhook", "pod-1", self._note, clock=lambda: self.now
        )

    def _note(self, result: str) -> None:
        self.results[result] += 1

    def record(self, note: str = "a note", series_key: str = "", namespace: str = "team") -> None:
        about = Regarding("v1", "Namespace", namespace, namespace)
        self.recorder.record(Event(about, "WouldBeRefused", "Review", note, series_key, "Warning"))


@pytest.fixture
def recording(session: Session) -> Recording:
    return Recording(session)


def events(api: FakeApi) -> list[Object]:
    return [*api.objects.get("events", {}).values()]


async def test_an_event_has_its_object_reason_type_and_note(
    api: FakeApi, recording: Recording
) -> None:
    recording.record("Job train: would be refused")
    assert api.asked == []
    await recording.recorder.write()
    (event,) = events(api)
    assert api.asked[0].target[:3] == ("events.k8s.io", "events", "team")
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "name": "team",
        "namespace": "team",
    }
    assert (event["reason"], event["type"]) == ("WouldBeRefused", "Warning")
    assert event["note"] == "Job train: would be refused"
    assert "series" not in event


async def test_repeated_events_are_one_series_whose_count_is_written_now_and_then(
    api: FakeApi, recording: Recording
) -> None:
    recording.record("the first")
    await recording.recorder.write()
    for _ in range(500):
        recording.record("another")
        await recording.recorder.write()
    assert api.verbs("events") == ["create"]
    recording.now += event_recorder.COUNT_EVERY_S
    await recording.recorder.write()
    await recording.recorder.write()
    assert api.verbs("events") == ["create", "patch"]
    (event,) = events(api)
    assert event["note"] == "the first"
    assert event["series"]["count"] == 501


async def test_an_event_that_expired_meanwhile_is_created_again(
    api: FakeApi, recording: Recording
) -> None:
    recording.record()
    await recording.recorder.write()
    api.objects["events"].clear()
    recording.record()
    recording.now += event_recorder.COUNT_EVERY_S
    await recording.recorder.write()
    (event,) = events(api)
    assert event["series"]["count"] == 2


async def test_what_happens_again_after_a_long_time_is_a_new_event(
    api: FakeApi, recording: Recording
) -> None:
    recording.record()
    await recording.recorder.write()
    recording.now += event_recorder.FORGET_S
    await recording.recorder.write()
    recording.record()
    await recording.recorder.write()
    assert api.verbs("events") == ["create", "create"]


async def test_a_namespace_has_a_budget_of_events_of_its_own(
    api: FakeApi, recording: Recording
) -> None:
    for number in range(1000):
        recording.record(series_key=str(number))
    recording.record(namespace="quiet")
    await recording.recorder.write()
    by_namespace = Counter(event["metadata"]["namespace"] for event in events(api))
    assert by_namespace == {"team": event_recorder.BURST, "quiet": 1}
    assert recording.results["held_back"] == 1000 - event_recorder.BURST
    recording.now += event_recorder.REFILL_S
    recording.record(series_key="one more")
    recording.record(series_key="and another")
    await recording.recorder.write()
    assert recording.results["written"] == event_recorder.BURST + 2


async def test_the_number_of_series_in_memory_is_bounded(recording: Recording) -> None:
    for number in range(3 * event_recorder.MOST_SERIES):
        recording.record(namespace=f"team-{number}")
    assert recording.results["held_back"] == 2 * event_recorder.MOST_SERIES


async def test_a_refused_event_is_counted_and_does_not_stop_others(
    api: FakeApi, recording: Recording
) -> None:
    api.forbidden.add(("create", "events"))
    recording.record(series_key="a")
    recording.record(series_key="b")
    await recording.recorder.write()
    await recording.recorder.write()
    assert api.verbs("events") == ["create", "create"]
    assert recording.results["failed"] == 2


async def test_while_the_api_server_is_away_events_wait(api: FakeApi, recording: Recording) -> None:
    await api.stop()
    recording.record()
    await recording.recorder.write()
    await api.start()
    await recording.recorder.write()
    assert len(events(api)) == 1
    assert recording.results == {"written": 1}


async def test_a_long_note_is_cut_to_the_bytes_that_the_api_takes(
    api: FakeApi, recording: Recording
) -> None:
    recording.record("ä" * 2000)
    await recording.recorder.write()
    assert events(api)[0]["note"] == "ä" * 512


async def test_a_name_that_no_object_can_have_is_not_kept(
    api: FakeApi, recording: Recording
) -> None:
    recording.record(namespace="n" * 1_000_000)
    await recording.recorder.write()
    assert api.asked == []
    assert recording.results == {"failed": 1}


async def test_the_running_recorder_writes_events(api: FakeApi, recording: Recording) -> None:
    running = asyncio.create_task(recording.recorder.run())
    recording.record()
    async with asyncio.timeout(20):
        while not events(api):
            await asyncio.sleep(0.01)
    running.cancel()
