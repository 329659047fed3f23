"""A house that hostile objects come into."""

import time

from fettle.api import (
    Bad,
    Gone,
    ListEnded,
    ListStarted,
    Put,
    key_of,
    metadata_in_slices,
    read_in_slices,
)
from fettle.api.kinds import Kind
from fettle.client.watch_streams import GONE, Events, ObjectEvent
from fettle.cluster import Inventory, Publisher
from fettle.cluster.feeds.writer import Writer
from fettle.config import HealthSettings
from fettle.health import HealthBook, load_rules
from tests.hostile.objects import WATCHED

RULES = load_rules()


class House:
    """A writer that follows watches of every kind."""

    def __init__(self) -> None:
        self.publisher = Publisher()
        self._inventory = Inventory(HealthBook(HealthSettings(), RULES), RULES)
        self.writer = Writer(self._inventory, self.publisher, time.time, WATCHED)
        self._events = {kind.name: Events(kind) for kind in WATCHED}

    async def sync(self) -> None:
        for kind in WATCHED:
            await self.writer.send([ListStarted(kind), ListEnded(kind)])
        await self.writer.catch_up()

    async def take(self, kind: Kind, line: bytes) -> Put | Bad | Gone:
        """An event of a watch, as the reflector reads it, until a view shows it."""
        event = self._events[kind.name].read(line)
        change: Put | Bad | Gone
        if isinstance(event, ObjectEvent):
            change = event.change
        elif event.type == GONE:
            change = Gone(kind, key_of(await metadata_in_slices(bytes(event.object))))
        else:
            change = await read_in_slices(kind, bytes(event.object))
        await self.writer.send([change])
        await self.writer.catch_up()
        return change
