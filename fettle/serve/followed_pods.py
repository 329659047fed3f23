"""What is known of pods besides what the view shows."""

from collections.abc import Callable
from typing import NamedTuple

from extender import RecentPods
from fettle.api.kinds import WireObject
from fettle.scheduling import (
    Answers,
    AtRisk,
    Comebacks,
    Crashes,
    FinishedPods,
    FormerNodes,
    Leanings,
    OwnerRefusals,
    PodClaims,
)


class FollowedPods(NamedTuple):
    recent: RecentPods
    claims: PodClaims
    at_risk: AtRisk
    finished: FinishedPods
    crashes: Crashes
    comebacks: Comebacks
    refusals: OwnerRefusals
    former: FormerNodes
    leanings: Leanings

    @classmethod
    def of(cls, answers: Answers) -> "FollowedPods":
        """Nothing known yet."""
        at_risk, claims = AtRisk(answers), PodClaims(answers.publisher)
        refusals, former = OwnerRefusals(), FormerNodes()
        return cls(
            recent=RecentPods(),
            claims=claims,
            at_risk=at_risk,
            finished=FinishedPods(claims),
            crashes=Crashes(answers.publisher, at_risk, claims),
            comebacks=Comebacks(),
            refusals=refusals,
            former=former,
            leanings=Leanings(answers, refusals, former),
        )

    @property
    def on_put(self) -> list[Callable[[WireObject], None]]:
        """What takes in objects as they arrive."""
        taking_in = (self.finished, self.refusals, self.former, self.crashes, self.comebacks)
        return [one.put for one in taking_in]
