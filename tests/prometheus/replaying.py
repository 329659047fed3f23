"""Hours of series on a real Prometheus, and what Fettle says round by round as if it were there."""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from fettle.api import Finding, Measured, Unmeasured, kinds
from fettle.cluster import EMPTY, Inventory, Publisher, View
from fettle.cluster.feeds import Poller
from fettle.config import HealthSettings, PrometheusSettings
from fettle.health import HealthBook, SignalRules, load_rules, metrics
from fettle.model import Health
from fettle.observing import PrometheusMetrics, make_registry

RULES = load_rules()


class Told(NamedTuple):
    """What Fettle says at one time."""

    at: float
    health: Health

    @property
    def text(self) -> str:
        return " | ".join(w.evidence.text for w in self.health.evidence)


class Replay:
    """An inventory of these objects, and a poller that asks at any time."""

    def __init__(
        self,
        url: str,
        *objects: dict[str, Any],
        at: float,
        rules: SignalRules = RULES,
        **settings: Any,
    ) -> None:
        self.settings = PrometheusSettings(url=url, **settings)
        self.now = at
        self.inventory = Inventory(
            HealthBook(HealthSettings(), rules), rules, prometheus=self.settings
        )
        self.view: View = EMPTY
        self.heard: list[Finding] = []
        for each in objects:
            self.put(each)
        self._publish()
        self.registry = make_registry()
        self.poller = Poller(
            self.settings,
            metrics.queries(rules),
            self._hear,
            Publisher(),
            self.inventory.measuring,
            PrometheusMetrics(self.registry),
            clock=lambda: self.now,
            elapsed=lambda: self.now,
        )
        self.poller.begin()

    def put(self, raw: dict[str, Any]) -> None:
        kind = kinds.BY_NAME[raw["kind"]]
        self.inventory.put(kind, kind.decode(msgspec.json.encode(raw)), self.now)

    async def _hear(self, found: Finding) -> None:
        self.heard.append(found)
        if isinstance(found, Measured):
            self.inventory.measuring.measure(found, self.now)
        elif isinstance(found, Unmeasured):
            self.inventory.measuring.unmeasure(found.rule, found.alert, self.now)

    def round(self, at: float) -> None:
        self.now = at
        self.heard.clear()
        asyncio.run(self.poller.round(at))
        self._publish()

    def rounds(self, node: str, device: str, times: Iterable[float]) -> list[Told]:
        """The health of a device at each time, by its unit or the name of its DRA device."""
        told = []
        for at in times:
            self.round(at)
            told.append(Told(at, self.health(node, device)))
        return told

    def _publish(self) -> None:
        self.inventory.age(self.now)
        list(self.inventory.refresh(self.now))
        self.view = self.inventory.view(self.view, synced=True, served={}) or self.view
        self.inventory.settle()

    def health(self, node: str, device: str = "") -> Health:
        """Of the node, if it names no such device."""
        record = self.view.nodes[node]
        for pool in record.pools:
            for one in pool.devices:
                if one.id.device == device:
                    return one.health
        for plugin in record.plugins.values():
            for unit in plugin.units:
                if unit.unit == device:
                    return unit.health
        return record.health
