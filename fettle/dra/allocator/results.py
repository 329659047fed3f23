"""The outcome of an allocation, and the exceptions that end a search early."""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from fettle.dra.pools import DeviceView
from fettle.model import reasons
from fettle.model.reasons import Reason

NOTHING = reasons.NothingFits()
"""The reason if a search found nothing and knows no more."""


class AllocationStatus(StrEnum):
    FITS = "fits"
    NONE = "none"
    ERROR = "error"
    UNDECIDED = "undecided"


class DeviceResult(msgspec.Struct, frozen=True, gc=False):
    """One device of an allocation, for a request of a claim (its index in the demand).

    `consumed` is what a share consumes of each capacity, in 1e-9; None if it is not a share.
    """

    claim: int
    request: str
    device: DeviceView
    admin_access: bool = False
    consumed: tuple[tuple[str, int], ...] | None = None


class AllocationOutcome(msgspec.Struct, frozen=True, gc=False):
    """`devices` in the order of allocation, claim by claim; `reasons` for all but FITS.

    ERROR ends the scheduler's whole attempt for the pod; with `on_node`, only this node fails.
    `steps` counts the calls that Kubernetes' allocator would make. `bounded`: the outcome is
    undecided, but no devices other than the candidates could be allocated.
    """

    found: AllocationStatus
    devices: tuple[DeviceResult, ...] = ()
    reasons: tuple[Reason, ...] = ()
    on_node: bool = False
    steps: int = 0
    bounded: bool = False


class Budget(msgspec.Struct, frozen=True):
    """How far one search may go: upstream's steps, and seconds of work of any kind.

    After `prune_after` devices were rolled back, it is checked whether the search can succeed at
    all; None: never.
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
    """Something came up in the search that cannot be decided."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Unfinished(Exception):
    """The search exceeded its budget."""

    def __init__(self, reason: reasons.SearchTookTooLong) -> None:
        super().__init__(reason)
        self.reason = reason


class DeviceIndices(NamedTuple):
    """The arguments of a call: allocate device `nth` of a request, from candidate `start` on, and
    then all that follows. `alternative` is None until one of a `firstAvailable` list is chosen.
    """

    claim: int
    request: int
    alternative: int | None = None
    nth: int = 0
    start: int = 0
