"""From device scores to what a node is worth, and from that to the 0..10 a kube-scheduler takes.

Pure arithmetic over scores in 0..1; the formulas stand in the README's words in `docs/scores.md`.
"""

from collections.abc import Sequence
from math import comb

from fettle.policy import Aggregate, Degraded

MAX_SCORE = 10
"""`MaxExtenderPriority` of k8s.io/kube-scheduler/extender/v1."""


def expected_worst(scores: Sequence[float], count: int) -> float:
    """The expected lowest score of `count` devices drawn at random, without replacement.

    Σ s_(i) · C(n-i, k-1) / C(n, k) over the scores in ascending order, i from 1: the i-th lowest
    is the worst of the draw when it is drawn and the other k-1 come from those above it.
    Raises ValueError unless 1 ≤ count ≤ len(scores).
    """
    n = len(scores)
    if not 1 <= count <= n:
        raise ValueError(f"cannot draw {count} of {n} devices")
    ways = comb(n, count)
    ascending = sorted(scores)
    return sum(s * comb(n - i, count - 1) for i, s in enumerate(ascending, start=1)) / ways


def drawn_at_random(scores: Sequence[float], count: int, aggregate: Aggregate) -> float:
    """What `count` devices are worth where nobody chooses them (device plugins)."""
    if aggregate is Aggregate.MIN:
        return expected_worst(scores, count)
    return sum(scores) / len(scores)


def taken(scores: Sequence[float], aggregate: Aggregate) -> float:
    """What these very devices are worth together (DRA, where the allocator's choice is known)."""
    return min(scores) if aggregate is Aggregate.MIN else sum(scores) / len(scores)


def host_score(value: float, degraded: Degraded) -> int:
    """The extender's 0..10 for a node of this value; `Prefer` turns the order around."""
    if degraded is Degraded.PREFER:
        value = 1.0 - value
    return max(0, min(MAX_SCORE, round(MAX_SCORE * value)))
