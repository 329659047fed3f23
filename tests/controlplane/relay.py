"""A relay on loopback between a client and a server, whose connections a test may cut: what comes
next has to connect, and greet, anew."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any


class Relay:
    """Passes bytes on to `port` on loopback; `accepted` counts the connections so far."""

    def __init__(self, port: int) -> None:
        self.to_port = port
        self.port = 0
        self.accepted = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._relaying: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._relaying:
            task.cancel()
        await asyncio.gather(*self._relaying, return_exceptions=True)

    def cut(self) -> None:
        for writer in self._open:
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._relaying.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._connect(reader, writer)
        finally:
            writer.close()
            self._relaying.discard(task)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to = await asyncio.open_connection("127.0.0.1", self.to_port)
        self._open |= {writer, to[1]}
        try:
            await asyncio.gather(self._pass(reader, to[1]), self._pass(to[0], writer))
        finally:
            to[1].close()
            self._open -= {writer, to[1]}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()
