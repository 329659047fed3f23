"""The group `resource.nvidia.com/v1beta1` of NVIDIA's DRA driver, as far as claims refer to it, and
what it says of nodes."""

from fettle.api.annotations import ApiObject
from fettle.api.meta import Wire


class ComputeDomainNode(Wire, frozen=True, kw_only=True):
    """`status` is Ready or NotReady; "" where the driver does not say."""

    name: str = ""
    status: str = ""


class ComputeDomainStatus(Wire, frozen=True, kw_only=True):
    nodes: tuple[ComputeDomainNode, ...] | None = None


class ComputeDomain(ApiObject, frozen=True, kw_only=True):
    """Claims refer to it by UID; nothing in its spec matters to them."""

    status: ComputeDomainStatus | None = None
