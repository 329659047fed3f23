"""What an operator can set: one YAML file, unknown keys refused, every default stated here."""

from math import inf
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from fettle.errors import SettingsError
from fettle.policy import BUILT_IN, INFERENCE, Policies, Policy


class _Section(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    pass


def _check(section: str, holds: bool, must: str) -> None:
    if not holds:  # also where a value is NaN
        raise ValueError(f"{section}: {must}")


class HealthSettings(_Section, frozen=True, kw_only=True):
    """Thresholds on scores (0..1) and times in seconds; see `fettle/health.py`."""

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


class BreakerSettings(_Section, frozen=True, kw_only=True):
    """Fails open to scoring when refusals would exclude too much of a pool.

    `max_excluded_share` (0..1) of the devices of one driver or extended resource; pools on fewer
    than `min_nodes` nodes are not judged, since one node would already be more than the share.
    """

    max_excluded_share: float = 0.20
    min_nodes: int = 10

    def __post_init__(self) -> None:
        _check("breaker", 0 <= self.max_excluded_share <= 1, "maxExcludedShare must be 0 to 1")


class SourceSettings(_Section, frozen=True, kw_only=True):
    """`silent_after_seconds` without any contact (event or bookmark, which come about once a
    minute): not ready, the extender answers `Error` instead of verdicts.
    """

    silent_after_seconds: float = 150.0

    def __post_init__(self) -> None:
        _check("sources", 0 < self.silent_after_seconds < inf, "silentAfterSeconds must be > 0")


class TLSSettings(_Section, frozen=True, kw_only=True):
    """PEM files. `client_ca_file`: callers must present a certificate signed by it."""

    certificate_file: str | None = None
    key_file: str | None = None
    client_ca_file: str | None = None


class ExtenderSettings(_Section, frozen=True, kw_only=True):
    """`wait_seconds` bounds how long a call waits for a selector before it counts undecided."""

    tls: TLSSettings = TLSSettings()
    max_body_mebibytes: int = 64
    wait_seconds: float = 0.05

    def __post_init__(self) -> None:
        _check("extender", 1 <= self.max_body_mebibytes <= 1024, "maxBodyMebibytes: 1 to 1024")
        _check("extender", 0 <= self.wait_seconds <= 10, "waitSeconds must be 0 to 10")


class WebhookSettings(_Section, frozen=True, kw_only=True):
    """`certificates`: "self" signs by a CA in a Secret, "files" reads `tls`.

    `service` is the name under which the API server calls us; it goes into the certificate.
    """

    certificates: Literal["self", "files"] = "self"
    tls: TLSSettings = TLSSettings()
    service: str = "fettle-webhook"
    secret: str = "fettle-webhook-ca"  # noqa: S105 (an object's name)
    configuration: str = "fettle"
    extra_names: tuple[str, ...] = ()
    deadline_seconds: float = 1.5


class StewardSettings(_Section, frozen=True, kw_only=True):
    lease: str = "fettle-steward"
    lease_seconds: float = 15.0
    wake_claim: str = "fettle-wake-up"
    wake_interval_seconds: float = 1.0


class Settings(_Section, frozen=True, kw_only=True):
    namespace: str | None = None
    """Fettle's own namespace; by default that of its service account, else `fettle-system`."""
    default_policy: str = INFERENCE.name
    policies: tuple[Policy, ...] = ()
    health: HealthSettings = HealthSettings()
    breaker: BreakerSettings = BreakerSettings()
    sources: SourceSettings = SourceSettings()
    extender: ExtenderSettings = ExtenderSettings()
    webhook: WebhookSettings = WebhookSettings()
    steward: StewardSettings = StewardSettings()

    def __post_init__(self) -> None:
        names = [policy.name for policy in self.policies]
        _check("policies", len(set(names)) == len(names), "two have the same name")
        if self.default_policy not in self.all_policies().by_name:
            raise ValueError(f"defaultPolicy {self.default_policy!r} is not among the policies")

    def all_policies(self) -> Policies:
        """The built-in policies and the settings' own, which replace built-in ones by name."""
        return Policies({**BUILT_IN, **{p.name: p for p in self.policies}}, self.default_policy)


def load(path: Path | None) -> Settings:
    """The settings in a YAML file, or the defaults; raises SettingsError with file and field."""
    if path is None:
        return Settings()
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"settings file {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).replace('in "<unicode string>", ', "").split())
        raise SettingsError(f"settings file {path}: no valid YAML: {reason}") from error
    try:
        return msgspec.convert(data if data is not None else {}, Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(f"settings file {path}: {error}") from error
