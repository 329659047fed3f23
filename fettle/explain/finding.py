"""Which node or device people mean by a name, in a view; what is near if there is none. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import chain, filterfalse
from typing import NamedTuple

from fettle.cluster import NodeView, PluginView, UnitView, View, whole_device
from fettle.dra import DeviceView
from fettle.health import gpu_names
from fettle.model import BadInput, DeviceId, UnitId
from fettle.pacing import pause

_FEW, _NEAR = 8, 0.6


class FoundDevice(NamedTuple):
    """A DRA `device`, or a `unit` of a device `plugin`, as a node sees it."""

    name: str
    node: NodeView
    device: DeviceView | None = None
    plugin: PluginView | None = None
    unit: UnitView | None = None


def find_node(view: View, name: str) -> NodeView:
    """Raises BadInput with near names."""
    if (node := view.nodes.get(name)) is None:
        raise BadInput(f"there is no node {name!r}{near(name, view.nodes)}", status=404)
    return node


def find_device(view: View, given: str) -> FoundDevice:
    """By `DRIVER/POOL/DEVICE`, `NODE/RESOURCE/UNIT`, or any shorter name that only one device has,
    such as a UUID or a PCI address. Raises BadInput with near names, or those that share it."""
    before, slash, last = given.rpartition("/")
    as_written = before + slash + gpu_names.uuid(last)
    wanted = {given, gpu_names.normal(given), gpu_names.pci(given), as_written}
    found: dict[str, FoundDevice] = {}
    by_parent: dict[str, FoundDevice] = {}
    names: dict[str, str] = {}
    for one, forms, parents in _all(view):
        if given == one.name:
            return one
        if not wanted.isdisjoint(forms):
            found[one.name] = one
        elif not wanted.isdisjoint(parents):
            by_parent[one.name] = one
        typed = (form for form in forms if "/" in form and " " not in form)
        names |= dict.fromkeys((one.name, *typed), one.name)
        pause()
    found = found or by_parent
    if len(found) > 1:
        some = ", ".join([*sorted(found)[:_FEW], *(["…"] if len(found) > _FEW else [])])
        raise BadInput(f"{len(found)} devices are called {given!r}: write one of {some}")
    if found:
        return next(iter(found.values()))
    mentioned = _mentioned(view, gpu_names.normal(given))
    if (sound := _sound_unit(view, given) or mentioned) is not None:
        return sound
    if _CERTAINLY_UUID.fullmatch(given):
        raise BadInput(
            f"nothing names the device {given!r}{_WHERE}{_near(given, names)}", status=404
        )
    raise BadInput(f"there is no device {given!r}{_near(given, names)}{_HOW}", status=404)


_LONGEST_NUMBER = 10
_UUID = re.compile(r"[A-Za-z]+-[\w-]{8,}")
_CERTAINLY_UUID = re.compile(r"(?:GPU|MIG)-\S{8,}|\S*[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{10,}")
_WHERE = (
    ", so its node is not known. A device plugin tells Kubernetes only how many devices a node "
    "has. A sound one is named by a DRA driver, or by the kubelet while a pod holds it. If you "
    "know the node (`nvidia-smi -L` there, or your exporter's metrics), write NODE/UUID"
)
_HOW = "; write DRIVER/POOL/DEVICE, NODE/RESOURCE/UNIT or a UUID: `fettle devices --all` lists them"


def _all(view: View) -> Iterator[tuple[FoundDevice, set[str], set[str]]]:
    """Each device and unit once, with the names that it has, and those of what it is a part of."""
    seen: set[DeviceId] = set()
    for node in view.nodes.values():
        for pool in node.pools:
            for device in (*pool.devices, *pool.withheld):
                if (id_ := device.subject) not in seen:
                    seen.add(id_)
                    own, parents = _published(device)
                    called = {id_.device, f"{id_.pool}/{id_.device}", f"{node.name}/{id_.device}"}
                    yield FoundDevice(str(id_), node, device), called | own, parents
        for plugin in node.plugins.values():
            for unit in plugin.units:
                name = f"{node.name}/{plugin.resource}/{unit.unit}"
                forms = {
                    form
                    for called in (unit.unit, *unit.others)
                    for short in (called, called.removeprefix("index:"))
                    for form in (
                        f"{node.name}/{short}",
                        f"{node.name}/{plugin.resource}/{short}",
                        f"{node.name}/{plugin.resource} {short}",
                    )
                }
                for known in filterfalse(gpu_names.is_index, (unit.unit, *unit.others)):
                    forms |= {known, f"{plugin.resource} {known}"}
                yield FoundDevice(name, node, plugin=plugin, unit=unit), forms, set()


def _published(device: DeviceView) -> tuple[set[str], set[str]]:
    """The UUID and the address of a DRA device, and those of what it is a part of."""
    names = {name for name in gpu_names.published(device.device) if not gpu_names.is_index(name)}
    own = names & {gpu_names.own_uuid(device.device)}
    is_part = any(map(gpu_names.is_uuid, names - own))
    return (own, names - own) if is_part else (names, set())


def _sound_unit(view: View, given: str) -> FoundDevice | None:
    """A unit that nothing is said about, so no object names it: it is as healthy as its node."""
    name, _, rest = given.partition("/")
    node = view.nodes.get(name)
    if node is None or not rest:
        return None
    unit = unit_called(name, rest, {r: p.capacity for r, p in node.plugins.items() if p.capacity})
    if unit is None:
        return None
    shown = UnitView(unit.unit, node.health)
    plugin = node.plugins[unit.resource]
    return FoundDevice(f"{name}/{unit.resource}/{unit.unit}", node, plugin=plugin, unit=shown)


def _mentioned(view: View, uuid: str) -> FoundDevice | None:
    """A unit of which nothing bad is said, but which some object names: the kubelet in the status
    of a pod that holds it, or what is stored of its past."""
    if not _UUID.fullmatch(uuid):
        return None
    for name, resource in chain(_held(view, uuid), _stored(view, uuid)):
        node = view.nodes.get(name)
        plugin = node.plugins.get(resource) if node is not None else None
        if node is not None and plugin is not None:
            unit = UnitView(uuid, node.health)
            return FoundDevice(f"{name}/{resource}/{uuid}", node, plugin=plugin, unit=unit)
    return None


def _held(view: View, uuid: str) -> Iterator[tuple[str, str]]:
    for pod in view.pods.values():
        for container in pod.container_statuses():
            for status in container.allocated_resources_status or ():
                if any(whole_device(one.resource_id) == uuid for one in status.resources or ()):
                    yield pod.node_name, status.name
        pause()


def _stored(view: View, uuid: str) -> Iterator[tuple[str, str]]:
    for name, stored in view.device_healths.items():
        for one in stored.status.subjects:
            subject = one.subject(name)
            if isinstance(subject, UnitId) and uuid in map(whole_device, subject.names):
                yield subject.node, subject.resource
        pause()


def unit_called(node: str, given: str, resources: Mapping[str, int]) -> UnitId | None:
    """A unit by the name that Fettle gives it, alone or after its resource; None if this is no name
    of a unit. `resources`: how many units the node has. Raises BadInput.

    >>> unit_called("gpu-01", "3", {"nvidia.com/gpu": 8})
    UnitId(node='gpu-01', resource='nvidia.com/gpu', unit='index:3', others=())
    >>> unit_called("gpu-01", "left-one", {"nvidia.com/gpu": 8}) is None
    True
    """
    at = [r for r in resources if given.startswith((f"{r}/", f"{r} "))]
    unit = given[len(at[0]) + 1 :].strip() if at else given
    if unit.isdecimal() and len(unit) < _LONGEST_NUMBER:
        unit = gpu_names.index(int(unit))
    kind, _, number = unit.partition(":")
    is_named = kind in ("index", "pci") and number
    if not is_named and not _UUID.fullmatch(unit):
        return None
    found = at or sorted(resources)
    if len(found) > 1:
        forms = ", ".join(f"{node}/{r}/{unit}" for r in found)
        raise BadInput(f"{node} has several resources: write one of {forms}")
    for one in found:
        count = resources[one]
        whole = (
            kind == "index"
            and number.isdecimal()
            and "mig-" not in one
            and len(number) < _LONGEST_NUMBER
        )
        if whole and int(number) >= count:
            raise BadInput(f"{one} has {count} units on {node}: index:0 to index:{count - 1}")
        return UnitId(node, one, gpu_names.normal(unit))
    return None


def near(name: str, names: Iterable[str]) -> str:
    """The few names that look most like it, as the end of a sentence; "" if none does.

    >>> near("gpu-1", ["gpu-01", "cpu-7"])
    '; near: gpu-01, cpu-7'
    """
    return _near(name, {one: one for one in names})


def _near(name: str, meant: Mapping[str, str]) -> str:
    """Of what the spellings mean, each in the one that looks most like the name."""
    matcher = SequenceMatcher(b=name)
    rated: dict[str, tuple[float, str]] = {}
    for one in sorted(meant):
        matcher.set_seq1(one)
        if (
            matcher.real_quick_ratio() >= _NEAR
            and matcher.quick_ratio() >= _NEAR
            and (ratio := matcher.ratio()) >= _NEAR
        ):
            rated[meant[one]] = max(rated.get(meant[one], (0.0, "")), (ratio, one))
        pause()
    best = [one for _, one in nlargest(3, rated.values())]
    return f"; near: {', '.join(best)}" if best else ""
