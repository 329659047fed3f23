"""What a node is worth by the scores of its devices, and the 0..10 that kube-scheduler takes.

Pure arithmetic over scores in 0..1. `docs/scores.md` explains the formulas.
"""

from collections.abc import Mapping, Sequence

from fettle.model import Aggregate, Degraded

NEGLIGIBLE = 1e-9
MAX_SCORE = 10
"""`MaxExtenderPriority` of k8s.io/kube-scheduler/extender/v1."""
RISK_COSTS = 2.0
"""One dead unit among eight costs 3 of 10, which at the shipped weight is more than any plugin of
the scheduler gives: decision 0068."""
LEFTOVER_BONUS = 2
"""What a node's score gains if the pod's devices are left over there (`parts.py`)."""
CANARY_BONUS = 2
"""What it gains if its driver is new to a policy that prefers that."""
HIGHEST_SCORE = MAX_SCORE + LEFTOVER_BONUS
"""kube-scheduler multiplies any score by the extender's weight, without a bound: decision 0045."""


def expected_worst(units: Mapping[float, int], count: int) -> float:
    """The expected lowest score of `count` devices drawn at random, without replacement.

    `units` says how many devices have each score. The formula is Σ s_(i) · C(n-i, k-1) / C(n, k)
    over the scores in ascending order. Raises ValueError unless 1 ≤ count ≤ the number of devices.

    >>> expected_worst({0.0: 1, 1.0: 7}, 2)  # one of eight is dead, two are drawn
    0.75
    """
    n = sum(units.values())
    if not 1 <= count <= n:
        raise ValueError(f"cannot draw {count} of {n} devices")
    # Devices of equal score are one group: the worst is at least s if none below s is drawn.
    expected, below, at_least = 0.0, 0, 1.0
    for score in sorted(units):
        below += units[score]
        above = _none_drawn(below, count, n)
        expected += score * (at_least - above)
        at_least = above
    return expected


def _none_drawn(marked: int, count: int, n: int) -> float:
    """The chance that none of `marked` devices of n is drawn: C(n-marked, count) / C(n, count)."""
    if marked + count > n:
        return 0.0
    # `marked` and `count` may change places: the product over the fewer has fewer factors.
    fewer, other = sorted((marked, count))
    chance = 1.0
    for i in range(fewer):
        chance *= (n - other - i) / (n - i)
        if chance < NEGLIGIBLE:
            return 0.0
    return chance


def value_of_draw(units: Mapping[float, int], count: int, aggregate: Aggregate) -> float:
    """What `count` devices are worth if nobody chooses them (device plugins).

    >>> value_of_draw({0.5: 1, 1.0: 3}, 2, Aggregate.MIN)
    0.75
    >>> value_of_draw({0.5: 1, 1.0: 3}, 2, Aggregate.MEAN)
    0.875
    """
    if aggregate is Aggregate.MIN:
        return expected_worst(units, count)
    n = sum(units.values())
    return sum(score * (number / n) for score, number in units.items())


def value_of_devices(scores: Sequence[float], aggregate: Aggregate) -> float:
    """What these very devices are worth together (DRA, where the allocator's choice is known).

    >>> value_of_devices([0.5, 1.0], Aggregate.MIN), value_of_devices([0.5, 1.0], Aggregate.MEAN)
    (0.5, 0.75)
    """
    return min(scores) if aggregate is Aggregate.MIN else sum(scores) / len(scores)


def host_score(
    value: float,
    degraded: Degraded,
    *,
    tenant_caused: float = 0.0,
    risk: float = 0.0,
    last: bool = False,
) -> int:
    """The extender's 0..10 for a node of this value.

    `risk` is the chance of a device that the policy refuses. What it costs is more than its share
    of the value: a pod that gets such a device has lost its time, and often that of others.

    `Prefer` reverses the order, down to 1 for a sound node. A node that comes `last` gets 0 all the
    same. So does one whose value is low by such a risk, or by the word of tenants alone:
    `tenant_caused` is that share.

    >>> host_score(1.0, Degraded.ALLOW), host_score(1.0, Degraded.ALLOW, risk=0.125)
    (10, 8)
    >>> host_score(0.6, Degraded.PREFER), host_score(1.0, Degraded.PREFER)
    (5, 1)
    """
    if degraded is not Degraded.PREFER:
        value *= max(0.0, 1.0 - RISK_COSTS * risk)
        return max(0, min(MAX_SCORE, round(MAX_SCORE * value)))
    # A node that swallows pods must not be preferred before its fault is proven.
    preferred = 1.0 - value - 2 * tenant_caused - 2 * risk
    if last or preferred < 0:
        return 0
    return 1 + round((MAX_SCORE - 1) * min(1.0, preferred))
