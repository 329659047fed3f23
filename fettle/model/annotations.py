"""The annotations under Fettle's prefix: all that it reads or writes, on any object. Pure words."""

from fettle.model.policy import ANNOTATIONS, INJECTED
from fettle.model.subjects import OWN_PREFIX

HOLD = "fettle.dev/hold"
"""On a Node or ResourceSlice: an operator keeps its devices from use; the reason."""
JOB_EXIT_CODES = "fettle.dev/job-exit-codes"
"""On pods, whose Job keeps exit codes to its own podFailurePolicy by it."""
WOKEN_AT = "fettle.dev/woken-at"
"""On the object by which the steward wakes waiting pods: when it last did."""
PURPOSE = "fettle.dev/purpose"
"""On the same, for people."""

KNOWN = frozenset((*ANNOTATIONS, INJECTED, HOLD, JOB_EXIT_CODES, WOKEN_AT, PURPOSE))


def is_unknown(key: str) -> bool:
    """Whether an annotation looks like one of Fettle's and is none."""
    return key.startswith(OWN_PREFIX) and key not in KNOWN
