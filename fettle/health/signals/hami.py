"""What HAMi keeps on Nodes about GPUs: which are cordoned for it, which index each UUID has, and
which its device plugin calls unhealthy, as long as that plugin answers.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from fettle.health.signals import gpu_names, patterns

CORDON = "hami.io/device-cordon"
"""HAMi's `kubectl cordon` for single GPUs (Project-HAMi/HAMi pkg/device/nvidia/device.go): their
UUIDs, separated by commas."""
REGISTER = "hami.io/node-nvidia-register"
"""A JSON array of objects with `id` and `index` (0 is left out); up to v2.5 fields separated by
commas, of which the eighth is the index, and a colon after each GPU."""
HANDSHAKE = "hami.io/node-handshake"
"""HAMi's scheduler writes `Requesting_` and its time here. Up to v2.7 the plugin answers each half
minute with `Reported` and its own; since v2.8 (HAMi#1499) it does not, so the time stays, and the
scheduler passes over it while the node has allocatable GPUs. `Deleted`: the scheduler has given the
plugin up (pkg/device/devices.go CheckHealth)."""
UNANSWERED_S = 86_400.0
"""A register is outdated after so long: the scheduler's times are in a time zone that is not known,
up to 14 hours off."""
_TIME = re.compile(r"[0-9]{4}[-.][0-9]{2}[-.][0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}")
_UUID = re.compile(r"(?:GPU|MIG|gpu|mig)-[0-9A-Za-z/-]{1,100}")
_HEALTH_AT, _INDEX_AT = 6, 7
_LONGEST_INDEX = 4


def cordoned(annotations: Mapping[str, str]) -> tuple[list[str], bool]:
    """The UUIDs of cordoned GPUs, and whether the annotation names nothing else."""
    names = [
        *filter(None, map(str.strip, annotations.get(CORDON, "")[: patterns.LONGEST].split(",")))
    ]
    uuids = [*dict.fromkeys(map(gpu_names.uuid, filter(_UUID.fullmatch, names)))]
    return uuids, all(map(_UUID.fullmatch, names))


def names(annotations: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """UUID and index of each GPU; none if it is not clear which is which."""
    listed = [one for one in _registered(annotations) if one.number is not None]
    is_clear = len({one.uuid for one in listed}) == len({one.number for one in listed})
    found = ((one.uuid, gpu_names.index(one.number)) for one in listed if one.number is not None)
    return tuple(found) if is_clear else ()


def unhealthy(annotations: Mapping[str, str]) -> list[str]:
    """The UUIDs of GPUs that are registered as unhealthy."""
    return [*dict.fromkeys(one.uuid for one in _registered(annotations) if one.unhealthy)]


def is_outdated(annotations: Mapping[str, str], has_allocatable: bool, now: float) -> bool:
    """Whether nobody keeps the register up to date. `has_allocatable`: the device plugin serves
    units to the kubelet."""
    said = annotations.get(HANDSHAKE, "")[: patterns.LONGEST]
    if said.startswith("Deleted"):
        return True
    if has_allocatable and said.startswith("Requesting"):
        return False
    if (found := _TIME.search(said)) is None:
        return False
    try:
        at = datetime.fromisoformat(found[0].replace(".", "-")).replace(tzinfo=UTC)
    except ValueError:
        return False
    return now - at.timestamp() > UNANSWERED_S


class _Registered(NamedTuple):
    uuid: str
    number: int | None
    unhealthy: bool


def _registered(annotations: Mapping[str, str]) -> Iterator[_Registered]:
    text = annotations.get(REGISTER, "")[: patterns.LONGEST]
    if text.startswith("["):
        try:
            listed: Any = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return
        for one in filter(lambda one: isinstance(one, dict), listed):
            uuid, number = one.get("id"), one.get("index", 0)
            if isinstance(uuid, str) and _UUID.fullmatch(uuid) and type(number) is int:
                # `health` is left out where it is false, as all that is 0. No GPU has 0 of memory.
                yield _Registered(
                    gpu_names.uuid(uuid), number, "devmem" in one and one.get("health") is not True
                )
        return
    for gpu in text.split(":"):
        fields = gpu.split(",")
        if len(fields) <= _HEALTH_AT or not _UUID.fullmatch(fields[0]):
            continue
        number = fields[_INDEX_AT] if len(fields) > _INDEX_AT else ""
        has_index = number.isdecimal() and len(number) <= _LONGEST_INDEX
        is_unhealthy = fields[_HEALTH_AT] == "false"
        yield _Registered(
            gpu_names.uuid(fields[0]), int(number) if has_index else None, is_unhealthy
        )
