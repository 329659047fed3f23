"""The settings: what an operator can change, and the file that says so."""

from fettle.config.acting import (
    DeviceFailureSettings,
    DeviceTaintSettings,
    NodeMarkSettings,
    StewardSettings,
)
from fettle.config.files import load_settings, parse_yaml
from fettle.config.sections import ListenAddress, SocketPath, TLSSettings
from fettle.config.settings import (
    BreakerSettings,
    ExpectedDevicesSettings,
    ExtenderSettings,
    HealthSettings,
    LintSettings,
    Settings,
    WebhookSettings,
    WorkloadSettings,
)
from fettle.config.sources import AlertmanagerSettings, PrometheusSettings

__all__ = [
    "AlertmanagerSettings",
    "BreakerSettings",
    "DeviceFailureSettings",
    "DeviceTaintSettings",
    "ExpectedDevicesSettings",
    "ExtenderSettings",
    "HealthSettings",
    "LintSettings",
    "ListenAddress",
    "NodeMarkSettings",
    "PrometheusSettings",
    "Settings",
    "SocketPath",
    "StewardSettings",
    "TLSSettings",
    "WebhookSettings",
    "WorkloadSettings",
    "load_settings",
    "parse_yaml",
]
