"""All that fades, by subject: one running sum for each topic, half-life and witness."""

from collections.abc import Iterator, Mapping

from fettle.health import fading
from fettle.health.fading import Fading
from fettle.health.reporters import EvidenceTopic, Topic
from fettle.model import Evidence, Subject, Weighed

Key = tuple[Topic, float, str]


class Sums:
    """What does not count any more stays until it is swept."""

    def __init__(self) -> None:
        self._sums: dict[Subject, dict[Key, Fading]] = {}

    def __contains__(self, subject: Subject) -> bool:
        return subject in self._sums

    def of(self, subject: Subject, now: float) -> Iterator[tuple[Key, Fading]]:
        """Those that still count."""
        for key, one in self._sums.get(subject, {}).items():
            if not one.is_negligible(now):
                yield key, one

    def unhidden(
        self, subject: Subject, standing: Mapping[tuple[str, EvidenceTopic], Evidence], now: float
    ) -> Iterator[Weighed]:
        """Those that count beside what stands: that hides what is weaker on its topic.

        Witnesses add up, so what has one hides, and is hidden by, the word of the same one only.
        """
        heaviest: dict[tuple[Topic, str], Evidence] = {}
        for (_, said), evidence in standing.items():
            if not said.unknown:
                key = (said.topic, evidence.witness)
                heaviest[key] = max(evidence, heaviest.get(key, evidence), key=_weight)
        for (topic, _, witness), one in self.of(subject, now):
            weighed = one.weighed(now)
            if not _hides(heaviest.get((topic, witness)), weighed):
                yield weighed

    def about(self, said: EvidenceTopic) -> list[Fading]:
        """Those on its topic."""
        sums = self._sums.get(said.subject, {})
        return [] if said.unknown else [one for key, one in sums.items() if key[0] == said.topic]

    def add(self, event: Evidence, now: float, *, renew: bool = False) -> None:
        """One more event; with `renew` the same fact once more."""
        sums = self._sums.setdefault(event.subject, {})
        key = ((event.source, event.family), event.half_life_s, event.witness)
        if key not in sums:
            sums[key] = fading.starting(event, now)
        elif renew:
            sums[key].renew(event, now)
        else:
            sums[key].add(event, now)

    def pop(self, said: EvidenceTopic) -> list[Fading]:
        """Those on its topic, which are over."""
        sums = self._sums.get(said.subject, {})
        over = [] if said.unknown else [key for key in sums if key[0] == said.topic]
        return [sums.pop(key) for key in over]

    def pop_source(self, subject: Subject, source: str) -> list[Fading]:
        """Those of one source, which are over."""
        sums = self._sums.get(subject, {})
        return [sums.pop(key) for key in [key for key in sums if key[0][0] == source]]

    def forget(self, subject: Subject) -> None:
        self._sums.pop(subject, None)

    def sweep(self, now: float) -> None:
        """Let go of what has faded."""
        for subject, sums in list(self._sums.items()):
            for key in [key for key, one in sums.items() if one.is_negligible(now)]:
                del sums[key]
            if not sums:
                del self._sums[subject]


def _weight(evidence: Evidence) -> float:
    return evidence.weight


def _hides(standing: Evidence | None, fading: Weighed) -> bool:
    """Whether the score is the same without what fades."""
    if standing is None or fading.weight > standing.weight:
        return False
    return fading.evidence.together <= standing.together
