"""Notes about what may happen next."""

import msgspec

from fettle.model.evidence import Source
from fettle.model.reasons.base import Reason, listed
from fettle.model.subjects import DeviceId


class DeviceScore(msgspec.Struct, frozen=True, gc=False):
    """A device and its score."""

    device: DeviceId
    score: float


class RuleSetAside(Reason, frozen=True, gc=False):
    """This rule alone condemns so much of a pool that what it condemns is the last choice, by these
    policies, of pods that have waited.

    It condemns `condemned` of `devices` by the policy that it condemns most for, and may condemn
    the share `limit` (0..1). `rule` is the source of the evidence. `hard`: it is what a driver or
    hardware latched, or what a kubelet refused. `burst`: it began to within ten minutes, and names
    no devices.
    """

    rule: Source
    pool: str
    policies: tuple[str, ...]
    condemned: int
    devices: int
    limit: float
    hard: bool = False
    burst: bool = False

    def __str__(self) -> str:
        share = f"{100 * self.condemned / self.devices:.3g} %"
        policies = "policy " if len(self.policies) == 1 else "policies "
        sudden = ", within minutes" if self.burst else ""
        return (
            f"breaker: {self.rule} is set aside in {self.pool}: it alone condemns "
            f"{self.condemned} of {self.devices} ({share}; more than {100 * self.limit:.3g} %)"
            f"{sudden}, so by {policies}{', '.join(self.policies)} what it condemns is the last "
            "choice of pods that have waited long enough; either the rule is wrong, or so much has "
            "really failed"
        )


class PodsInFlight(Reason, frozen=True, gc=False):
    """Up to so many pods with the same needs may be placed here first; what is left then.

    `then` is why this pod would be refused by then, `devices` what it may get instead.
    """

    pods: int
    then: Reason | None = None
    devices: tuple[DeviceScore, ...] = ()

    def __str__(self) -> str:
        pods = "1 pod" if self.pods == 1 else f"up to {self.pods} pods"
        then = f": then {self.then}" if self.then is not None else ""
        if self.devices:
            named = [f"{each.device} ({each.score:.2f})" for each in self.devices]
            then = f": this one may then get {listed(named)}"
        return f"{pods} with the same needs may be placed here first{then}"


class PreemptionWouldHelp(Reason, frozen=True, gc=False):
    """If the pod preempts these pods (`namespace/name`), it would get these devices."""

    victims: tuple[str, ...]
    devices: tuple[DeviceId, ...]

    def __str__(self) -> str:
        devices = listed(self.devices)
        would = f"get {devices}" if devices else "not be refused"
        return f"if it preempts {listed(self.victims)} here, it would {would}"


class PreemptionWouldNotHelp(Reason, frozen=True, gc=False):
    """With these pods gone, the node would be refused for the cause."""

    victims: tuple[str, ...]
    cause: Reason

    def __str__(self) -> str:
        gone = f"with {listed(self.victims)} gone it would be refused: {self.cause}"
        return f"preempts nobody here: {gone}"
