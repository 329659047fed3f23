"""The settings: what an operator can change, and the file that says so."""

from fettle.config.addresses import ListenAddress, SocketPath
from fettle.config.files import load_settings, parse_yaml
from fettle.config.settings import (
    AlertmanagerSettings,
    BreakerSettings,
    DeviceFailureSettings,
    DeviceTaintSettings,
    ExpectedDevicesSettings,
    ExtenderSettings,
    HealthSettings,
    LintSettings,
    NodeMarkSettings,
    PrometheusSettings,
    Settings,
    StewardSettings,
    TLSSettings,
    WebhookSettings,
    WorkloadSettings,
)

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
