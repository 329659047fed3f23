"""Storms over a whole fleet, whose faults come and go for minutes, as the steward sees them. No API
server: what is written is in the next view at once."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fettle.api import kinds
from fettle.cel import SelectorEngine
from fettle.cluster import Publisher
from fettle.config import Settings
from fettle.scheduling import Answers
from tests.bench import fleets, inventories
from tests.controlplane.api import Object

STORM_S, CALM_S = 300, 2700
"""How long faults come and go, and how long it is watched after that: longer than any dwell."""
LOOK_S, FLAP_S = 30, 30

Storm = Callable[[int, int], Object]
"""What the node of this number publishes at this time, in seconds since the storm began."""


def _slice(number: int, lost: int | None, key: str = "gpu.nvidia.com/xid") -> Object:
    devices = inventories.alike(number)
    if lost is not None:
        devices[lost]["taints"] = [{"key": key, "value": "79", "effect": "None"}]
    return inventories.slice_of(fleets.name_of(number), devices)


def _flaps(at: int, until: int = STORM_S) -> bool:
    return at < until and at // FLAP_S % 2 == 0


def reboots(number: int, at: int) -> Object:
    """Every node goes and comes back, a while after the one before; its driver publishes nothing
    meanwhile, and then its devices as they were."""
    gone = number % 120 <= at < number % 120 + 180
    return inventories.slice_of(fleets.name_of(number), [] if gone else inventories.alike(number))


def some_flap(number: int, at: int) -> Object:
    return _slice(number, 3 if number % 50 == 0 and _flaps(at) else None)


def all_flap(number: int, at: int) -> Object:
    return _slice(number, number % 8 if _flaps(at) else None)


def ever_more_flap(number: int, at: int) -> Object:
    """The fault spreads, node by node, over half of the fleet."""
    reached = number % 2 == 0 and number % STORM_S <= at
    return _slice(number, number % 8 if reached and _flaps(at) else None)


def with_bounds(
    reboot: float, some: float, each: float, half: float
) -> tuple[tuple[str, Storm, float], ...]:
    """Each storm with its name, and the most that it may make the steward write."""
    return (
        ("all nodes reboot", reboots, reboot),
        ("1 device on each 50th node comes and goes", some_flap, some),
        ("1 device on each node comes and goes", all_flap, each),
        ("a fault that comes and goes spreads over half the nodes", ever_more_flap, half),
    )


class StormyFleet:
    """Nodes with eight devices each, and the newest view of them."""

    def __init__(self, nodes: int, settings: Settings) -> None:
        self._inventory = inventories.of_nodes(inventories.alike, nodes)
        self._publisher = Publisher()
        self.answers = Answers(self._publisher, SelectorEngine(), settings)
        self._published: list[Object] = [{}] * nodes
        self.look(inventories.NOW)

    def publish(self, storm: Storm, at: int) -> None:
        """What changes at this time of the storm."""
        for number, before in enumerate(self._published):
            raw = storm(number, at)
            if raw != before:
                self._published[number] = raw
                self.put(kinds.SLICE, raw, inventories.NOW + at)

    def look(self, now: float) -> None:
        self._inventory.age(now)
        for _ in self._inventory.refresh(now):
            pass
        before = self._publisher.view
        made = self._inventory.view(before, synced=True, served={"DeviceTaintRule": True})
        if made is not None:
            self._publisher.publish(made, self._inventory.settle())

    def put(self, kind: kinds.Kind, raw: Object, now: float) -> None:
        self._inventory.put(kind, kind.decode(msgspec.json.encode(raw)), now)

    def remove(self, kind: kinds.Kind, key: str, now: float) -> None:
        self._inventory.remove(kind, key, now)
