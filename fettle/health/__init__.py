"""Evidence to health: score, state with hysteresis, and the evidence that explains both.

Stands between evidence and view in *watch → inventory → health → verdict → answer*; pure, the
clock is an argument. Imports model, settings and evidence, never feeds or faces.
"""

from fettle.health.book import HealthBook

__all__ = ["HealthBook"]
