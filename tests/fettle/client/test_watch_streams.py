"""The body of a watch: read in bursts unless somebody needs it now, split into lines and events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import Gone, Put, key_of, kinds, read_object
from fettle.api.kinds import Kind
from fettle.client.session import Session
from fettle.client.watch_streams import Events, Lines, ObjectEvent, UnreadEvent
from fettle.model import BadInput, Unreachable
from tests.fettle.client.fake_api import FakeApi

NODES = "/api/v1/nodes"
LONG_S = 600.0


class Watch:
    """Follows the nodes' watch; `seen` are the names that were handled, in order."""

    def __init__(self, session: Session) -> None:
        self.seen: list[str] = []
        self.hold = asyncio.Event()
        """Chunks are handled while this is set."""
        self.hold.set()
        self._session = session

    async def follow(self) -> None:
        stream = self._session.stream(NODES, {"watch": True}, gather_s=lambda: LONG_S)
        async with aclosing(stream) as chunks:
            async for chunk in chunks:
                await self.hold.wait()
                for line in filter(None, chunk.split(b"\n")):
                    self.seen.append(json.loads(line)["object"]["metadata"]["name"])

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.005)


@pytest.fixture
async def watch(api: FakeApi, session: Session) -> AsyncIterator[Watch]:
    """A watch that was just read, and is left unread now."""
    made = Watch(session)
    api.put("nodes", node("first"))
    task = asyncio.create_task(made.follow())
    await made.until(lambda: made.seen == ["first"])
    yield made
    task.cancel()
    await asyncio.wait([task])


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


async def test_what_comes_stays_unread_until_somebody_catches_up(
    api: FakeApi, session: Session, watch: Watch
) -> None:
    await asyncio.sleep(0.05)
    assert not session.streams.stale
    for name in ("second", "third"):
        api.put("nodes", node(name))
    await watch.until(lambda: session.streams.stale)
    await asyncio.sleep(0.05)
    assert watch.seen == ["first"]
    async with asyncio.timeout(20):
        await session.streams.catch_up()
    assert watch.seen == ["first", "second", "third"]
    assert not session.streams.stale


async def test_each_catching_up_reads_what_came_since(
    api: FakeApi, session: Session, watch: Watch
) -> None:
    for number in range(5):
        api.put("nodes", node(f"n{number}"))
        await watch.until(lambda: session.streams.stale)
        async with asyncio.timeout(20):
            await session.streams.catch_up()
        assert watch.seen[-1] == f"n{number}"


async def test_a_chunk_that_is_still_being_handled_counts_as_stale(
    api: FakeApi, session: Session, watch: Watch
) -> None:
    watch.hold.clear()
    api.put("nodes", node("second"))
    await watch.until(lambda: session.streams.stale)
    taking = asyncio.create_task(session.streams.catch_up())
    await asyncio.sleep(0.05)
    assert not taking.done()
    assert session.streams.stale
    watch.hold.set()
    async with asyncio.timeout(20):
        await taking
    assert watch.seen == ["first", "second"]


async def test_catching_up_returns_at_once_if_nothing_came(session: Session, watch: Watch) -> None:
    async with asyncio.timeout(20):
        await session.streams.catch_up()
    assert watch.seen == ["first"]


async def test_catching_up_does_not_wait_for_a_stream_that_has_ended(
    api: FakeApi, session: Session, watch: Watch
) -> None:
    api.put("nodes", node("second"))
    await watch.until(lambda: session.streams.stale)
    api.drop_watches()
    async with asyncio.timeout(20):
        await session.streams.catch_up()
    assert not session.streams.stale


@given(st.lists(st.binary(max_size=40)))
def test_lines_do_not_depend_on_how_the_body_was_cut_into_chunks(chunks: list[bytes]) -> None:
    lines = Lines()
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    whole = b"".join(chunks)
    assert found == [line for line in whole.split(b"\n")[:-1] if line.strip()]


@given(st.lists(st.binary(min_size=1).filter(lambda b: b"\n" not in b and b.strip())), st.data())
def test_any_cut_of_complete_lines_gives_them_back(parts: list[bytes], data: st.DataObject) -> None:
    body = b"".join(part + b"\n" for part in parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)))))
    lines, found = Lines(), []
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        found += lines.feed(body[start:end])
    assert found == parts


