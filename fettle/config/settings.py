"""The settings: what an operator can change, with defaults and limits.

`docs/settings.md` is made from this module by `fettle/config/reference.py`: the docstring below
each setting is its entry there. `fettle/config/files.py` reads the settings from a file.
"""

import re
from math import inf
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from fettle.api.core import DEFAULT_SCHEDULER
from fettle.config.addresses import ListenAddress
from fettle.dra import parse_feature_gates, parse_git_version
from fettle.model import (
    BUILT_IN,
    INFERENCE,
    Degraded,
    Mode,
    Policies,
    Policy,
    RuleSeverity,
    Validation,
)

_RULE = re.compile(r"FTL\d{3}")
_POLICY_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?")
"""What the API server accepts as an object name and as the value of a namespace's label."""
_SCHEDULER_NAME = re.compile(r"\S{1,253}")
"""Neither the API server nor kube-scheduler requires more."""
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LONGEST_LABEL, _LONGEST_NAME = 63, 253
BOOKMARKS_S = 60.0
"""How often an API server sends bookmarks, at the latest."""
CLIENT_NAMES = ("system:kube-scheduler",)
"""As which kube-scheduler calls: its user."""
API_SERVER_WAITS_S = 2.0
"""`timeoutSeconds` of the webhook configurations in `deploy/webhook/`."""


