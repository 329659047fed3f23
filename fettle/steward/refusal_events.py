"""Events on pods that wait because filter refused them, so that `kubectl describe pod` says why:
one when a pod is first refused everywhere, and one when the reasons change.
"""

from collections.abc import Callable, Mapping

from fettle.api import core
from fettle.client import Event, Regarding
from fettle.cluster import EMPTY, Publisher, View
from fettle.explain import text
from fettle.model import Mode
from fettle.model.reasons import Reason
from fettle.pacing import run_within
from fettle.records import Counted, Summaries
from fettle.scheduling import Answers, Narrowed, OwnerRefusals, Table
from fettle.steward.waking import waiting

EVERY_S = 2.0
REST = 4.0
"""After looking at all waiting pods, pause for so many times as long."""
MOST_CODES = 5
REASON = "RefusedByHealth"


class RefusalEvents:
    """`record` takes an Event at once and writes it later; false if it is held back.

    After a change of the leader, the new one tells once more what the old one told.
    """

    def __init__(
        self,
        answers: Answers,
        publisher: Publisher,
        record: Callable[[Event], bool],
        refusals: OwnerRefusals,
    ) -> None:
        self._answers = answers
        self._publisher = publisher
        self._record = record
        self._owner_refusals = refusals
        self._summaries = Summaries()
        self._told: dict[str, frozenset[str]] = {}
        """The codes that were told of each waiting pod."""

    async def run(self) -> None:
        """Tell of each view's waiting pods, until cancelled."""
        await self._publisher.keep_looking(
            "events on refused pods", self.tell, every_s=EVERY_S, rest=REST
        )

    async def tell(self, _: View = EMPTY) -> None:
        """Record an Event about each pod that waits for reasons that it was not told."""
        view = self._publisher.view
        pods = await run_within(None, lambda: [*waiting(view)])
        told: dict[str, frozenset[str]] = {}
        for key, pod in pods:
            found = await self._refusals(pod)
            if found is None:
                continue
            why, how_many = found
            codes = frozenset(why.codes)
            patience = self._answers.patience(pod)
            event = _event(pod, why, how_many, patience)
            if self._told.get(key) == codes or self._record(event):
                told[key] = codes
        self._told = told

    async def _refusals(self, pod: core.Pod) -> tuple[Counted, str] | None:
        """Why nodes are refused, and how many of how many, in words; None if none is."""
        demand = self._answers.demand(pod)
        if demand is None or demand.mode is not Mode.ENFORCE:
            return None
        table = await self._answers.judged(demand)
        refused = len(table.refusing)
        if not refused:
            return None
        why = self._summaries.refusals(table, table.refusing, refused, self._publisher.view.nodes)
        # Beside other reasons only: because of this one alone, no pod is refused everywhere.
        avoided = self._avoided(pod, table)
        anyway = len(table.refusing & table.rejected)
        unfit = f" ({anyway} of them have no room for it anyway)" if anyway else ""
        how_many = f"{refused + len(avoided)} of {len(table.verdicts)} nodes{unfit}"
        return why.adding(avoided), how_many

    def _avoided(self, pod: core.Pod, table: Table) -> Mapping[str, Reason]:
        """The nodes that are left out for the sake of the pod's owner, while others are left."""
        if not (avoided := self._owner_refusals.nodes_for(pod)):
            return {}
        open_ = [n for n in table.verdicts if n not in table.refusing and n not in table.rejected]
        return Narrowed(open_, open_).avoiding(avoided).besides


def _event(pod: core.Pod, why: Counted, how_many: str, patience: Reason | None) -> Event:
    counts = sorted(why.codes.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{code} ×{n}" for code, n in counts[:MOST_CODES])
    more = f" and {len(counts) - MOST_CODES} more" if len(counts) > MOST_CODES else ""
    such = f"; such as: {text(why.commonest)}" if why.commonest is not None else ""
    wait = f"; {text(patience)}" if patience is not None else ""
    metadata = pod.metadata
    return Event(
        regarding=Regarding("v1", "Pod", metadata.name, metadata.namespace, metadata.uid),
        reason=REASON,
        action="Filter",
        note=f"Fettle refuses {how_many}: {listed}{more}{such}{wait}. "
        f"All of it: fettle explain pod {metadata.key}",
        series_key=" ".join(sorted(why.codes)),
        type="Warning",
    )
