"""Rows of the table `objects` read objects of any kind, however these come and whatever is in
them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from fettle.api import Finding, ObjectFact, ObjectReported
from fettle.client import Session
from fettle.cluster.feeds import ObjectFeed
from fettle.health import load_rules
from tests.fettle.client.fake_api import FakeApi
from tests.waiting import until

KIND = "Reset.example.com"
ROW = """
objects:
  - name: failed-reset
    apiVersion: example.com/v1
    kind: Reset
    when: resource.status.phase == 'Failed'
    node: resource.spec.nodeName
    message: "reset failed: {resource.status.reason}"
    family: driver
    weight: 0.9
    namespaces: [trusted]
    source: our tool
"""
FACT = ObjectFact("n", "", "reset failed: timeout")


def reset(name: str = "a", phase: str | None = "Failed", **more: Any) -> dict[str, Any]:
    status = {"status": {"phase": phase, "reason": "timeout"}} if phase is not None else {}
    metadata = {"name": name, "uid": f"uid-{name}", **more.pop("metadata", {})}
    spec = {"nodeName": "n", **more}
    return {"metadata": metadata, "spec": spec, **status}


class Counted:
    def __init__(self) -> None:
        self.failures: list[str] = []

    def failed(self, rule: str) -> None:
        self.failures.append(rule)


class Following:
    """A feed, and what it last said of each object."""

    def __init__(
        self, session: Session, rows: str, clock: Callable[[], float], **bounds: Any
    ) -> None:
        self.said: dict[str, ObjectReported] = {}
        self.counted = Counted()
        rules = load_rules("rules.yaml", rows)
        self.feed = ObjectFeed(session, rules.objects, self._find, self.counted, clock, **bounds)

    async def _find(self, found: Finding) -> None:
        assert isinstance(found, ObjectReported)
        self.said[found.key] = found

    async def of(self, key: str, what: Callable[[ObjectReported], object]) -> ObjectReported:
        """What it says of an object, once it says that."""
        await until(lambda: key in self.said and what(self.said[key]))
        return self.said[key]


@asynccontextmanager
async def following(
    session: Session,
    rows: str = ROW,
    clock: Callable[[], float] = lambda: 1_790_000_000.0,
    **bounds: Any,
) -> AsyncIterator[Following]:
    found = Following(session, rows, clock, **bounds)
    task = asyncio.create_task(found.feed.run())
    try:
        yield found
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def served(api: FakeApi) -> None:
    api.discovered = {"example.com/v1": [{"name": "resets", "kind": "Reset"}]}


async def test_an_object_says_what_its_row_reads_of_it(api: FakeApi, session: Session) -> None:
    api.put("resets", reset(metadata={"annotations": {"any": "text"}, "labels": {"a": "b"}}))
    api.put("resets", reset("b", "Done"))
    async with following(session) as found:
        reported = await found.of("a", lambda one: one.facts)
        assert reported == ObjectReported(KIND, "a", "uid-a", {"failed-reset": (FACT,)})
        assert (await found.of("b", bool)).facts == {}


async def test_what_changes_is_read_again_and_what_is_deleted_is_gone(
    api: FakeApi, session: Session
) -> None:
    api.put("resets", reset())
    async with following(session) as found:
        await found.of("a", lambda one: one.facts)
        api.put("resets", reset(phase="Done"))
        await found.of("a", lambda one: not one.facts)
        api.remove("resets", "a")
        await found.of("a", lambda one: one.gone)


async def test_what_cannot_be_evaluated_is_unknown_told_and_counted_until_it_can_be(
    api: FakeApi, session: Session
) -> None:
    api.put("resets", reset(phase=None))
    async with following(session) as found:
        with capture_logs() as logs:
            reported = await found.of("a", lambda one: one.unknown)
            assert (reported.unknown, reported.facts) == (("failed-reset",), {})
            api.put("resets", reset("b", None))
            await found.of("b", lambda one: one.unknown)
        assert len([one for one in logs if one["log_level"] == "warning"]) == 1
        assert set(found.counted.failures) == {"failed-reset"}
        (note,) = found.feed.notes()
        assert "row failed-reset says nothing of 2 objects" in note
        assert "no such member" in note
        api.put("resets", reset())
        api.put("resets", reset("b"))
        await found.of("b", lambda one: one.facts)
        assert found.feed.notes() == []


async def test_without_the_right_that_is_said_once_and_other_kinds_are_read(
    api: FakeApi, session: Session
) -> None:
    api.discovered["example.com/v1"].append({"name": "others", "kind": "Other"})
    api.forbidden = {("list", "others"), ("watch", "others")}
    api.put("resets", reset())
    other = ROW.removeprefix("\nobjects:\n").replace("failed-reset", "o").replace("Reset", "Other")
    async with following(session, ROW + other) as found:
        with capture_logs() as logs:
            await found.of("a", lambda one: one.facts)
            await until(found.feed.notes)
            await asyncio.sleep(0.5)
        (note,) = found.feed.notes()
        assert note.startswith("objects: Other.example.com: ")
        assert "object-rules.yaml" in note
        assert len([one for one in logs if one["log_level"] == "warning"]) == 1


async def test_a_kind_that_is_served_later_is_read_then(api: FakeApi, session: Session) -> None:
    discovered, api.discovered = api.discovered, {}
    async with following(session, look_s=0.05) as found:
        await until(found.feed.notes)
        assert "does not serve example.com/v1" in found.feed.notes()[0]
        api.discovered = discovered
        api.put("resets", reset())
        await found.of("a", lambda one: one.facts)
        assert found.feed.notes() == []


async def test_a_row_that_reads_the_time_is_evaluated_again(api: FakeApi, session: Session) -> None:
    clock = [1_790_000_000.0]  # 2026-09-21T14:13:20Z
    stuck = "now - timestamp(resource.metadata.creationTimestamp) > duration('1h')"
    rows = ROW.replace("resource.status.phase == 'Failed'", stuck)
    api.put("resets", reset(metadata={"creationTimestamp": "2026-09-21T13:30:00Z"}))
    async with following(session, rows, lambda: clock[0], again_s=0.05) as found:
        assert (await found.of("a", bool)).facts == {}
        clock[0] += 3600
        await found.of("a", lambda one: one.facts)


async def test_a_large_object_is_not_read_and_others_are(api: FakeApi, session: Session) -> None:
    api.put("resets", reset("large", blob="x" * 70_000))
    api.put("resets", reset("managed", metadata={"managedFields": [{"x": "y" * 70_000}]}))
    async with following(session) as found:
        assert (await found.of("managed", lambda one: one.facts)).unknown == ()
        assert (await found.of("large", bool)).unknown == ("failed-reset",)
        assert "bytes" in found.feed.notes()[0]


async def test_a_tenants_many_objects_leave_room_for_those_that_count_in_full(
    api: FakeApi, session: Session
) -> None:
    for number in range(6):
        api.put("resets", reset(f"t{number}", metadata={"namespace": "tenant"}))
    api.put("resets", reset("z", metadata={"namespace": "trusted"}))
    async with following(session, most_of_tenants=3) as found:
        await found.of("trusted/z", lambda one: one.facts)
        await until(found.feed.notes)
        assert len([key for key in found.said if key.startswith("tenant/")]) == 3
        assert "3 are not looked at" in found.feed.notes()[0]


async def test_a_row_that_is_slow_on_a_namespaces_objects_rests_for_that_namespace(
    api: FakeApi, session: Session
) -> None:
    """Three quarters of a second of one processor, and not more with each object."""
    each = "resource.spec.l"
    slow = f"{each}.exists(a, {each}.exists(b, {each}.exists(c, a + b + c == -1)))"
    rows = ROW.replace("resource.status.phase == 'Failed'", f"{slow} || true")
    for number in range(6):
        api.put("resets", reset(f"t{number}", l=[*range(300)], metadata={"namespace": "tenant"}))
    api.put("resets", reset("z", l=[], metadata={"namespace": "trusted"}))
    async with following(session, rows) as found:
        await until(lambda: len(found.said) == 7)
        assert found.said["trusted/z"].facts
        assert "so it rests" in "".join(found.feed._failing["failed-reset"].values())
