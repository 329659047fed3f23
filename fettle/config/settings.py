"""The settings: what an operator can change, with defaults and limits. Those of what Fettle reads
are in `sources.py`, those of what the steward writes in `acting.py`.

`docs/settings.md` is made from these modules by `fettle/config/reference.py`: the docstring below
each setting is its entry there. `fettle/config/files.py` reads the settings from a file.
"""

import re
from math import inf
from typing import Literal

from fettle.api.core import DEFAULT_SCHEDULER
from fettle.config.acting import (
    DeviceFailureSettings,
    DeviceTaintSettings,
    KueueSettings,
    NodeMarkSettings,
    StewardSettings,
)
from fettle.config.sections import (
    LONGEST_LABEL,
    LONGEST_NAME,
    SettingsSection,
    TLSSettings,
    check,
    check_name,
)
from fettle.config.sources import AlertmanagerSettings, PrometheusSettings, SourceSettings
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
    is_device_name,
    is_label,
    shown,
)

_RULE = re.compile(r"FTL\d{3}")
_POLICY_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?")
"""What the API server accepts as an object name and as the value of a namespace's label."""
_SCHEDULER_NAME = re.compile(r"\S{1,253}")
"""Neither the API server nor kube-scheduler requires more."""
BOOKMARKS_S = 60.0
"""How often an API server sends bookmarks, at the latest."""
CLIENT_NAMES = ("system:kube-scheduler",)
"""As which kube-scheduler calls: its user."""
API_SERVER_WAITS_S = 2.0
"""`timeoutSeconds` of the webhook configurations in `deploy/webhook/`."""


