"""What an operator can set, with every default and what a value must be. Read from a file by
`settings_file`."""

import re
from math import inf
from typing import Literal

import msgspec

from fettle.api.core import DEFAULT_SCHEDULER
from fettle.dra import parse_feature_gates, parse_git_version
from fettle.model import (
    BUILT_IN,
    INFERENCE,
    Policies,
    Policy,
    RuleSeverity,
    Validation,
    prefers_in_vain,
)

_RULE = re.compile(r"FTL\d{3}")
_POLICY_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?")
"""As the API server takes it, and a namespace's label can name it."""
_SCHEDULER_NAME = re.compile(r"\S{1,253}")
"""Neither the API server nor kube-scheduler asks for more."""
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LONGEST_LABEL, _LONGEST_NAME = 63, 253
BOOKMARKS_S = 60.0
API_SERVER_WAITS_S = 3.0
"""`timeoutSeconds` in `deploy/webhook/`."""


class _Section(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    pass


def _check(section: str, holds: bool, must: str) -> None:
    if not holds:  # also where a value is NaN
        raise ValueError(f"{section}: {must}")


def _check_name(said: str, name: str, longest: int = _LONGEST_NAME) -> None:
    """A valid object name in Kubernetes; a namespace's or Service's is a single label."""
    label_only = longest == _LONGEST_LABEL
    shape = _LABEL if label_only else rf"{_LABEL}(\.{_LABEL})*"
    if len(name) > longest or re.fullmatch(shape, name) is None:
        signs = "digits and '-'" if label_only else "digits, '-' and '.'"
        raise ValueError(
            f"{said} {name[:longest]!r} must be at most {longest} lower-case letters, {signs}, "
            "beginning and ending with a letter or digit"
        )


class HealthSettings(_Section, frozen=True, kw_only=True):
    """Thresholds on scores (0..1) and times in seconds; see `fettle/health/`."""

    degraded_below: float = 0.80
    degraded_until: float = 0.90
    unhealthy_below: float = 0.30
    unhealthy_until: float = 0.45
    min_dwell_seconds: float = 600.0
    orphan_half_life_seconds: float = 3600.0
    rules_file: str | None = None
    """Rows added to the shipped condition rules; a row of the same name replaces it."""

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
        _check("health", 0 <= self.min_dwell_seconds < inf, "minDwellSeconds must be 0 or more")
        _check(
            "health",
            0 < self.orphan_half_life_seconds < inf,
            "orphanHalfLifeSeconds must be more than 0",
        )


class SchedulerSettings(_Section, frozen=True, kw_only=True):
    """Which schedulers ask Fettle, and what decides which devices they take; none of it can be read
    from them.

    `names` are the `spec.schedulerName` of pods whose scheduler has Fettle's `extenders` entry, as
    all profiles of one configuration do. Only pods of these get the marker `fettle.dev/claims`, by
    which they are sent. `version` is their version ("v1.36.3"); "": that of the API server, or the
    newest known where none is asked. `feature_gates` as their `--feature-gates` has them
    ("DRAPrioritizedList=false"): those that concern DRA and differ from the defaults of that
    version. `binding_timeout_seconds` is `bindingTimeout` of their DynamicResourcesArgs.
    """

    names: tuple[str, ...] = (DEFAULT_SCHEDULER,)
    version: str = ""
    feature_gates: str = ""
    binding_timeout_seconds: float = 600.0

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
            "bindingTimeoutSeconds must be more than 0",
        )

    @property
    def gates(self) -> dict[str, bool]:
        """The gates that are set, by name."""
        return parse_feature_gates(self.feature_gates)

    @property
    def disabled(self) -> frozenset[str]:
        """The gates that are set off."""
        return frozenset(name for name, on in self.gates.items() if not on)


