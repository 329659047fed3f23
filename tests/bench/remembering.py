"""What it costs to remember the health of a fleet: the processor time of the steward that compares
what is stored with what is known, of a start that adopts it, and how much is written."""

from __future__ import annotations

import time

import msgspec

from fettle.api import DeviceHealth, kinds
from fettle.cluster import EMPTY, Inventory, View
from fettle.config import HealthSettings, Settings
from fettle.health import HealthBook, load_rules
from fettle.steward.device_healths import PendingWrites
from tests.bench import fleets, inventories
from tests.bench.figures import Figure
from tests.bench.houses import House

PER_S = Settings().steward.health_writes_per_second


async def measure(_: House) -> list[Figure]:
    inventory = inventories.of_nodes(inventories.of_shapes(16), racks=fleets.NODES // 72)
    view = inventories.look(inventory, EMPTY)
    pending = PendingWrites(inventory)
    all_of_it = _look_ms(pending, view)
    _write_all(pending)
    at_rest = _look_ms(pending, view)
    rest_writes = len(pending.most_urgent())
    for number in range(fleets.NODES):
        name = fleets.name_of(number)
        status = {"conditions": [{"type": fleets.FAULT, "status": "True"}]}
        metadata = {"name": name, "labels": {"rack": str(number % (fleets.NODES // 72))}}
        inventories.put(inventory, kinds.NODE, {"metadata": metadata, "status": status})
    stormy = inventories.look(inventory, view)
    storm = _look_ms(pending, stormy)
    ill = _write_all(pending)
    raw = [msgspec.json.encode(one) for one in ill]
    return [
        Figure("memory: compare all nodes and pools", all_of_it, "ms"),
        Figure("memory: compare at rest", at_rest, "ms", target=50.0),
        Figure("memory: writes at rest", rest_writes, "writes", target=0.0),
        Figure("memory: compare after every node fell ill", storm, "ms"),
        Figure("memory: until a storm is stored", len(ill) / PER_S, "s"),
        Figure("memory: all objects, every node ill", sum(map(len, raw)) / 1e6, "MB"),
        Figure("memory: read and adopt all of it", _adopt_ms(raw), "ms"),
    ]


def _look_ms(pending: PendingWrites, view: View) -> float:
    changed = frozenset[str]() if pending.basis == view.basis else None
    began = time.process_time()
    pending.look(view, changed, inventories.NOW)
    return 1000 * (time.process_time() - began)


def _write_all(pending: PendingWrites) -> list[DeviceHealth]:
    written = []
    for name in pending.most_urgent():
        one = pending.wanted(name)
        assert one is not None
        pending.written(name, one)
        written.append(one)
    return written


def _adopt_ms(raw: list[bytes]) -> float:
    rules = load_rules()
    fresh = Inventory(HealthBook(HealthSettings(), rules), rules)
    began = time.process_time()
    for each in raw:
        fresh.put(kinds.DEVICE_HEALTH, kinds.DEVICE_HEALTH.decode(each), inventories.NOW)
    return 1000 * (time.process_time() - began)
