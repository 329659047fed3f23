"""The bodies that filter and prioritize answer, and all that they leave out for speed.

`full` bodies say what the extender protocol documents: every refused node under
FailedAndUnresolvableNodes, every node's score. kube-scheduler decodes a reply in its one scheduling
cycle, so `compact` bodies leave out of long lists what it reads the same without: refused nodes
while some node is left (decision 0024), and scores that most nodes have (decision 0023).
"""

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Literal

from fettle.api import extender as wire
from fettle.dra import parse_git_version
from fettle.scheduling import NEUTRAL, Leaning, Narrowed, Table

SHORT = 100
"""Lists up to this length are always full: they cost next to nothing, and people read them."""
COMPACT_RELEASES = frozenset({(1, 36), (1, 37)})
"""Minor releases of kube-scheduler on which tests/controlplane/test_many_nodes.py has run (1.36.4,
1.37.1): pods land as if the replies were full."""

Form = Literal["compact", "full"]


class Replies:
    """Encodes replies in the form that the setting `extender.replies` says; where it says none,
    compact for schedulers of `version` if that was tested, else full."""

    def __init__(self, form: Form | None, version: Callable[[], str]) -> None:
        self._form = form
        self._version = version

    @property
    def compact(self) -> bool:
        """Whether long lists are shortened now: the version is known only once it was read."""
        return self._form == "compact" if self._form else _takes_compact(self._version())

    def narrowed(self, narrowed: Narrowed, text: str) -> bytes:
        """ExtenderFilterResult; every refusal has the one text."""
        return wire.filter_reply(narrowed.passed, self._listed_refusals(narrowed), text)

    def _listed_refusals(self, narrowed: Narrowed) -> Collection[str]:
        # The scheduler shows a refusal's text only of a pod that no node is left for.
        short = len(narrowed.names) <= SHORT or not narrowed.passed
        return narrowed.refused if short or not self.compact else ()

    def scores(self, table: Table, names: list[str], leaning: Leaning = NEUTRAL) -> bytes:
        """HostPriorityList, in the order of the names but for those that `leaning` names."""
        leaning = leaning.among(names, table.score_of)
        score = leaning.scores(table)
        if len(names) > SHORT and self.compact:
            usual = table.usual_score
            unusual = table.scored_otherwise(names, usual)
            if leaning.named:
                unusual += leaning.named.intersection(names).difference(unusual)
            # Only differences between hosts count, and a host that is missing counts as 0.
            if len(unusual) <= len(names) // 2:
                base = leaning.usual(usual)
                return wire.prioritize_reply(
                    wire.host_priority(name, score(name) - base) for name in unusual
                )
        if leaning:
            return wire.prioritize_reply(wire.host_priority(name, score(name)) for name in names)
        return wire.prioritize_reply(table.scores_as(names, wire.host_priority))

    def zero_scores(self, names: Collection[str]) -> bytes:
        """HostPriorityList for a pod that Fettle has no say in."""
        if len(names) > SHORT and self.compact:
            return wire.prioritize_reply(())
        return wire.prioritize_reply(wire.host_priority(name, 0) for name in names)


@lru_cache
def _takes_compact(version: str) -> bool:
    return parse_git_version(version)[:2] in COMPACT_RELEASES