class ExpectedDevicesSettings(SettingsSection, frozen=True, kw_only=True):
    """How many devices the nodes with a label have."""

    label: str
    """A label of Nodes and its value, such as `node.kubernetes.io/instance-type=p5.48xlarge`."""
    devices: dict[str, int]
    """By resource (`nvidia.com/gpu: 8`), units; by DRA driver (`gpu.nvidia.com: 8`), devices."""

    def __post_init__(self) -> None:
        key, equals, value = self.label.partition("=")
        label = f"label must be KEY=VALUE, not {shown(self.label)}"
        check("health.expectedDevices", bool(equals) and is_label(key, value), label)
        wrong = next((name for name in self.devices if not is_device_name(name)), "")
        check(
            "health.expectedDevices",
            not wrong and "" not in self.devices,
            f"devices must be named as nvidia.com/gpu or gpu.nvidia.com, not {shown(wrong)}",
        )
        check(
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
    new_driver_seconds: float = 86_400.0
    """So long a driver's version is new on a node that ran another one before, unless other nodes
    have proven it: for policies with `placement.newDriver`. It changes no score."""
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
        check(
            "health",
            ordered,
            "must be 0 ≤ unhealthyBelow ≤ unhealthyUntil, and unhealthyBelow ≤ degradedBelow ≤ "
            "degradedUntil ≤ 1",
        )
        check(
            "health",
            0 <= self.min_dwell_seconds < inf,
            "minDwellSeconds must be finite, and 0 or more",
        )
        check(
            "health",
            0 < self.orphan_half_life_seconds < inf,
            "orphanHalfLifeSeconds must be finite, and more than 0",
        )
        check(
            "health",
            0 < self.quiet_half_life_seconds < inf,
            "quietHalfLifeSeconds must be finite, and more than 0",
        )
        check(
            "health",
            0 <= self.recurring_seconds < inf,
            "recurringSeconds must be finite, and 0 or more",
        )
        check(
            "health",
            0 < self.missing_after_seconds < inf,
            "missingAfterSeconds must be finite, and more than 0",
        )
        check(
            "health",
            0 <= self.new_driver_seconds < inf,
            "newDriverSeconds must be finite, and 0 or more",
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
            check(
                "scheduler.names",
                _SCHEDULER_NAME.fullmatch(name) is not None,
                f"{name[:LONGEST_NAME]!r} must be a pod's spec.schedulerName, such as "
                f"{DEFAULT_SCHEDULER}",
            )
            check("scheduler.names", name not in self.names[:index], f"{name!r} is given twice")
        check(
            "scheduler.version",
            not self.version or bool(parse_git_version(self.version)),
            f"{self.version[:LONGEST_NAME]!r} must be kube-scheduler's version, such as v1.36.3",
        )
        try:
            parse_feature_gates(self.feature_gates)
        except ValueError as error:
            raise ValueError(f"scheduler.featureGates: {error}") from error
        check(
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
        check("breaker", 0 <= self.max_excluded_share <= 1, "maxExcludedShare must be 0 to 1")
        check("breaker", self.min_nodes >= 0, "minNodes must be 0 or more")
        check("breaker", self.patience_seconds >= 0, "patienceSeconds must be 0 or more")
        check("breaker", self.burst_patience_seconds >= 0, "burstPatienceSeconds must be 0 or more")


class ExtenderTLSSettings(TLSSettings, frozen=True, kw_only=True):
    """Also who may call."""

    client_names: tuple[str, ...] = CLIENT_NAMES
    """The names of callers: a certificate signed by `clientCaFile` must have one of them as its
    common name, which Kubernetes takes for the user's name, or as a DNS name. Others get 403."""

    def check(self, section: str, certificates: str) -> None:
        super().check(section, certificates)
        check(
            section,
            bool(self.client_names),
            "tls.clientNames is empty, so nobody may call: name the scheduler's client "
            f"certificate, such as {CLIENT_NAMES[0]}, or leave clientNames out",
        )
        for name in self.client_names:
            check(
                section,
                bool(name.strip()) and len(name) <= LONGEST_NAME,
                f"tls.clientNames: {name[:LONGEST_NAME]!r} must be a certificate's common name or "
                "DNS name",
            )
        check(
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
        check_name("extender: service", self.service, LONGEST_LABEL)
        check_name("extender: secret", self.secret)
        check(
            "extender",
            10 <= self.certificate_lifetime_seconds <= 365 * 86400,
            "certificateLifetimeSeconds must be 10 s to a year",
        )
        check("extender", 1 <= self.max_body_mebibytes <= 1024, "maxBodyMebibytes: 1 to 1024")
        check("extender", 0 <= self.wait_seconds <= 10, "waitSeconds must be 0 to 10")


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
        check("webhook.workloads", bool(self.kind), "kind must not be empty")
        for path in self.templates:
            check("webhook.workloads", all(path.split(".")), f"{path!r} is not a valid field path")


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
        check(
            "webhook",
            0 < self.deadline_seconds < API_SERVER_WAITS_S,
            f"deadlineSeconds must be more than 0 and less than {API_SERVER_WAITS_S:g}, the "
            "timeoutSeconds of the webhook configurations",
        )
        check_name("webhook: service", self.service, LONGEST_LABEL)
        check_name("webhook: secret", self.secret)
        check_name("webhook: configuration", self.configuration)


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
            check(
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
        check("records", self.directory != "", "directory must not be empty")
        check("records", 1 <= self.max_decisions <= 10**6, "maxDecisions must be 1 to 1000000")
        check("records", 1 <= self.max_mebibytes <= 1024, "maxMebibytes must be 1 to 1024")


class BrowseSettings(SettingsSection, frozen=True, kw_only=True):
    """The browse listener, which answers people, probes and Prometheus."""

    host_names: tuple[str, ...] = ()
    """Names under which it is called, such as that of a Service, or of an Ingress. Requests whose
    `Host` header is neither an IP address nor `localhost` nor one of these get 421: a web page
    could reach a browser's own network by a name that it rebinds."""

    def __post_init__(self) -> None:
        for name in self.host_names:
            check_name("browse: hostNames", name)


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
    kueue: KueueSettings = KueueSettings()

    def __post_init__(self) -> None:
        if self.namespace is not None:
            check_name("namespace", self.namespace, LONGEST_LABEL)
        names = [policy.name for policy in self.policies]
        check("policies", len(set(names)) == len(names), "two have the same name")
        for name in names:
            check(
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