class SettingsSection(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Base of all sections. Unknown settings are refused."""


def _check(section: str, holds: bool, must: str) -> None:
    if not holds:  # also where a value is NaN
        raise ValueError(f"{section}: {must}")


def _check_name(setting: str, name: str, longest: int = _LONGEST_NAME) -> None:
    """Checks an object name as Kubernetes does. Names of namespaces and Services are a single
    label."""
    label_only = longest == _LONGEST_LABEL
    shape = _LABEL if label_only else rf"{_LABEL}(\.{_LABEL})*"
    if len(name) > longest or re.fullmatch(shape, name) is None:
        signs = "digits and '-'" if label_only else "digits, '-' and '.'"
        raise ValueError(
            f"{setting} {name[:longest]!r} must be at most {longest} lower-case letters, {signs}, "
            "beginning and ending with a letter or digit"
        )


class ExpectedDevicesSettings(SettingsSection, frozen=True, kw_only=True):
    """How many devices the nodes with a label have."""

    label: str
    """A label of Nodes and its value, such as `node.kubernetes.io/instance-type=p5.48xlarge`."""
    devices: dict[str, int]
    """By resource (`nvidia.com/gpu: 8`), units; by DRA driver (`gpu.nvidia.com: 8`), devices."""

    def __post_init__(self) -> None:
        key, equals, _ = self.label.partition("=")
        _check("health.expectedDevices", bool(key and equals), "label must be KEY=VALUE")
        _check(
            "health.expectedDevices",
            all(0 <= number < 1_000_000 for number in self.devices.values()),
            "devices must be 0 to 999999",
        )


class HealthSettings(SettingsSection, frozen=True, kw_only=True):
    """Thresholds between the states of a device or node. Scores are 0 to 1."""

    degraded_below: float = 0.80
    """Below this score the state is Degraded."""
    degraded_until: float = 0.90
    """At this score a Degraded device is Healthy again."""
    unhealthy_below: float = 0.30
    """Below this score the state is Unhealthy."""
    unhealthy_until: float = 0.45
    """At this score an Unhealthy device leaves that state."""
    min_dwell_seconds: float = 600.0
    """How long a state lasts at least before a better one. It delays neither a worse state nor an
    explicit all-clear."""
    orphan_half_life_seconds: float = 3600.0
    """Half-life of a fault that is no longer reported, without an all-clear."""
    quiet_half_life_seconds: float = 3600.0
    """A fault that is over leaves a trace. The trace counts half after so long without the fault,
    or after as long as the fault usually took to come back, if that is longer."""
    recurring_seconds: float = 7200.0
    """A fault that was over for the third time leaves its device in the state that it is in until
    it has been quiet for as long as it usually took to come back, at most this."""
    missing_after_seconds: float = 600.0
    """A node that has had fewer devices than expected for so long has lost some. This changes no
    score. Plugins and drivers that restart, and nodes that start, need minutes."""
    expected_devices: tuple[ExpectedDevicesSettings, ...] = ()
    """How many devices nodes have, where nobody else says so, or says so wrongly. The annotation
    `fettle.dev/expected-devices` of a Node comes first, then the first row that fits it."""
    rules_file: str | None = None
    """A YAML file with rows for the rule tables in `fettle/health/signals/rules/`. A row replaces
    the shipped row of the same name; a new name adds a row."""

    def __post_init__(self) -> None:
        ordered = (
            0 <= self.unhealthy_below <= self.unhealthy_until
            and self.unhealthy_below <= self.degraded_below <= self.degraded_until <= 1
        )
        _check(
            "health",
            ordered,
            "must be 0 ≤ unhealthyBelow ≤ unhealthyUntil, and unhealthyBelow ≤ degradedBelow ≤ "
            "degradedUntil ≤ 1",
        )
        _check(
            "health",
            0 <= self.min_dwell_seconds < inf,
            "minDwellSeconds must be finite, and 0 or more",
        )
        _check(
            "health",
            0 < self.orphan_half_life_seconds < inf,
            "orphanHalfLifeSeconds must be finite, and more than 0",
        )
        _check(
            "health",
            0 < self.quiet_half_life_seconds < inf,
            "quietHalfLifeSeconds must be finite, and more than 0",
        )
        _check(
            "health",
            0 <= self.recurring_seconds < inf,
            "recurringSeconds must be finite, and 0 or more",
        )
        _check(
            "health",
            0 < self.missing_after_seconds < inf,
            "missingAfterSeconds must be finite, and more than 0",
        )


class SchedulerSettings(SettingsSection, frozen=True, kw_only=True):
    """The schedulers that call Fettle. Fettle cannot read any of this from them."""

    names: tuple[str, ...] = (DEFAULT_SCHEDULER,)
    """`spec.schedulerName` of the pods whose scheduler has Fettle's `extenders` entry. All profiles
    of one scheduler configuration share that entry. Only pods of these schedulers get the marker
    `fettle.dev/claims`, which makes the scheduler send them to Fettle."""
    version: str = ""
    """The version of kube-scheduler, such as `v1.36.3`. If empty: the version of the API server, or
    the newest that Fettle knows where there is no API server."""
    feature_gates: str = ""
    """The scheduler's `--feature-gates`, such as `DRAPrioritizedList=false`: those about DRA that
    differ from the defaults of its version."""
    binding_timeout_seconds: float = 600.0
    """`bindingTimeout` in the scheduler's DynamicResourcesArgs."""

    def __post_init__(self) -> None:
        for index, name in enumerate(self.names):
            _check(
                "scheduler.names",
                _SCHEDULER_NAME.fullmatch(name) is not None,
                f"{name[:_LONGEST_NAME]!r} must be a pod's spec.schedulerName, such as "
                f"{DEFAULT_SCHEDULER}",
            )
            _check("scheduler.names", name not in self.names[:index], f"{name!r} is given twice")
        _check(
            "scheduler.version",
            not self.version or bool(parse_git_version(self.version)),
            f"{self.version[:_LONGEST_NAME]!r} must be kube-scheduler's version, such as v1.36.3",
        )
        try:
            parse_feature_gates(self.feature_gates)
        except ValueError as error:
            raise ValueError(f"scheduler.featureGates: {error}") from error
        _check(
            "scheduler",
            0 < self.binding_timeout_seconds < inf,
            "bindingTimeoutSeconds must be finite, and more than 0",
        )

    @property
    def gates(self) -> dict[str, bool]:
        """The gates that are set, by name."""
        return parse_feature_gates(self.feature_gates)

    @property
    def disabled(self) -> frozenset[str]:
        """The gates that are turned off."""
        return frozenset(name for name, on in self.gates.items() if not on)


class BreakerSettings(SettingsSection, frozen=True, kw_only=True):
    """The breaker: what a rule condemns that alone would refuse too much of a pool is the last
    choice of pods that have waited."""

    max_excluded_share: float = 0.20
    """The largest share (0 to 1) of the devices of one driver or extended resource, and of their
    nodes, that one rule may refuse; of evidence that is latched, or a kubelet's refusal, at least
    0.5."""
    min_nodes: int = 10
    """In pools on fewer schedulable nodes, where a single node could exceed that share, any rule
    may refuse half."""
    patience_seconds: int = 1800
    """How long pods wait before they may get what such a rule condemns, if their policy has no
    `patience`; if it has one, that counts."""
    burst_patience_seconds: int = 600
    """How long at most, if the rule names no devices and condemned too much of the pool within ten
    minutes, as a wrong rule does. Nothing that a driver or hardware latched counts as that."""

    def __post_init__(self) -> None:
        _check("breaker", 0 <= self.max_excluded_share <= 1, "maxExcludedShare must be 0 to 1")
        _check("breaker", self.min_nodes >= 0, "minNodes must be 0 or more")
        _check("breaker", self.patience_seconds >= 0, "patienceSeconds must be 0 or more")
        _check(
            "breaker", self.burst_patience_seconds >= 0, "burstPatienceSeconds must be 0 or more"
        )


class SourceSettings(SettingsSection, frozen=True, kw_only=True):
    """How fresh the sources must be."""

    silent_after_seconds: float = 150.0
    """After this time without contact (event or bookmark), Fettle is not ready, and the extender
    answers `Error` instead of verdicts. Use more than 60, since bookmarks come about once a
    minute."""

    def __post_init__(self) -> None:
        _check(
            "sources",
            1 <= self.silent_after_seconds < inf,
            "silentAfterSeconds must be at least 1, and should be more than 60",
        )


class TLSSettings(SettingsSection, frozen=True, kw_only=True):
    """PEM files for TLS."""

    certificate_file: str | None = None
    """The server's certificate chain. Read only with `certificates: files`."""
    key_file: str | None = None
    """The key of that certificate. Read only with `certificates: files`."""
    client_ca_file: str | None = None
    """Callers must present a certificate signed by this CA."""

    def check(self, section: str, certificates: str) -> None:
        """Raises ValueError if files are named that would not be read."""
        named = self.certificate_file is not None or self.key_file is not None
        _check(
            section,
            certificates == "files" or not named,
            "tls.certificateFile and keyFile are read only with certificates: files",
        )


class ExtenderTLSSettings(TLSSettings, frozen=True, kw_only=True):
    """Also who may call."""

    client_names: tuple[str, ...] = CLIENT_NAMES
    """The names of callers: a certificate signed by `clientCaFile` must have one of them as its
    common name, which Kubernetes takes for the user's name, or as a DNS name. Others get 403."""

    def check(self, section: str, certificates: str) -> None:
        super().check(section, certificates)
        _check(
            section,
            bool(self.client_names),
            "tls.clientNames is empty, so nobody may call: name the scheduler's client "
            f"certificate, such as {CLIENT_NAMES[0]}, or leave clientNames out",
        )
        for name in self.client_names:
            _check(
                section,
                bool(name.strip()) and len(name) <= _LONGEST_NAME,
                f"tls.clientNames: {name[:_LONGEST_NAME]!r} must be a certificate's common name or "
                "DNS name",
            )
        _check(
            section,
            self.client_ca_file is not None or self.client_names == CLIENT_NAMES,
            "tls.clientNames needs tls.clientCaFile: without it no caller presents a certificate",
        )


class ExtenderSettings(SettingsSection, frozen=True, kw_only=True):
    """The extender, which schedulers call."""

    certificates: Literal["self", "files"] = "self"
    """`self`: replicas sign their own certificates, with a CA in a Secret. That CA lives ten years,
    since kube-scheduler reads it only when it starts. `files`: read `tls`."""
    tls: ExtenderTLSSettings = ExtenderTLSSettings()
    """TLS files. `tls.clientCaFile` and `tls.clientNames` say who may call. The first is required
    unless the extender listens on loopback. Without it and without other files, the extender serves
    plain HTTP."""
    service: str = "fettle-extender"
    """The Service under which schedulers call the extender. It goes into the certificate."""
    secret: str = "fettle-extender-ca"  # noqa: S105 (an object's name)
    """The Secret with the CA. It must exist; Fettle fills it if it has no data."""
    extra_names: tuple[str, ...] = ()
    """Further names and addresses for the certificate."""
    certificate_lifetime_seconds: float = 7 * 86400.0
    """Lifetime of a replica's certificate. It is renewed after two thirds of that time."""
    max_body_mebibytes: int = 64
    """The largest request that the extender accepts."""
    wait_seconds: float = 0.2
    """How long a call waits for a selector before the selector counts as undecided. For a selector
    that has proved costly, a call does not wait at all."""
    replies: Literal["compact", "full"] | None = None
    """`full` lists every refused node with one short text, and the score of every node, as the
    extender protocol documents. `compact` saves kube-scheduler time: of more than 100 nodes it
    leaves out refused ones as long as some node passes, and lists only the scores that differ
    from most others, as differences. By default, replies are compact if the schedulers' version
    is a release that Fettle was tested with (1.36, 1.37), else full. Set `full` for a scheduler
    that is not kube-scheduler."""

    def __post_init__(self) -> None:
        self.tls.check("extender", self.certificates)
        _check_name("extender: service", self.service, _LONGEST_LABEL)
        _check_name("extender: secret", self.secret)
        _check(
            "extender",
            10 <= self.certificate_lifetime_seconds <= 365 * 86400,
            "certificateLifetimeSeconds must be 10 s to a year",
        )
        _check("extender", 1 <= self.max_body_mebibytes <= 1024, "maxBodyMebibytes: 1 to 1024")
        _check("extender", 0 <= self.wait_seconds <= 10, "waitSeconds must be 0 to 10")


class WorkloadSettings(SettingsSection, frozen=True, kw_only=True):
    """A kind of workload, and where its pod templates are."""

    group: str
    """The API group."""
    kind: str
    """The kind."""
    templates: tuple[str, ...]
    """Field paths of pod templates, such as `spec.replicaSpecs.*.template`. `*` stands for every
    member of an object, or entry of a list."""

    def __post_init__(self) -> None:
        _check("webhook.workloads", bool(self.kind), "kind must not be empty")
        for path in self.templates:
            _check("webhook.workloads", all(path.split(".")), f"{path!r} is not a valid field path")


class WebhookSettings(SettingsSection, frozen=True, kw_only=True):
    """The admission webhook."""

    events: bool = False
    """In `observe`, write Events about what the webhook would have refused, changed or warned of.
    It needs `tls.clientCaFile` or `trustCallers`."""
    workloads: tuple[WorkloadSettings, ...] = ()
    """Kinds of workload besides the known ones. Add them to the rules of both webhook
    configurations too."""
    certificates: Literal["self", "files"] = "self"
    """`self`: replicas sign their own certificates, with a CA in a Secret. `files`: read `tls`."""
    tls: TLSSettings = TLSSettings()
    """TLS files. With `tls.clientCaFile` only the API server is answered: it must present a
    certificate that this CA signed. Without it, whoever reaches the port is."""
    trust_callers: bool = False
    """The network lets the API server alone reach the webhook. Without this and without
    `tls.clientCaFile`, a caller may be anybody: texts do not name what the cluster has, and no
    Event and no record is written of reviews."""
    service: str = "fettle-webhook"
    """The Service under which the API server calls the webhook. It goes into the certificate."""
    secret: str = "fettle-webhook-ca"  # noqa: S105 (an object's name)
    """The Secret with the CA. It must exist; Fettle fills it if it has no data."""
    configuration: str = "fettle"
    """The name of the webhook configurations in which Fettle keeps the CA up to date."""
    extra_names: tuple[str, ...] = ()
    """Further names and addresses for the certificate."""
    deadline_seconds: float = 1.5
    """How long an object is judged before it is allowed, undecided. The `timeoutSeconds` of the
    webhook configurations must be longer."""

    def __post_init__(self) -> None:
        self.tls.check("webhook", self.certificates)
        _check(
            "webhook",
            0 < self.deadline_seconds < API_SERVER_WAITS_S,
            f"deadlineSeconds must be more than 0 and less than {API_SERVER_WAITS_S:g}, the "
            "timeoutSeconds of the webhook configurations",
        )
        _check_name("webhook: service", self.service, _LONGEST_LABEL)
        _check_name("webhook: secret", self.secret)
        _check_name("webhook: configuration", self.configuration)


class LintSettings(SettingsSection, frozen=True, kw_only=True):
    """Lint rules: severities that apply where no policy sets them, and what is known about
    drivers."""

    strict: bool = False
    """Also deny what only growth could satisfy, such as a larger node or a class that is not there
    yet."""
    rules: dict[str, RuleSeverity] = {}
    """Severity by rule id: `Deny`, `Warn` or `Off`."""
    driver_features: dict[str, dict[str, bool]] = {}
    """Feature gates by driver, as the driver was started with."""
    driver_schemas: str | None = None
    """A folder with schemas of further drivers."""
    disabled_features: tuple[str, ...] = ()
    """Feature gates of Kubernetes that are off in this cluster."""
    watch: tuple[Literal["ResourceQuota", "ComputeDomain"], ...] = ()
    """Kinds to read for the rules that need them (ResourceQuota for FTL055, ComputeDomain for
    FTL024). The rights for that are in `deploy/rbac/optional/`. A ComputeDomain also says which of
    its nodes are not ready."""

    def __post_init__(self) -> None:
        for name in self.rules:
            _check(
                "lint.rules",
                bool(_RULE.fullmatch(name)),
                f"{name!r} is not a rule id such as FTL010",
            )

    @property
    def levels(self) -> Validation:
        """These settings in the form of a policy's section."""
        return Validation(strict=self.strict, rules=self.rules)


class RecordSettings(SettingsSection, frozen=True, kw_only=True):
    """The record of decisions, which `fettle decisions` and `fettle report` show."""

    directory: str | None = None
    """A folder for the records, one for each process. If empty: that of `fettle serve --records`
    or the variable `FETTLE_RECORDS`. Without either they are in memory only, and a restart forgets
    them."""
    max_decisions: int = 20_000
    """How many decisions are kept; the oldest go first."""
    max_mebibytes: int = 32
    """How large the records may be. The file may take twice as much."""

    def __post_init__(self) -> None:
        _check("records", self.directory != "", "directory must not be empty")
        _check("records", 1 <= self.max_decisions <= 10**6, "maxDecisions must be 1 to 1000000")
        _check("records", 1 <= self.max_mebibytes <= 1024, "maxMebibytes must be 1 to 1024")


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
        _check(
            "deviceTaints",
            0 <= self.confirm_seconds < inf,
            "confirmSeconds must be finite, and 0 or more",
        )
        _check("deviceTaints", 0 <= self.max_share <= 1, "maxShare must be 0 to 1")
        _check(
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
            _check("nodeMarks", must, text)


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
        _check(
            where,
            forces is None or 300 <= forces < inf,
            "forceDeleteSeconds must be finite, and 300 or more",
        )
        _check(
            where, 0 <= self.confirm_seconds < inf, "confirmSeconds must be finite, and 0 or more"
        )
        _check(
            where,
            0.001 <= self.evictions_per_second <= 100,
            "evictionsPerSecond must be 0.001 to 100",
        )
        _check(where, 0 <= self.max_share <= 1, "maxShare must be 0 to 1")


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
        _check("steward", 1 <= self.lease_seconds <= 3600, "leaseSeconds must be 1 s to an hour")
        _check(
            "steward",
            0 < self.wake_interval_seconds < inf,
            "wakeIntervalSeconds must be finite, and more than 0",
        )
        _check(
            "steward",
            0 <= self.health_writes_per_second <= 1000,
            "healthWritesPerSecond must be 0 to 1000",
        )
        _check_name("steward: lease", self.lease)
        _check_name("steward: wakeClaim", self.wake_claim)
        _check_name("steward: wakePod", self.wake_pod)


class PrometheusSettings(SettingsSection, frozen=True, kw_only=True):
    """Metrics as evidence: a Prometheus, or what answers as one, is asked by the rules of the table
    `metrics`. Off without a `url`."""

    url: str = ""
    """Its address, such as `http://prometheus.monitoring:9090`. `/api/v1/query` is added."""
    interval_seconds: float = 30.0
    """How often it is asked. A fault that it shows counts at most so much later."""
    timeout_seconds: float = 10.0
    """How long one query may take."""
    max_mebibytes: int = 32
    """The largest answer to one query. 40,000 series take about 12."""
    exporter_namespaces: tuple[str, ...] = (
        "gpu-operator",
        "nvidia-gpu-operator",
        "dcgm-exporter",
        "kube-amd-gpu",
        "amd-gpu-operator",
        "monitoring",
        "prometheus",
        "observability",
        "openshift-monitoring",
        "gke-managed-system",
        "amazon-cloudwatch",
        "kube-system",
    )
    """The namespaces (the label `namespace`) of exporters; patterns such as `gpu-*`. What series of
    other namespaces say is the word of those: it lowers scores, within bounds, and refuses nothing.
    Series without that label count in full, as of exporters outside the cluster; those of recording
    rules and alerts do not."""
    bearer_token_file: str = ""
    """A file with a bearer token, for https or loopback. Files with credentials are read again in
    each round."""
    username_file: str = ""
    """A file with the user's name, for basic authentication."""
    password_file: str = ""
    """A file with that user's password."""
    certificate_file: str = ""
    """Our client certificate (PEM), for mTLS."""
    key_file: str = ""
    """The key of that certificate."""
    ca_file: str = ""
    """Certificates (PEM) to trust the server by, instead of the system's."""
    headers: dict[str, str] = {}
    """Further headers of each request, such as `X-Scope-OrgID`."""

    def __post_init__(self) -> None:
        for setting, must in self._rules():
            _check("prometheus", setting, must)

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        parts = urlsplit(self.url)
        return (
            (
                not self.url or (parts.scheme in ("http", "https") and bool(parts.hostname)),
                f"url {self.url[:_LONGEST_NAME]!r} must be such as http://prometheus:9090",
            ),
            (
                not (parts.username or parts.password),
                "url must hold no credentials; name usernameFile and passwordFile",
            ),
            (not parts.query and not parts.fragment, "url must end with a path, if any"),
            (1 <= self.interval_seconds <= 3600, "intervalSeconds must be 1 s to an hour"),
            (0 < self.timeout_seconds <= 300, "timeoutSeconds must be more than 0, at most 300"),
            (1 <= self.max_mebibytes <= 512, "maxMebibytes must be 1 to 512"),
            (
                bool(self.username_file) == bool(self.password_file),
                "usernameFile and passwordFile are needed together",
            ),
            (
                not (self.bearer_token_file and self.username_file),
                "bearerTokenFile and usernameFile are mutually exclusive",
            ),
            (
                not (self.bearer_token_file or self.username_file)
                or parts.scheme == "https"
                or ListenAddress(parts.hostname or "", 0).loopback,
                "url must be https, or lead to loopback, with bearerTokenFile or usernameFile: "
                "whoever is on the way of plain HTTP could read them",
            ),
            (
                bool(self.certificate_file) == bool(self.key_file),
                "certificateFile and keyFile are needed together",
            ),
            (
                all(_HEADER.fullmatch(n) and v.isprintable() for n, v in self.headers.items()),
                "headers must be names of headers and printable text",
            ),
            (
                not any(name.lower() == "authorization" for name in self.headers),
                "headers must not hold credentials; name bearerTokenFile",
            ),
        )


class AlertmanagerSettings(SettingsSection, frozen=True, kw_only=True):
    """Alerts as evidence: a listener for Alertmanager's webhook (`POST /alerts`). Off without
    `listen`."""

    listen: str = ""
    """Where to listen, such as `:8094`."""
    bearer_token_file: str = ""
    """A file with the token that Alertmanager must present. Off loopback, this or
    `tls.clientCaFile` is needed, and `tls.certificateFile`."""
    tls: TLSSettings = TLSSettings()
    """TLS files. `tls.clientCaFile` says who may call."""
    stale_after_seconds: float = 21600.0
    """An alert that is neither repeated nor resolved for so long fades. It must be longer than
    Alertmanager's `repeat_interval` (4 hours by default)."""

    def __post_init__(self) -> None:
        self.tls.check("alertmanager", "files")
        _check(
            "alertmanager",
            not self.listen or self.listen.rpartition(":")[2].isdecimal(),
            f"listen {self.listen[:_LONGEST_NAME]!r} must be HOST:PORT, such as :8094",
        )
        _check(
            "alertmanager",
            60 <= self.stale_after_seconds < inf,
            "staleAfterSeconds must be at least 60",
        )


class BrowseSettings(SettingsSection, frozen=True, kw_only=True):
    """The browse listener, which answers people, probes and Prometheus."""

    host_names: tuple[str, ...] = ()
    """Names under which it is called, such as that of a Service, or of an Ingress. Requests whose
    `Host` header is neither an IP address nor `localhost` nor one of these get 421: a web page
    could reach a browser's own network by a name that it rebinds."""

    def __post_init__(self) -> None:
        for name in self.host_names:
            _check_name("browse: hostNames", name)


class Settings(SettingsSection, frozen=True, kw_only=True):
    """All settings. Each has a default, so the file may be empty or missing."""

    namespace: str | None = None
    """Fettle's own namespace. By default the namespace of its service account, else
    `fettle-system`."""
    mode: Mode = Mode.ENFORCE
    """How far Fettle may go: `observe` changes nothing and records what it would do, `steer` ranks
    nodes and injects but refuses nothing, `enforce` does everything. A policy's `mode` and a
    namespace's label `fettle.dev/mode` go first."""
    default_policy: str = INFERENCE.name
    """The policy of pods that name none and whose namespace names none."""
    policies: tuple[Policy, ...] = ()
    """Policies in addition to the built-in ones: the `spec` of a DevicePolicy and a `name`. A
    built-in name replaces that policy entirely."""
    health: HealthSettings = HealthSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    breaker: BreakerSettings = BreakerSettings()
    sources: SourceSettings = SourceSettings()
    extender: ExtenderSettings = ExtenderSettings()
    webhook: WebhookSettings = WebhookSettings()
    browse: BrowseSettings = BrowseSettings()
    lint: LintSettings = LintSettings()
    records: RecordSettings = RecordSettings()
    steward: StewardSettings = StewardSettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    alertmanager: AlertmanagerSettings = AlertmanagerSettings()
    device_taints: DeviceTaintSettings = DeviceTaintSettings()
    node_marks: NodeMarkSettings = NodeMarkSettings()
    device_failures: DeviceFailureSettings = DeviceFailureSettings()

    def __post_init__(self) -> None:
        if self.namespace is not None:
            _check_name("namespace", self.namespace, _LONGEST_LABEL)
        names = [policy.name for policy in self.policies]
        _check("policies", len(set(names)) == len(names), "two have the same name")
        for name in names:
            _check(
                "policies",
                bool(_POLICY_NAME.fullmatch(name)),
                f"name {name!r} must be at most 63 lower-case letters, digits, '-' and '.', "
                "beginning and ending with a letter or digit",
            )
        if self.default_policy not in self.all_policies().by_name:
            raise ValueError(
                f"defaultPolicy {self.default_policy!r} is neither built in nor among the policies "
                "here (a DevicePolicy of the same name would replace it)"
            )

    @property
    def disabled_features(self) -> frozenset[str]:
        """Feature gates that the settings turn off, in the API server or the scheduler."""
        return self.scheduler.disabled | set(self.lint.disabled_features)

    def writes(self, mode: Mode) -> bool:
        """Whether the steward acts on devices' health by writing, where this mode counts."""
        return mode is Mode.ENFORCE and not self.steward.dry_run

    def remarks(self) -> list[str]:
        """Settings that are allowed but probably not intended, one sentence each, for the log; of
        policies, `fettle.lint` makes them."""
        found = []
        if (seconds := self.sources.silent_after_seconds) < BOOKMARKS_S:
            found.append(
                f"sources.silentAfterSeconds {seconds:g} is less than the {BOOKMARKS_S:g} s between"
                " bookmarks of an API server: while nothing changes there, Fettle is not ready"
            )
        if self.device_taints.unhealthy == "NoExecute":
            found.append(
                "deviceTaints.unhealthy NoExecute: pods on devices that become Unhealthy are "
                "deleted at once, and no PodDisruptionBudget protects them"
            )
        default = self.all_policies().by_name[self.default_policy]
        if (
            self.device_taints.degraded == "NoSchedule"
            and default.placement.degraded is not Degraded.REFUSE
            and not default.tolerations.degraded_as_fallback
        ):
            found.append(
                f"deviceTaints.degraded NoSchedule: policy {default.name}, the default, has no "
                "tolerations.degradedAsFallback, so its claims never get Degraded devices"
            )
        return found

    def all_policies(self) -> Policies:
        """The built-in policies and those of the settings, which replace built-in ones by name."""
        by_name = {**BUILT_IN, **{p.name: p for p in self.policies}}
        return Policies(by_name, self.default_policy, self.mode)
