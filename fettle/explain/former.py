"""JSON fields by the names that the version before gave them, beside the new ones. The next version
does not need this any more.
"""

from typing import Any

_FORMER = {"demand": "ask", "rejected": "unfit", "unknownSignals": "unheard"}


def with_former(fields: dict[str, Any]) -> dict[str, Any]:
    """An object of JSON, with those of its fields that were renamed by both names."""
    return fields | {old: fields[new] for new, old in _FORMER.items() if new in fields}
