"""Response bodies that go on for long, as of watches: taken in chunks as they come, and left unread
for a moment after each, so that what comes in a burst is taken at once. Whoever needs to know what
has come so far can have it taken now. Knows nothing of what is in them.
"""

import array
import asyncio
import fcntl
import socket
import termios
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress

import aiohttp

A_LOT = 64 * 1024
"""Bytes that are taken at once however soon after others they come."""


class Streams:
    """Those that are open."""

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
    def behind(self) -> bool:
        """Whether something has come that was not taken yet."""
        return any(stream.behind for stream in self._open)

    async def take(self) -> None:
        """Until all that has come is taken. Those who take it may need longer than the caller can
        wait: to be given up after a time."""
        while late := [stream for stream in self._open if stream.behind]:
            for stream in late:
                stream.hurry()
            await asyncio.sleep(0)


class Stream:
    """One body. What was handed over is taken once the next chunk is asked for."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._taken = 0
        self._hurried = asyncio.Event()

    async def chunks(self, gather_s: Callable[[], float]) -> AsyncGenerator[bytes, None]:
        """As they come. After a small one the connection is left unread for `gather_s`."""
        async for chunk in self._response.content.iter_any():
            pause_s = gather_s() if len(chunk) < A_LOT else 0.0
            with self._unread(pause_s):
                yield chunk
                self._taken += len(chunk)
                await self._pause(pause_s)

    @property
    def behind(self) -> bool:
        return self._response.content.total_bytes > self._taken or _has_more(self._socket)

    def hurry(self) -> None:
        """Let the pause end now, if there is one."""
        self._hurried.set()

    async def _pause(self, seconds: float) -> None:
        self._hurried.clear()
        if seconds:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._hurried.wait()

    @contextmanager
    def _unread(self, seconds: float) -> Iterator[None]:
        """What comes meanwhile waits in the kernel, which wakes the loop only for a lot of it."""
        if not seconds:
            yield
            return
        _wake_at(self._socket, A_LOT)
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
    """Where a system has no such option, more wake-ups are all that comes of it."""
    if connected is not None:
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
