"""How long others had to wait: processor time, since machines are shared. What else they do makes
that longer, too, so it is held against work of the same kind, done at the same time."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

_ENTRIES = msgspec.json.encode({f"k{number}": "v" for number in range(20_000)})
_USUAL_S = 0.005


def slowness() -> float:
    """How much slower this machine is now, with all else that it does, than one that reads and
    sorts 20,000 entries of JSON in 5 ms of processor time; at least 1."""
    took = []
    for _ in range(9):
        began = time.process_time()
        dict(sorted(msgspec.json.decode(_ENTRIES).items()))
        took.append(time.process_time() - began)
    return max(1.0, sorted(took)[4] / _USUAL_S)


class Pauses:
    """The longest stretch without a turn for others, and all of it, in seconds."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.all_s = 0.0

    async def _beat(self) -> None:
        while True:
            left = time.process_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.process_time() - left)


@asynccontextmanager
async def noted() -> AsyncIterator[Pauses]:
    """Notes the pauses of what is done meanwhile."""
    found = Pauses()
    gc.collect()
    gc.disable()  # the garbage is that of tests, too
    beat = asyncio.create_task(found._beat())
    try:
        await asyncio.sleep(0)
        began = time.process_time()
        yield found
        found.all_s = time.process_time() - began
        await asyncio.sleep(0)
    finally:
        beat.cancel()
        gc.enable()
