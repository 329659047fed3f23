"""What HAMi keeps on Nodes about GPUs: which are cordoned for it, and which index each UUID has."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fettle.health.signals import gpu_names, patterns

CORDON = "hami.io/device-cordon"
"""HAMi's `kubectl cordon` for single GPUs (Project-HAMi/HAMi pkg/device/nvidia/device.go): their
UUIDs, separated by commas."""
REGISTER = "hami.io/node-nvidia-register"
"""A JSON array of objects with `id` and `index` (0 is left out); up to v2.5 fields separated by
commas, of which the eighth is the index, and a colon after each GPU."""
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,100}")
_INDEX_AT = 7
_LONGEST_INDEX = 4


def cordoned(annotations: Mapping[str, str]) -> tuple[list[str], bool]:
    """The UUIDs of cordoned GPUs, and whether the annotation names nothing else."""
    names = [
        *filter(None, map(str.strip, annotations.get(CORDON, "")[: patterns.LONGEST].split(",")))
    ]
    uuids = [*dict.fromkeys(filter(_UUID.fullmatch, names))]
    return uuids, all(map(_UUID.fullmatch, names))


def names(annotations: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """UUID and index of each GPU; none if it is not clear which is which."""
    found = [*_registered(annotations.get(REGISTER, "")[: patterns.LONGEST])]
    is_clear = len({uuid for uuid, _ in found}) == len({number for _, number in found})
    return tuple((uuid, gpu_names.index(number)) for uuid, number in found) if is_clear else ()


def _registered(text: str) -> Iterator[tuple[str, int]]:
    if text.startswith("["):
        try:
            listed: Any = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return
        for one in filter(lambda one: isinstance(one, dict), listed):
            uuid, number = one.get("id"), one.get("index", 0)
            if isinstance(uuid, str) and _UUID.fullmatch(uuid) and type(number) is int:
                yield uuid, number
        return
    for gpu in text.split(":"):
        fields = gpu.split(",")
        if (
            len(fields) > _INDEX_AT
            and _UUID.fullmatch(fields[0])
            and (number := fields[_INDEX_AT]).isdecimal()
            and len(number) <= _LONGEST_INDEX
        ):
            yield fields[0], int(number)
