"""Settings of what the steward writes: on devices, nodes and pods."""

from math import inf
from typing import Literal

from fettle.config.sections import SettingsSection, check, check_name


class DeviceTaintSettings(SettingsSection, frozen=True, kw_only=True):
    """Taints that the steward puts on DRA devices by their health, as DeviceTaintRules. The
    scheduler itself obeys them, so no pod gets such a device, whatever else happens. Off until set.
    Written only with `mode: enforce`, and with the rights in
    `deploy/rbac/optional/health-taints.yaml`."""

    unhealthy: Literal["None", "NoSchedule", "NoExecute"] | None = None
    """The effect of the taint `fettle.dev/unhealthy` on Unhealthy devices, once they are
    confirmed. `None` only informs. `NoSchedule` keeps new pods off. `NoExecute` also ends the pods
    that have the device: at once, and not by eviction, so no PodDisruptionBudget protects them."""
    degraded: Literal["None", "NoSchedule"] | None = None
    """The effect of the taint `fettle.dev/degraded` on Degraded devices, once they are confirmed.
    With `NoSchedule`, claims of policies with `tolerations.degradedAsFallback` get them only where
    no sound device is left, and all other claims never. It stays `None` while a dry run does not
    show that the webhook gives claims that fallback."""
    confirm_seconds: float = 120.0
    """How long a device must have been Unhealthy or Degraded. Until then the effect is `None`."""
    max_share: float = 0.20
    """The largest share (0 to 1) of the devices of one driver that get such a taint. As with the
    breaker, pools on fewer than `breaker.minNodes` nodes have no such limit."""
    writes_per_second: float = 10.0
    """How many DeviceTaintRules are written a second, at most."""

    def __post_init__(self) -> None:
        check(
            "deviceTaints",
            0 <= self.confirm_seconds < inf,
            "confirmSeconds must be finite, and 0 or more",
        )
        check("deviceTaints", 0 <= self.max_share <= 1, "maxShare must be 0 to 1")
        check(
            "deviceTaints",
            1 <= self.writes_per_second <= 1000,
            "writesPerSecond must be 1 to 1000",
        )


class NodeMarkSettings(SettingsSection, frozen=True, kw_only=True):
    """What the steward writes on Nodes that have devices, for those who ask no extender. Off until
    set. Written only with `mode: enforce`, and with the rights in
    `deploy/rbac/optional/node-marks.yaml`; removed when it is switched off."""

    label: bool = False
    """The label `fettle.dev/health` (`healthy`, `degraded`, `unhealthy`, `unknown`), those beside
    it for affinity, such as `fettle.dev/health.nvidia.com_gpu`, and the annotation
    `fettle.dev/health-reason`."""
    condition: bool = False
    """The condition `FettleDevicesSound`, which is False while a device is Unhealthy or lost."""
    cordon: Literal["AnyDevice", "EveryDevice"] | None = None
    """Cordon nodes with a device that is Unhealthy (`AnyDevice`), or only those of which every
    device of a driver or resource is (`EveryDevice`)."""
    confirm_seconds: float = 300.0
    """How long it must have been so before a node is cordoned."""
    max_cordoned: int = 3
    """No further node is cordoned while so many nodes with devices are, whoever cordoned them."""
    max_cordoned_share: float = 0.10
    """The same for each driver and resource, as a share (0 to 1) of the nodes that have devices of
    it, rounded up."""
    hold_seconds: float = 60.0
    """How long a node must have been better before its marks say so. Worse is written at once."""
    writes_per_second: float = 10.0
    """How many labels, conditions and cordons are written a second, at most, each."""

    @property
    def is_on(self) -> bool:
        return self.label or self.condition or self.cordon is not None

    def __post_init__(self) -> None:
        for must, text in (
            (0 <= self.confirm_seconds < inf, "confirmSeconds must be finite, and 0 or more"),
            (0 <= self.hold_seconds < inf, "holdSeconds must be finite, and 0 or more"),
            (self.max_cordoned >= 0, "maxCordoned must be 0 or more"),
            (0 <= self.max_cordoned_share <= 1, "maxCordonedShare must be 0 to 1"),
            (1 <= self.writes_per_second <= 1000, "writesPerSecond must be 1 to 1000"),
        ):
            check("nodeMarks", must, text)


