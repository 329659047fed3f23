"""Many rows for people: the worst first, and those that are well and say the same as one."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

FEW = 5
"""So many that say the same are still told by name."""
_STATES = ("Unhealthy", "Degraded", "Unknown", "Healthy")

_Row = TypeVar("_Row")


def badness(health: dict[str, Any]) -> tuple[int, float]:
    """Sorts the worst first: by state, then by score as it is shown."""
    return _STATES.index(health["state"]), round(health["score"], 2)


def speaks(health: dict[str, Any]) -> bool:
    """Whether there is anything to say of it: a state may outlive all evidence."""
    return bool(health["evidence"]) or not is_well(health)


def is_well(health: dict[str, Any]) -> bool:
    return bool(health["state"] == "Healthy")


def together(rows: Iterable[_Row], alike: Callable[[_Row], Hashable | None]) -> list[list[_Row]]:
    """Rows in groups, in the order of the first of each; by themselves those that are like none
    (None), or like only a few."""
    groups: dict[Hashable, list[_Row]] = {}
    for at, row in enumerate(rows):
        key = alike(row)
        groups.setdefault((at,) if key is None else ("alike", key), []).append(row)
    return [
        part
        for group in groups.values()
        for part in ([group] if len(group) > FEW else [[row] for row in group])
    ]


def span(shown: Iterable[str]) -> str:
    """Scores as they are shown, the lowest first: one, or from the first to the last."""
    values = list(shown)
    return values[0] if values[0] == values[-1] else f"{values[0]}–{values[-1]}"
