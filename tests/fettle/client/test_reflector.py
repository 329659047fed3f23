"""Lists and watches: what is sent to the sink, and how often a server is tried again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fettle.api import Contact, ListEnded, ListStarted, Lost, Put, Unserved, kinds
from fettle.api.kinds import Kind
from fettle.api.trimming import LONGEST_TEXT
from fettle.client import reflector
from fettle.client.reflector import GATHER_S, PAGE, ErrorBackoff, ListBackoff, Reflector
from fettle.client.session import Session
from fettle.model import Forbidden, Unreachable
from tests.fettle.client.fake_api import USER, FakeApi
from tests.fettle.cluster.feeds.recorder import PATIENCE_S, Recorder
from tests.fettle.others import time_taken

NODES = kinds.NODE.plural


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": {"cpu": "4"}}}


@asynccontextmanager
async def following(
    session: Session,
    kind: Kind = kinds.NODE,
    *,
    silence_s: float = 60.0,
    probe_s: float = 60.0,
) -> AsyncIterator[Recorder]:
    """A reflector that runs during the block; if it crashes, the test fails."""
    recorder = Recorder()
    reflector = Reflector(session, kind, recorder, silence_s=silence_s, probe_s=probe_s)
    task = asyncio.create_task(reflector.run())
    try:
        yield recorder
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def seen(api: FakeApi, true: Callable[[FakeApi], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true(api):
            await asyncio.sleep(0.01)


async def test_a_list_is_streamed_through_the_watch_and_synced_at_its_end(
    api: FakeApi, session: Session
) -> None:
    api.put(NODES, node("a"))
    api.put(NODES, node("b"))
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        assert recorder.names("Node") == {"a", "b"}
        api.put(NODES, node("c"))
        api.remove(NODES, "a")
        await recorder.until(lambda r: r.names("Node") == {"b", "c"})
    assert api.verbs(NODES) == ["watch"]
    asked = api.asked[0].query
    assert asked["sendInitialEvents"] == asked["allowWatchBookmarks"] == "true"
    assert asked["resourceVersionMatch"] == "NotOlderThan"
    assert 200 <= int(asked["timeoutSeconds"]) <= 280


async def test_a_server_that_refuses_the_streamed_list_is_read_in_pages(
    api: FakeApi, session: Session
) -> None:
    api.watch_list = False
    for i in range(2 * PAGE + 1):
        api.put(NODES, node(f"n{i:04}"))
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        assert len(recorder.names("Node")) == 2 * PAGE + 1
        api.put(NODES, node("late"))
        await recorder.until(lambda r: "late" in r.names("Node"))
        assert recorder.count(Lost, "Node") == 0
    assert api.verbs(NODES) == ["watch", "list", "list", "list", "watch"]
    assert recorder.largest < PAGE, "a page must not reach the writer in one piece"


async def test_a_server_that_ignores_the_request_for_a_streamed_list_is_read_in_pages(
    api: FakeApi, session: Session
) -> None:
    api.accepts_but_ignores_watch_list = True
    api.put(NODES, node("a"))
    async with following(session) as recorder:
        await recorder.until(lambda r: "a" in r.names("Node"))
        assert "Node" not in recorder.synced
        api.turn()  # and the watch ends
        await recorder.until(lambda r: "Node" in r.synced)
        assert "list" in api.verbs(NODES)


async def test_bookmarks_count_as_contact_and_move_the_version_to_resume_from(
    api: FakeApi, session: Session
) -> None:
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        contacts = recorder.count(Contact, "Node")
        api.version += 50
        api.bookmark(NODES)
        await recorder.until(lambda r: r.count(Contact, "Node") > contacts)
        api.drop_watches()
        await seen(api, lambda a: len(a.asked) == 2)
        assert api.asked[1].query["resourceVersion"] == str(api.version)


async def test_a_broken_watch_resumes_where_it_was_and_misses_nothing(
    api: FakeApi, session: Session
) -> None:
    api.put(NODES, node("a"))
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        api.drop_watches()
        api.put(NODES, node("b"))
        api.remove(NODES, "a")
        await recorder.until(lambda r: r.names("Node") == {"b"})
        assert recorder.count(ListStarted, "Node") == 1
        assert recorder.count(Lost, "Node") == 0


@pytest.mark.parametrize("by_event", [False, True], ids=["by status", "by event"])
async def test_a_forgotten_version_is_listed_again(
    api: FakeApi, session: Session, by_event: bool
) -> None:
    api.expire_by_event = by_event
    api.put(NODES, node("a"))
    api.put(NODES, node("b"))
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        api.drop_watches()
        api.remove(NODES, "a")
        api.put(NODES, node("c"))
        api.forget()
        await recorder.until(lambda r: r.names("Node") == {"b", "c"})
        assert recorder.count(ListEnded, "Node") == 2
        assert recorder.count(Lost, "Node") == 0


@pytest.mark.long
@pytest.mark.parametrize("streamed", [True, False], ids=["watch-list", "pages"])
async def test_a_server_that_forgets_every_list_at_once_is_reported_after_a_few_lists(
    api: FakeApi, session: Session, streamed: bool
) -> None:
    api.watch_list = streamed
    api.put(NODES, node("a"))
    api.forgets_at_once = True
    async with following(session) as recorder:
        await recorder.until(lambda r: r.count(Lost, "Node") > 0)
        assert recorder.count(ListEnded, "Node") == 5
        (note,) = recorder.notes("Node")
        assert f"{api.url} no longer knows that resourceVersion" in note
        assert "each of the last 5 lists of /api/v1/nodes" in note
        api.forgets_at_once = False
        api.put(NODES, node("b"))
        await recorder.until(lambda r: "b" in r.names("Node"))
        assert recorder.count(Lost, "Node") == 1


def test_lists_in_a_row_wait_ever_longer_and_no_more_after_a_calm() -> None:
    now = 0.0
    backoff = ListBackoff(lambda: now)
    assert backoff.pause_s() == 0.0, "the first list"
    backoff.began()
    assert backoff.pause_s() == 0.0, "one that is useless is made again at once"
    waits = []
    for _ in range(50):
        backoff.began()
        now += 100.0
        backoff.ended()
        waits.append(backoff.pause_s())
        now += waits[-1]
    assert 0.0 < waits[0] <= 0.2
    assert sum(waits[:3]) < 2.0
    assert all(15.0 <= wait <= 30.0 for wait in waits[20:])
    now += 60.0
    assert backoff.pause_s() == 0.0
    backoff.began()
    assert backoff.pause_s() == 0.0


async def test_a_silent_watch_is_followed_by_a_new_list(api: FakeApi, session: Session) -> None:
    async with following(session, silence_s=0.2) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        api.silent = True
        api.put(NODES, node("unheard"))
        await seen(api, lambda a: len(a.asked) > 2)
        api.silent = False
        api.turn()
        await recorder.until(lambda r: "unheard" in r.names("Node"))


async def test_a_server_that_accepts_and_answers_nothing_is_lost_and_found(
    api: FakeApi, session: Session
) -> None:
    async with following(session, silence_s=0.2) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        api.answers_nothing = True
        api.drop_watches()
        await recorder.until(lambda r: r.count(Lost, "Node") > 0)
        api.answers_nothing = False
        contacts = recorder.count(Contact, "Node")
        await recorder.until(lambda r: r.count(Contact, "Node") > contacts)


async def test_a_restarted_server_is_followed_again(api: FakeApi, session: Session) -> None:
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        await api.stop()
        await recorder.until(lambda r: r.count(Lost, "Node") > 0)
        assert api.url in recorder.notes("Node")[0]
        api.put(NODES, node("meanwhile"))
        await api.start()
        await recorder.until(lambda r: "meanwhile" in r.names("Node"))
        assert recorder.count(ListStarted, "Node") == 1


async def test_a_malformed_object_is_set_aside_and_the_rest_goes_on(
    api: FakeApi, session: Session
) -> None:
    api.put(NODES, node("a"))
    api.put(NODES, {"metadata": {"name": "odd"}, "status": {"conditions": "none"}})
    api.put(NODES, node("z"))
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        assert recorder.names("Node") == {"a", "z"}
        odd = recorder.bad["Node"]["odd"]
        assert odd.node == "odd"
        assert "conditions" in odd.reason
        api.put(NODES, node("odd"))
        await recorder.until(lambda r: "odd" in r.names("Node"))
        assert recorder.bad["Node"] == {}


@pytest.mark.parametrize("streamed", [True, False], ids=["watch-list", "pages"])
async def test_a_malformed_slice_is_reported_with_its_node(
    api: FakeApi, session: Session, streamed: bool
) -> None:
    api.watch_list = streamed
    spec = {"nodeName": "gpu-1", "driver": 7, "pool": {"name": "p"}}
    api.put("resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    async with following(session, kinds.SLICE) as recorder:
        await recorder.until(lambda r: "ResourceSlice" in r.synced)
        assert recorder.bad["ResourceSlice"]["s"].node == "gpu-1"


async def test_a_malformed_object_that_is_deleted_is_gone(api: FakeApi, session: Session) -> None:
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        api.put(NODES, {"metadata": {"name": "odd"}, "spec": 5})
        await recorder.until(lambda r: "odd" in r.bad["Node"])
        api.remove(NODES, "odd")
        await recorder.until(lambda r: not r.bad["Node"])


async def test_a_refusal_by_rbac_says_what_to_grant_and_ends_when_that_is_granted(
    api: FakeApi, session: Session
) -> None:
    api.forbidden = {("watch", "resourceslices")}
    async with following(session, kinds.SLICE) as recorder:
        await recorder.until(lambda r: r.count(Lost, "ResourceSlice") > 0)
        assert recorder.notes("ResourceSlice")[:1] == [
            f'{api.url} denied access by RBAC: grant the verbs "list" and "watch" on the '
            'resource "resourceslices" of the API group "resource.k8s.io" in all namespaces to '
            f"{USER}; deploy/rbac/ has the roles"
        ]
        api.forbidden = set()
        await recorder.until(lambda r: "ResourceSlice" in r.synced)


async def test_a_right_that_is_taken_away_is_reported(api: FakeApi, session: Session) -> None:
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        api.forbidden = {("watch", NODES)}
        api.drop_watches()
        await recorder.until(lambda r: r.count(Lost, "Node") > 0)
        assert '"list" and "watch" on the resource "nodes"' in recorder.notes("Node")[0]


async def test_a_refusal_in_the_moment_after_a_servers_start_is_not_reported(
    api: FakeApi, session: Session
) -> None:
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        contacts = recorder.count(Contact, "Node")
        api.forbidden = {("watch", NODES)}
        api.drop_watches()
        await seen(api, lambda a: len(a.asked) == 2)
        api.forbidden = set()
        await recorder.until(lambda r: r.count(Contact, "Node") > contacts)
        assert recorder.notes("Node") == []


async def test_a_kind_that_is_not_served_is_reported_and_tried_again(
    api: FakeApi, session: Session
) -> None:
    api.unserved = {"devicetaintrules"}
    async with following(session, kinds.TAINT_RULE, probe_s=0.05) as recorder:
        await recorder.until(lambda r: r.count(Unserved, "DeviceTaintRule") > 1)
        assert (
            "does not serve DeviceTaintRule (resource.k8s.io/v1, resource.k8s.io/v1beta2, "
            "resource.k8s.io/v1alpha3)" in recorder.notes("DeviceTaintRule")[0]
        )
        api.unserved = set()
        await recorder.until(lambda r: "DeviceTaintRule" in r.synced)


async def test_a_kind_is_read_in_the_version_that_is_served_also_after_an_upgrade(
    api: FakeApi, session: Session
) -> None:
    rules = kinds.TAINT_RULE.plural
    api.unserved = {f"v1/{rules}"}
    taint = {"key": "k", "effect": "NoSchedule"}
    api.put(rules, {"metadata": {"name": "old"}, "spec": {"taint": taint}})
    async with following(session, kinds.TAINT_RULE) as recorder:
        await recorder.until(lambda r: r.names("DeviceTaintRule") == {"old"})
        assert [asked.target.version for asked in api.asked] == ["v1", "v1beta2"]
        api.unserved = {f"v1beta2/{rules}"}
        api.drop_watches()
        api.put(rules, {"metadata": {"name": "new"}, "spec": {"taint": taint}})
        await recorder.until(lambda r: r.names("DeviceTaintRule") == {"old", "new"})
    assert recorder.notes("DeviceTaintRule") == []


async def test_a_required_kind_that_is_not_served_is_lost(api: FakeApi, session: Session) -> None:
    api.unserved = {NODES}
    async with following(session) as recorder:
        await recorder.until(lambda r: r.count(Lost, "Node") > 0)
        assert recorder.notes("Node")[:1] == [f"{api.url} does not serve /api/v1/nodes"]


async def test_a_watch_that_sends_no_events_is_listed_again(api: FakeApi, session: Session) -> None:
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        api.raw_event = b"<html>who are you?</html>\n"
        api.turn()
        await recorder.until(lambda r: r.count(ListEnded, "Node") == 2)


@pytest.mark.long
async def test_a_watch_counts_as_contact_only_if_it_does_not_end_at_once(
    api: FakeApi, session: Session
) -> None:
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        api.ends_watches_at_once = True
        api.drop_watches()
        await recorder.until(lambda r: r.count(Lost, "Node") > 3)
        first = next(i for i, change in enumerate(recorder.changes) if isinstance(change, Lost))
        assert not any(isinstance(change, Contact) for change in recorder.changes[first:])
        api.ends_watches_at_once = False
        contacts = recorder.count(Contact, "Node")
        await recorder.until(lambda r: r.count(Contact, "Node") > contacts)


async def test_events_before_an_error_event_are_sent(api: FakeApi, session: Session) -> None:
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        added = {"type": "ADDED", "object": node("a") | {"kind": "Node"}}
        added["object"]["metadata"]["resourceVersion"] = str(api.version)  # type: ignore[index]
        error = {"type": "ERROR", "object": {"code": 500, "message": "etcd is unwell"}}
        api.raw_event = b"\n".join(json.dumps(e).encode() for e in (added, error)) + b"\n"
        api.turn()
        await recorder.until(lambda r: "a" in r.names("Node"))
        await seen(api, lambda a: len(a.asked) == 2)
        assert api.asked[1].query["resourceVersion"] == str(api.version)


async def test_of_a_line_of_a_megabyte_and_a_half_the_beginning_of_each_text_is_read(
    api: FakeApi, session: Session
) -> None:
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        api.put(NODES, node("big", long="x" * 1_500_000))
        await recorder.until(lambda r: "big" in r.names("Node"))
        (big,) = (c.object for c in recorder.changes if isinstance(c, Put))
        assert (big.metadata.label("long") or "").startswith("x" * LONGEST_TEXT + " (cut")


async def test_a_burst_of_events_is_sent_in_few_batches_and_soon(
    api: FakeApi, session: Session
) -> None:
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        told = recorder.count(Contact, "Node")
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for i in range(100):
            api.put(NODES, node(f"n{i:03}"))
            await asyncio.sleep(0.001)
        told_all = recorder.until(lambda r: len(r.names("Node")) == 100)
        _, seconds = await time_taken(told_all)
        assert seconds < 0.5
        batches = recorder.count(Contact, "Node") - told
        assert batches <= 3 + (loop.time() - began_s) / GATHER_S


async def test_the_first_event_after_a_quiet_time_is_sent_at_once(
    api: FakeApi, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "GATHER_S", 60.0)
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        api.put(NODES, node("first"))
        await recorder.until(lambda r: r.names("Node") == {"first"})


async def test_a_list_is_read_without_pauses(
    api: FakeApi, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "GATHER_S", 60.0)
    for i in range(300):
        api.put(NODES, node(f"n{i:03}", filler="x" * 2000))
    async with following(session) as recorder:
        await recorder.until(lambda r: "Node" in r.synced)
        assert len(recorder.names("Node")) == 300


def test_an_unreachable_server_is_tried_every_second_or_so() -> None:
    backoff = ErrorBackoff()
    pauses_s = [backoff.next_s(Unreachable("away")) for _ in range(50)]
    assert pauses_s[0] <= 0.1
    assert sum(pauses_s[:3]) < 1.0
    assert 0.7 < max(pauses_s) <= 1.5


def test_retry_after_of_a_server_is_kept_up_to_a_limit() -> None:
    backoff, busy = ErrorBackoff(), Unreachable("too many requests")
    busy.retry_after_s = 8.0
    assert all(8.0 <= backoff.next_s(busy) <= 10.0 for _ in range(50))
    busy.retry_after_s = 86400.0
    assert backoff.next_s(busy) == 30.0


def test_after_a_refusal_pauses_grow_to_half_a_minute() -> None:
    backoff = ErrorBackoff()
    pauses_s = [backoff.next_s(Forbidden("no")) for _ in range(50)]
    assert pauses_s[0] <= 0.1
    assert all(15.0 <= pause_s <= 30.0 for pause_s in pauses_s[20:])


def test_another_type_of_failure_and_success_begin_again_with_short_pauses() -> None:
    backoff = ErrorBackoff()
    for _ in range(20):
        backoff.next_s(Unreachable("away"))
    assert backoff.next_s(Forbidden("not yet")) <= 0.1
    for _ in range(20):
        backoff.next_s(Forbidden("no"))
    backoff.succeeded()
    assert backoff.next_s(Forbidden("no")) <= 0.1
