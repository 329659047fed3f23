"""Which taints keep a device from being allocated."""

from collections.abc import Sequence

from fettle.api.resource import DeviceTaint, DeviceToleration
from fettle.model import TaintRef


def tolerated(taints: Sequence[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> bool:
    """Whether all taints with an effect on allocation are tolerated; unknown effects have none."""
    return all(
        taint.effect not in ("NoSchedule", "NoExecute")
        or any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
    )


def tolerates(toleration: DeviceToleration, taint: DeviceTaint | TaintRef) -> bool:
    """As `ToleratesTaint` of k8s.io/dynamic-resource-allocation/resourceclaim does."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
