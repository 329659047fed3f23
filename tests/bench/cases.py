"""How many cases a section tries, where that may be anything from a glance to a night."""

from __future__ import annotations

import os


def cases(section: str, default: int) -> int:
    """What `FETTLE_<SECTION>_CASES` says, else the default, with which a whole run stays usable."""
    name = f"FETTLE_{section.upper()}_CASES"
    said = os.environ.get(name) or str(default)
    if not said.isdecimal() or int(said) == 0:
        raise ValueError(f"{name}={said!r} must be a number of cases, 1 or more")
    return int(said)