class BreakerSettings(_Section, frozen=True, kw_only=True):
    """Fails open to scoring when refusals would exclude too much of a pool.

    `max_excluded_share` (0..1) of the devices of one driver or extended resource; pools on fewer
    than `min_nodes` nodes that can be scheduled to are not judged, since one would already be more
    than the share.
    """

    max_excluded_share: float = 0.20
    min_nodes: int = 10

    def __post_init__(self) -> None:
        _check("breaker", 0 <= self.max_excluded_share <= 1, "maxExcludedShare must be 0 to 1")
        _check("breaker", self.min_nodes >= 0, "minNodes must be 0 or more")


class SourceSettings(_Section, frozen=True, kw_only=True):
    """`silent_after_seconds` without any contact (event or bookmark): not ready, the extender
    answers `Error` instead of verdicts. More than 60, since bookmarks come about once a minute.
    """

    silent_after_seconds: float = 150.0

    def __post_init__(self) -> None:
        _check(
            "sources",
            1 <= self.silent_after_seconds < inf,
            "silentAfterSeconds must be at least 1, and should be more than 60",
        )


class TLSSettings(_Section, frozen=True, kw_only=True):
    """PEM files. `client_ca_file`: callers must present a certificate signed by it."""

    certificate_file: str | None = None
    key_file: str | None = None
    client_ca_file: str | None = None

    def check(self, section: str, certificates: str) -> None:
        """Raises ValueError if files are named that would not be read."""
        named = self.certificate_file is not None or self.key_file is not None
        _check(
            section,
            certificates == "files" or not named,
            "tls.certificateFile and keyFile are read only with certificates: files",
        )


class ExtenderSettings(_Section, frozen=True, kw_only=True):
    """`tls.client_ca_file` says who may call, and is required off loopback; without it and without
    other files, plain HTTP is served. `certificates`: "self" signs by a CA in a Secret, which lives
    ten years, since kube-scheduler reads it only at its start; "files" reads `tls`.

    `service` is the name under which schedulers may call us; it and `extra_names` go into the
    certificate, which each replica signs anew after two thirds of `certificate_lifetime_seconds`.
    `wait_seconds` bounds how long a call waits for a selector before it counts undecided; for one
    that has proved costly it does not wait at all.

    `replies`: "full" lists every refused node with its reason, and the score of every node, as the
    extender protocol documents. "compact" saves kube-scheduler time: of more than 100 nodes it
    leaves out refused ones while some node passes, and lists only scores that differ from most, by
    the difference. By default, replies are compact if the schedulers' version is a release that
    this was tested with (1.36, 1.37), and full if it is another or none is known. Set "full" for a
    scheduler that is not kube-scheduler.
    """

    certificates: Literal["self", "files"] = "self"
    tls: TLSSettings = TLSSettings()
    service: str = "fettle-extender"
    secret: str = "fettle-extender-ca"  # noqa: S105 (an object's name)
    extra_names: tuple[str, ...] = ()
    certificate_lifetime_seconds: float = 7 * 86400.0
    max_body_mebibytes: int = 64
    wait_seconds: float = 0.2
    replies: Literal["compact", "full"] | None = None

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


class WorkloadSettings(_Section, frozen=True, kw_only=True):
    """A kind of workload, and where its pod templates are: paths such as
    `spec.replicaSpecs.*.template`, where `*` stands for every member or entry.
    """

    group: str
    kind: str
    templates: tuple[str, ...]

    def __post_init__(self) -> None:
        _check("webhook.workloads", bool(self.kind), "kind must not be empty")
        for path in self.templates:
            _check("webhook.workloads", all(path.split(".")), f"{path!r} is not a valid field path")


