"""What the allocator finds."""

import msgspec

from fettle.model.reasons.base import Reason, listed
from fettle.model.reasons.obstacles import Obstacles, counted
from fettle.model.subjects import DeviceId, PoolRef


class NoAllocation(Reason, frozen=True, gc=False):
    """The claims cannot be allocated on the node, for these causes."""

    causes: tuple[Reason, ...]

    def __str__(self) -> str:
        return f"no allocation is possible here: {'; '.join(map(str, self.causes))}"


class SchedulingError(Reason, frozen=True, gc=False):
    """The scheduler's attempt for the pod would end in an error on this node."""

    sentence = "the scheduler's attempt for this pod would end in an error: {cause}"
    cause: Reason


class NothingFits(Reason, frozen=True, gc=False):
    """A search found nothing; more is not known."""

    sentence = "no combination of devices satisfies all requests"


class NoDevices(Reason, frozen=True, gc=False):
    """There are no devices on the node."""

    requests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.requests)}: there are no devices here"


class NoDeviceMatches(Reason, frozen=True, gc=False):
    """No device matches the requests, but perhaps `in_use` ones that are allocated."""

    requests: tuple[str, ...]
    in_use: int = 0

    def __str__(self) -> str:
        requests = ", ".join(self.requests)
        if not self.in_use:
            return f"{requests}: no device on this node matches"
        held = f"{self.in_use} {'device is' if self.in_use == 1 else 'devices are'} allocated"
        return f"{requests}: {held}, and no other device on this node matches"


class NearestDevice(Reason, frozen=True, gc=False):
    """No device of any node matches a request; what the nearest one lacks, in words."""

    sentence = "{request}: no device of any node matches; the nearest one: {lacks}"
    request: str
    lacks: str


class TooFewDevices(Reason, frozen=True, gc=False):
    """Of the devices that match, too few can be taken; `requested` None: all are requested.

    `one_share`: a request takes at most one share of each device.
    """

    requests: tuple[str, ...]
    requested: int | None
    matching: int
    obstacles: tuple[Obstacles, ...] = ()
    one_share: bool = False

    def __str__(self) -> str:
        requested = "all" if self.requested is None else self.requested
        match = "device matches" if self.matching == 1 else "devices match"
        causes = f": {counted(self.obstacles)}" if self.obstacles else ""
        once = " (a request takes at most one share of each device)" if self.one_share else ""
        requests = ", ".join(self.requests)
        return f"{requests}: {requested} requested, {self.matching} {match}{causes}{once}"


class TooFewCandidates(Reason, frozen=True, gc=False):
    """Too few devices can be allocated for one request."""

    sentence = "{request}: too few devices can be allocated"
    request: str


class ConstraintTooNarrow(Reason, frozen=True, gc=False):
    """Too few devices satisfy a constraint of a claim."""

    sentence = "claim {claim}: too few devices satisfy the constraint on {attribute}"
    claim: str
    attribute: str


class GroupsDisagree(Reason, frozen=True, gc=False):
    """Too few groups of requests find devices that agree on an attribute."""

    sentence = "too few groups of requests find devices that agree on {attribute}"
    attribute: str


class AttributeMissing(Reason, frozen=True, gc=False):
    """No device that matches has an attribute that a constraint compares."""

    sentence = (
        "{request}: no matching device has the attribute {attribute}, which a constraint compares"
    )
    request: str
    attribute: str


class ConstraintNotMet(Reason, frozen=True, gc=False):
    """Too few devices have a common value (or, `distinct`, different values) of an attribute.

    `at_least`: alternatives of the requests ask for more; `value` is that of most devices.
    """

    requests: tuple[str, ...]
    attribute: str
    distinct: bool
    requested: int
    available: int
    at_least: bool = False
    value: str = ""
    obstacles: tuple[Obstacles, ...] = ()

    def __str__(self) -> str:
        details = [f"value {self.value}"] if self.value else []
        if self.obstacles:
            details.append(counted(self.obstacles, more=self.available > 0))
        values = "different values" if self.distinct else "a common value"
        return (
            f"{', '.join(self.requests)}: {'at least ' if self.at_least else ''}"
            f"{self.requested} requested with {values} of {self.attribute}, "
            f"{_available(self.available)}" + (f" ({'; '.join(details)})" if details else "")
        )


