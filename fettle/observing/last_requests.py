"""When a listener was last called. A scheduler or API server that is not set up to call it never
does, and nothing else shows that.
"""

import time
from collections.abc import Sequence


class LastRequests:
    """`at` is when each of `names` was last called, by `time.perf_counter`. For people: `listener`,
    and `never`, the text before the first call."""

    def __init__(self, listener: str, names: Sequence[str], never: str) -> None:
        self._listener = listener
        self._names = names
        self._never = never
        self.at: dict[str, float] = {}

    @property
    def was_called(self) -> bool:
        return bool(self.at)

    def note(self, now: float | None = None) -> str:
        """For `/readyz?verbose`."""
        if not self.at:
            return f"{self._listener}: {self._never}"
        now = time.perf_counter() if now is None else now
        ages = (f"{name} {_ago(self.at.get(name), now)}" for name in self._names)
        return f"{self._listener}: last asked: {', '.join(ages)}"


def _ago(at: float | None, now: float) -> str:
    return "never" if at is None else f"{max(0.0, now - at):.0f} s ago"
