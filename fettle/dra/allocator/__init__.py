"""Which devices the in-tree DRA allocator takes on a node: first fit, in its own order, read-only.

`allocating` is one allocation from beginning to end: `plans` are checked, `searching` goes through
the candidates, `taking` decides on each with the help of `constraints`, `counters`, `capacities`
and `tolerating`. `pruning` and `pairing` end hopeless searches early; `shortfalls` and `conflicts`
say for people why there was nothing; `doubts` and `chance` know what
cannot be told: what is not modelled ends in "undecided", never in a guess. Pure; selectors are
looked up, not evaluated.
"""

from fettle.dra.allocator.allocating import allocate
from fettle.dra.allocator.outcomes import AMPLE, Allocated, AllocationStatus, Budget, Taken
from fettle.dra.allocator.shortfalls import shortfall
from fettle.dra.allocator.taking import Acceptable, Match
from fettle.dra.allocator.tolerating import tolerates

__all__ = [
    "AMPLE",
    "Acceptable",
    "Allocated",
    "AllocationStatus",
    "Budget",
    "Match",
    "Taken",
    "allocate",
    "shortfall",
    "tolerates",
]
