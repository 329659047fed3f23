"""What operators are told of breakers: by which policies refusals are off, and in which pools.

Only of policies that pods were placed by lately, and as administrators wrote them. Neither who asks
for an explanation raises an alarm, nor a pod with a minimum score of its own: breakers open for
these too, which explanations show. Beside `breakers`, which says when to look.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fettle.cluster import Publisher
from fettle.config import BreakerSettings
from fettle.model import Placement, Policies, Policy
from fettle.pacing import pause
from fettle.scheduling.breaker.breaker import Breaker, Census

FORGET_S = 3600.0
"""So long after a pod was placed by a policy, its alarms end."""
CLOSED = "refusals by this policy count again"
FORGOTTEN = "no pod was placed by this policy for an hour, or it was changed or removed"


class Alarm(NamedTuple):
    """Refusals by a policy are off, since they would exclude this share (0..1) of a pool."""

    policy: str
    pool: str
    share: float


class Alarms:
    """Over what a census counted. `turned` is told of each alarm as it begins, with "", and as it
    ends, with the reason; `clock` is in seconds."""

    def __init__(
        self,
        publisher: Publisher,
        settings: BreakerSettings,
        census: Census,
        policies: Policies,
        turned: Callable[[Alarm, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._publisher = publisher
        self._settings = settings
        self._census = census
        self._policies = policies
        self._turned = turned
        self._clock = clock
        self._breakers: dict[str, Breaker] = {}
        """By the name of the policy."""
        self._placed_at: dict[str, float] = {}

    def placed_by(self, policy: Policy) -> None:
        """A pod was told of nodes that suit it by this policy, which its annotations may have
        changed."""
        name, placement = policy.name, policy.placement
        if placement != self._placement(name):
            return
        breaker = self._breakers.get(name)
        if breaker is None or breaker.placement != placement:
            self._forget(name)
            self._breakers[name] = Breaker(placement, self._settings, self._census)
        self._placed_at[name] = self._clock()
        self._judge(name)

    def look(self) -> None:
        """Tell what began and what ended by what is counted now."""
        for name in list(self._breakers):
            too_long = self._clock() - self._placed_at[name] > FORGET_S
            if too_long or self._breakers[name].placement != self._placement(name):
                self._forget(name)
            else:
                self._judge(name)
            pause()

    def notes(self) -> list[str]:
        """A sentence on each alarm, for people."""
        return [self._told(alarm) for name in sorted(self._breakers) for alarm in self._of(name)]

    def _told(self, alarm: Alarm) -> str:
        limit = self._settings.max_excluded_share
        return (
            f"breaker open: refusals by policy {alarm.policy} are off for {alarm.pool}, since they "
            f"would exclude {_percent(alarm.share)} of it (breaker.maxExcludedShare: "
            f"{_percent(limit)}), so its pods may get unsound devices; `fettle devices` shows what "
            "is wrong with them"
        )

    def _of(self, name: str) -> Iterator[Alarm]:
        breaker = self._breakers[name]
        for pool in sorted(breaker.open):
            yield Alarm(name, pool, breaker.share(pool))

    def _judge(self, name: str) -> None:
        """Say where a policy's breaker opens or closes by what is counted now."""
        breaker = self._breakers[name]
        before = breaker.open
        if breaker.judge():
            for pool in sorted(before ^ breaker.open):
                reason = "" if pool in breaker.open else CLOSED
                self._turned(Alarm(name, pool, breaker.share(pool)), reason)

    def _forget(self, name: str) -> None:
        if name in self._breakers:
            for alarm in self._of(name):
                self._turned(alarm, FORGOTTEN)
            del self._breakers[name], self._placed_at[name]

    def _placement(self, name: str) -> Placement | None:
        """What the policy of that name says now; None if there is none."""
        policy, _ = self._policies.find(name, self._publisher.view.policies)
        return policy.placement if policy is not None else None


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
