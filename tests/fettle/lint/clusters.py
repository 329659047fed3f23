"""Clusters for rules on inventory: views made from manifests as the feeds make them, and selectors
evaluated by the same code as in the worker, without its process."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from fettle.api import kinds
from fettle.api.resource import Device
from fettle.cel import AttributeRead, Equation, Outcome, Reads, rows
from fettle.cel.language.compiler import Prepared, judge, prepare
from fettle.cel.misses.nearest import nearest
from fettle.cluster import EMPTY, Inventory, View
from fettle.config import HealthSettings
from fettle.health import HealthBook, load_rules
from fettle.lint.drivers import NO_DRIVERS, Drivers
from fettle.lint.findings import Finding
from fettle.lint.linter import DEFAULT_LEVELS, Linter
from fettle.lint.manifests import Manifest
from fettle.model import Validation
from tests.fettle.lint.builders import Object

RULES = load_rules(None)


class InProcess:
    """Evaluates selectors where it stands."""

    def outcome(self, expression: str, driver: str, device: Device) -> Outcome | None:
        prepared = _prepared(expression)
        return judge(
            prepared, rows.row(prepared.reads, rows.row_fingerprint(prepared.reads, driver, device))
        )

    def reads(self, expression: str) -> Reads:
        return _prepared(expression).reads

    def equations(self, expression: str) -> tuple[Equation, ...]:
        return _prepared(expression).equations

    def needed(self, expression: str) -> tuple[AttributeRead, ...]:
        return _prepared(expression).needed

    def driver(self, expression: str) -> str | None:
        return _prepared(expression).driver

    async def nearest(
        self, expressions: Iterable[str], devices: Sequence[tuple[str, Device]]
    ) -> str:
        return nearest(expressions, devices)

    async def evaluate(
        self, expressions: Iterable[str], devices: Iterable[tuple[str, Device]]
    ) -> None:
        """Nothing is to be done beforehand."""


@lru_cache
def _prepared(expression: str) -> Prepared:
    return prepare(expression)


def view_of(objects: Iterable[Object]) -> View:
    """The view of a cluster that holds these objects."""
    inventory = Inventory(HealthBook(HealthSettings(), RULES), RULES)
    for raw in objects:
        if (kind := kinds.BY_NAME.get(raw["kind"])) is None:
            continue
        inventory.put(kind, kind.decode(msgspec.json.encode(raw)), 0.0)
    for _ in inventory.refresh(0.0):
        pass
    served = {kind.name: True for kind in kinds.ON_DEMAND}
    view = inventory.view(EMPTY, synced=True, served=served)
    assert view is not None
    return view


async def lint(
    object: Object,
    known: Iterable[Object] = (),
    *,
    levels: Validation = DEFAULT_LEVELS,
    drivers: Drivers = NO_DRIVERS,
    disabled: frozenset[str] = frozenset(),
) -> list[Finding]:
    """What all rules say of an object in a cluster that holds `known`."""
    linter = Linter(
        evaluator=InProcess(),
        drivers=drivers,
        disabled=disabled,
        survey_wait_s=10,
    )
    return await linter.lint(Manifest(object, "default"), _view(known), levels)


_VIEWS: dict[int, tuple[Iterable[Object], View]] = {}


def _view(known: Iterable[Object]) -> View:
    """Tables say the same cluster over and over."""
    if id(known) not in _VIEWS:
        _VIEWS[id(known)] = (known, view_of(known))
    return _VIEWS[id(known)][1]
