"""The settings: what an operator can change, and the file that says so."""

from fettle.config.addresses import ListenAddress
from fettle.config.files import load_settings, parse_yaml
from fettle.config.settings import (
    BreakerSettings,
    ExtenderSettings,
    HealthSettings,
    LintSettings,
    Settings,
    StewardSettings,
    TLSSettings,
    WebhookSettings,
    WorkloadSettings,
)

__all__ = [
    "BreakerSettings",
    "ExtenderSettings",
    "HealthSettings",
    "LintSettings",
    "ListenAddress",
    "Settings",
    "StewardSettings",
    "TLSSettings",
    "WebhookSettings",
    "WorkloadSettings",
    "load_settings",
    "parse_yaml",
]
