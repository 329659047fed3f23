"""What sockets are told before anything is served on them."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest

from extender.connections import Answer, Connection, Connections
from fettle.cli.listening import Address, ExtenderListener
from tests.controlplane.processes import free_port


class _Kept(Connections):
    """Shows the sockets of its connections."""

    def __init__(self) -> None:
        super().__init__({"/filter": lambda _body: Answer(200, b"{}")}, max_body_bytes=1024)
        self.sockets: asyncio.Queue[socket.socket] = asyncio.Queue()

    def __call__(self) -> Connection:
        kept = self

        class Shown(Connection):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                kept.sockets.put_nowait(transport.get_extra_info("socket"))

        return Shown(self)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a choice of it for each socket")
async def test_replies_on_loopback_are_not_spread_by_the_hosts_congestion_control() -> None:
    kept = _Kept()
    listener = ExtenderListener("extender", Address("127.0.0.1", free_port()), None, kept)
    await listener.start()
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
        served = await kept.sockets.get()
        chosen = served.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert chosen.rstrip(b"\0") == b"reno"
        writer.close()
    finally:
        await listener.stop()
