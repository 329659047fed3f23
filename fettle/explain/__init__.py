"""What people read: verdicts, health and devices as plain data and as text. Pure."""

from fettle.explain import listing, pods

__all__ = [
    "listing",
    "pods",
]
