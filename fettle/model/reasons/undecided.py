"""What cannot be decided."""

from enum import StrEnum

from fettle.model.reasons.base import Reason
from fettle.model.subjects import DeviceId, PoolRef

_NO_ORDER = "this scheduler visits slices in no fixed order"


class Unmodelled(StrEnum):
    """Behaviour of Kubernetes that Fettle does not model."""

    DERIVED_ATTRIBUTES = "DerivedAttributes"
    SHARES_BEFORE_1_36 = "SharesBefore1.36"
    ALL_ALTERNATIVE_BEFORE_1_36 = "AllAlternativeBefore1.36"
    COUNTERS_BEFORE_1_36_2 = "CountersBefore1.36.2"
    COUNTERS_OF_1_34 = "CountersOf1.34"
    POOLS_OF_1_34 = "PoolsOf1.34"
    COMPATIBILITY_GROUPS = "CompatibilityGroups"
    OPTIONAL_NODE_OPERATIONS = "OptionalNodeOperations"


_UNMODELLED = {
    Unmodelled.DERIVED_ATTRIBUTES: "derived attributes are not modelled",
    Unmodelled.SHARES_BEFORE_1_36: "before Kubernetes 1.36, devices with "
    "allowMultipleAllocations are given out in ways that are not modelled",
    Unmodelled.ALL_ALTERNATIVE_BEFORE_1_36: "before Kubernetes 1.36, an alternative that "
    "requests all devices is mistaken for the first of its list, and that is not modelled",
    Unmodelled.COUNTERS_BEFORE_1_36_2: "before Kubernetes 1.36.2, devices in shared use "
    "draw nothing on counters, and which ones on other nodes are is not known here",
    Unmodelled.COUNTERS_OF_1_34: "it has shared counters, which Kubernetes 1.34 keeps by "
    "slice, and that is not modelled",
    Unmodelled.POOLS_OF_1_34: "it is {detail}, and what Kubernetes 1.34 makes of that is "
    "not modelled",
    Unmodelled.COMPATIBILITY_GROUPS: "compatibility groups are not modelled",
    Unmodelled.OPTIONAL_NODE_OPERATIONS: "optional node operations are not modelled",
}


class NotModelled(Reason, frozen=True, gc=False):
    """Fettle does not model what Kubernetes does with this request, device or pool."""

    feature: Unmodelled
    request: str = ""
    device: DeviceId | None = None
    pool: PoolRef | None = None
    detail: str = ""

    def __str__(self) -> str:
        what = _UNMODELLED[self.feature].format(detail=self.detail)
        of = str(self.pool) if self.pool is not None else self.request
        if self.device is not None:
            of = f"{of} on {self.device}" if of else str(self.device)
        return f"{of}: {what}"


class RequestUnclear(Reason, frozen=True, gc=False):
    """A request that cannot be read in full."""

    sentence = "{request}: {detail}"
    request: str
    detail: str


class DeviceUnclear(Reason, frozen=True, gc=False):
    """A device that cannot be read in full."""

    sentence = "{device}: {detail}"
    device: DeviceId
    detail: str


class CapacityCheckIgnored(Reason, frozen=True, gc=False):
    """A requested capacity that later versions of Kubernetes refuse, and this one does not."""

    sentence = "{device}: {cause}, which this version ignores"
    device: DeviceId
    cause: Reason


class PoolUnclear(Reason, frozen=True, gc=False):
    """A pool of which something cannot be told."""

    sentence = "{pool}: {detail}"
    pool: PoolRef
    detail: str


class SelectorUndecided(Reason, frozen=True, gc=False):
    """Whether a selector matches a device cannot be told (yet)."""

    sentence = "{request} on {device}: {detail}"
    request: str
    device: DeviceId
    detail: str


class SliceOrderCause(StrEnum):
    """Why the order of pools or slices decides, which is not fixed."""

    POOL_UNCLEAR = "PoolUnclear"
    ERROR_ON_A_DEVICE = "ErrorOnADevice"
    SEVERAL_SLICES = "SeveralSlices"
    ALL_UNDER_CONSTRAINT = "AllUnderConstraint"


class SliceOrderMatters(Reason, frozen=True, gc=False):
    """The choice depends on an order that is not fixed; `beyond` is what it may meet."""

    cause: SliceOrderCause
    beyond: Reason | None = None

    def __str__(self) -> str:
        beyond = self.beyond if self.beyond is not None else ""
        match self.cause:
            case SliceOrderCause.POOL_UNCLEAR:
                return (
                    f"this scheduler visits pools in no fixed order, and one is unclear: {beyond}"
                )
            case SliceOrderCause.ERROR_ON_A_DEVICE:
                return f"{_NO_ORDER}, and on some device: {beyond}"
            case SliceOrderCause.SEVERAL_SLICES:
                return f"{_NO_ORDER}, and several have such devices"
        return f"{_NO_ORDER}, and all devices are requested under a constraint"


class SearchTookTooLong(Reason, frozen=True, gc=False):
    """The search was ended after so many steps, or seconds."""

    steps: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        if self.steps is not None:
            return f"no result within {self.steps} search steps"
        return f"no result within {self.seconds:g} s"


class ObjectUnreadable(Reason, frozen=True, gc=False):
    """An object of this node cannot be read, so something may be missing; `detail` names it."""

    sentence = "{detail}"
    detail: str
