"""Folding changes, and publishing views."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from fettle.api import (
    Bad,
    Change,
    Contact,
    Gone,
    ListEnded,
    ListStarted,
    Lost,
    Put,
    Unserved,
    kinds,
    read_object,
)
from fettle.api.kinds import Kind
from fettle.cluster import Inventory, Publisher, SourceStatus, View
from fettle.cluster.feeds.writer import PUBLISH_EVERY_S, OnView, Writer
from fettle.config import HealthSettings
from fettle.health import HealthBook, SignalReport, load_rules
from fettle.health.ledger import Ledger
from fettle.model import State, Subject
from fettle.pacing import SLICE_S, taking_turns
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import slice_

RULES = load_rules()
WATCHED = (kinds.NODE, kinds.SLICE, kinds.POD)


class Writing:
    """A writer, the feed's side of it, and what it publishes."""

    def __init__(
        self,
        book: HealthBook | None = None,
        *on_view: OnView,
        publish_every_s: float = PUBLISH_EVERY_S,
    ) -> None:
        self.now = 1_000_000.0
        self.publisher = Publisher()
        inventory = Inventory(book or HealthBook(HealthSettings(), RULES), RULES)
        self.writer = Writer(
            inventory,
            self.publisher,
            lambda: self.now,
            WATCHED,
            on_view=on_view,
            publish_every_s=publish_every_s,
        )

    async def send(self, *changes: Change) -> None:
        await self.writer.send(list(changes))

    async def sync(self, *puts: Change) -> View:
        for kind in WATCHED:
            mine = [p for p in puts if p[0] is kind]
            await self.send(ListStarted(kind), *mine, ListEnded(kind))
        await self.writer.catch_up()
        return await self.newer(0)

    async def newer(self, generation: int) -> View:
        async with asyncio.timeout(20):
            return await self.publisher.newer_than(generation)

    async def all_written(self) -> None:
        """Wait until a view shows what was sent: a node that is sent after it is in the view."""
        await self.send(node("last"))
        while "last" not in self.publisher.view.nodes:
            await self.newer(self.publisher.view.generation)


@pytest.fixture
async def writing(request: pytest.FixtureRequest) -> AsyncIterator[Writing]:
    made = Writing(publish_every_s=getattr(request, "param", PUBLISH_EVERY_S))
    task = asyncio.create_task(made.writer.run())
    yield made
    task.cancel()


def put(kind: Kind, raw: Any) -> Put:
    return Put(kind, kind.decode(msgspec.json.encode(raw)))


def node(name: str, allocatable: int = 8, **metadata: Any) -> Put:
    status = {"capacity": {b.RESOURCE: "8"}, "allocatable": {b.RESOURCE: str(allocatable)}}
    return put(kinds.NODE, {"metadata": {"name": name, **metadata}, "status": status})


async def test_nothing_is_published_before_every_kind_is_synced(writing: Writing) -> None:
    await writing.send(ListStarted(kinds.NODE), node("a"), ListEnded(kinds.NODE))
    await writing.send(ListStarted(kinds.SLICE), ListEnded(kinds.SLICE))
    await asyncio.sleep(0.05)
    assert writing.publisher.view.generation == 0
    await writing.send(ListStarted(kinds.POD), ListEnded(kinds.POD))
    assert list((await writing.newer(0)).nodes) == ["a"]


async def test_a_kind_that_is_not_served_counts_as_synced_and_empty(writing: Writing) -> None:
    await writing.send(Unserved(kinds.SLICE, "404"))
    for kind in (kinds.NODE, kinds.POD):
        await writing.send(ListStarted(kind), ListEnded(kind))
    view = await writing.newer(0)
    assert view.served["ResourceSlice"] is False


