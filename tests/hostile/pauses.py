"""How long others had to wait: processor time, since machines are shared and slow at times."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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
