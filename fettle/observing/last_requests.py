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

    def ages_s(self, now: float | None = None) -> dict[str, float | None]:
        """How long ago each was last called; None: never."""
        now = time.perf_counter() if now is None else now
        return {n: max(0.0, now - self.at[n]) if n in self.at else None for n in self._names}

    def note(self, now: float | None = None) -> str:
        """For `/readyz?verbose`."""
        if not self.at:
            return f"{self._listener}: {self._never}"
        ages = (f"{name} {_ago(age)}" for name, age in self.ages_s(now).items())
        return f"{self._listener}: last asked: {', '.join(ages)}"


def _ago(age_s: float | None) -> str:
    return "never" if age_s is None else f"{age_s:.0f} s ago"
