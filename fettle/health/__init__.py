"""Evidence to health: score, state with hysteresis, and the evidence that explains both.

Stands between evidence and view in *watch → inventory → health → verdict → answer*; pure, the
clock is an argument. Imports model, settings and evidence, never feeds or faces.
"""

from fettle.health import memory, scoring
from fettle.health.book import HealthBook
from fettle.health.scoring import DIGITS
from fettle.health.signals import gathering, naming, pods, rules
from fettle.health.signals.reports import SignalReport, short
from fettle.health.signals.rules import SignalRules
from fettle.health.states import START

__all__ = [
    "DIGITS",
    "START",
    "HealthBook",
    "SignalReport",
    "SignalRules",
    "gathering",
    "memory",
    "naming",
    "pods",
    "rules",
    "scoring",
    "short",
]
