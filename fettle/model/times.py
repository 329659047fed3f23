"""Times."""

from datetime import UTC, datetime

_LAST_S = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


def utc(unix_s: float) -> datetime:
    """A time in Unix seconds; the last that there is for what is later. A tenant's object may say
    the year 9999, and what is waited for comes after."""
    return datetime.fromtimestamp(min(max(unix_s, 0.0), _LAST_S), UTC)
