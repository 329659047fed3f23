"""What a pod's own past and its gang add to the scores of nodes.

Pods with equal demands share their verdicts, which are about devices alone. So what concerns one
pod changes its answer, not the table: a few nodes gain or lose, and a gang changes what each of the
few scores is worth. Pure.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from heapq import nlargest

import msgspec

from fettle.api import core
from fettle.model import Degraded, PreviousNode, reasons
from fettle.model.reasons import Reason
from fettle.pacing import pause
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Demand
from fettle.scheduling.former_nodes import FormerNodes, FormerStay
from fettle.scheduling.gangs import SlowestMember
from fettle.scheduling.judge.scores import HIGHEST_SCORE, MAX_SCORE, host_score
from fettle.scheduling.judge.verdicts import LAST_SCORE, Verdict
from fettle.scheduling.owner_refusals import OwnerRefusals
from fettle.scheduling.tables import Table

RETURN_BONUS = 2
"""What a sound node's score gains if the pod ran there before: as much as the scheduler's own
packing can say, at the shipped weight."""


class Leaning(msgspec.Struct, frozen=True):
    """How one pod's scores differ from those of its demand.

    - `shares`: what nodes keep of their score; those that are not listed keep all.
    - `former`: where it ran before; of these, nodes of at least the value `sound` are preferred,
      unless it may get a bad device there. `failed`: where it failed lately.
    - `slowest`: the slowest member of its gang that is placed, and the score `worst` of such nodes.
    - `unplaced`: if none is placed, how many members are to be. Then `worst` is the score that so
      many nodes have at least.
    """

    shares: Mapping[str, float] = {}
    former: Mapping[str, FormerStay] = {}
    failed: Mapping[str, FormerStay] = {}
    sound: float = 0.0
    slowest: SlowestMember | None = None
    worst: int = 0
    unplaced: int = 0

    def __bool__(self) -> bool:
        return bool(self.shares or self.former or self._in_gang)

    @property
    def _in_gang(self) -> bool:
        return self.slowest is not None or self.unplaced > 0

    @property
    def named(self) -> set[str]:
        """The nodes that may differ from others of the same score."""
        return {*self.shares, *self.former}

    def among(self, names: Collection[str], score_of: Callable[[str], int]) -> "Leaning":
        """The same, but shares do not count where all of these nodes would lose everything, and the
        rest of a gang takes the best of these nodes."""
        shares, worst = self.shares, self.worst
        if shares and not any(shares.get(name, 1.0) for name in names):
            shares = {}
        if self.unplaced and names:
            worst = min(MAX_SCORE, nlargest(self.unplaced, map(score_of, names))[-1])
        if shares is self.shares and worst == self.worst:
            return self
        return msgspec.structs.replace(self, shares=shares, worst=worst)

    def scores(self, table: Table) -> Callable[[str], int]:
        """Gives a node's score for this pod; less than 0 if it would slow a gang too much."""
        if not self:
            return table.score_of
        if self.shares or self.former:
            return partial(self._score, table)
        usual = [*map(self.usual, range(HIGHEST_SCORE + 1))]
        return lambda name: usual[table.score_of(name)]

    def _score(self, table: Table, name: str) -> int:
        verdict = table.verdicts.get(name)
        value = verdict.value if verdict is not None else 0.0
        may_be_bad = verdict is None or verdict.may_be_bad
        return self._of(name, table.score_of(name), value, may_be_bad=may_be_bad)

    def usual(self, score: int) -> int:
        """What this score becomes for nodes that are not `named`."""
        if not self._in_gang:
            return score
        # What is worse slows all others too, so the difference counts twice. What is better gains
        # the gang little, though not nothing: the slowest one may be replaced.
        if score < self.worst:
            return 2 * score - self.worst
        return score if self.unplaced or self.worst == MAX_SCORE else min(score, self.worst + 1)

    def _of(self, name: str, score: int, value: float, *, may_be_bad: bool) -> int:
        kept = self.usual(round(self.shares.get(name, 1.0) * score))
        prefers = not may_be_bad and self._prefers(name, score, value)
        return kept + RETURN_BONUS if prefers else kept

    def _prefers(self, name: str, score: int, value: float) -> bool:
        # A node that is the last choice stays that.
        return name in self.former and value >= self.sound and score > LAST_SCORE

    def explained(self, verdicts: Mapping[str, Verdict]) -> dict[str, Verdict]:
        """The verdicts with the scores for this pod, and with the reasons why they differ."""
        found = dict(verdicts)
        if not self:
            return found
        fitting = [name for name, verdict in verdicts.items() if verdict.can_be_placed]
        leaning = self.among(fitting, lambda name: verdicts[name].score)
        for name in fitting:
            verdict = verdicts[name]
            bad = verdict.may_be_bad
            score = leaning._of(name, verdict.score, verdict.value, may_be_bad=bad)
            notes = (*verdict.notes, *leaning._notes(name, verdict))
            found[name] = msgspec.structs.replace(verdict, score=score, notes=notes)
            pause()
        return found

    def _notes(self, name: str, verdict: Verdict) -> Iterator[Reason]:
        if not verdict.may_be_bad and self._prefers(name, verdict.score, verdict.value):
            yield reasons.RanHere(self.former[name].pod)
        if name in self.failed and name in self.shares:
            yield reasons.FailedHere(self.failed[name].pod, self.failed[name].at)
        if self.unplaced and verdict.score < self.worst:
            yield reasons.SlowsRestOfGang(self.unplaced)
        if self.slowest is None:
            return
        pod, node, health = self.slowest
        if verdict.score < self.worst:
            yield reasons.SlowsGang(pod, node, health.score)
        elif verdict.score > self.worst + 1 and self.worst < MAX_SCORE:
            yield reasons.GangIsSlow(pod, node, health.score)


NEUTRAL = Leaning()


class Leanings:
    """What the scores of pods differ by, in the newest view."""

    def __init__(self, answers: Answers, refusals: OwnerRefusals, former: FormerNodes) -> None:
        self._answers = answers
        self._refusals = refusals
        self._former = former

    def of(self, pod: core.Pod, demand: Demand) -> Leaning:
        """What the pod's scores differ by from those of its demand."""
        view = self._answers.view
        placement = demand.policy.placement
        shares = self._refusals.shares_for(pod)
        former: Mapping[str, FormerStay] = {}
        failed: Mapping[str, FormerStay] = {}
        if stays := self._former.of(pod, view):
            prefers = placement.previous_node is PreviousNode.PREFER
            former = {n: stay for n, stay in stays.items() if prefers and not stay.failed}
            failed = {
                node: stay
                for node, stay in stays.items()
                if stay.on_failed_device or (prefers and stay.failed)
            }
            since = {node: stay.at for node, stay in failed.items()}
            shares = {**self._refusals.shares_since(since), **shares}
        slowest, worst, unplaced = None, 0, 0
        # Where Degraded devices come first, scores say something else.
        if placement.degraded is not Degraded.PREFER:
            slowest = self._answers.demands.gangs.slowest(pod, view)
            if slowest is None:
                unplaced = self._answers.demands.unplaced(pod)
            else:
                worst = host_score(slowest.health.score, placement.degraded)
        if not shares and not former and slowest is None and not unplaced:
            return NEUTRAL
        return Leaning(shares, former, failed, self._answers.sound, slowest, worst, unplaced)
