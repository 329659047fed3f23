"""What Fettle says of itself: metrics, logs, and when it was last asked."""

from fettle.observing import logs
from fettle.observing.asked import LastRequests
from fettle.observing.metrics import (
    BreakerMetrics,
    CertificateMetrics,
    ExtenderMetrics,
    OverlookedMetrics,
    PolicyMetrics,
    PredictionMetrics,
    ReadyMetrics,
    SelectorMetrics,
    StewardMetrics,
    ViewMetrics,
    make_registry,
)
from fettle.observing.turns import log_health_changes

__all__ = [
    "BreakerMetrics",
    "CertificateMetrics",
    "ExtenderMetrics",
    "LastRequests",
    "OverlookedMetrics",
    "PolicyMetrics",
    "PredictionMetrics",
    "ReadyMetrics",
    "SelectorMetrics",
    "StewardMetrics",
    "ViewMetrics",
    "log_health_changes",
    "logs",
    "make_registry",
]
