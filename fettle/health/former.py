"""What the version before this one stored in sentences alone, read back as values. The only place
that reads sentences; the next version lets it go.
"""

from fettle.model import Standing

_ENDS = {
    "; no longer reported, latched until it is cleared": Standing.LATCHED,
    "; no longer reported": Standing.NOT_REPORTED,
    "; not cleared since": Standing.NOT_CLEARED,
}


def said_and_standing(message: str) -> tuple[str, Standing]:
    """What the message of stored evidence says, and whether that was still reported."""
    for ends, standing in _ENDS.items():
        if message.endswith(ends):
            return message.removesuffix(ends), standing
    return message, Standing.REPORTED
