"""Follows one kind of object: a list, then a watch for as long as the process lives, sent to a sink
as changes. The list comes through the watch where the API server can do that, else in pages. After
a broken connection the watch resumes where it was; it lists again when the server has forgotten
that place or went silent. First step of *watch → inventory → health → verdict → answer*.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial

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
    decode_lenient,
    key_of,
    loose_metadata,
    metadata_in_slices,
    read_in_slices,
)
from fettle.api.kinds import Kind
from fettle.client.responses import read_status, refusal
from fettle.client.session import Session
from fettle.client.watch_streams import (
    GONE,
    LARGE_CHUNK,
    PUTS,
    Events,
    Lines,
    ObjectEvent,
    UnreadEvent,
)
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
from fettle.pacing import Backoff, run_within

PAGE = 500
"""As client-go asks for (`defaultPageSize` of its pager)."""
GATHER_S = 0.05
"""How long a watch is left unread after something came: to wake up for an event costs several times
what reading it costs."""
_WATCH_S = (200, 280)  # spread, so that replicas and kinds do not reconnect together
_SILENCE_S = 90.0  # bookmarks come about once a minute
_PROBE_S = 30.0  # one small request; a CRD is often applied just after we started
_TOO_SHORT_S = 1.0
_RETRIES = 3  # of a list that is read once
_STARTING = 3  # failures in a row, in all about half a second
_BETWEEN_S = 0.1  # so that watches which keep ending do not become a busy loop
_CALM_S = 60.0  # after so long without a list the next one need not wait; less than a silence
_TOO_MANY = 5  # lists in a row, within some two seconds

_FIRST_PAUSE_S = 0.1  # a restarted API server is followed again within a second or two
_LONGEST_PAUSE_S = 30.0  # a refusal changes only when a person acts
_LONGEST_UNREACHABLE_S = 1.5  # a server that is away costs nothing to try
_INITIAL_END = "k8s.io/initial-events-end"


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


_PAGE = msgspec.json.Decoder(_Page)


class ErrorBackoff:
    """How long to wait before the next try, by what failed. Begins again with each other type of
    failure, and on success."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._backoff = Backoff(_FIRST_PAUSE_S, jitter=0.5, uniform=uniform)
        self._failed: type[ClusterError] | None = None

    @property
    def failures(self) -> int:
        """How often the latest type of failure came in a row."""
        return self._backoff.failures

    def succeeded(self) -> None:
        self._failed = None
        self._backoff.succeeded()

    def next_s(self, error: ClusterError) -> float:
        """Seconds to wait after this failure."""
        if type(error) is not self._failed:
            self._failed = type(error)
            self._backoff.succeeded()
        if not isinstance(error, Unreachable):
            return self._backoff.next_s(_LONGEST_PAUSE_S)
        pause_s = self._backoff.next_s(_LONGEST_UNREACHABLE_S)
        # An overloaded server says how long to leave it alone.
        retry_after_s = error.retry_after_s * self._uniform(1.0, 1.25)
        return max(pause_s, min(retry_after_s, _LONGEST_PAUSE_S))


