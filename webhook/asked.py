"""Whether the API server asks at all: without a webhook configuration it does not, and nothing else
tells of that."""

import time

WEBHOOKS = ("mutate", "validate")


class Asked:
    """`at` is when each webhook was last asked, by `time.monotonic`."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    def notes(self, now: float | None = None) -> list[str]:
        """For `/readyz?verbose`."""
        now = time.monotonic() if now is None else now
        if not self.at:
            return ["webhook: the API server has not asked yet"]
        told = (f"{webhook} {_ago(self.at.get(webhook), now)}" for webhook in WEBHOOKS)
        return [f"webhook: last asked: {', '.join(told)}"]


def _ago(at: float | None, now: float) -> str:
    return "never" if at is None else f"{max(0.0, now - at):.0f} s ago"
