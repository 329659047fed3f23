"""What is known of pods besides what the view shows."""

from collections.abc import Callable
from typing import NamedTuple

from cachetools import LRUCache

from fettle.api import core
from fettle.api.kinds import WireObject
from fettle.scheduling.answers import Answers
from fettle.scheduling.former_nodes import FormerNodes
from fettle.scheduling.leanings import Leanings
from fettle.scheduling.owner_refusals import OwnerRefusals
from fettle.scheduling.placed.at_risk import AtRisk
from fettle.scheduling.placed.comebacks import Comebacks
from fettle.scheduling.placed.crashes import Crashes
from fettle.scheduling.placed.finished import FinishedPods, PodClaims
from fettle.scheduling.placed.stuck_pods import FreedPlaces

REMEMBERED_PODS = 2000


class RecentPods(LRUCache[str, core.Pod]):
    """The pods last asked about, by key, so that they can be explained before a view shows them."""

    def __init__(self, most: int = REMEMBERED_PODS) -> None:
        super().__init__(most)


class PodObservers(NamedTuple):
    recent: RecentPods
    claims: PodClaims
    at_risk: AtRisk
    finished: FinishedPods
    crashes: Crashes
    comebacks: Comebacks
    refusals: OwnerRefusals
    former: FormerNodes
    freed: FreedPlaces
    leanings: Leanings

    @classmethod
    def of(cls, answers: Answers) -> "PodObservers":
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
            freed=FreedPlaces(),
            leanings=Leanings(answers, refusals, former),
        )

    @property
    def observers(self) -> list[Callable[[WireObject], None]]:
        """What is called with each object that arrives."""
        parts = (self.finished, self.refusals, self.former, self.crashes, self.comebacks)
        return [*(one.observe for one in parts), self.freed.observe]