class ListBackoff:
    """How long to wait before the next list. Lists that follow each other closely wait ever longer:
    each is the whole list to the server, and whatever made it useless may stay, such as a version
    that is forgotten at once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_s = float("-inf")
        self._backoff = Backoff(2 * _BETWEEN_S, _LONGEST_PAUSE_S, free=1, jitter=0.5)

    @property
    def in_a_row(self) -> int:
        """How many lists there were without a calm between them."""
        return self._backoff.failures

    def began(self) -> None:
        """The server began to send a list."""
        if self._is_calm():
            self._backoff.succeeded()
        self._backoff.failed()
        self._last_s = self._clock()

    def ended(self) -> None:
        """The list is complete: the calm is counted from here, however long the list took."""
        self._last_s = self._clock()

    def pause_s(self) -> float:
        """Seconds to wait before the next list; 0 after a single one."""
        return 0.0 if self._is_calm() else self._backoff.pause_s()

    def _is_calm(self) -> bool:
        return self._clock() - self._last_s >= _CALM_S


class Reflector:
    """`run` never returns. `silence_s`: how long a watch may send nothing. `probe_s`: how often to
    try a kind again that is not served. `goes_without`: a kind that may not be read is taken for
    one that is not served.
    """

    def __init__(
        self,
        session: Session,
        kind: Kind,
        sink: Sink,
        *,
        silence_s: float = _SILENCE_S,
        probe_s: float = _PROBE_S,
        goes_without: bool = False,
    ) -> None:
        self._session = session
        self._kind = kind
        self._sink = sink
        self._silence_s = silence_s
        self._probe_s = probe_s
        self._goes_without = goes_without
        self._events = Events(kind)
        self._path = kind.path
        self._not_served = 0  # in a row, each for the next of the kind's paths
        self._version = ""  # the resourceVersion to resume from; "": list first
        self._listing = False
        self._pages = False  # the server cannot stream a list through a watch
        self._backoff = ErrorBackoff()
        self._lists = ListBackoff()

    async def run(self) -> None:
        while True:
            try:
                await self._list_and_watch()
                await asyncio.sleep(_BETWEEN_S)
            except ClusterError as error:
                await asyncio.sleep(await self._failed(error))

    async def list_once(self) -> None:
        """Send the list alone: that takes no right to watch. Raises ClusterError, NotServed if the
        cluster serves none of the kind's versions."""
        for path in self._kind.paths:
            self._path = path
            try:
                await self._list_patiently()
                return
            except NotServed as error:
                not_served = error
        raise not_served

    async def _list_patiently(self) -> None:
        for _ in range(_RETRIES):
            try:
                await self._list()
                return
            except (Expired, Unreachable) as error:
                await asyncio.sleep(self._backoff.next_s(error))
        await self._list()

    async def _list_and_watch(self) -> None:
        """One watch from its start to its end, with what must come before it."""
        if not self._version:
            await asyncio.sleep(self._lists.pause_s())
        if not self._version and self._pages:
            await self._list()
        try:
            await self._watch()
        except Silent:
            # The server is stuck, or sends no bookmarks: a list brings news in both cases.
            self._pages = self._pages or self._listing
            self._version = ""
        except Invalid:
            if not self._listing:
                self._version = ""
                raise
            self._pages = True

    async def _failed(self, error: ClusterError) -> float:
        """Send that the kind cannot be read; how long to wait before the next try."""
        if isinstance(error, Expired):
            self._version = ""
            if self._lists.in_a_row == _TOO_MANY:
                await self._sink.send([Lost(self._kind, self._useless_lists(error))])
            return self._backoff.next_s(error)
        if isinstance(error, Forbidden) and self._goes_without:
            self._version = ""
            await self._sink.send([Unserved(self._kind, str(error))])
            return self._probe_s * random.uniform(0.8, 1.2)  # noqa: S311 (jitter is no secret)
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
            f"{error}; that followed each of the last {_TOO_MANY} lists of {self._path}, so lists "
            "are made ever more rarely now: check whether a proxy serves lists from a cache, "
            f"or the API servers behind {self._session.server} do not share one etcd"
        )

    def _may_be_starting(self, error: ClusterError) -> bool:
        """An API server that has just started refuses for a moment, until it has read its roles."""
        allowed_before = bool(self._version)
        few_failures = self._backoff.failures <= _STARTING
        return isinstance(error, Forbidden) and allowed_before and few_failures

    async def _list(self) -> None:
        """The whole list in pages, each sent in batches."""
        batches = Batches(self._sink)
        await batches.add(ListStarted(self._kind))
        page = await self._page("")
        self._lists.began()
        while True:
            for item in page.items or ():
                raw = bytes(item)  # a copy, or one object would keep its whole page alive
                await batches.add(await read_in_slices(self._kind, raw), len(raw))
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
            # In slices: if one object nests deep, all of the page has to be mended.
            page: _Page = await run_within(partial(decode_lenient, _PAGE, body))
            return page
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unreachable(
                f"{self._session.server} did not return a list for {self._path}: {error}"
            ) from error

    async def _watch(self) -> None:
        """One watch, until its stream ends. A stream that breaks after an event just ends."""
        began_s, received, lines = time.monotonic(), False, Lines()
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
                        received = await self._handle_lines(lines.feed(chunk)) or received
                # It ended before the list did: the server took it for a plain watch.
                self._pages = self._pages or self._listing
            except Silent:
                raise
            except Unreachable:
                if not received:
                    raise
        if not received and time.monotonic() - began_s < _TOO_SHORT_S:
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
        """A watch that the server keeps open counts as contact, even without events."""
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
        # A watch that ends at once is no contact: a proxy may answer so forever.
        await asyncio.sleep(_TOO_SHORT_S)
        await self._sink.send([Contact(self._kind)])

    async def _handle_lines(self, lines: list[bytes]) -> bool:
        """Send these events as changes; whether there were any."""
        batches = Batches(self._sink)
        try:
            for line in lines:
                await self._handle_event(line, batches)
        except ClusterError:
            await batches.flush()  # what came before: the watch resumes after it
            raise
        if lines:
            self._backoff.succeeded()
            await batches.add(Contact(self._kind))
        await batches.flush()
        return bool(lines)

    def _event(self, line: bytes) -> ObjectEvent | UnreadEvent:
        try:
            return self._events.read(line)
        except BadInput as error:
            self._version = ""
            raise Unreachable(
                f"{self._session.server} sent an invalid event in a watch of {self._path}: {error}"
            ) from error

    async def _handle_event(self, line: bytes, batches: Batches) -> None:
        if len(line) < LARGE_CHUNK:
            event = self._event(line)
        else:
            event = await run_within(partial(self._event, line))
        if isinstance(event, ObjectEvent):
            await batches.add(event.change, len(line))
            self._advance(event.version)
            return
        raw = bytes(event.object)
        if event.type in PUTS:
            change = await read_in_slices(self._kind, raw)
            await batches.add(change, len(raw))
            self._advance(_version_of(change, raw))
        elif event.type == "ERROR":
            status = read_status(raw)
            raise refusal(self._session.server, f"WATCH {self._path}", status.code or 500, status)
        elif event.type in (GONE, "BOOKMARK"):
            await self._handle_mark(event.type, raw, batches)

    async def _handle_mark(self, event_type: str, raw: bytes, batches: Batches) -> None:
        metadata = await metadata_in_slices(raw)
        if event_type == GONE:
            await batches.add(Gone(self._kind, key_of(metadata)))
        elif self._listing and _ends_initial_events(metadata.get("annotations")):
            self._listing = False
            self._lists.ended()
            await batches.add(ListEnded(self._kind))
        self._advance(metadata.get("resourceVersion"))

    def _advance(self, version: object) -> None:
        # Initial events come in no particular order: a watch can only resume after the last one.
        if not self._listing and isinstance(version, str) and version:
            self._version = version


def _version_of(change: Put | Bad, raw: bytes) -> object:
    if isinstance(change, Put):
        return change.object.metadata.resource_version
    return loose_metadata(raw).get("resourceVersion")


def _ends_initial_events(annotations: object) -> bool:
    return isinstance(annotations, dict) and annotations.get(_INITIAL_END) == "true"
