"""When work runs: long work on the loop lets others go first, and no wait in vain is repeated."""

from fettle.pacing.patience import Patience
from fettle.pacing.pausing import SLICE_S, Slices, in_slices, pause

__all__ = [
    "SLICE_S",
    "Patience",
    "Slices",
    "in_slices",
    "pause",
]
