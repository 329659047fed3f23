"""Places Kubernetes pods by how well devices are, not only by whether they exist."""

__version__ = "0.1.0"
