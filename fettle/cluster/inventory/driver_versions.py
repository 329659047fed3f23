"""Which nodes run another version of a device's driver than they did, and since when: they are on
probation, for policies that say so. A node that is seen for the first time has no new version.

A version is proven once several nodes have run it for longer than that, and nearly all of these are
sound: then it is new nowhere. How pods end on it does not count: tenants decide that.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf

import msgspec

from fettle.api import core
from fettle.api.own_group import DeviceHealthStatus, StoredDriver
from fettle.cluster.view import NewDriver
from fettle.dra import PublishedDevice
from fettle.model import is_device_name, utc
from fettle.pacing import pause

MOST_DRIVERS = 8
"""Of one node."""
LONGEST = 64
"""Characters of a version, as in the API's attributes; a label has 63."""
PROVEN_BY = 3
"""So many sound nodes prove a version, if no more than one in `_SOUND_OF` is not."""
_SOUND_OF = 10

EVERY_S = 1.0
"""So often what is proven is found out anew, at most: for that all nodes are looked at."""

_LABELS = (
    # NVIDIA/k8s-device-plugin, internal/lm/nvml.go
    ("nvidia.com/gpu", "nvidia.com/cuda.driver-version.full"),
    # ROCm/k8s-device-plugin, cmd/k8s-node-labeller, option -driver-version
    ("amd.com/gpu", "amd.com/gpu.driver-version"),
)
_OLDER_GFD = tuple(f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev"))
"""What GPU Feature Discovery wrote alone before it wrote the version in one."""
_ATTRIBUTE = "driverVersion"
"""NVIDIA/k8s-dra-driver-gpu, cmd/gpu-kubelet-plugin/deviceinfo.go, and ROCm/k8s-gpu-dra-driver."""


def driver_versions(
    labels: Mapping[str, str], devices: Iterable[PublishedDevice]
) -> Mapping[str, str]:
    """By what they drive, a resource or a DRA driver. Devices of one DRA driver that disagree say
    nothing: it is being replaced."""
    found = dict(_labelled(labels))
    told: dict[str, set[str]] = {}
    for one in devices:
        for name, value in (one.device.attributes or {}).items():
            if value.version and name.rpartition("/")[2] == _ATTRIBUTE:
                told.setdefault(one.id.driver, set()).add(value.version)
    found |= {
        driver: next(iter(versions)) for driver, versions in told.items() if len(versions) == 1
    }
    kept = ((what, v) for what, v in sorted(found.items()) if v and len(v) <= LONGEST)
    return dict(list(kept)[:MOST_DRIVERS])


def _labelled(labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    older = [labels.get(key, "") for key in _OLDER_GFD]
    if older[0] and older[1]:
        yield "nvidia.com/gpu", ".".join(filter(None, older))
    for what, key in _LABELS:
        if labels.get(key):
            yield what, labels[key]


class _Run(msgspec.Struct):
    """A version that a node runs `since`; `former` is the one before, "" if none was seen."""

    version: str
    since: float
    former: str = ""


class DriverVersions:
    """Of all nodes."""

    def __init__(self, probation_s: float) -> None:
        self._probation_s = probation_s
        self._runs: dict[str, dict[str, _Run]] = {}
        self._unsound: set[str] = set()
        self._shown: dict[str, tuple[NewDriver, ...]] = {}
        """By node that has any on probation."""
        self._proven: frozenset[tuple[str, str]] = frozenset()
        self._settled_until = -inf
        """Until then the clock alone changes nothing."""
        self._proved_at = -inf

    def of(self, name: str) -> tuple[NewDriver, ...]:
        """Which drivers of a node are on probation."""
        return self._shown.get(name, ())

    def look(self, node: core.Node, devices: Iterable[PublishedDevice], now: float) -> None:
        """Which drivers the node runs. What it says nothing of any more goes on: a label or a slice
        that goes is no new driver."""
        name, labels = node.metadata.name, node.metadata.labels or {}
        found = driver_versions(labels, devices)
        runs = self._runs.get(name, {})
        if not found and not runs:
            return
        for what, version in found.items():
            before = runs.get(what)
            if before is None and len(runs) < MOST_DRIVERS:
                runs[what] = _Run(version, now)
            elif before is not None and before.version != version:
                runs[what] = _Run(version, now, before.version)
            else:
                continue
            self._settled_until = -inf
        self._runs[name] = runs
        self._show(name, now)

    def note_soundness(self, name: str, *, sound: bool) -> None:
        """Whether the node and all its devices are neither Degraded nor Unhealthy."""
        if name in self._runs and sound == (name in self._unsound):
            self._unsound ^= {name}
            self._settled_until = -inf

    def _show(self, name: str, now: float) -> tuple[NewDriver, ...]:
        shown = tuple(
            NewDriver(what, run.version, run.former, run.since, run.since + self._probation_s)
            for what, run in sorted(self._runs[name].items())
            if run.former
            and now < run.since + self._probation_s
            and (what, run.version) not in self._proven
        )
        if shown:
            self._shown[name] = shown
        else:
            self._shown.pop(name, None)
        return shown

    def changed(self, now: float) -> set[str]:
        """The nodes where something else is on probation than when they were last looked at."""
        if now < self._settled_until or 0 <= now - self._proved_at < EVERY_S:
            return set()
        self._proved_at = now
        before = dict(self._shown)
        names = self._prove(now) | before.keys()
        return {name for name in names if self._differs(name, before.get(name, ()), now)}

    def _differs(self, name: str, before: tuple[NewDriver, ...], now: float) -> bool:
        pause()
        return self._show(name, now) != before

    def _prove(self, now: float) -> set[str]:
        """Returns the nodes with a driver that has changed lately."""
        recent: set[str] = set()
        sound: dict[tuple[str, str], int] = {}
        long: dict[tuple[str, str], int] = {}
        self._settled_until = inf
        for name, runs in self._runs.items():
            pause()
            for what, run in runs.items():
                run.since = min(run.since, now)  # the clock was set back
                until = run.since + self._probation_s
                if now < until:
                    self._settled_until = min(self._settled_until, until)
                    recent.update((name,) if run.former else ())
                    continue
                key = what, run.version
                long[key] = long.get(key, 0) + 1
                sound[key] = sound.get(key, 0) + (name not in self._unsound)
        self._proven = frozenset(
            key
            for key, number in sound.items()
            if number >= PROVEN_BY and _SOUND_OF * (long[key] - number) <= long[key]
        )
        return recent

    def forget(self, name: str) -> None:
        if self._runs.pop(name, None) is not None:
            self._settled_until = -inf
        self._unsound.discard(name)
        self._shown.pop(name, None)

    def adopt(self, name: str, status: DeviceHealthStatus) -> None:
        """Take over what is stored of a node, before it was looked at. A time to come counts as
        now."""
        if status.drivers:
            self._runs[name] = {
                one.name: _Run(one.version, one.since.timestamp(), one.former)
                for one in status.drivers[:MOST_DRIVERS]
                if is_device_name(one.name)
            }
            self._settled_until = -inf

    def recall(self, name: str) -> tuple[StoredDriver, ...]:
        """What is to be stored of a node."""
        return tuple(
            StoredDriver(name=what, version=run.version, former=run.former, since=utc(run.since))
            for what, run in sorted(self._runs.get(name, {}).items())
        )
