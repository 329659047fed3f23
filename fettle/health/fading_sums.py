"""All that fades, by subject. Each sum is as in `fading`; which evidence it belongs to is as in
`reporters`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter

from fettle.health import fading
from fettle.health.fading import NEGLIGIBLE, Fading, Past
from fettle.health.reporters import Cause, EvidenceTopic
from fettle.model import Evidence, ReporterId, Source, Standing, Subject, Weighed

SumKey = tuple[Cause, float, str]
"""Cause, half-life in seconds, and reporting namespace."""


def sum_key(event: Evidence) -> SumKey:
    return (event.source, event.family), event.half_life_s, event.reporting_namespace


class FadingSums:
    """All that fades, by subject: one running sum for each cause, half-life and namespace.

    Negligible sums stay until they are swept.
    """

    def __init__(self) -> None:
        self._sums: dict[Subject, dict[SumKey, Fading]] = {}

    def __contains__(self, subject: Subject) -> bool:
        return subject in self._sums

    def of(self, subject: Subject, now: float) -> Iterator[tuple[SumKey, Fading]]:
        """The sums that still count."""
        for key, one in self._sums.get(subject, {}).items():
            if not one.is_negligible(now):
                yield key, one

    def unhidden(
        self,
        subject: Subject,
        standing: Mapping[tuple[ReporterId, EvidenceTopic], Evidence],
        now: float,
        past: Past,
    ) -> Iterator[Weighed]:
        """The sums that count beside what stands. What stands hides weaker sums of the same cause.

        Namespaces add up, so evidence of a namespace hides, and is hidden by, only that of the
        same one.
        """
        heaviest: dict[tuple[Cause, str], Evidence] = {}
        for (_, topic), evidence in standing.items():
            if not topic.unknown:
                key = (topic.cause, evidence.reporting_namespace)
                heaviest[key] = max(evidence, heaviest.get(key, evidence), key=attrgetter("weight"))
        for (cause, _, namespace), one in self.of(subject, now):
            weighed = one.weighed(now, past)
            counts = weighed.weight >= NEGLIGIBLE or not fading.is_trace(one.evidence)
            if counts and not _hides(heaviest.get((cause, namespace)), weighed):
                yield weighed

    def about(self, topic: EvidenceTopic) -> list[Fading]:
        """The sums of this topic's cause."""
        sums = self._sums.get(topic.subject, {})
        return [] if topic.unknown else [one for key, one in sums.items() if key[0] == topic.cause]

    def add(self, event: Evidence, now: float, *, renew: bool = False) -> None:
        """One more event; with `renew`, the same fact again."""
        sums = self._sums.setdefault(event.subject, {})
        key = sum_key(event)
        if key not in sums:
            sums[key] = fading.starting(event, now)
        elif renew:
            sums[key].renew(event, now)
        else:
            sums[key].add(event, now)

    def pop(self, topic: EvidenceTopic) -> list[Fading]:
        """Removes and returns the sums of this topic's cause, which are over."""
        sums = self._sums.get(topic.subject, {})
        over = [] if topic.unknown else [key for key in sums if key[0] == topic.cause]
        return [sums.pop(key) for key in over]

    def pop_source(self, subject: Subject, source: Source, until: float) -> list[Fading]:
        """Removes and returns the sums of one source which are over: whose latest event was not
        after that time."""
        sums = self._sums.get(subject, {})
        over = [key for key, one in sums.items() if key[0][0] == source and one.at <= until]
        return [sums.pop(key) for key in over]

    def pop_unreported(self, subject: Subject, before: float) -> list[Fading]:
        """Removes and returns the sums of what stood before a time and nobody reports any more."""
        sums = self._sums.get(subject, {})
        left = [
            key
            for key, one in sums.items()
            if one.evidence.standing is Standing.NOT_REPORTED and one.first_at <= before
        ]
        return [sums.pop(key) for key in left]

    def replace(self, subject: Subject, sums: Mapping[SumKey, Fading], now: float) -> bool:
        """Set all that fades of a subject; whether that changes anything."""
        before = dict(self.of(subject, now))
        after = {key: one for key, one in sums.items() if not one.is_negligible(now)}
        if before.keys() == after.keys() and all(
            fading.is_same_sum(before[key], after[key], now) for key in after
        ):
            return False
        self._sums[subject] = after
        if not after:
            del self._sums[subject]
        return True

    def forget(self, subject: Subject) -> None:
        self._sums.pop(subject, None)

    def sweep(self, now: float) -> None:
        """Forget what has faded."""
        for subject, sums in list(self._sums.items()):
            for key in [key for key, one in sums.items() if one.is_negligible(now)]:
                del sums[key]
            if not sums:
                del self._sums[subject]


def _hides(standing: Evidence | None, fading: Weighed) -> bool:
    """Whether the score would be the same without what fades."""
    if standing is None or fading.weight > standing.weight:
        return False
    return fading.evidence.together <= standing.together
