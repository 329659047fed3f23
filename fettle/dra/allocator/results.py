"""What an allocation comes to, and the ways in which a search ends early."""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from fettle.dra.pools import DeviceView
from fettle.model import reasons
from fettle.model.reasons import Reason

NOTHING = reasons.NothingFits()
"""All that a search knows that found nothing."""


class AllocationStatus(StrEnum):
    FITS = "fits"
    NONE = "none"
    ERROR = "error"
    UNDECIDED = "undecided"


class Taken(msgspec.Struct, frozen=True, gc=False):
    """One device of an allocation: for which claim (its place in the ask) and request.

    `consumed` is what a share takes of the device's capacities, in 1e-9; None: not a share.
    """

    claim: int
    request: str
    device: DeviceView
    admin_access: bool = False
    consumed: tuple[tuple[str, int], ...] | None = None


class Allocated(msgspec.Struct, frozen=True, gc=False):
    """`devices` in the order taken, claim by claim; `reasons` for all but FITS.

    ERROR ends the scheduler's whole attempt for the pod, unless `on_node`: then only this node
    fails. `steps` counts the calls that Kubernetes' allocator would make. `bounded`: it is
    undecided, but no other devices could be taken than those that were looked at.
    """

    found: AllocationStatus
    devices: tuple[Taken, ...] = ()
    reasons: tuple[Reason, ...] = ()
    on_node: bool = False
    steps: int = 0
    bounded: bool = False


class Budget(msgspec.Struct, frozen=True):
    """How far one search may go: steps as upstream counts them, and seconds of work, of whatever
    kind.

    After `prune_after` devices that were taken in vain it is asked whether going on is of any use;
    None: never.
    """

    steps: int = 20_000
    seconds: float = 0.25
    prune_after: int | None = 16


AMPLE = Budget()


class Aborted(Exception):
    """A hard error of Kubernetes' allocator."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Unclear(Exception):
    """The search came upon something that cannot be decided."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Unfinished(Exception):
    """It took too long."""

    def __init__(self, reason: reasons.SearchTookTooLong) -> None:
        super().__init__(reason)
        self.reason = reason


class DeviceIndices(NamedTuple):
    """Allocate device `nth` of a request, from candidate `start` on, and then all that follows.

    `alternative` is None where one of a list is still to be chosen.
    """

    claim: int
    request: int
    alternative: int | None = None
    nth: int = 0
    start: int = 0