def _available(number: int) -> str:
    return f"at most {number} available" if number else "none available"


class ValuesWithDevices(msgspec.Struct, frozen=True, gc=False):
    """How many values of an attribute have free devices: for each request, and for all of them."""

    by_request: tuple[tuple[str, int], ...]
    together: int


class GroupsNotMet(Reason, frozen=True, gc=False):
    """Of groups of requests that each need a common value, too few get one.

    `groups` are the requests of each group; `pairs`: each is of two requests for one device.
    """

    groups: tuple[tuple[str, ...], ...]
    attribute: str
    available: int
    pairs: bool = False
    values: ValuesWithDevices | None = None
    obstacles: tuple[Obstacles, ...] = ()

    def __str__(self) -> str:
        number = len(self.groups)
        named = [" and ".join(group) for group in self.groups]
        details = []
        if (values := self.values) is not None:
            of_each = [f"{count} for {request}" for request, count in values.by_request]
            all_ = "both" if len(of_each) == 2 else "all of these"
            of_each.append(f"{values.together} for {all_}")
            details.append(f"values with free devices: {', '.join(of_each)}")
        if self.obstacles:
            details.append(counted(self.obstacles, more=True))
        return (
            f"{listed(named)}: {number} {'pairs' if self.pairs else 'groups'} requested, each with "
            f"a common value of {self.attribute}, {_available(self.available)}"
            + (f" ({'; '.join(details)})" if details else "")
        )


class SharedConstraint(Reason, frozen=True, gc=False):
    """Requests share a constraint of a claim."""

    claim: str
    attribute: str
    distinct: bool

    def __str__(self) -> str:
        kind = "distinctAttribute" if self.distinct else "matchAttribute"
        return f"{kind} {self.attribute} of claim {self.claim}"


class SharedCounters(Reason, frozen=True, gc=False):
    """Requests share the counters of a pool."""

    sentence = "counters of {pool}"
    pool: PoolRef


class SharedCapacity(Reason, frozen=True, gc=False):
    """Requests share the capacity of a device."""

    sentence = "capacity of {device}"
    device: DeviceId


class RequestsDoNotFit(Reason, frozen=True, gc=False):
    """Requests that could each be met alone cannot be met together; what they may compete for.

    `single`: it is one request for several devices.
    """

    competing_for: tuple[Reason, ...] = ()
    single: bool = False

    def __str__(self) -> str:
        many = "not all requests can be met together"
        few = "too few devices fit together" if self.single else many
        causes = ", ".join(map(str, self.competing_for)) or "they compete for the same devices"
        return f"{few} ({causes})"


class PoolNotWhole(Reason, frozen=True, gc=False):
    """A pool that may be meant cannot be allocated from; `flaw` is upstream's word for it."""

    sentence = "{pool} is {flaw}"
    pool: PoolRef
    flaw: str


class PoolDisputed(Reason, frozen=True, gc=False):
    """Slices of these nodes contradict each other about a pool; those of each node count for it
    alone."""

    pool: PoolRef
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        nodes = ", ".join(self.nodes)
        return f"{self.pool} is disputed: slices of {nodes} each count for their own node only"


class PoolInvalid(Reason, frozen=True, gc=False):
    """A pool contradicts itself, which fails the whole node."""

    sentence = "{pool} is invalid: {detail}"
    pool: PoolRef
    detail: str


class PoolBetweenGenerations(Reason, frozen=True, gc=False):
    """The pool's driver is replacing its slices."""

    sentence = "{pool} is between generations: its driver is replacing its slices"
    pool: PoolRef
