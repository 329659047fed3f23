"""Follows one kind of object: a list, then a watch for as long as the process lives, told to a sink
as changes. Streams the list through the watch where the API server can, else in pages; resumes
where it was after a broken connection; lists again when the server has forgotten that place or
went silent. First step of *watch → inventory → health → verdict → answer*; judges nothing.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import msgspec

from fettle.api import (
    Bad,
    Batches,
    Contact,
    Gone,
    ListEnded,
    ListStarted,
    Lost,
    Put,
    Sink,
    Unserved,
    key_of,
    lenient,
    loose_metadata,
    read,
)
from fettle.api.kinds import Kind
from fettle.client.backoff import ErrorBackoff
from fettle.client.events import GONE, PUTS, Events, Plain, UnreadEvent
from fettle.client.lines import Lines
from fettle.client.refusals import read_status, refusal
from fettle.client.session import Session
from fettle.model import (
    BadInput,
    ClusterError,
    Expired,
    Forbidden,
    Invalid,
    NotServed,
    Silent,
    Unreachable,
)
from fettle.pacing import Backoff

PAGE = 500
GATHER_S = 0.05
"""How long a watch is left unread after something came: waking up for an event costs several times
what reading it costs."""
_WATCH_S = (200, 280)  # spread, so that replicas and kinds do not reconnect together
_SILENCE_S = 90.0  # bookmarks come about once a minute
_PROBE_S = 30.0  # one small request; a CRD is often applied just after we started
_TOO_SHORT_S = 1.0
_STARTING = 3  # tries, in all about half a second
_BETWEEN_S = 0.1  # so that watches which keep ending do not become a busy loop
_CALM_S = 60.0  # without a list, until the next one need not wait; less than a silence
_LONGEST_PAUSE_S = 30.0
_TOO_MANY = 5  # lists in a row, within some two seconds
_INITIAL_END = "k8s.io/initial-events-end"


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


_PAGE = msgspec.json.Decoder(_Page)


class Pacing:
    """Lists that follow each other closely wait ever longer: each is a whole list to the server,
    and whatever made it useless, such as a version that is forgotten at once, may stay.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_s = float("-inf")
        self._backoff = Backoff(2 * _BETWEEN_S, _LONGEST_PAUSE_S, free=1, jitter=0.5)

    @property
    def row(self) -> int:
        """How many lists there were without a calm between them."""
        return self._backoff.failures

    def began(self) -> None:
        """The server began to answer a list."""
        if self._is_calm():
            self._backoff.succeeded()
        self._backoff.failed()
        self._last_s = self._clock()

    def ended(self) -> None:
        """It is complete: what follows within a calm follows closely, however long it took."""
        self._last_s = self._clock()

    def pause_s(self) -> float:
        """Seconds to wait before the next list; none after a single one."""
        return 0.0 if self._is_calm() else self._backoff.pause_s()

    def _is_calm(self) -> bool:
        return self._clock() - self._last_s >= _CALM_S


