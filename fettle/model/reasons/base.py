"""What reasons share: their type, and words of several things and of times."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar

import msgspec

from fettle.model.health import Health, Kept, State, proven_evidence

MAX_NAMED = 3
"""How many devices, pods or groups a sentence names."""
_LAST_S = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


class Reason(msgspec.Struct, frozen=True, gc=False):
    """One reason. `request` is always "claim/request" or "claim/request/alternative".

    As a string it is a sentence, or a part of one: `sentence`, which names fields. A type whose
    words take more than that has its own `__str__`.
    """

    sentence: ClassVar[str]

    def __str__(self) -> str:
        return self.sentence.format(**msgspec.structs.asdict(self))

    @property
    def code(self) -> str:
        return type(self).__name__


def listed(names: Sequence[object]) -> str:
    """The first of these names."""
    more = ", …" if len(names) > MAX_NAMED else ""
    return ", ".join(map(str, names[:MAX_NAMED])) + more


def moment(unix_s: float) -> str:
    """A time in Unix seconds."""
    return f"{utc(unix_s):%Y-%m-%d %H:%M:%S} UTC"


def describe_kept(value: Kept) -> str:
    """Why a state is worse than its score alone would make it."""
    if value.recurring:
        return "held because its fault kept coming back"
    if value.until:
        return "held by the minimum dwell"
    again = " again" if value.then is State.HEALTHY else ""
    return f"{value.then}{again} from {value.score:.2f}"


def describe_state(health: Health, what: str = "") -> str:
    """A state (or `what` is wrong) with the score that refusals go by and the heaviest evidence."""
    what = what or str(health.state)
    proven = proven_evidence(health.evidence)
    top = f": {proven[0].evidence.text}" if proven else ""
    why = (
        f"; {describe_kept(health.kept)}"
        if health.kept is not None and what == health.state
        else ""
    )
    return f"{what} ({health.proven:.2f}{why}){top}"


def utc(unix_s: float) -> datetime:
    """A time in Unix seconds; the last that there is for what is later. A tenant's object may say
    the year 9999, and what is waited for comes after."""
    return datetime.fromtimestamp(min(max(unix_s, 0.0), _LAST_S), UTC)
