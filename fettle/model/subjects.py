"""Who a fact is about: a node, a DRA device, or one unit of an extended resource.

Imports nothing of Fettle.
"""

from typing import NamedTuple

import msgspec

OWN_PREFIX = "fettle.dev/"
"""Of all names that Fettle writes: what has one of them is never evidence."""


class NodeId(NamedTuple):
    """A node as a whole; what is said of it is said of every device on it."""

    node: str

    def __str__(self) -> str:
        return f"node {self.node}"


class DeviceId(msgspec.Struct, frozen=True, order=True, gc=False):
    """A DRA device, by the three names that the API identifies it with."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class UnitId(NamedTuple):
    """One unit of an extended resource on a node, by the id its device plugin or a monitor uses.

    `unit` is the device-plugin id (for NVIDIA the GPU's UUID), else `pci:<address>` or
    `index:<n>` where a monitor names nothing better; `others` are further names that it gives.
    """

    node: str
    resource: str
    unit: str
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All its names, the best first."""
        return (self.unit, *self.others)

    def __str__(self) -> str:
        return f"{self.resource} {self.unit} on {self.node}"


Subject = NodeId | DeviceId | UnitId
