"""Places Kubernetes pods by device health, not only by whether devices exist."""

__version__ = "0.1.0"
