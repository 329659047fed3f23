"""What evidence and health are about: a node, a DRA device, or one unit of an extended resource."""

from typing import NamedTuple

import msgspec


class NodeId(NamedTuple):
    """A node as a whole. Evidence about it applies to every device on it."""

    node: str

    def __str__(self) -> str:
        return f"node {self.node}"


class DeviceId(msgspec.Struct, frozen=True, order=True, gc=False):
    """A DRA device, by the three names with which the API identifies it.

    `node` is "", unless slices of several nodes give a device these names and another one is meant
    by them: then it is the device's own node.
    """

    driver: str
    pool: str
    device: str
    node: str = ""

    def __str__(self) -> str:
        names = f"{self.driver}/{self.pool}/{self.device}"
        return f"{names} of node {self.node}" if self.node else names


SOME_DRIVER = "?"
"""Stands for a pool's driver that cannot be read."""
SOME_POOL = "of unknown name"
"""Stands for a pool's name that cannot be read; no pool can have this name."""


class PoolRef(msgspec.Struct, frozen=True, gc=False):
    """A DRA pool, by the names that the API identifies it with."""

    driver: str
    name: str

    def __str__(self) -> str:
        # As kube-scheduler writes it. The name alone is not enough: the pools of all drivers of a
        # node often have the same name, the node's.
        if self.driver == SOME_DRIVER:
            return f"pool {self.name}"
        unnamed = self.name == SOME_POOL
        return f"{self.driver} pool {self.name}" if unnamed else f"pool {self.driver}/{self.name}"


class UnitId(NamedTuple):
    """One unit of an extended resource on a node, by the id that its device plugin or a monitor
    uses.

    `unit` is the device plugin's id (for NVIDIA the GPU's UUID). Where a monitor names nothing
    better, it is `pci:<address>` or `index:<n>`. `others` are further names that the monitor gives.
    """

    node: str
    resource: str
    unit: str
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All its names, the most reliable first."""
        return (self.unit, *self.others)

    def __str__(self) -> str:
        return f"{self.resource} {self.unit} on {self.node}"


Subject = NodeId | DeviceId | UnitId
