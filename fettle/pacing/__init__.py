"""When work runs: long work on the loop lets others go first, what is done again and again goes on
whatever fails, failed tries are repeated ever more rarely, and a wait that brought nothing is not
repeated soon.
"""

from fettle.pacing.backoff import Backoff, Patience
from fettle.pacing.keeping import USUAL_PAUSES, KeptPart, KeptParts, Pauses, keep, part
from fettle.pacing.pausing import (
    SLICE_S,
    Superseded,
    pause,
    run_within,
    taking_turns,
    within,
    working_s,
)

__all__ = [
    "SLICE_S",
    "USUAL_PAUSES",
    "Backoff",
    "KeptPart",
    "KeptParts",
    "Patience",
    "Pauses",
    "Superseded",
    "keep",
    "part",
    "pause",
    "run_within",
    "taking_turns",
    "within",
    "working_s",
]