@pytest.mark.usefixtures("turns_at_each_pause")
@pytest.mark.parametrize("writing", [600.0], indirect=True, ids=["every ten minutes"])
async def test_catching_up_publishes_what_was_sent_without_waiting_for_a_burst(
    writing: Writing,
) -> None:
    await writing.sync()

    async def send_and_wait(number: int) -> None:
        await asyncio.sleep(number % 7 / 1000)
        await writing.send(*(node(f"{number}-{i}") for i in range(3)))
        await writing.writer.catch_up()
        assert f"{number}-2" in writing.publisher.view.nodes

    async with asyncio.timeout(20):
        await asyncio.gather(*map(send_and_wait, range(100)))
    assert not writing.writer.stale


async def test_catching_up_also_ends_if_what_was_sent_changes_nothing(writing: Writing) -> None:
    await writing.sync(node("a"))
    before = writing.publisher.view
    await writing.send(node("a"))
    was_stale = writing.writer.stale
    async with asyncio.timeout(20):
        await writing.writer.catch_up()
        await writing.writer.catch_up()
    assert (was_stale, writing.writer.stale) == (True, False)
    assert writing.publisher.view is before


async def test_a_caller_that_gives_up_does_not_disturb_others_that_catch_up(
    writing: Writing,
) -> None:
    await writing.sync()
    await writing.send(node("a"))
    given_up = asyncio.create_task(writing.writer.catch_up())
    waiting = asyncio.create_task(writing.writer.catch_up())
    await asyncio.sleep(0)
    given_up.cancel()
    async with asyncio.timeout(20):
        await waiting
    assert "a" in writing.publisher.view.nodes


async def test_a_burst_of_changes_becomes_few_views_and_loses_none(writing: Writing) -> None:
    await writing.sync()
    for i in range(500):
        await writing.send(node(f"n{i}"))
    while len(writing.publisher.view.nodes) < 500:
        await writing.newer(writing.publisher.view.generation)
    assert writing.publisher.view.generation < 100


@pytest.mark.usefixtures("turns_at_each_pause")
async def test_requests_are_answered_while_one_nodes_many_devices_change(
    writing: Writing,
) -> None:
    many = 500
    view = await writing.sync(node("n"), put(kinds.SLICE, slice_("n", devices=1)))
    newer = asyncio.create_task(writing.newer(view.generation))
    await writing.send(put(kinds.SLICE, slice_("n", devices=many, generation=2)))
    turns = 0
    while not newer.done():
        turns += 1
        await asyncio.sleep(0)
    assert len((await newer).nodes["n"].pools[0].devices) == many
    assert turns >= 3 * many, "as they are read, as they are compared, and as they are shown"


async def test_a_deleted_object_is_gone_from_the_view(writing: Writing) -> None:
    view = await writing.sync(node("a"), node("b"))
    await writing.send(Gone(kinds.NODE, "a"))
    assert list((await writing.newer(view.generation)).nodes) == ["b"]


@pytest.mark.usefixtures("turns_at_each_pause")
@pytest.mark.parametrize("writing", [0.0], indirect=True, ids=["at once"])
@pytest.mark.parametrize("served", [True, False], ids=["not listed", "no longer served"])
async def test_requests_are_answered_while_many_objects_go_and_see_all_or_none_of_them(
    writing: Writing, served: bool
) -> None:
    many = 200
    view = await writing.sync(*(node(f"n{i}") for i in range(many)), put(kinds.SLICE, slice_("n0")))
    newer = asyncio.create_task(writing.newer(view.generation))
    if served:
        await writing.send(ListStarted(kinds.NODE), ListEnded(kinds.NODE))
    else:
        await writing.send(Unserved(kinds.NODE, "404"))
    turns, seen = 0, set()
    while not newer.done():
        seen.add(len(writing.publisher.view.nodes))
        turns += 1
        await asyncio.sleep(0)
    assert len((await newer).nodes) == 0
    assert seen <= {many, 0}
    assert turns >= 2 * many, "one for each object that goes, and one for each record"


