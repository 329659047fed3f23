"""Ages as people write them: `90s`, `30m`, `1h`, `7d`."""

import re

from fettle.model import BadInput

_ACCEPTED = "a number and a unit, such as 90s, 30m, 1h or 7d"
MOST_DAYS = 3650
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw])", re.ASCII)


def seconds_of(age: str) -> float:
    """Raises BadInput that says what is accepted."""
    found = _AGE.fullmatch(age.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < seconds <= MOST_DAYS * 86400:
        raise BadInput(f"since {age[:40]!r}: write {_ACCEPTED}")
    return seconds
