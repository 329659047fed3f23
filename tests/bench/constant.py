"""An extender that answers the same bytes whatever it is asked.

What is left of a call then is the client's work and the way there and back: no extender behind
the same connections can be faster. Run as `constant.py PORT FILTER_REPLY PRIORITIZE_REPLY`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import uvloop

from extender import SchedulerConnections
from extender.http.connections import Handler, HTTPReply
from tests.controlplane.processes import Process, free_port

VERBS = ("filter", "prioritize")


@asynccontextmanager
async def serving(folder: Path, replies: dict[str, bytes]) -> AsyncIterator[str]:
    """Its URL, for as long as it answers with these replies by verb."""
    folder.mkdir(parents=True)
    files = [folder / verb for verb in VERBS]
    for verb, file in zip(VERBS, files, strict=True):
        file.write_bytes(replies[verb])
    port = free_port()
    command = [sys.executable, __file__, str(port), *map(str, files)]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = Process("constant-extender", command, folder, env=environment)
    try:
        await _listening(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()


async def _listening(process: Process, port: int) -> None:
    while process.running:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise RuntimeError(f"the constant extender ended: {process.tail()}")


async def _serve(port: int, replies: dict[str, bytes]) -> None:
    routes = {f"/{verb}": _constantly(HTTPReply(200, reply)) for verb, reply in replies.items()}
    connections = SchedulerConnections(routes, max_body_bytes=2**27)
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", port)
    await server.serve_forever()


def _constantly(answer: HTTPReply) -> Handler:
    return lambda _body: answer


if __name__ == "__main__":
    given = dict(zip(VERBS, map(Path, sys.argv[2:]), strict=True))
    uvloop.run(_serve(int(sys.argv[1]), {verb: path.read_bytes() for verb, path in given.items()}))