async def test_requests_are_answered_while_many_short_batches_wait() -> None:
    turn = 0
    folded_at: list[int] = []
    inventory = Inventory(HealthBook(HealthSettings(), RULES), RULES)
    hear = [lambda _: folded_at.append(turn)]
    writer = Writer(inventory, Publisher(), watched=WATCHED, on_object=hear)
    batches = 60
    for i in range(batches):
        await writer.send([node(f"n{i}")])
    with taking_turns(clock=itertools.count(0.0, SLICE_S * 0.4).__next__):
        task = asyncio.create_task(writer.run())
    while len(folded_at) < batches:
        turn += 1
        await asyncio.sleep(0)
    assert len(set(folded_at)) > batches / 5
    task.cancel()


async def test_who_fails_on_objects_or_views_costs_neither_these_nor_others() -> None:
    heard: list[object] = []
    shown: list[int] = []

    def fail(*_: object) -> None:
        raise KeyError("a defect")

    publisher, inventory = Publisher(), Inventory(HealthBook(HealthSettings(), RULES), RULES)
    made = Writer(
        inventory,
        publisher,
        watched=(kinds.NODE,),
        on_object=(fail, heard.append),
        on_view=(fail, lambda _, view, __: shown.append(view.generation)),
    )
    task = asyncio.create_task(made.run())
    await made.send([ListStarted(kinds.NODE), node("a"), ListEnded(kinds.NODE)])
    async with asyncio.timeout(20):
        while not shown:
            await asyncio.sleep(0.01)
    assert len(heard) == 1
    assert publisher.view.nodes.keys() == {"a"}
    assert not publisher.view.quarantined
    task.cancel()


async def test_a_malformed_object_makes_only_its_node_unknown(writing: Writing) -> None:
    view = await writing.sync(node("a"), node("b"))
    await writing.send(Bad(kinds.SLICE, "a-slice", "spec: wrong", "a"), node("c"))
    view = await writing.newer(view.generation)
    while "c" not in view.nodes:
        view = await writing.newer(view.generation)
    assert view.nodes["a"].health.state is State.UNKNOWN
    assert view.nodes["b"].health.state is State.HEALTHY
    assert "wrong" in view.quarantined["ResourceSlice a-slice"]


async def test_an_unreadable_object_is_logged_once_with_its_name(writing: Writing) -> None:
    raw = msgspec.json.encode({"metadata": {"name": "n3"}, "status": {"conditions": "none"}})
    view = await writing.sync(read_object(kinds.NODE, raw))
    (told,) = view.nodes["n3"].health.evidence
    said = "Node n3: Expected `array | null`, got `str` - at `$.status.conditions`"
    assert view.quarantined == {"Node n3": said}
    assert told.evidence.text == f"cannot be read: {said}"


async def test_an_object_that_stays_unreadable_however_often_it_changes_is_logged_once(
    writing: Writing,
) -> None:
    def odd(value: object) -> Change:
        metadata = {"name": "n3", "resourceVersion": str(value)}
        return read_object(kinds.NODE, msgspec.json.encode({"metadata": metadata, "status": value}))

    await writing.sync()
    with capture_logs() as logged:
        for change in (odd("none"), odd("none at all"), odd(3), odd(4), node("n3"), odd(5)):
            await writing.send(change)
        await writing.all_written()
    said = [line["reason"] for line in logged if line["event"] == "object quarantined"]
    assert len(said) == 3
    assert ["str" in reason for reason in said] == [True, False, False]


async def test_contact_counts_as_fresh_and_clears_what_was_lost(writing: Writing) -> None:
    await writing.sync()

    async def noted(note: str) -> SourceStatus:
        async with asyncio.timeout(20):
            while writing.publisher.sources["Node"].note != note:
                await asyncio.sleep(0.01)
        return writing.publisher.sources["Node"]

    await writing.send(Lost(kinds.NODE, "connection refused"))
    await noted("connection refused")
    before = time.monotonic()
    await writing.send(Contact(kinds.NODE))
    source = await noted("")
    assert before <= source.contact_at <= time.monotonic()


