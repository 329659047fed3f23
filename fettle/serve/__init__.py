"""`fettle serve`: makes the parts of one process, runs them, and stops them in order."""

from fettle.serve.serving import ServeOptions, run

__all__ = ["ServeOptions", "run"]
