"""A device's health as a request sees it: without the evidence of taints that it tolerates. Pure.

What the user wrote wins: the allocator gives such a device to such a request, so the taint alone
must not make us refuse it. All other evidence counts, an operator's hold among it. A toleration for
so many seconds is grace for a pod that runs, which a new one would be evicted after: it excuses
nothing. Nor does one that lets a pod onto a device, but names no effect, where the taint evicts:
eviction counts only tolerations that say NoExecute.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from fettle.api.resource import DeviceToleration
from fettle.config import HealthSettings
from fettle.dra import tolerates
from fettle.health import START, assess
from fettle.model import SOUND, Evidence, Family, Health, TaintRef, Weighed


class Tolerated(NamedTuple):
    """Health by what is left of the evidence, and the taints whose evidence does not count."""

    health: Health
    taints: tuple[TaintRef, ...] = ()


def tolerating(
    health: Health, tolerations: Sequence[DeviceToleration], thresholds: HealthSettings
) -> Tolerated:
    """The health of a device for a request with these tolerations.

    Where something is tolerated, the rest is judged as if nothing else had ever been said: the
    state that it was in before may have been due to the taint.
    """
    if not tolerations or not health.evidence:
        return Tolerated(health)
    left = tuple(w for w in health.evidence if not _excused(w.evidence, tolerations))
    if len(left) == len(health.evidence):
        return Tolerated(health)
    excused = {t for w in health.evidence if w not in left for t in w.evidence.taints}
    return Tolerated(by(left, thresholds), tuple(sorted(excused)))


def by(evidence: tuple[Weighed, ...], thresholds: HealthSettings) -> Health:
    """The health by this evidence, as if nothing else had ever been said."""
    if not evidence:
        return SOUND
    return assess(evidence, START, thresholds, math.inf, all_clear=False).health


def _excused(evidence: Evidence, tolerations: Sequence[DeviceToleration]) -> bool:
    if not evidence.taints or evidence.family is Family.OPERATOR:
        return False
    return all(
        any(
            tolerates(toleration, taint) and not _ends(toleration, taint)
            for toleration in tolerations
        )
        for taint in evidence.taints
    )


def _ends(toleration: DeviceToleration, taint: TaintRef) -> bool:
    """Whether a pod that tolerates it so is evicted, at once or some time later. Seconds count for
    no other effect."""
    if taint.effect != "NoExecute":
        return False
    return toleration.effect != "NoExecute" or toleration.toleration_seconds is not None
