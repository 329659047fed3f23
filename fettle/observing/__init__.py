"""What operators see of Fettle: metrics, and when it was last called."""

from fettle.observing.collectors import (
    OverlookedMetrics,
    PartMetrics,
    PolicyMetrics,
    RiskMetrics,
    SelectorMetrics,
    ViewMetrics,
)
from fettle.observing.health_changes import count_devices, count_missing, log_health_changes
from fettle.observing.last_requests import LastRequests
from fettle.observing.metrics import (
    AlertMetrics,
    BreakerMetrics,
    CertificateEnd,
    CertificateMetrics,
    DecisionMetrics,
    ExtenderMetrics,
    ObjectRuleMetrics,
    PredictionMetrics,
    PrometheusMetrics,
    ReadyMetrics,
    ReloadMetrics,
    StewardMetrics,
    count_restarts,
    make_registry,
)

__all__ = [
    "AlertMetrics",
    "BreakerMetrics",
    "CertificateEnd",
    "CertificateMetrics",
    "DecisionMetrics",
    "ExtenderMetrics",
    "LastRequests",
    "ObjectRuleMetrics",
    "OverlookedMetrics",
    "PartMetrics",
    "PolicyMetrics",
    "PredictionMetrics",
    "PrometheusMetrics",
    "ReadyMetrics",
    "ReloadMetrics",
    "RiskMetrics",
    "SelectorMetrics",
    "StewardMetrics",
    "ViewMetrics",
    "count_devices",
    "count_missing",
    "count_restarts",
    "log_health_changes",
    "make_registry",
]