class WebhookSettings(_Section, frozen=True, kw_only=True):
    """`certificates`: "self" signs by a CA in a Secret, "files" reads `tls`.

    `mode` "audit" changes and refuses nothing, and warns about what it would have done. `service`
    is the name under which the API server calls us; it goes into the certificate. `workloads` are
    kinds besides the known ones: add them to the rules of both webhook configurations too.
    `deadline_seconds` bounds how long an object is judged before it is allowed, undecided; the API
    server's own timeout in `deploy/webhook/` must be longer.
    """

    mode: Literal["enforce", "audit"] = "enforce"
    workloads: tuple[WorkloadSettings, ...] = ()
    certificates: Literal["self", "files"] = "self"
    tls: TLSSettings = TLSSettings()
    service: str = "fettle-webhook"
    secret: str = "fettle-webhook-ca"  # noqa: S105 (an object's name)
    configuration: str = "fettle"
    extra_names: tuple[str, ...] = ()
    deadline_seconds: float = 1.5

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


class LintSettings(_Section, frozen=True, kw_only=True):
    """How severe findings are if no policy says so, and what is known about drivers.

    `rules`: Deny, Warn or Off by rule id; `strict` also denies what only the current inventory
    rules out. `driver_features`: feature gates by driver, as the driver was started with.
    `driver_schemas`: a folder with schemas of further drivers. `disabled_features`: feature gates
    of Kubernetes that are off in this cluster. `watch`: kinds to read for the rules that need them
    (FTL055, FTL024); the rights to do so are in `deploy/rbac/optional/`.
    """

    strict: bool = False
    rules: dict[str, RuleSeverity] = {}
    driver_features: dict[str, dict[str, bool]] = {}
    driver_schemas: str | None = None
    disabled_features: tuple[str, ...] = ()
    watch: tuple[Literal["ResourceQuota", "ComputeDomain"], ...] = ()

    def __post_init__(self) -> None:
        for name in self.rules:
            _check(
                "lint.rules",
                bool(_RULE.fullmatch(name)),
                f"{name!r} is not a rule id such as FTL010",
            )

    @property
    def levels(self) -> Validation:
        return Validation(strict=self.strict, rules=self.rules)


class StewardSettings(_Section, frozen=True, kw_only=True):
    lease: str = "fettle-steward"
    lease_seconds: float = 15.0
    wake_claim: str = "fettle-wake-up"
    wake_interval_seconds: float = 1.0

    def __post_init__(self) -> None:
        _check("steward", 1 <= self.lease_seconds <= 3600, "leaseSeconds must be 1 s to an hour")
        _check("steward", 0 < self.wake_interval_seconds < inf, "wakeIntervalSeconds must be > 0")
        _check_name("steward: lease", self.lease)
        _check_name("steward: wakeClaim", self.wake_claim)


class Settings(_Section, frozen=True, kw_only=True):
    namespace: str | None = None
    """Fettle's own namespace; by default that of its service account, else `fettle-system`."""
    default_policy: str = INFERENCE.name
    policies: tuple[Policy, ...] = ()
    health: HealthSettings = HealthSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    breaker: BreakerSettings = BreakerSettings()
    sources: SourceSettings = SourceSettings()
    extender: ExtenderSettings = ExtenderSettings()
    webhook: WebhookSettings = WebhookSettings()
    lint: LintSettings = LintSettings()
    steward: StewardSettings = StewardSettings()

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
        """Feature gates that are off in the API server or the scheduler, as far as the settings
        say.
        """
        return self.scheduler.disabled | set(self.lint.disabled_features)

    def remarks(self) -> list[str]:
        """What is allowed and hardly meant, one sentence each, for the log."""
        found = []
        if (seconds := self.sources.silent_after_seconds) < BOOKMARKS_S:
            found.append(
                f"sources.silentAfterSeconds {seconds:g} is less than the {BOOKMARKS_S:g} s between"
                " bookmarks of an API server: while nothing changes there, Fettle is not ready"
            )
        for name, policy in sorted(self.all_policies().by_name.items()):
            if vain := prefers_in_vain(policy.placement, self.health.degraded_below):
                found.append(f"policy {name}: minScore {vain}")
        return found

    def all_policies(self) -> Policies:
        """The built-in policies and the settings' own, which replace built-in ones by name."""
        return Policies({**BUILT_IN, **{p.name: p for p in self.policies}}, self.default_policy)
