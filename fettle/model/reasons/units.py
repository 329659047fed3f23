"""Units of device plugins, by the scheduler's own checks."""

import msgspec

from fettle.model.reasons.base import MAX_NAMED, Reason


class NoUnits(Reason, frozen=True, gc=False):
    """The node has none of an extended resource to allocate."""

    sentence = (
        "this node has no {resource} to allocate: no device plugin offers it here, and no "
        "DeviceClass stands for it"
    )
    resource: str


class NotEnoughUnits(Reason, frozen=True, gc=False):
    """The node has fewer units than requested, in use or not.

    `capacity` counts withdrawn units, too. `fewer`: how many more most nodes of its kind have.
    """

    resource: str
    allocatable: int
    requested: int
    capacity: int = 0
    fewer: int = 0

    def __str__(self) -> str:
        withdrawn = self.capacity - self.allocatable
        why = (
            [f"{withdrawn} of {self.capacity} withdrawn by the device plugin"] if withdrawn else []
        )
        why += [f"most nodes of its kind have {self.fewer} more"] if self.fewer else []
        if not self.capacity:
            why.insert(0, "its device plugin offers none")
        return (
            f"{self.resource}: {self.allocatable} allocatable, {self.requested} requested, "
            f"which the scheduler's own check refuses{': ' if why else ''}{', '.join(why)}"
        )


class UnitsTaken(Reason, frozen=True, gc=False):
    """Pods hold so many units that too few are left; they may hold more than the node has now."""

    resource: str
    taken: int
    allocatable: int
    requested: int

    def __str__(self) -> str:
        taken = f"{self.taken} of {self.allocatable} are taken by pods"
        if self.taken > self.allocatable:
            taken = f"pods hold {self.taken}, more than the {self.allocatable} that it has now"
        return (
            f"{self.resource}: {taken}, {self.requested} requested, which the scheduler's own "
            "check refuses"
        )


class UnitsWithdrawn(Reason, frozen=True, gc=False):
    """A note: the device plugin withdrew units, of which these are known by name.

    `counted`: the capacity still counts the withdrawn units; `known`: how many units these are.
    """

    resource: str
    withdrawn: int
    capacity: int
    units: tuple[str, ...]
    known: int
    counted: bool = True

    def __str__(self) -> str:
        units = ", ".join(self.units)
        if not self.counted:
            offers = f"no longer offered by the device plugin, which has {self.capacity}"
            return f"{self.resource}: {offers}: {units}"
        among = ":" if self.known == self.withdrawn else ", among them"
        count = f"{self.withdrawn} of {self.capacity} withdrawn by the device plugin"
        return f"{self.resource}: {count}{among} {units}"


class WithdrawnUnitHeld(Reason, frozen=True, gc=False):
    """A note: too few units are left, and a pod still holds one that the device plugin withdrew.

    The scheduler counts it among those that are left. `certain`: all `pods` hold it; else one of
    them does.
    """

    resource: str
    unit: str
    pods: tuple[str, ...]
    certain: bool = True

    def __str__(self) -> str:
        pods = ", ".join(self.pods[:MAX_NAMED])
        who = pods if self.certain else f"one of {pods}"
        return (
            f"{self.resource}: the withdrawn {self.unit} is still held by {who}, and the scheduler "
            "counts it among those that are left: a sound one is free for a pod once that ends"
        )


class BadDevice(msgspec.Struct, frozen=True, gc=False):
    """A device that whole-node pods cannot get; `why`: withdrawn, held, or its state."""

    device: str
    why: str


class NodeNotWhole(Reason, frozen=True, gc=False):
    """A note: the pod's devices here are sound, but pods that ask for all of the node's cannot be
    placed, because of others of the same resource or driver (`of`).

    `unnamed`: how many more are withdrawn. The node scores higher for it.
    """

    of: str
    devices: tuple[BadDevice, ...]
    unnamed: int = 0

    def __str__(self) -> str:
        bad = [f"{one.device} is {one.why}" for one in self.devices[:MAX_NAMED]]
        more = len(self.devices) - len(bad)
        bad += [f"{more} more"] if more else []
        bad += [f"{self.unnamed} withdrawn"] if self.unnamed else []
        needs = f"its other devices cannot serve pods that need all of its {self.of}"
        return f"preferred: {needs}: {', '.join(bad)}"


class OtherKubeletRefusals(Reason, frozen=True, gc=False):
    """A note: kubelet refusals for resources of these domains do not count for this pod."""

    domains: tuple[str, ...]

    def __str__(self) -> str:
        return f"kubelet refusals for {', '.join(self.domains)} do not count here"
