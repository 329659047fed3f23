"""What NVIDIA's device plugin makes of one GPU: replicas of it (time slicing, MPS), MIG devices.

Monitors name whole GPUs, as `nvidia.com/gpu`; here stands how many units of which resources such a
GPU is, by what the Node says of itself (labels of GPU Feature Discovery, names of resources). Pure.
"""

import re
from collections.abc import Collection, Mapping

GPU = "nvidia.com/gpu"
_SHARED = ".shared"
"""Ends the name of a resource whose units are replicas, with `renameByDefault`."""
_REPLICA = re.compile(r"(.+)::(\d{1,9})")
"""The plugin's id of a replica: the GPU's or MIG device's own id, and a number."""
_MIG = re.compile(r"nvidia\.com/mig-(?:(\d)c\.)?(\d)g\..+")
"""`mig-1g.10gb`, and `mig-1c.3g.40gb` for a part of a MIG device."""
_MIG_DEVICE = "MIG-"
"""Begins the id of a MIG device."""
SLICES = 7
"""Into which a GPU in MIG mode can be divided at most."""


def plain(resource: str) -> str:
    """The resource without what renaming adds; labels go by this name."""
    return resource.removesuffix(_SHARED) if resource.startswith("nvidia.com/") else resource


def whole(id_: str) -> str:
    """The device that a replica is a replica of; any other name as it is."""
    found = _REPLICA.fullmatch(id_)
    return found[1] if found is not None else id_


def homes(resource: str, resources: Collection[str]) -> tuple[str, ...]:
    """Of these resources, those of which a GPU that is named as `resource` may be units.

    In MIG mode it is units of another resource, and nobody says which GPUs are.
    """
    return tuple(
        sorted(
            name
            for name in resources
            if plain(name) == plain(resource) or (resource == GPU and _MIG.fullmatch(name))
        )
    )


def units_of(
    device: str,
    resource: str,
    homes: Collection[str],
    capacities: Mapping[str, int],
    labels: Mapping[str, str],
    seen: Collection[str] = (),
) -> int:
    """How many units of a resource to expect of a device that may be of any of the `homes`.

    Of a GPU, its share of them: as likely as any other it is one of the GPUs that they all are on
    together. At least one. `seen` are ids of units of the resource.
    """
    each = {r: _replicas(r, capacities[r], labels, seen if r == resource else ()) for r in homes}
    if device.startswith(_MIG_DEVICE):
        return min(each[resource], capacities[resource])
    whole_gpus, slices, fewest = 0, 0, 0
    for home in homes:
        devices = _ceil(capacities[home], each[home])
        if size := _slices(home, labels):
            slices += size * devices
            fewest = max(fewest, _ceil(devices, SLICES // size))
        else:
            whole_gpus += devices
    return _ceil(capacities[resource], whole_gpus + max(fewest, _ceil(slices, SLICES)))


def _ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def _replicas(
    resource: str, capacity: int, labels: Mapping[str, str], seen: Collection[str]
) -> int:
    """Into how many units a device of the resource is divided: by the Node's label, unless that
    cannot be, and at least as many as the ids that were seen tell."""
    found = [int(match[2]) for match in map(_REPLICA.fullmatch, seen) if match is not None]
    least = max(2, 1 + max(found)) if found else 1
    told = _number(labels.get(f"{plain(resource)}.replicas", ""))
    return max(least, told) if told and capacity % told == 0 else least


def _slices(resource: str, labels: Mapping[str, str]) -> int:
    """Of a GPU, how many slices one device of the resource has; 0: it is no MIG device.

    Only by its label where MIG devices are called GPUs (the strategy "single").
    """
    found = _MIG.fullmatch(resource)
    named = int(found[1] or found[2]) if found is not None else 0
    number = named or _number(labels.get(f"{plain(resource)}.slices.ci", ""))
    return min(number, SLICES)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
