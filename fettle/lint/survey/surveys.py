"""What selectors match and what drivers publish, as rules read it: plain values."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from fettle.api.resource import Device, DeviceAttribute, DeviceTaint
from fettle.cel import Field, split_name
from fettle.dra import DeviceView
from fettle.model import DeviceId

TypeOf = tuple[str, str, str]
"""An attribute's domain and name, and the kind of a value that a device has for it."""


def comparable_type(value: DeviceAttribute) -> str:
    """What a value can be equal to: another "number", "bool", "string", "version" or "list"; "" if
    that is not known."""
    scalars = {
        "number": value.int_,
        "bool": value.bool_,
        "string": value.string,
        "version": value.version,
    }
    lists = (value.ints, value.bools, value.strings, value.versions)
    kinds = [kind for kind, scalar in scalars.items() if scalar is not None]
    kinds += ["list" for one in lists if one is not None]
    return kinds[0] if len(kinds) == 1 else ""


class Selection(NamedTuple):
    """The CEL expressions that choose devices: those of the class come first."""

    of_class: tuple[str, ...]
    of_request: tuple[str, ...] = ()


class Abort(NamedTuple):
    """An expression that fails on a device, which ends scheduling; "": whichever is evaluated."""

    expression: str
    device: DeviceId
    reason: str


class DeviceFingerprint(NamedTuple):
    """What devices have in common that publish the same names and capacities, shared or not."""

    driver: str
    attributes: frozenset[str]
    capacity: bytes
    multiple: bool


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What a selection matches: how many devices of how many, where, and which.

    `looked` devices in `pools` pools were judged; all pools with matches are `local` to one node
    each, or not. `of_class` passed the class's selectors, in `pools_of_class` pools, and
    `matched` all. On `aborted` a selector fails; `fatal` ones end scheduling whatever selectors
    say. `undecided` are those nothing sure can be said of, or
    pools that may lack devices; `left_open` says of some of them why. `on` has the matches by node,
    `most` how many there are on any one, `looks` one match of each look, `missed` examples of
    those that passed the class only, `taints` how many matches bear which taints. `nearest` says
    what the nearest device lacks where nothing matches. `by_count` remembers nodes by how many
    matches they have at least.
    """

    selection: Selection
    looked: int
    pools: int
    pools_of_class: int
    local: bool
    of_class: int
    matched: int
    aborted: int
    fatal: int
    undecided: int
    left_open: tuple[str, ...]
    drivers: frozenset[str]
    aborts: tuple[Abort, ...]
    fatal_on: tuple[Abort, ...]
    on: Mapping[str, tuple[DeviceView, ...]]
    looks: Mapping[DeviceFingerprint, DeviceView]
    missed: tuple[DeviceView, ...]
    taints: Mapping[tuple[DeviceTaint, ...], int]
    most: int
    nearest: str = ""
    by_count: dict[int, frozenset[str]] = {}

    @property
    def decided(self) -> bool:
        return not self.undecided

    def nodes(self, count: int) -> frozenset[str]:
        """The nodes with so many matches."""
        found = self.by_count.get(count)
        if found is None:
            found = frozenset(node for node, devices in self.on.items() if len(devices) >= count)
            self.by_count[count] = found
        return found


class Catalogue(msgspec.Struct, frozen=True):
    """What drivers publish: devices by look, each with an example, the types of attributes, and all
    taints in use; of nodes the keys of their taints, and how many run which kubelet."""

    looks: Mapping[DeviceFingerprint, Device] = {}
    taints: frozenset[DeviceTaint] = frozenset()
    node_taints: frozenset[str] = frozenset()
    kubelets: Mapping[str, int] = {}
    types: frozenset[TypeOf] = frozenset()

    @property
    def drivers(self) -> frozenset[str]:
        return frozenset(look.driver for look in self.looks)

    def kinds(self, domain: str, name: str) -> frozenset[str]:
        """Of the values that devices have for an attribute."""
        return frozenset(kind for *whose, kind in self.types if whose == [domain, name])

    def domains(self, field: Field) -> frozenset[str]:
        """The domains in which devices have attributes, or capacities."""
        return frozenset(domain for domain, _ in self.names(field))

    def names(self, field: Field) -> frozenset[tuple[str, str]]:
        """The attributes, or capacities, that devices have, each with its domain."""
        return frozenset(
            split_name(name, look.driver)
            for look, device in self.looks.items()
            for name in (look.attributes if field == "attributes" else device.capacity or ())
        )
