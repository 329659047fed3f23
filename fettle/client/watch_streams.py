"""The body of a watch: chunks as they come, split into lines, each one event. A connection is left
unread for a moment after each chunk, so that a burst is read at once. Whoever needs to know what
has come so far can have it read now.
"""

import array
import asyncio
import fcntl
import socket
import termios
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import aiohttp
import msgspec

from fettle.api import Gone, Put, decode_lenient
from fettle.api.kinds import Kind
from fettle.model import BadInput, Unreachable

LARGE_CHUNK = 64 * 1024
"""A chunk of so many bytes is followed by the next one without a pause."""
LONGEST_LINE = 64 * 1024 * 1024
"""Bytes. The largest object that a cluster stores has a few MiB: a longer line is from no watch."""
PUTS = ("ADDED", "MODIFIED")
GONE = "DELETED"


class Streams:
    """The watches that are open."""

    def __init__(self) -> None:
        self._open: set[Stream] = set()

    @contextmanager
    def opened(self, response: aiohttp.ClientResponse) -> "Iterator[Stream]":
        stream = Stream(response)
        self._open.add(stream)
        try:
            yield stream
        finally:
            self._open.discard(stream)

    @property
    def stale(self) -> bool:
        """Whether something has come that was not handled yet."""
        return any(stream.stale for stream in self._open)

    async def catch_up(self) -> None:
        """Return once all that has come is handled. That may take longer than the caller can wait:
        cancel it after a time."""
        while stale := [stream for stream in self._open if stream.stale]:
            for stream in stale:
                stream.hurry()
            await asyncio.sleep(0)


class Stream:
    """The body of one watch. A chunk counts as handled once the next one is requested."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._handled = 0
        self._hurried = asyncio.Event()

    async def chunks(self, gather_s: Callable[[], float]) -> AsyncGenerator[bytes, None]:
        """Chunks as they come. After a small one the connection is left unread for `gather_s`."""
        async for chunk in self._response.content.iter_any():
            pause_s = gather_s() if len(chunk) < LARGE_CHUNK else 0.0
            with self._unread(pause_s):
                yield chunk
                self._handled += len(chunk)
                await self._pause(pause_s)

    @property
    def stale(self) -> bool:
        return self._response.content.total_bytes > self._handled or _has_more(self._socket)

    def hurry(self) -> None:
        """End the pause now, if there is one."""
        self._hurried.set()

    async def _pause(self, seconds: float) -> None:
        self._hurried.clear()
        if seconds:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._hurried.wait()

    @contextmanager
    def _unread(self, seconds: float) -> Iterator[None]:
        """Leave in the kernel what comes meanwhile; it wakes the loop only for much of that."""
        if not seconds:
            yield
            return
        _wake_at(self._socket, LARGE_CHUNK)
        try:
            yield
        finally:
            _wake_at(self._socket, 1)

    @property
    def _socket(self) -> socket.socket | None:
        connection = self._response.connection
        transport = connection.transport if connection is not None else None
        if transport is None or transport.is_closing():
            return None
        found: socket.socket | None = transport.get_extra_info("socket")
        return found


def _wake_at(connected: socket.socket | None, waiting: int) -> None:
    if connected is not None:
        # Where a system has no such option, the loop wakes up more often, which does no harm.
        with suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, waiting)


def _has_more(connected: socket.socket | None) -> bool:
    """Whether bytes wait in the kernel."""
    if connected is None:
        return False
    waiting = array.array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(connected.fileno(), termios.FIONREAD, waiting)
    return waiting[0] > 0


class Lines:
    """Splits chunks into lines. An unfinished line is kept in parts, so that a long one is copied
    only once."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._parts: list[bytes] = []
        self._kept = 0
        self._longest = longest

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends; empty ones are left out."""
        head, newline, rest = chunk.partition(b"\n")
        self._keep(head)
        if not newline:
            return []
        *lines, tail = (b"".join(self._parts), *rest.split(b"\n"))
        self._parts, self._kept = [], 0
        self._keep(tail)
        return [line for line in lines if line.strip()]

    def _keep(self, part: bytes) -> None:
        self._kept += len(part)
        if self._kept > self._longest:
            raise Unreachable(f"a watch sent a line of more than {self._longest} bytes")
        if part:
            self._parts.append(part)


class ObjectEvent(NamedTuple):
    """An event about an object that could be read."""

    change: Put | Gone
    version: str


class UnreadEvent(msgspec.Struct, frozen=True):
    """Any event, its object as it came."""

    type: str
    object: msgspec.Raw


_UNREAD = msgspec.json.Decoder(UnreadEvent)


class Events:
    """Reads the lines of one kind's watch. Nearly all events are read whole in one pass, since pods
    alone may have thousands a second."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        whole = msgspec.defstruct("Event", [("type", str), ("object", kind.struct)], frozen=True)
        self._whole: Any = msgspec.json.Decoder(whole, strict=False)

    def read(self, line: bytes) -> ObjectEvent | UnreadEvent:
        """Raises BadInput for what is not an event."""
        # An object that is probed has to be read twice anyway, and of a long one not all is read.
        if not self._kind.is_probed and len(line) <= self._kind.longest:
            try:
                event = decode_lenient(self._whole, line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return _unread(line)
            metadata = event.object.metadata
            if metadata.name and event.type in PUTS:
                return ObjectEvent(Put(self._kind, event.object), metadata.resource_version)
            if metadata.name and event.type == GONE:
                return ObjectEvent(Gone(self._kind, metadata.key), metadata.resource_version)
        return _unread(line)


def _unread(line: bytes) -> UnreadEvent:
    try:
        unread: UnreadEvent = decode_lenient(_UNREAD, line)
        return unread
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(str(error)) from error
