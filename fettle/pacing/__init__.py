"""When work runs: long work on the loop lets others go first, failed tries are repeated ever more
rarely, and no wait in vain is repeated at once.
"""

from fettle.pacing.backoff import Backoff
from fettle.pacing.patience import Patience
from fettle.pacing.pausing import SLICE_S, Slices, in_slices, pause

__all__ = [
    "SLICE_S",
    "Backoff",
    "Patience",
    "Slices",
    "in_slices",
    "pause",
]
