"""What drivers refuse about their configurations that a schema cannot say, one function a driver.

NVIDIA: `GetTimeSlicingConfig`, `GetMpsConfig` and the limits of `MpsPerDevicePinnedMemoryLimit`
in its resource API; the example driver: `GpuConfig.Validate`. A package of its own offers such a
function under the entry point that `drivers` names.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from fettle.api import quantities
from fettle.lint.fields import Field
from fettle.lint.schemas import Problem

_MEBIBYTE = 2**20
_BY_STRATEGY = {
    "TimeSlicing": ("timeSlicingConfig", ("mpsConfig", "spacePartitioningConfig")),
    "MPS": ("mpsConfig", ("timeSlicingConfig",)),
    "SpacePartitioning": ("spacePartitioningConfig", ("timeSlicingConfig",)),
}
_DEVICE = re.compile(r"\d{1,4}|(GPU|MIG)-[0-9a-fA-F-]+")


def nvidia(kind: str, parameters: Field) -> Iterator[Problem]:
    """GpuConfig and MigDeviceConfig of gpu.nvidia.com."""
    sharing = parameters.at("sharing")
    yield from _one_strategy(sharing)
    mps = sharing.at("mpsConfig")
    limits = [mps.at("defaultPinnedDeviceMemoryLimit")]
    for device, limit in mps.members("defaultPerDevicePinnedMemoryLimit"):
        limits.append(limit)
        if not _DEVICE.fullmatch(device):
            yield Problem(limit, f"{device!r} is neither an index nor the UUID of a device")
    for limit in limits:
        if limit.exists:
            yield from _at_least_a_mebibyte(limit)


def example(kind: str, parameters: Field) -> Iterator[Problem]:
    """GpuConfig of gpu.example.com."""
    sharing = parameters.at("sharing")
    if not sharing.exists and not parameters.text("mode"):
        yield Problem(sharing, "is required")
    yield from _one_strategy(sharing)


VALIDATORS: Mapping[str, Callable[[str, Field], Iterator[Problem]]] = {
    "gpu.nvidia.com": nvidia,
    "gpu.example.com": example,
}


def _one_strategy(sharing: Field) -> Iterator[Problem]:
    """The settings of one strategy cannot stand beside those of another."""
    strategy = sharing.text("strategy")
    own, others = _BY_STRATEGY.get(strategy, ("", ()))
    for other in others:
        if sharing.at(other).exists:
            yield Problem(sharing.at(other), f"cannot be used with strategy {strategy}, only {own}")


def _at_least_a_mebibyte(limit: Field) -> Iterator[Problem]:
    try:
        amount = quantities.parse(str(limit.value))
    except quantities.Unsure:
        return
    except ValueError:
        yield Problem(limit, f"{limit.value!r} is not a quantity")
        return
    if amount.nano < _MEBIBYTE * 10**9:
        yield Problem(limit, f"{limit.value} is less than 1Mi")
