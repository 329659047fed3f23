"""A view that is behind the scheduler's, as its question shows.

kube-scheduler asks only about nodes that passed its own filters. Where by what we know it could
place the pod on none of them, it knows something newer: that a device was freed, a claim made or a
slice published is often why it asks, some milliseconds later. An answer by the older view would let
the pod have whatever it is that came free, a dead device too. So a newer view is waited for. Where
none tells otherwise we are wrong in another way, and the scheduler, which asks about one pod after
another, is not kept waiting for that again soon.
"""

from collections.abc import Iterable

from fettle.verdicts.tables import Table

WAIT_S = 0.15
"""A watch may be left unread for 50 ms, and a view follows the last one after as long."""
AGAIN_S = 60.0
"""After a wait in vain, how long there is none for the same ask,"""
REST_S = 1.5
"""and none for any."""


def is_behind(table: Table, passed: Iterable[str]) -> bool:
    """Whether the table knows no node among these that the pod fits on, but there are some."""
    odd = False
    for name in passed:
        if name in table.verdicts and name not in table.unfit and name not in table.undecided:
            return False
        odd = True
    return odd
