"""What the cluster has told by now, as a view shows it: for those who must not be behind others who
watch the same API. Watches are read, and views made, a moment after something came, so that a burst
costs less (decision 0011); whoever asks here has it done at once.
"""

import asyncio
from contextlib import suppress

from fettle.client import Streams
from fettle.cluster.feeds.writing import Writer

WITHIN_S = 0.1
"""A few milliseconds are usual. More may come all the time, and nobody is to wait for that."""


class FeedFreshness:
    def __init__(self, streams: Streams, writer: Writer) -> None:
        self._streams = streams
        self._writer = writer

    @property
    def behind(self) -> bool:
        """Whether something came that no view shows yet."""
        return self._streams.behind or self._writer.behind

    async def catch_up(self) -> None:
        """Until the newest view shows what has come, in so far as that can be waited for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WITHIN_S):
                await self._streams.take()
                await self._writer.catch_up()