class DeviceFailureSettings(SettingsSection, frozen=True, kw_only=True):
    """What the steward does about pods on failed devices, where their policy's
    `failure.onDeviceFailure` says so. Off until set. Written only in mode `enforce`, and with the
    rights in `deploy/rbac/optional/pod-conditions.yaml` and `pod-evictions.yaml`."""

    allow: Literal["Mark", "Evict"] | None = None
    """How far it may go. `Mark`: pods get the condition `fettle.dev/DeviceFailed`. `Evict`: pods
    whose policy says `Evict` are also evicted, within PodDisruptionBudgets, and those that do not
    start within their policy's `failure.startDeadline`."""
    confirm_seconds: float = 120.0
    """How long a pod must have been on a failed device before it is evicted. It is marked at
    once."""
    evictions_per_second: float = 0.1
    """How many pods are evicted a second, at most: by default one in ten seconds."""
    max_share: float = 0.05
    """The largest share (0 to 1) of the devices of one driver, or units of one resource, whose pods
    may be ending by eviction at one time. One pod always may."""
    force_delete_seconds: float | None = None
    """After so long without a sign of life of its node, a pod that is to end there is deleted by
    force, if its policy says `onLostNode: ForceDelete`: 300 or more. Its processes may still run.
    Needs `deploy/rbac/optional/pod-force-deletes.yaml`. Off until set."""

    def __post_init__(self) -> None:
        where = "deviceFailures"
        forces = self.force_delete_seconds
        check(
            where,
            forces is None or 300 <= forces < inf,
            "forceDeleteSeconds must be finite, and 300 or more",
        )
        check(
            where, 0 <= self.confirm_seconds < inf, "confirmSeconds must be finite, and 0 or more"
        )
        check(
            where,
            0.001 <= self.evictions_per_second <= 100,
            "evictionsPerSecond must be 0.001 to 100",
        )
        check(where, 0 <= self.max_share <= 1, "maxShare must be 0 to 1")


class KueueSettings(SettingsSection, frozen=True, kw_only=True):
    """What the steward answers Kueue, with the rights in `deploy/rbac/optional/kueue.yaml`."""

    admission_check: bool = False
    """Answer AdmissionChecks with the controller `fettle.dev/sound-devices`: a workload that holds
    quota starts once there are enough sound devices for all of its pods."""


class StewardSettings(SettingsSection, frozen=True, kw_only=True):
    """The steward: the one replica that writes to the cluster."""

    lease: str = "fettle-steward"
    """The Lease by which replicas elect the leader."""
    lease_seconds: float = 15.0
    """How long the Lease lasts after the leader disappears."""
    wake_claim: str = "fettle-wake-up"
    """The ResourceClaim that the steward annotates to make the scheduler retry waiting pods."""
    wake_pod: str = "fettle-wake-up"
    """The pod whose `status.nominatedNodeName` the steward sets and clears to make the scheduler
    retry pods that wait for processors or units: `deploy/rbac/optional/wake-preemptors.yaml`."""
    wake_interval_seconds: float = 1.0
    """The shortest time between two wake-ups."""
    health_writes_per_second: float = 20.0
    """How many DeviceHealth objects are written a second, at most. With 0 none is written, and a
    restart forgets how long states have lasted and what is no longer reported."""
    dry_run: bool = False
    """Write nothing because of a device's health, on pods, nodes and devices: `fettle decisions`
    shows what would have been written. Events, wake-ups and DeviceHealths are not concerned."""

    def __post_init__(self) -> None:
        check("steward", 1 <= self.lease_seconds <= 3600, "leaseSeconds must be 1 s to an hour")
        check(
            "steward",
            0 < self.wake_interval_seconds < inf,
            "wakeIntervalSeconds must be finite, and more than 0",
        )
        check(
            "steward",
            0 <= self.health_writes_per_second <= 1000,
            "healthWritesPerSecond must be 0 to 1000",
        )
        check_name("steward: lease", self.lease)
        check_name("steward: wakeClaim", self.wake_claim)
        check_name("steward: wakePod", self.wake_pod)
