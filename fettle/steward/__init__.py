"""Decides what to write to the cluster, and writes it: one leader does that. Nothing else writes.

May import the view and the session, but neither extender nor webhook.
"""

from fettle.steward.allowed_nodes import AllowedNodes
from fettle.steward.risk_events import RiskEvents
from fettle.steward.steward import STEWARD, Steward

__all__ = [
    "STEWARD",
    "AllowedNodes",
    "RiskEvents",
    "Steward",
]
