"""Saying which of several names was probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST, _MOST = 128, 100  # the comparison is quadratic in length and linear in candidates


def nearest(name: str, candidates: Iterable[str], likeness: float = 0.7) -> str:
    """The candidate that is most like a name that is not among them; "" if none is."""
    if len(name) > _LONGEST:
        return ""
    some = sorted(c for c in set(candidates) if len(c) <= _LONGEST)[:_MOST]
    found = get_close_matches(name, some, n=1, cutoff=likeness)
    return found[0] if found else ""


def listed(names: Iterable[str], most: int = 5) -> str:
    """`a, b, c and 4 more`."""
    ordered = sorted(names)
    more = len(ordered) - most
    return ", ".join(ordered[:most]) + (f" and {more} more" if more > 0 else "")