def test_a_line_without_an_end_is_refused_at_a_limit() -> None:
    lines = Lines(longest=100)
    lines.feed(b"x" * 100)
    with pytest.raises(Unreachable, match="more than 100 bytes"):
        lines.feed(b"x")


def test_a_line_may_be_large_if_it_comes_in_many_chunks() -> None:
    lines = Lines()
    for _ in range(2000):
        assert lines.feed(b"x" * 1000) == []
    assert lines.feed(b"\n") == [b"x" * 2_000_000]


POD = {"metadata": {"name": "p", "namespace": "ns", "resourceVersion": "7"}, "spec": {}}

ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "name": ANY_JSON,
        "namespace": ANY_JSON,
        "resourceVersion": ANY_JSON,
        "labels": ANY_JSON,
    },
)
OBJECTS = ANY_JSON | st.fixed_dictionaries(
    {},
    optional={
        "metadata": METADATA | ANY_JSON,
        "spec": ANY_JSON,
        "status": ANY_JSON,
        "kind": ANY_JSON,
    },
)
TYPES = st.sampled_from(("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")) | st.text(max_size=5)


def event_line(type_: object, thing: object) -> bytes:
    return json.dumps({"type": type_, "object": thing}).encode()


@pytest.mark.parametrize("type_", ["ADDED", "MODIFIED"])
def test_a_sound_object_is_read_whole_with_its_version(type_: str) -> None:
    event = Events(kinds.POD).read(event_line(type_, POD))
    assert isinstance(event, ObjectEvent)
    assert isinstance(event.change, Put)
    assert event.change.object == kinds.POD.decode(json.dumps(POD).encode())
    assert event.version == "7"


def test_a_deletion_is_known_by_its_key() -> None:
    assert Events(kinds.POD).read(event_line("DELETED", POD)) == ObjectEvent(
        Gone(kinds.POD, "ns/p"), "7"
    )


@pytest.mark.parametrize("type_", ["BOOKMARK", "ERROR", "SOMETHING"])
def test_an_event_about_no_object_is_left_unread(type_: str) -> None:
    event = Events(kinds.POD).read(event_line(type_, POD))
    assert isinstance(event, UnreadEvent)
    assert (event.type, json.loads(bytes(event.object))) == (type_, POD)


def test_an_object_of_a_probed_kind_is_left_unread() -> None:
    assert isinstance(
        Events(kinds.SLICE).read(event_line("ADDED", {"metadata": {"name": "s"}})), UnreadEvent
    )


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"{}", b'{"type":"ADDED"}', b"\xff{", b"{"])
def test_a_line_that_is_no_event_is_an_error(raw: bytes) -> None:
    with pytest.raises(BadInput):
        Events(kinds.POD).read(raw)


@given(type_=TYPES, thing=OBJECTS, kind=st.sampled_from(kinds.KINDS))
def test_reading_in_one_pass_gives_what_two_passes_give(type_: str, thing: Any, kind: Kind) -> None:
    event = Events(kind).read(event_line(type_, thing))
    if isinstance(event, UnreadEvent):
        assert json.loads(bytes(event.object)) == thing
    elif isinstance(event.change, Put):
        assert event.change == read_object(kind, json.dumps(thing).encode())
    else:
        assert event.change.key == key_of(thing["metadata"])


@pytest.mark.parametrize("kind", [kinds.POD, kinds.CLAIM])
@pytest.mark.parametrize("type_", ["ADDED", "DELETED"])
@pytest.mark.parametrize("odd", [b"[" * 5000 + b"]" * 5000, b'"\xff"', b'"\\ud800"'])
def test_an_object_with_odd_json_is_an_ordinary_event(kind: Kind, type_: str, odd: bytes) -> None:
    thing = b'{"metadata":{"name":"c","resourceVersion":"7"},"spec":{"odd":%b}}' % odd
    event = Events(kind).read(b'{"type":"%b","object":%b}' % (type_.encode(), thing))
    if isinstance(event, UnreadEvent):
        change = read_object(kind, bytes(event.object))
        assert isinstance(change, Put)
        assert (event.type, change.object.metadata.key) == (type_, "c")
    else:
        assert event.version == "7"
