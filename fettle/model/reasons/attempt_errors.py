"""What ends the scheduler's attempt in an error."""

from fettle.model.reasons.base import Reason
from fettle.model.subjects import DeviceId, PoolRef


class FeatureGateOff(Reason, frozen=True, gc=False):
    """A request uses a field whose feature gate is off."""

    sentence = "{request}: the gate {gate} is off"
    request: str
    gate: str


class DeviceClassNotFound(Reason, frozen=True, gc=False):
    """A request names a DeviceClass that does not exist."""

    sentence = "{request}: device class {device_class} does not exist"
    request: str
    device_class: str


class RequestInvalid(Reason, frozen=True, gc=False):
    """A request that no API server would store."""

    sentence = "{request}: {detail}"
    request: str
    detail: str


class ClaimTooLarge(Reason, frozen=True, gc=False):
    """A claim asks for more devices than a claim may have."""

    sentence = (
        "claim {claim}, request {request}: adding {adding} devices exceeds "
        "the claim limit of {limit}, with {total} already accounted for"
    )
    claim: str
    request: str
    adding: int
    limit: int
    total: int


class ResultsTooMany(Reason, frozen=True, gc=False):
    """A claim would need more devices than a claim may have."""

    sentence = "a claim would need more than {limit} devices"
    limit: int


class ConstraintInvalid(Reason, frozen=True, gc=False):
    """A constraint of a claim has an unknown form."""

    sentence = "claim {claim}: constraint {index} is of an unknown form"
    claim: str
    index: int


class SelectorFailed(Reason, frozen=True, gc=False):
    """A CEL selector fails on a device; `detail` is the evaluator's word."""

    sentence = "{request} on {device}: {detail}"
    request: str
    device: DeviceId
    detail: str


class AttributesInvalid(Reason, frozen=True, gc=False):
    """No selector can be evaluated on a device, since an attribute of it cannot be read."""

    sentence = "{request}: selectors on {device}: {detail}"
    request: str
    device: DeviceId
    detail: str


class DeviceNodesInvalid(Reason, frozen=True, gc=False):
    """For which nodes a device is cannot be told."""

    sentence = "{device}: {detail}"
    device: DeviceId
    detail: str


class NodeSelectorTooComplex(Reason, frozen=True, gc=False):
    """The allocation's node selector could not be written."""

    sentence = "{device}: its node selector has {terms} terms"
    device: DeviceId
    terms: int


class NodeSelectorMalformed(Reason, frozen=True, gc=False):
    """A node selector of some ResourceSlice cannot be parsed: no pool can be gathered here."""

    sentence = "{detail}"
    detail: str


class PoolUnusable(Reason, frozen=True, gc=False):
    """All devices are requested, and a pool that may have some is being updated, or is invalid."""

    sentence = "{request}: all devices are requested, but {pool} is {state}"
    request: str
    pool: PoolRef
    state: str


class ConstraintForbidsDevice(Reason, frozen=True, gc=False):
    """A device is needed, but a constraint of the claim forbids it."""

    sentence = "{request}: {device} is needed, but a constraint of the claim forbids it"
    request: str
    device: DeviceId


class SchedulerCrashes(Reason, frozen=True, gc=False):
    """This version of kube-scheduler crashes over a request for all devices that use counters."""

    sentence = (
        "{request}: {device} consumes counters, and this version of kube-scheduler "
        "crashes where all such devices are requested; upgrade it to 1.35.6 or 1.36.2"
    )
    request: str
    device: DeviceId


class CapacityRequestInvalid(Reason, frozen=True, gc=False):
    """A requested capacity cannot be granted as a number; `detail` says why."""

    sentence = "{detail}"
    detail: str