async def test_a_source_is_logged_once_when_lost_and_once_when_found(
    writing: Writing,
) -> None:
    await writing.sync()
    with capture_logs() as logged:
        for change in (
            Lost(kinds.NODE, "connection refused"),
            Lost(kinds.NODE, "connection refused"),
            Contact(kinds.NODE),
            Contact(kinds.NODE),
            Unserved(kinds.SLICE, "not served"),
            Unserved(kinds.SLICE, "not served"),
            ListStarted(kinds.SLICE),
            ListEnded(kinds.SLICE),
        ):
            await writing.send(change)
        await writing.all_written()
    assert [(line["event"], line["kind"]) for line in logged if "kind" in line] == [
        ("source lost", "Node"),
        ("source found", "Node"),
        ("not served by this cluster", "ResourceSlice"),
        ("source found", "ResourceSlice"),
    ]


async def test_a_view_follows_when_time_alone_has_faded_evidence(writing: Writing) -> None:
    pod = {
        "metadata": {
            "name": "p",
            "namespace": "d",
            "uid": "u",
            "creationTimestamp": "1970-01-12T13:46:40Z",
        },
        "spec": {
            "nodeName": "a",
            "containers": [{"resources": {"limits": {b.RESOURCE: "1"}}}],
        },
        "status": {
            "phase": "Failed",
            "reason": "UnexpectedAdmissionError",
            "message": "Allocate failed due to no device, which is unexpected",
        },
    }
    view = await writing.sync(node("a"), put(kinds.POD, pod))
    before = view.nodes["a"].health.score
    writing.now += 6 * 3600
    after = (await writing.newer(view.generation)).nodes["a"].health.score
    assert before < 0.8 < after


class Defective(Ledger):
    """Fails on claims, as a bug of ours would."""

    def report(self, report: SignalReport, now: float) -> set[Subject]:
        if report.reporter.kind == "ResourceClaim":
            raise ZeroDivisionError("by a defect")
        return super().report(report, now)


async def test_an_object_that_cannot_be_applied_makes_the_pool_that_it_is_about_unclear() -> None:
    book = HealthBook(HealthSettings(), RULES)
    book.ledger = Defective(RULES, HealthSettings().orphan_half_life_seconds)
    writing = Writing(book)
    writer = asyncio.create_task(writing.writer.run())
    device = {"driver": b.DRIVER, "pool": "n", "device": "gpu-0"}
    result = {"request": "r", **device}
    ready = {"type": "Ready", "status": "False"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "devices": [{**device, "conditions": [ready]}],
    }
    claim = {"metadata": {"name": "c", "namespace": "d"}, "spec": {}, "status": status}
    slices = (put(kinds.SLICE, slice_(name)) for name in ("n", "other"))
    await writing.sync(node("n"), node("other"), *slices)
    await writing.send(put(kinds.CLAIM, claim), node("new"))
    view = writing.publisher.view
    while "new" not in view.nodes:
        view = await writing.newer(view.generation)
    assert "by a defect" in view.quarantined["ResourceClaim d/c"]
    (pool,), (other,) = view.nodes["n"].pools, view.nodes["other"].pools
    assert "ResourceClaim d/c cannot be read" in pool.unclear
    assert not any(seen.allocated for seen in pool.devices)
    assert not other.unclear
    writer.cancel()


async def test_a_follower_gets_each_view_with_the_previous_one_and_its_failure_stops_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    heard: list[tuple[int, int, int, frozenset[str]]] = []

    def follow(before: View, after: View, changed: frozenset[str]) -> None:
        published = followed.publisher.view.generation
        heard.append((before.generation, after.generation, published, changed))
        raise RuntimeError("a bug")

    followed = Writing(None, follow)
    task = asyncio.create_task(followed.writer.run())
    try:
        await followed.sync(node("a"), node("b"))
        await followed.send(node("b", allocatable=7))
        await followed.newer(1)
        async with asyncio.timeout(5):
            while len(heard) < 2:
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
    assert heard == [(0, 1, 1, frozenset({"a", "b"})), (1, 2, 2, frozenset({"b"}))]
    assert "a bug" in capsys.readouterr().out
