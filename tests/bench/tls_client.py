"""A client of one TLS connection that costs little: prepared requests, replies read by length."""

from __future__ import annotations

import asyncio
import ssl


class Client:
    """POSTs JSON, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext) -> Client:
        return cls(*await asyncio.open_connection("localhost", port, ssl=tls))

    async def post(self, request: bytes) -> bytes:
        """A request made by `prepared`; raises RuntimeError where the reply is no 200."""
        status, body = await self.ask(request)
        if status != 200:
            raise RuntimeError(f"answered {status}: {body[:300].decode(errors='replace')}")
        return body

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the reply, whatever it is."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status, _, fields = head.partition(b"\r\n")
        named = (line.split(b":", 1) for line in fields.split(b"\r\n") if line)
        length = next(int(value) for name, value in named if name.lower() == b"content-length")
        return int(status.split()[1]), await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


def prepared(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
