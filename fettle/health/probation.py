"""Probation: what the record of the last 28 days takes from the score of something that is well
again. It counts like the trace of one past fault: only the heaviest of all these does.
"""

from collections.abc import Iterable
from math import inf

from fettle.api.meta import rfc3339_at
from fettle.health.fading import RECORD_SOURCE
from fettle.health.signals.rule_rows import SignalRow
from fettle.model import Evidence, EvidenceKind, Family, ReporterId, Subject, Weighed

RECORD_S, APART_S = 28 * 86_400.0, 86_400.0
"""How long a fault is on record; what is over again within a day of it is the same incident."""
GRAVE = 0.7
"""What weighs more makes a device Unhealthy."""
MOST_FAULTS = 8
"""The cap of the row `record` is reached before that. How many there were is for people."""
_OF_OTHERS = frozenset((Family.NODE, Family.OPERATOR))
"""Reboots and restarts of the node, and holds, say nothing of how good a device is."""


def is_on_record(over: Evidence) -> bool:
    """Whether a fault that is over is remembered for so long."""
    grave = over.kind is EvidenceKind.LATCHED or over.weight > GRAVE
    known = (
        over.kind is not EvidenceKind.UNKNOWN and not over.planned and not over.reporting_namespace
    )
    return grave and known and over.family not in _OF_OTHERS


def faults(times: Iterable[float], now: float, ahead_s: float = 0.0) -> tuple[float, ...]:
    """Distinct faults by when they were over, the oldest first, at most the latest few.

    >>> faults([0.0, 10.0, 90_000.0], 100_000.0)  # the first two are one fault
    (0.0, 90000.0)
    """
    found: list[float] = []
    for at in sorted(times):
        if now - RECORD_S < at <= now + ahead_s and (not found or at - found[-1] >= APART_S):
            found.append(at)
    return tuple(found[-MOST_FAULTS:])


def weighed(subject: Subject, times: tuple[float, ...], row: SignalRow) -> Weighed | None:
    """What distinct faults weigh together: nothing if there was only one."""
    if len(times) < 2:
        return None
    text = f"{len(times)} faults in 28 days, the last one over on {rfc3339_at(times[-1])[:10]}"
    weight = min(row.cap, row.weight * (len(times) - 1))
    evidence = Evidence(
        subject=subject,
        family=row.family,
        kind=EvidenceKind.DECAYING,
        weight=weight,
        source=RECORD_SOURCE,
        reporter=ReporterId("Fettle"),
        said=f"on probation: {text}",
        observed_at=times[-1],
        half_life_s=RECORD_S,
    )
    return Weighed(evidence, weight)


def lighter_at(times: tuple[float, ...]) -> float:
    """When the record weighs less than now; infinite if it weighs nothing."""
    return times[0] + RECORD_S if len(times) > 1 else inf
