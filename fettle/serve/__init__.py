"""`fettle serve`: puts the parts of one process together, runs them, and ends them in order."""

from fettle.serve import serving

__all__ = [
    "serving",
]
