"""Events: written by a task of their own, counted where they are alike, and within a budget."""

import asyncio
from collections import Counter

import pytest

from fettle.client import recording
from fettle.client.recording import Event, Recorder, Regarding
from fettle.client.session import Session
from tests.fettle.client.fake_api import FakeApi, Object


class Told:
    """A recorder whose clock a test turns, and what it counts."""

    def __init__(self, session: Session) -> None:
        self.now = 1000.0
        self.results: Counter[str] = Counter()
        self.recorder = Recorder(
            session, "fettle.dev/webhook", "pod-1", self._count, clock=lambda: self.now
        )

    def _count(self, result: str) -> None:
        self.results[result] += 1

    def tell(self, note: str = "a note", alike: str = "", namespace: str = "team") -> None:
        about = Regarding("v1", "Namespace", namespace, namespace)
        self.recorder.tell(Event(about, "WouldBeRefused", "Review", note, alike, "Warning"))


@pytest.fixture
def told(session: Session) -> Told:
    return Told(session)


def events(api: FakeApi) -> list[Object]:
    return [*api.objects.get("events", {}).values()]


async def test_an_event_says_who_what_and_about_which_object(api: FakeApi, told: Told) -> None:
    told.tell("Job train: would be refused")
    assert api.asked == []
    await told.recorder.write()
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


async def test_alike_events_are_one_with_a_count_written_now_and_then(
    api: FakeApi, told: Told
) -> None:
    told.tell("the first")
    await told.recorder.write()
    for _ in range(500):
        told.tell("another")
        await told.recorder.write()
    assert api.verbs("events") == ["create"]
    told.now += recording.COUNT_EVERY_S
    await told.recorder.write()
    await told.recorder.write()
    assert api.verbs("events") == ["create", "patch"]
    (event,) = events(api)
    assert event["note"] == "the first"
    assert event["series"]["count"] == 501


async def test_an_event_that_expired_meanwhile_is_made_again(api: FakeApi, told: Told) -> None:
    told.tell()
    await told.recorder.write()
    api.objects["events"].clear()
    told.tell()
    told.now += recording.COUNT_EVERY_S
    await told.recorder.write()
    (event,) = events(api)
    assert event["series"]["count"] == 2


async def test_what_happens_again_after_a_long_time_is_a_new_event(
    api: FakeApi, told: Told
) -> None:
    told.tell()
    await told.recorder.write()
    told.now += recording.FORGET_S
    await told.recorder.write()
    told.tell()
    await told.recorder.write()
    assert api.verbs("events") == ["create", "create"]


async def test_a_namespace_cannot_flood_the_cluster_nor_use_up_what_others_have(
    api: FakeApi, told: Told
) -> None:
    for number in range(1000):
        told.tell(alike=str(number))
    told.tell(namespace="quiet")
    await told.recorder.write()
    by_namespace = Counter(event["metadata"]["namespace"] for event in events(api))
    assert by_namespace == {"team": recording.BURST, "quiet": 1}
    assert told.results["held_back"] == 1000 - recording.BURST
    told.now += recording.REFILL_S
    told.tell(alike="one more")
    told.tell(alike="and another")
    await told.recorder.write()
    assert told.results["written"] == recording.BURST + 2


async def test_memory_is_bounded_over_all_namespaces(told: Told) -> None:
    for number in range(3 * recording.MOST_SERIES):
        told.tell(namespace=f"team-{number}")
    assert told.results["held_back"] == 2 * recording.MOST_SERIES


async def test_what_the_api_server_refuses_is_counted_and_does_not_stop_the_others(
    api: FakeApi, told: Told
) -> None:
    api.forbidden.add(("create", "events"))
    told.tell(alike="a")
    told.tell(alike="b")
    await told.recorder.write()
    await told.recorder.write()
    assert api.verbs("events") == ["create", "create"]
    assert told.results["failed"] == 2


async def test_while_the_api_server_is_away_events_wait(api: FakeApi, told: Told) -> None:
    await api.stop()
    told.tell()
    await told.recorder.write()
    await api.start()
    await told.recorder.write()
    assert len(events(api)) == 1
    assert told.results == {"written": 1}


async def test_a_long_note_is_cut_to_the_bytes_that_the_api_takes(api: FakeApi, told: Told) -> None:
    told.tell("ä" * 2000)
    await told.recorder.write()
    assert events(api)[0]["note"] == "ä" * 512


async def test_a_name_that_no_object_can_have_is_not_kept(api: FakeApi, told: Told) -> None:
    told.tell(namespace="n" * 1_000_000)
    await told.recorder.write()
    assert api.asked == []
    assert told.results == {"failed": 1}


async def test_it_writes_by_itself(api: FakeApi, told: Told) -> None:
    running = asyncio.create_task(told.recorder.run())
    told.tell()
    async with asyncio.timeout(20):
        while not events(api):
            await asyncio.sleep(0.01)
    running.cancel()
