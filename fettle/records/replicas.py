"""The decisions of several processes as those of one. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from fettle.pacing import pause
from fettle.records.decisions import Decision, Verb


def merged(records: Iterable[Sequence[Decision]]) -> list[Decision]:
    """What all decided, the oldest first.

    A process that no scheduler asks about a pod takes it for one that nobody was asked about, which
    it notes as `seen`. That counts only where it is so, and once.
    """
    found: dict[str, Decision] = {}
    seen_by: dict[str, dict[int, float]] = defaultdict(dict)
    asked: set[str] = set()
    of: dict[str, int] = {}
    for process, decisions in enumerate(records):
        for one in decisions:
            found[one.id] = one
            of.setdefault(one.id, process)
            if one.verb is Verb.SEEN:
                since = seen_by[one.uid].get(process, one.first)
                seen_by[one.uid][process] = min(since, one.first)
            elif one.verb in (Verb.FILTER, Verb.PRIORITIZE):
                asked.add(one.uid)
            pause()

    def counts(one: Decision) -> bool:
        if one.verb is not Verb.SEEN:
            return True
        first = min(seen_by[one.uid], key=lambda process: seen_by[one.uid][process])
        return one.uid not in asked and of[one.id] == first

    return sorted(filter(counts, found.values()), key=lambda one: one.first)
