"""DeviceHealth objects, in and out: what was remembered of a node's devices is adopted, and what is
known now is recalled in the same form.

Adopting comes before the first view, as if the watches of all other kinds had been away since the
object was written. The objects that were behind it are read next, and change what has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta

import msgspec

from fettle.api import DeviceHealth, core, kinds
from fettle.api.meta import Condition, ObjectMeta, unix_s
from fettle.api.own_group import (
    NODE_HEALTH,
    NOTHING_KNOWN,
    DeviceHealthStatus,
    Episode,
    StoredEvidence,
    StoredPool,
    StoredSubject,
    name_of_pool,
)
from fettle.cluster.inventory.devices import Devices
from fettle.cluster.inventory.driver_versions import DriverVersions
from fettle.cluster.inventory.missing_devices import MissingDevices, boot_of
from fettle.cluster.inventory.units import plugin_resources
from fettle.health import CLOCKS_APART_S, HealthBook
from fettle.model import DeviceId, NodeId, PoolRef, ReporterId, State, Subject, utc

LARGEST_BYTES = 256 * 1024
"""A DeviceHealth is no larger. etcd takes 1.5 MB, and 5000 of them are read at each start."""
EPISODES_FOR = timedelta(days=28)
_LIMITS = ((64, 16), (16, 8), (4, 2), (1, 1))
"""Limits for one subject: pieces of evidence, and reporters of each or episodes. The first ones are
used that make the object small enough."""
MOST_SUBJECTS = 512
_ILL = (State.DEGRADED, State.UNHEALTHY)
_WORST_FIRST = (State.UNHEALTHY, State.DEGRADED, State.UNKNOWN, State.HEALTHY)


class Remembering:
    """Adopts what is stored, and says what to store."""

    def __init__(
        self,
        book: HealthBook,
        devices: Devices,
        nodes: Mapping[str, core.Node],
        missing: MissingDevices,
        drivers: DriverVersions,
    ) -> None:
        self._book = book
        self._devices = devices
        self._missing = missing
        self._drivers = drivers
        self._nodes = nodes
        self._starting = True
        self._adopted: dict[str, tuple[DeviceHealthStatus, set[Subject]]] = {}
        """What was adopted since the start, by node or pool object, until all has been read."""

    # -- in

    def adopt(self, stored: DeviceHealth, now: float) -> set[Subject]:
        """Take over what is stored; returns the subjects whose health may differ. What somebody has
        edited, copied, or dated into the future counts for nothing."""
        status = stored.status
        # Without a time it counts for as little as with one in the future.
        observed_at = unix_s(status.observed_time, now + 2 * CLOCKS_APART_S)
        if not stored.is_ours or observed_at > now + CLOCKS_APART_S:
            return set()
        node = self._nodes.get(status.node_name)
        if node is not None and node.metadata.uid != status.node_uid:
            return set()
        changed: set[Subject] = set()
        subjects = {one.subject(status.node_name) for one in status.subjects}
        if self._starting:
            self._adopted[stored.metadata.name] = status, subjects
            if status.node_name:
                self._book.ledger.adopt_reporter(
                    ReporterId(kinds.NODE.name, status.node_name),
                    status.node_uid,
                    status.boot_id,
                    status.remediated,
                )
                self._book.ledger.repairs.adopt(
                    NodeId(status.node_name), status.rebooted, status.remediation
                )
                self._missing.adopt(status.node_name, status)
                self._drivers.adopt(status.node_name, status)
        for one in status.subjects:
            key = one.subject(status.node_name)
            changed |= self._book.adopt(key, one, observed_at, now, starting=self._starting)
        if not self._starting and status.node_name:
            changed |= self._book.ledger.unmeasured(status.node_name, subjects, now)
        return changed

    def is_same_node(self, node: core.Node) -> bool | None:
        """Whether what was adopted is about this Node; None if nothing was."""
        name = node.metadata.name
        if name not in self._adopted:
            return None
        return self._adopted[name][0].node_uid == node.metadata.uid

    def not_adopted(self, came: Iterable[DeviceId]) -> set[DeviceId]:
        """Those of the devices of which nothing was adopted."""
        if not self._adopted:
            return set(came)
        return set(came).difference(*(subjects for _, subjects in self._adopted.values()))

    def all_read(self, now: float, since: Callable[[str, float], float]) -> set[Subject] | None:
        """Every kind has been read once. What does not exist any more is forgotten. Events from
        before `since` happened to an earlier node of a name. None if that was known before."""
        if not self._starting:
            return None
        self._starting = False
        changed = self._book.ledger.all_read(now)
        for status, subjects in self._adopted.values():
            node = self._nodes.get(status.node_name)
            is_gone = bool(status.node_name) and (
                node is None or node.metadata.uid != status.node_uid
            )
            gone = {
                one
                for one in subjects
                if is_gone or (isinstance(one, DeviceId) and not self._devices.is_published(one))
            }
            self._book.forget(gone, now, since(status.node_name, now))
        self._adopted.clear()
        return changed

    # -- out

    def recall_node(
        self, name: str, before: DeviceHealth | None, now: float
    ) -> DeviceHealth | None:
        """What is to be stored of a node; None if nothing is."""
        node = self._nodes.get(name)
        if node is None:
            return None
        # What only resembles another node's device is not remembered: the stored names mean that.
        devices = [
            published.id
            for published in self._devices.published_by(name)
            if self._devices.known_as(published.id, name) == published.id
        ]
        most, missing = self._missing.recall(name)
        has_devices = bool(devices) or any(p.capacity for p in plugin_resources(node))
        if before is None and not has_devices and not missing:
            return None
        rebooted, remediation = self._book.ledger.repairs.recall(NodeId(name))
        about = msgspec.structs.replace(
            NOTHING_KNOWN,
            node_name=name,
            node_uid=node.metadata.uid,
            boot_id=boot_of(node),
            remediated=self._book.ledger.recall_remediated(ReporterId(kinds.NODE.name, name)),
            rebooted=rebooted,
            remediation=remediation,
            most_devices=most,
            missing=missing,
            drivers=self._drivers.recall(name),
        )
        if before is not None and before.status.node_uid != node.metadata.uid:
            before = None
        keys: list[Subject] = [NodeId(name), *sorted(self._book.ledger.units(name)), *devices]
        return self._recall(name, about, keys, before, now)

    def recall_pools(
        self, before: Mapping[str, DeviceHealth], now: float
    ) -> Iterator[DeviceHealth]:
        """What is to be stored of each pool that is on no node."""
        for pool, devices in self._devices.network_pools():
            name = name_of_pool(PoolRef(pool.driver, pool.pool))
            at = StoredPool(driver=pool.driver, name=pool.pool)
            about = msgspec.structs.replace(NOTHING_KNOWN, pool=at)
            yield self._recall(name, about, sorted(devices), before.get(name), now)

    def _recall(
        self,
        name: str,
        about: DeviceHealthStatus,
        keys: Iterable[Subject],
        before: DeviceHealth | None,
        now: float,
    ) -> DeviceHealth:
        known = _subjects(about.node_name, before)
        found = []
        for key in keys:
            one = self._book.recall(key, now)
            was = known.pop(key, None)
            if one is not None or was is not None:
                found.append(_with_episodes(one, was, now))
        found += [_with_episodes(None, was, now) for was in known.values()]
        found = sorted((one for one in found if not _is_sound(one)), key=_worst_first)
        made = _composed(about, found[:MOST_SUBJECTS], before, now)
        return DeviceHealth(metadata=ObjectMeta(name=name), status=made)


def _subjects(node: str, stored: DeviceHealth | None) -> dict[Subject, StoredSubject]:
    if stored is None or not stored.is_ours:
        return {}
    return {one.subject(node): one for one in stored.status.subjects}


_SOUND = StoredSubject(state=State.HEALTHY, score=1.0)


def _sound(one: StoredSubject) -> StoredSubject:
    return msgspec.structs.replace(_SOUND, unit=one.unit, device=one.device, faults=one.faults)


def _is_sound(one: StoredSubject) -> bool:
    return one.state is State.HEALTHY and not (one.evidence or one.episodes or one.faults)


def _worst_first(one: StoredSubject) -> tuple[int, float, bool, bool, str]:
    """Of equals, those with evidence of their own come before what is ill along with them."""
    of_node = one.unit is None and one.device is None
    return _WORST_FIRST.index(one.state), one.score, not of_node, not one.evidence, name_of(one)


def name_of(one: StoredSubject) -> str:
    """A unit, a device or the node, as `fettle devices` names it."""
    if one.unit is not None:
        return f"{one.unit.resource} {one.unit.id}"
    if one.device is not None:
        return f"{one.device.driver}/{one.device.pool}/{one.device.name}"
    return "the node"


def _with_episodes(
    one: StoredSubject | None, was: StoredSubject | None, now: float
) -> StoredSubject:
    """With its episodes, which go on from those that are stored."""
    if one is None:
        one = _SOUND if was is None else _sound(was)
    at = utc(now)
    episodes = list(was.episodes) if was is not None else []
    last = episodes.pop() if episodes and episodes[-1].end is None else None
    if last is not None and (one.state, one.since) != (last.state, last.start):
        episodes.append(msgspec.structs.replace(last, end=max(last.start, one.since or at)))
        last = None
    if one.state in _ILL and one.since is not None:
        if last is None or one.score < last.score:
            last = Episode(
                state=one.state, start=one.since, score=one.score, message=_message((one,))
            )
        episodes.append(last)
    recent = tuple(e for e in episodes if e.end is None or e.end > at - EPISODES_FOR)
    faults = tuple(at_ for at_ in one.faults if at_ > at - EPISODES_FOR)
    return msgspec.structs.replace(one, episodes=recent, faults=faults)


def _message(worst_first: Iterable[StoredSubject]) -> str:
    """Why the worst is as it is. A device that is ill as its node is has no evidence of its own."""
    evidence = next((one.evidence for one in worst_first if one.evidence), ())
    return max(evidence, key=_heft).message if evidence else ""


def _heft(one: StoredEvidence) -> float:
    return min(one.cap, one.weight if one.sum is None else one.sum)


def _composed(
    about: DeviceHealthStatus,
    worst_first: list[StoredSubject],
    before: DeviceHealth | None,
    now: float,
) -> DeviceHealthStatus:
    """The whole status: subjects, summary and condition, no larger than LARGEST_BYTES."""
    worst = worst_first[0] if worst_first else _SOUND
    ill = worst.state is not State.HEALTHY
    message = _message(worst_first) if ill else ""
    at = utc(now)
    status = {State.HEALTHY: "True", State.UNKNOWN: "Unknown"}.get(worst.state, "False")
    stored = before.status.conditions if before is not None else ()
    held = next((c for c in stored if c.type == NODE_HEALTH and c.status == status), None)
    condition = Condition(
        type=NODE_HEALTH,
        status=status,
        reason=str(worst.state),
        message=f"{name_of(worst)}: {message}" if ill else "",
        last_transition_time=held.last_transition_time if held is not None else at,
    )
    made = msgspec.structs.replace(
        about,
        state=worst.state,
        score=worst.score,
        worst=name_of(worst) if ill or worst.score < 1.0 else "",
        message=message,
        since=worst.since if ill else condition.last_transition_time,
        observed_time=at,
        conditions=(condition,),
    )
    by_name = sorted(worst_first, key=name_of)
    for most in _LIMITS:
        made = msgspec.structs.replace(
            made, subjects=tuple(_limited(one, *most) for one in by_name)
        )
        if len(msgspec.json.encode(made)) < LARGEST_BYTES:
            break
    return msgspec.structs.replace(made, checksum=made.true_checksum)


def _limited(one: StoredSubject, evidence: int, more: int) -> StoredSubject:
    """The heaviest evidence, and the latest reporters and episodes."""
    return msgspec.structs.replace(
        one,
        evidence=tuple(
            msgspec.structs.replace(e, reports=e.reports[:more])
            for e in sorted(one.evidence, key=_heft, reverse=True)[:evidence]
        ),
        episodes=one.episodes[-more:],
        faults=one.faults[-more:],
    )
