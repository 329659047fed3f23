"""Writes DeviceHealth: compares what is stored with what is known, and writes what differs, the
worst first. One request each, at most so many a second, so that a fleet that reboots does not
overwhelm the API server.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Protocol

import msgspec

from fettle.api import DeviceHealth, kinds
from fettle.api.own_group import NOTHING_KNOWN, DeviceHealthStatus
from fettle.client import Session, decoded
from fettle.cluster import Publisher, View
from fettle.health import CLOCKS_APART_S
from fettle.model import NotFound, NotServed, State
from fettle.observing import StewardMetrics
from fettle.pacing import keep, pause, run_within
from fettle.steward.paced_writes import PacedWrites

NOTICEABLE = 0.05
"""A smaller change of scores alone is not written: readers can tell how evidence fades."""
LOOK_S = 1.0
SHOWN_WITHIN_S = 10.0
"""What was written and is not shown for so long was deleted before the watch could show it."""
_SEVERITY = {State.UNHEALTHY: 3, State.DEGRADED: 2, State.UNKNOWN: 1, State.HEALTHY: 0}

_DROPPED = (
    "the API server drops fields that it does not know, or somebody changes what is written: apply "
    "deploy/crds/ of this version"
)


class Recall(Protocol):
    """The inventory, as far as it says what is to be stored."""

    def recall(self, name: str, before: DeviceHealth | None, now: float) -> DeviceHealth | None: ...

    def recall_pools(
        self, before: Mapping[str, DeviceHealth], now: float
    ) -> Iterator[DeviceHealth]: ...


class HealthRecords:
    """`keep` while leading."""

    def __init__(
        self,
        session: Session,
        publisher: Publisher,
        inventory: Recall,
        writes_per_s: float,
        metrics: StewardMetrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._publisher = publisher
        self._inventory = inventory
        self._is_on = writes_per_s > 0
        self._clock = clock
        self._writes = PacedWrites(
            "memory: health cannot be stored",
            per_s=max(1.0, writes_per_s),
            wrote=metrics.wrote_health,
        )
        self.notes = self._writes.notes

    async def keep(self) -> None:
        """Until cancelled."""
        # Made by the first look, so that a failure of it is minded, too.
        pending = cache(partial(PendingWrites, self._inventory))
        await keep("DeviceHealth writes", lambda: self._look(pending()), every_s=LOOK_S)

    async def _look(self, pending: "PendingWrites") -> None:
        view = self._publisher.view
        if view.served.get(kinds.DEVICE_HEALTH.name) and self._is_on:
            changed = self._publisher.changed_since(pending.basis)
            await run_within(partial(pending.look, view, changed, self._clock()))
            await self._writes.do(
                partial(self._write, pending, name) for name in pending.most_urgent()
            )

    async def _write(self, pending: "PendingWrites", name: str) -> None:
        stored = await self._replace(name, pending.wanted(name))
        pending.written(name, stored)
        if stored is not None and not stored.is_ours:
            raise NotServed(_DROPPED)

    async def _replace(self, name: str, wanted: DeviceHealth | None) -> DeviceHealth | None:
        """Write one object, whatever it is now; returns it as it is then."""
        path = kinds.DEVICE_HEALTH.path_of(name)
        if wanted is None:
            with suppress(NotFound):
                await self._session.delete(path)
            return None
        status = msgspec.to_builtins(wanted.status)
        # A field that is not to be there must be named for that in a merge patch.
        absent = dict.fromkeys(_FIELDS - status.keys())
        try:
            body = await self._session.patch(path, {"status": absent | status})
        except NotFound:
            body = await self._session.create(
                kinds.DEVICE_HEALTH.path,
                {
                    "apiVersion": kinds.DEVICE_HEALTH.api_version,
                    "kind": kinds.DEVICE_HEALTH.name,
                    "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "fettle"}},
                    "status": status,
                },
            )
        return decoded(body, DeviceHealth, f"DeviceHealth {name}")


def _is_ahead(stored: DeviceHealth | None, now: float) -> bool:
    """Whether it was stored by a clock that was ahead, so nobody believes it yet."""
    if stored is None:
        return False
    at = stored.status.observed_time
    return at is not None and at.timestamp() > now + CLOCKS_APART_S


_FIELDS = {field.encode_name for field in msgspec.structs.fields(DeviceHealthStatus)}


class PendingWrites:
    """What differs between what is stored and what is known. Pure."""

    def __init__(self, inventory: Recall) -> None:
        self._inventory = inventory
        self._stored: dict[str, DeviceHealth] = {}
        """The newest version of each object that we know of: read, or written by us."""
        self._seen: Mapping[str, DeviceHealth] = {}
        self._unseen: dict[str, float] = {}
        """Since when each object that we wrote is not shown."""
        self._wanted: dict[str, DeviceHealth | None] = {}
        self.basis = -1
        self._looked_at = 0.0

    def look(self, view: View, changed: Iterable[str] | None, now: float) -> None:
        """Take a view. `changed` are the nodes that differ since the last look; None if all may."""
        if now < self._looked_at:  # the clock was set back: see `_is_ahead`
            changed = None
        self._looked_at = now
        names = {*self._adopt(view.device_healths), *(view.nodes if changed is None else changed)}
        names.update(self._forget_deleted(now))
        if self.basis != view.basis or names:
            for pool in self._inventory.recall_pools(self._stored, now):
                self._compare(pool.metadata.name, pool)
                names.discard(pool.metadata.name)
                pause()
        self.basis = view.basis
        for name in sorted(names):  # also objects whose node or pool is gone: nothing is recalled
            before = self._stored.get(name)
            self._compare(name, self._inventory.recall(name, before, now))
            pause()

    def _adopt(self, stored: Mapping[str, DeviceHealth]) -> Iterator[str]:
        """The names of the objects that were written, edited or deleted since the last look."""
        if stored is self._seen:
            return
        for name in [name for name in self._seen if name not in stored]:
            self._stored.pop(name, None)
            yield name
        for name, one in stored.items():
            if one is not self._seen.get(name):
                self._stored[name] = one
                yield name
        self._seen = stored

    def _forget_deleted(self, now: float) -> Iterator[str]:
        """The names of the objects that were deleted before the watch showed them."""
        unseen = self._stored.keys() - self._seen.keys()
        self._unseen = {name: self._unseen.get(name, now) for name in unseen}
        for name, since in self._unseen.items():
            if now - since > SHOWN_WITHIN_S:
                del self._stored[name]
                yield name

    def _compare(self, name: str, wanted: DeviceHealth | None) -> None:
        stored = self._stored.get(name)
        if is_as_good(stored, wanted) and not _is_ahead(stored, self._looked_at):
            self._wanted.pop(name, None)
        else:
            self._wanted[name] = wanted

    def wanted(self, name: str) -> DeviceHealth | None:
        return self._wanted[name]

    def written(self, name: str, stored: DeviceHealth | None) -> None:
        del self._wanted[name]
        if stored is None:
            self._stored.pop(name, None)
        else:
            self._stored[name] = stored

    def most_urgent(self) -> list[str]:
        """Names of what to write, first what became worse, then what changed most."""
        return sorted(self._wanted, key=self._urgency)

    def _urgency(self, name: str) -> tuple[int, float, str]:
        wanted, stored = self._wanted[name], self._stored.get(name)
        if wanted is None:
            return 1, 0.0, name
        before = stored.status if stored is not None else NOTHING_KNOWN
        worse = _SEVERITY[wanted.status.state] - _SEVERITY[before.state]
        return -worse, -abs(wanted.status.score - before.score), name


def is_as_good(stored: DeviceHealth | None, wanted: DeviceHealth | None) -> bool:
    """Whether what is stored says all that is to be stored, but for small changes of scores."""
    if stored is None or wanted is None:
        return stored is wanted
    return (
        stored.is_ours
        and _but_for_scores(stored.status) == _but_for_scores(wanted.status)
        and all(
            abs(one.score - other.score) < NOTICEABLE
            for one, other in zip(stored.status.subjects, wanted.status.subjects, strict=True)
        )
    )


def _but_for_scores(status: DeviceHealthStatus) -> DeviceHealthStatus:
    """Without what may differ a little, and what follows from the rest."""
    subjects = (
        msgspec.structs.replace(
            one,
            score=1.0,
            proven_score=None,
            episodes=tuple(
                msgspec.structs.replace(each, score=1.0, message="") for each in one.episodes
            ),
        )
        for one in status.subjects
    )
    return msgspec.structs.replace(
        status, score=1.0, observed_time=None, checksum="", subjects=tuple(subjects)
    )
