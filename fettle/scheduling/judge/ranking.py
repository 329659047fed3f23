"""From device scores to what a node is worth, and from that to the 0..10 a kube-scheduler takes.

Pure arithmetic over scores in 0..1; the formulas stand in the README's words in `docs/scores.md`.
"""

from collections.abc import Mapping, Sequence

from fettle.model import Aggregate, Degraded

NEGLIGIBLE = 1e-9
MAX_SCORE = 10
"""`MaxExtenderPriority` of k8s.io/kube-scheduler/extender/v1."""


def expected_worst(units: Mapping[float, int], count: int) -> float:
    """The expected lowest score of `count` devices drawn at random, without replacement.

    `units` are scores and how many devices have each. Σ s_(i) · C(n-i, k-1) / C(n, k) over the
    scores in ascending order, taken by groups: the worst is at least s when none of the devices
    below s is drawn. Raises ValueError unless 1 ≤ count ≤ the number of devices.
    """
    n = sum(units.values())
    if not 1 <= count <= n:
        raise ValueError(f"cannot draw {count} of {n} devices")
    expected, below, at_least = 0.0, 0, 1.0
    for score in sorted(units):
        below += units[score]
        above = _none_drawn(below, count, n)
        expected += score * (at_least - above)
        at_least = above
    return expected


def _none_drawn(marked: int, count: int, n: int) -> float:
    """The chance that none of `marked` devices among n is drawn: C(n-marked, count) / C(n, count).

    As a product over whichever of the two is fewer; it ends early once nothing is left of it.
    """
    if marked + count > n:
        return 0.0
    fewer, other = sorted((marked, count))
    chance = 1.0
    for i in range(fewer):
        chance *= (n - other - i) / (n - i)
        if chance < NEGLIGIBLE:
            return 0.0
    return chance


def drawn_at_random(units: Mapping[float, int], count: int, aggregate: Aggregate) -> float:
    """What `count` devices are worth if they are not chosen (device plugins)."""
    if aggregate is Aggregate.MIN:
        return expected_worst(units, count)
    n = sum(units.values())
    return sum(score * (number / n) for score, number in units.items())


def taken(scores: Sequence[float], aggregate: Aggregate) -> float:
    """What these very devices are worth together (DRA, where the allocator's choice is known)."""
    return min(scores) if aggregate is Aggregate.MIN else sum(scores) / len(scores)


def host_score(
    value: float, degraded: Degraded, *, provoked: float = 0.0, last: bool = False
) -> int:
    """The extender's 0..10 for a node of this value.

    `Prefer` turns the order around, down to 1 for a sound node; 0 is for what comes `last` all the
    same, and where the value is low by tenants' word alone (`provoked` is how much of it): what
    swallows pods is not to be preferred before it is proven.
    """
    if degraded is not Degraded.PREFER:
        return max(0, min(MAX_SCORE, round(MAX_SCORE * value)))
    preferred = 1.0 - value - 2 * provoked
    if last or preferred < 0:
        return 0
    return 1 + round((MAX_SCORE - 1) * min(1.0, preferred))