class Reflector:
    """`run` never returns. `silence_s`: how long a watch may say nothing; `probe_s`: how often a
    kind that is not served is asked for again.
    """

    def __init__(
        self,
        session: Session,
        kind: Kind,
        sink: Sink,
        *,
        silence_s: float = _SILENCE_S,
        probe_s: float = _PROBE_S,
    ) -> None:
        self._session = session
        self._kind = kind
        self._sink = sink
        self._silence_s = silence_s
        self._probe_s = probe_s
        self._events = Events(kind)
        self._path = kind.path
        self._not_served = 0  # answers in a row, each about the next of the kind's paths
        self._version = ""  # the resourceVersion to resume from; "": list first
        self._listing = False
        self._pages = False  # the server cannot stream a list through a watch
        self._backoff = ErrorBackoff()
        self._lists = Pacing()

    async def run(self) -> None:
        while True:
            try:
                await self._follow()
                await asyncio.sleep(_BETWEEN_S)
            except ClusterError as error:
                await asyncio.sleep(await self._failed(error))

    async def _follow(self) -> None:
        """One watch from its start to its end, with what must come before it."""
        if not self._version:
            await asyncio.sleep(self._lists.pause_s())
        if not self._version and self._pages:
            await self._list()
        try:
            await self._watch()
        except Silent:
            # Whether the server is stuck or sends no bookmarks: a list is a fresh answer.
            self._pages = self._pages or self._listing
            self._version = ""
        except Invalid:
            if not self._listing:
                self._version = ""
                raise
            self._pages = True

    async def _failed(self, error: ClusterError) -> float:
        """Tell that the kind cannot be read; how long to wait before the next try."""
        if isinstance(error, Expired):
            self._version = ""
            if self._lists.row == _TOO_MANY:
                await self._sink.send([Lost(self._kind, self._useless_lists(error))])
            return self._backoff.next_s(error)
        missing = isinstance(error, NotServed) and self._kind.optional
        if not missing:
            pause_s = self._backoff.next_s(error)
            if not self._may_be_starting(error):
                await self._sink.send([Lost(self._kind, str(error))])
            return pause_s
        self._version = ""
        paths = self._kind.paths
        self._path = paths[(paths.index(self._path) + 1) % len(paths)]
        self._not_served += 1
        if self._not_served % len(paths):
            return 0.0
        versions = ", ".join(self._kind.api_versions)
        note = f"the cluster does not serve {self._kind.name} ({versions})"
        await self._sink.send([Unserved(self._kind, note)])
        return self._probe_s * random.uniform(0.8, 1.2)  # noqa: S311 (jitter is no secret)

    def _useless_lists(self, error: Expired) -> str:
        return (
            f"{error}; so it was after each of the last {_TOO_MANY} lists of {self._path}, "
            "which are made ever more rarely now: check whether a proxy answers lists from a "
            f"cache, or the API servers behind {self._session.server} do not share one etcd"
        )

    def _may_be_starting(self, error: ClusterError) -> bool:
        """An API server that has just started refuses for a moment, until it has read its roles."""
        allowed_before = bool(self._version)
        return isinstance(error, Forbidden) and allowed_before and self._backoff.tries <= _STARTING

    async def _list(self) -> None:
        """The whole list in pages, each told in batches."""
        batches = Batches(self._sink)
        await batches.add(ListStarted(self._kind))
        page = await self._page("")
        self._lists.began()
        while True:
            for item in page.items or ():
                raw = bytes(item)  # a copy, or one object would keep its whole page alive
                await batches.add(read(self._kind, raw), len(raw))
            await batches.add(Contact(self._kind))
            await batches.flush()
            if not page.metadata.continue_:
                break
            page = await self._page(page.metadata.continue_)
        self._version = page.metadata.resource_version
        if not self._version:
            raise Unreachable(
                f"{self._session.server} lists {self._path} without a resourceVersion"
            )
        self._lists.ended()
        self._backoff.succeeded()
        await self._sink.send([ListEnded(self._kind)])

    async def _page(self, after: str) -> _Page:
        parameters: dict[str, str | int | bool] = {"limit": PAGE, **self._kind.selection}
        if after:
            parameters["continue"] = after
        body = await self._session.get(self._path, parameters, timeout_s=60.0)
        try:
            page: _Page = lenient.decode(_PAGE, body)
            return page
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unreachable(
                f"{self._session.server} did not return a list for {self._path}: {error}"
            ) from error

    async def _watch(self) -> None:
        """Until the stream ends; a broken one that had spoken just ends."""
        began_s, heard, lines = time.monotonic(), False, Lines()
        self._listing = not self._version
        stream = self._session.stream(
            self._path,
            self._watch_parameters(),
            silence_s=self._silence_s,
            gather_s=lambda: 0.0 if self._listing else GATHER_S,
        )
        async with aclosing(stream) as chunks:
            try:
                await anext(chunks)
                async with self._accepted():
                    async for chunk in chunks:
                        heard = await self._take(lines.feed(chunk)) or heard
                # An end before the end of the list: the server took it for a plain watch.
                self._pages = self._pages or self._listing
            except Silent:
                raise
            except Unreachable:
                if not heard:
                    raise
        if not heard and time.monotonic() - began_s < _TOO_SHORT_S:
            raise Unreachable(f"{self._session.server} closes watches of {self._path} immediately")

    def _watch_parameters(self) -> dict[str, str | int | bool]:
        parameters: dict[str, str | int | bool] = {
            "watch": True,
            "allowWatchBookmarks": True,
            "timeoutSeconds": random.randint(*_WATCH_S),  # noqa: S311 (jitter is no secret)
            **self._kind.selection,
        }
        if self._listing:
            return parameters | {
                "sendInitialEvents": True,
                "resourceVersionMatch": "NotOlderThan",
            }
        return parameters | {"resourceVersion": self._version}

    @asynccontextmanager
    async def _accepted(self) -> AsyncIterator[None]:
        """That the server keeps our watch, at a version it still has, is news of it too. One that
        it ends at once tells nothing: what stands between us may answer so forever.
        """
        if self._listing:
            self._lists.began()
            await self._sink.send([ListStarted(self._kind)])
        self._not_served = 0
        kept = asyncio.create_task(self._kept())
        try:
            yield
        finally:
            kept.cancel()

    async def _kept(self) -> None:
        await asyncio.sleep(_TOO_SHORT_S)
        await self._sink.send([Contact(self._kind)])

    async def _take(self, lines: list[bytes]) -> bool:
        """Tell what these events say; whether there were any."""
        batches = Batches(self._sink)
        try:
            for line in lines:
                await self._take_event(line, batches)
        except ClusterError:
            await batches.flush()  # what came before it is told, since we resume after it
            raise
        if lines:
            self._backoff.succeeded()
            await batches.add(Contact(self._kind))
        await batches.flush()
        return bool(lines)

    def _event(self, line: bytes) -> Plain | UnreadEvent:
        try:
            return self._events.read(line)
        except BadInput as error:
            self._version = ""
            raise Unreachable(
                f"{self._session.server} sent an invalid event in a watch of {self._path}: {error}"
            ) from error

    async def _take_event(self, line: bytes, batches: Batches) -> None:
        event = self._event(line)
        if isinstance(event, Plain):
            await batches.add(event.change, len(line))
            self._advance(event.version)
            return
        raw = bytes(event.object)
        if event.type in PUTS:
            change = read(self._kind, raw)
            await batches.add(change, len(raw))
            self._advance(_version_of(change, raw))
        elif event.type == "ERROR":
            status = read_status(raw)
            raise refusal(self._session.server, f"WATCH {self._path}", status.code or 500, status)
        elif event.type in (GONE, "BOOKMARK"):
            await self._take_mark(event.type, raw, batches)

    async def _take_mark(self, event_type: str, raw: bytes, batches: Batches) -> None:
        metadata = loose_metadata(raw)
        if event_type == GONE:
            await batches.add(Gone(self._kind, key_of(metadata)))
        elif self._listing and _ends_initial_events(metadata.get("annotations")):
            self._listing = False
            self._lists.ended()
            await batches.add(ListEnded(self._kind))
        self._advance(metadata.get("resourceVersion"))

    def _advance(self, version: object) -> None:
        """Initial events come in no particular order: a watch cannot be resumed before they have
        all come.
        """
        if not self._listing and isinstance(version, str) and version:
            self._version = version


def _version_of(change: Put | Bad, raw: bytes) -> object:
    if isinstance(change, Put):
        return change.object.metadata.resource_version
    return loose_metadata(raw).get("resourceVersion")


def _ends_initial_events(annotations: object) -> bool:
    return isinstance(annotations, dict) and annotations.get(_INITIAL_END) == "true"
