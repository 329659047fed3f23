"""The group `resource.nvidia.com/v1beta1` of NVIDIA's DRA driver, as far as claims refer to it."""

from fettle.api.meta import ObjectMeta, Wire


class ComputeDomain(Wire, frozen=True, kw_only=True):
    """Claims refer to it by UID; nothing in its spec matters to them."""

    metadata: ObjectMeta
