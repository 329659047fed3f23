"""Durations as people write them: `90s`, `30m`, `1h`, `7d`, `1d12h`."""

import re

from fettle.model import BadInput

_ACCEPTED = "a number and a unit, such as 90s, 30m, 1h or 7d"
MOST_DAYS = 3650
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw])", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


def seconds_of(age: str) -> float:
    """Raises BadInput that says what is accepted."""
    parts = _PART.findall(age) if _WHOLE.fullmatch(age.strip()) else ()
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 < seconds <= MOST_DAYS * 86400:
        raise BadInput(f"since {age[:40]!r}: write {_ACCEPTED}")
    return seconds
