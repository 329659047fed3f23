"""An inventory driven as the writer drives it, and objects to put into it."""

from typing import Any

import msgspec

from fettle.api import Put, read_object
from fettle.api.kinds import Kind
from fettle.cluster.inventory.inventory import Inventory
from fettle.cluster.view import EMPTY, View
from fettle.config import HealthSettings
from fettle.dra import CURRENT, Features
from fettle.health import HealthBook, load_rules
from fettle.health.signals.rule_tables import SignalRules
from tests.fettle import building as b

RULES = load_rules()


class Fleet:
    """An inventory with a clock, and the view that its last change led to."""

    def __init__(
        self,
        book: HealthBook | None = None,
        features: Features = CURRENT.features,
        rules: SignalRules = RULES,
        **more: Any,
    ) -> None:
        self.now = 1_000_000.0
        book = book or HealthBook(HealthSettings(), rules)
        self.inventory = Inventory(book, rules, features, **more)
        self.view: View = EMPTY
        self.changed: frozenset[str] = frozenset()

    def put(self, kind: Kind, raw: dict[str, Any]) -> None:
        self.inventory.put(kind, kind.decode(msgspec.json.encode(raw)), self.now)

    def take(self, kind: Kind, raw: dict[str, Any]) -> None:
        """As a feed would: put it, or in quarantine with it."""
        change = read_object(kind, msgspec.json.encode(raw))
        if isinstance(change, Put):
            self.inventory.put(kind, change.object, self.now)
        else:
            self.inventory.quarantine(change, self.now)

    def look(self) -> View:
        self.inventory.age(self.now)
        for _ in self.inventory.refresh(self.now):
            pass
        view = self.inventory.view(self.view, synced=True, served={})
        self.changed = frozenset()
        if view is not None:
            self.view, self.changed = view, self.inventory.settle()
        return self.view


def node(name: str = "n", gpus: int = 8, allocatable: int | None = None, **more: Any) -> Any:
    capacity = {b.RESOURCE: str(gpus)}
    left = {b.RESOURCE: str(gpus if allocatable is None else allocatable)}
    status = {"capacity": capacity, "allocatable": left, **more.pop("status", {})}
    return {"metadata": {"name": name, **more}, "status": status}


def slice_(node: str = "n", devices: int = 2, generation: int = 1, **device: Any) -> Any:
    return {
        "metadata": {"name": f"{node}-slice"},
        "spec": {
            "driver": b.DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{i}", **device} for i in range(devices)],
        },
    }


def claim(name: str, device: str | None, pool: str = "n") -> Any:
    result = {"request": "r", "driver": b.DRIVER, "pool": pool, "device": device}
    status = {"allocation": {"devices": {"results": [result]}}} if device else {}
    return {"metadata": {"name": name, "namespace": "d"}, "spec": {}, "status": status}
