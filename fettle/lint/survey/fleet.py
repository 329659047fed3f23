"""What drivers publish in the cluster, and which devices selectors match, kept from view to view.

The first question about a selection waits for its survey. Later answers come from the last survey,
some seconds old at most, which is updated in the background: rules on inventory are about minutes,
not milliseconds. Only pools that changed are surveyed again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
from cachetools import LRUCache

from fettle.api.resource import Device, DeviceTaint
from fettle.cel import AttributeRead, Equation, Field, split_name
from fettle.cluster import EMPTY, View
from fettle.lint.survey.matching import (
    DeviceFingerprint,
    Evaluator,
    PoolMatches,
    Selection,
    SelectionFingerprint,
    SurveyedPool,
    TypeOf,
    fingerprint_pool,
    match_pools,
)
from fettle.lint.survey.totals import Survey, nearest_miss, total
from fettle.logs import Logger
from fettle.pacing import pause, run_within

FRESH_S = 1.0
"""A newer view is taken up once the last one is this old."""
STALE_S = 5.0
"""A selection that was not asked about for this long is surveyed again before the answer."""
_SURVEYS = 128
_MAX_INTERNED = 10_000
"""How many fingerprints are interned before the table is cleared."""
_FORGOTTEN_S = 60.0
"""A survey that was not asked for in this long is dropped, with all it holds of older views."""
_MOST_AT_ONCE = 8
"""How many surveys may be under way; others wait for the next object that needs them."""

_log = Logger(__name__)


class Catalogue(msgspec.Struct, frozen=True):
    """What drivers publish: one device of each fingerprint, types of attributes, taints in use.

    Of nodes: the keys of their taints, how many run each kubelet version, and the extended
    resources that device plugins offer, each with the most units that one node has.
    """

    fingerprints: Mapping[DeviceFingerprint, Device] = {}
    taints: frozenset[DeviceTaint] = frozenset()
    node_taints: frozenset[str] = frozenset()
    kubelets: Mapping[str, int] = {}
    types: frozenset[TypeOf] = frozenset()
    offered: Mapping[str, int] = {}

    @property
    def drivers(self) -> frozenset[str]:
        return frozenset(fingerprint.driver for fingerprint in self.fingerprints)

    def kinds(self, domain: str, name: str) -> frozenset[str]:
        """The types of the values that devices have for an attribute."""
        return frozenset(kind for *whose, kind in self.types if whose == [domain, name])

    def published(self, driver: str, field: Field) -> frozenset[tuple[str, str]]:
        """The attributes, or capacities, that devices of one driver have, each with its domain."""
        return frozenset(self._names(field, driver))

    def capacities(self, driver: str) -> frozenset[str]:
        """The capacities that devices of one driver have, as they spell them."""
        of_driver = (d for f, d in self.fingerprints.items() if f.driver == driver)
        return frozenset(name for device in of_driver for name in device.capacity or ())

    def domains(self, field: Field) -> frozenset[str]:
        """The domains in which devices have attributes, or capacities."""
        return frozenset(domain for domain, _ in self.names(field))

    def names(self, field: Field) -> frozenset[tuple[str, str]]:
        """The attributes, or capacities, that devices have, each with its domain."""
        return frozenset(self._names(field))

    def _names(self, field: Field, driver: str = "") -> Iterator[tuple[str, str]]:
        for fingerprint, device in self.fingerprints.items():
            if driver in ("", fingerprint.driver):
                named = fingerprint.attributes if field == "attributes" else device.capacity or ()
                yield from (split_name(name, fingerprint.driver) for name in named)


class _Held(NamedTuple):
    """A survey of one view, and the matches in pools that are decided."""

    basis: int
    survey: Survey
    by_fingerprint: Mapping[SelectionFingerprint, PoolMatches]


class Fleet:
    """Call `prepare`, then ask. `version` changes whenever an answer may change."""

    def __init__(
        self, evaluator: Evaluator | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._evaluator = evaluator
        self._clock = clock
        self._view = EMPTY
        self._pools: dict[int, SurveyedPool] = {}
        self._interned: dict[object, Any] = {}
        self._surveys: LRUCache[Selection, _Held] = LRUCache(_SURVEYS)
        self._asked_at: dict[Selection, float] = {}
        self._updated_at = self._current_at = float("-inf")
        self._lock = asyncio.Lock()
        self._running: dict[Hashable, asyncio.Task[None]] = {}
        self.catalogue = Catalogue()
        self.version = 0

    def known(self, selection: Selection) -> Survey | None:
        """The latest survey of this selection; None if there is none."""
        held = self._surveys.get(selection)
        return held.survey if held is not None else None

    def reads(self, expression: str) -> tuple[AttributeRead, ...]:
        """What an expression reads of devices, as far as it is known."""
        found = self._evaluator.reads(expression) if self._evaluator is not None else None
        return found or ()

    def equations(self, expression: str) -> tuple[Equation, ...]:
        """Which attributes an expression compares, and with what, as far as it is known."""
        return self._evaluator.equations(expression) if self._evaluator is not None else ()

    def needed(self, expression: str) -> tuple[AttributeRead, ...]:
        """What a device must have to match an expression, as far as it is known."""
        return self._evaluator.needed(expression) if self._evaluator is not None else ()

    def driver(self, expression: str) -> str:
        """The driver that an expression asks for; "" if it asks for none, or it is not known."""
        return (self._evaluator.driver(expression) if self._evaluator is not None else None) or ""

    @property
    def under_way(self) -> Collection[Hashable]:
        """The selections that are being surveyed."""
        return self._running.keys()

    async def prepare(self, view: View, selections: Iterable[Selection], wait_s: float) -> None:
        """Start the surveys that these selections need.

        Waits for selections without a recent survey, but no longer than `wait_s`; surveys then go
        on in the background.
        """
        now = self._clock()
        if view.basis == self._view.basis:
            self._current_at = now
        elif now - self._updated_at >= FRESH_S:
            following = self._started(None, self._update, view)
            if not self.version or now - self._current_at > STALE_S:
                await asyncio.wait({following}, timeout=wait_s)
        if self._evaluator is None or not self.version:
            return
        missing: set[asyncio.Task[None]] = set()
        for selection in dict.fromkeys(selections):
            held = self._surveys.get(selection)
            stale = held is None or now - self._asked_at[selection] > STALE_S
            if held is not None:
                self._asked_at[selection] = now
            if held is not None and held.basis == self._view.basis:
                continue
            if selection in self._running or len(self._running) < _MOST_AT_ONCE:
                task = self._started(selection, self._survey, selection)
                if stale:
                    missing.add(task)
        if missing:
            await asyncio.wait(missing, timeout=wait_s)

    def _started(
        self, key: Hashable, work: Callable[[Any], Coroutine[Any, Any, None]], about: Any
    ) -> asyncio.Task[None]:
        """The task that does this work, started unless it is under way."""
        if (task := self._running.get(key)) is None:
            task = asyncio.create_task(work(about))
            self._running[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        return task

    def _ended(self, key: Hashable, task: asyncio.Task[None]) -> None:
        self._running.pop(key, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the fleet could not be surveyed", reason=repr(error))

    async def _update(self, view: View) -> None:
        async with self._lock:
            self._pools, self.catalogue = await run_within(partial(self._catalogued, view))
            self._view = view
            self._updated_at = self._current_at = self._clock()
            self.version += 1
            self._forget()
        for selection, asked_at in self._asked_at.items():
            if self._updated_at - asked_at <= STALE_S and len(self._running) < _MOST_AT_ONCE:
                self._started(selection, self._survey, selection)

    def _catalogued(self, view: View) -> tuple[dict[int, SurveyedPool], Catalogue]:
        """The pools of a view, and what drivers publish in them."""
        pools: dict[int, SurveyedPool] = {}
        if len(self._interned) > _MAX_INTERNED:
            self._interned.clear()
        node_taints: set[str] = set()
        kubelets: Counter[str] = Counter()
        offered: dict[str, int] = {}
        for node in view.nodes.values():
            kubelets[node.kubelet] += 1
            node_taints.update(taint.key for taint in node.taints)
            for name, plugin in node.plugins.items():
                offered[name] = max(plugin.capacity, plugin.allocatable, offered.get(name, 0))
            for pool in node.pools:
                if (key := id(pool)) not in pools:
                    pools[key] = self._pools.get(key) or fingerprint_pool(pool, self._interned)
            pause()
        types = {id(found.types): found.types for found in pools.values()}
        fingerprints: dict[DeviceFingerprint, Device] = {}
        taints: set[DeviceTaint] = set()
        for found in pools.values():
            for device, fingerprint in zip(
                found.pool.devices, found.pool_fingerprint.device_fingerprints, strict=True
            ):
                fingerprints.setdefault(fingerprint, device.device)
                taints.update(device.taints)
            pause()
        return pools, Catalogue(
            fingerprints,
            frozenset(taints),
            frozenset(node_taints),
            kubelets,
            frozenset().union(*types.values()),
            offered,
        )

    async def _survey(self, selection: Selection) -> None:
        async with self._lock:
            held = self._surveys.get(selection)
            if self._evaluator is None or (held and held.basis == self._view.basis):
                return
            known = held.by_fingerprint if held is not None else {}
            selected = await match_pools(selection, self._pools, known, self._evaluator)
            survey = await run_within(partial(total, selection, selected, self._pools, self._view))
            nearest = await nearest_miss(selection, survey, self._evaluator)
            survey = msgspec.structs.replace(survey, nearest=nearest)
            kept = {
                fingerprint: found
                for fingerprint, found in selected.by_fingerprint.items()
                if not found.undecided
            }
            self._surveys[selection] = _Held(self._view.basis, survey, kept)
            self.version += 1
            self._asked_at[selection] = self._clock()
            self._forget()

    def _forget(self) -> None:
        """Drop surveys that were not asked for in a while, and times of dropped surveys."""
        since = self._clock() - _FORGOTTEN_S
        for selection, asked_at in list(self._asked_at.items()):
            if selection not in self._surveys:
                del self._asked_at[selection]
            elif asked_at < since:
                del self._surveys[selection], self._asked_at[selection]
