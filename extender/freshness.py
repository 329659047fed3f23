"""Whether kube-scheduler may know more than the view shows, or less.

kube-scheduler watches the same API, and may ask within milliseconds of an event. An answer from an
older view would give the pod whatever has just come free, also a dead device (decisions 0021 and
0028). Three signs show that the view may be too old, so that the answer waits for a newer one:

- A node has devices that would be refused, though not those that the pod would get. Before such an
  answer, all events that have arrived are put into a view; this takes no time where none have.
- The pod fits on no node, though the scheduler asks only about nodes that passed its own filters.
  So it knows something that the view does not show, and a newer view is waited for. If none
  explains the question, Fettle is wrong in another way; since the scheduler asks about one pod
  after another, such waits are then skipped for a while.
- The view does not show the pod, and another pod of its owner was answered a moment ago. That one
  may have been refused by a kubelet meanwhile (decision 0040).

The view may also be too new: the scheduler may not have heard yet that a device was released, and
then gives the pod another one. So a node does not pass that would be refused if whatever was
released a moment ago were still held (decision 0050).
"""

import asyncio
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from extender.verbs import Waits
from fettle.api import core
from fettle.cluster import NodeView, View
from fettle.dra import with_unreleased
from fettle.observing import ExtenderMetrics
from fettle.pacing import Patience
from fettle.scheduling import Answers, Demand, Narrowed, Table

CHECK_S = 0.005
"""How often a wait checks whether an event has arrived."""
SAME_DEMAND_S = 10.0
"""How long a wait that brought nothing skips further ones for the same demand,"""
SAME_NAMESPACE_S = 1.5
"""and for any pod of the same namespace."""


class Freshness(Protocol):
    """What has arrived from the cluster, whether a view shows it or not."""

    @property
    def stale(self) -> bool:
        """Whether something has arrived that no view shows yet."""

    async def catch_up(self) -> None:
        """Until a view shows it."""

    def lacks_workload(self, pod: core.Pod) -> bool:
        """Whether it is yet to be asked which policy the pod's workload names."""

    async def learn_workload(self, pod: core.Pod) -> None:
        """Until a view shows it, if that takes only a moment."""


class AlwaysFresh:
    """Of a snapshot: nothing arrives."""

    stale = False

    async def catch_up(self) -> None:
        pass

    def lacks_workload(self, _: core.Pod) -> bool:
        return False

    async def learn_workload(self, _: core.Pod) -> None:
        pass


class FreshTables:
    """Narrows the names of a request by a table that is as new as what the scheduler may know."""

    def __init__(
        self, answers: Answers, metrics: ExtenderMetrics, freshness: Freshness, waits: Waits
    ) -> None:
        self._waits = waits
        self._answers = answers
        self._metrics = metrics
        self._freshness = freshness
        self._patience = Patience()
        self._patience_for_pods = Patience()

    def may_be_stale(self, table: Table, narrowed: Narrowed) -> bool:
        """Whether a newer view might change the answer, an event that no view shows yet, or a
        release that the scheduler does not know yet."""
        if self._is_stale(table, narrowed):
            return True
        if not is_near_refusal(table, narrowed.passed):
            return False
        return self._freshness.stale or any(self._without_releases(table, narrowed.passed))

    def _without_releases(self, table: Table, passed: Iterable[str]) -> Iterator[NodeView]:
        """The nodes that have a device to refuse and released others a moment ago, as they would be
        without these releases."""
        former = self._answers.publisher.former(self._waits.newer_view_s)
        nodes = self._answers.view.nodes
        if not former:
            return
        for name in table.near_refusal.intersection(former).intersection(passed):
            if (node := nodes.get(name)) is not None:
                pools = with_unreleased(node.pools, former[name].pools)
                if pools is not None:
                    yield msgspec.structs.replace(node, pools=pools)

    async def narrowed(
        self, pod: core.Pod, demand: Demand, names: list[str]
    ) -> tuple[Table, Narrowed]:
        """The names once they can be narrowed, and by which table."""
        table = await self._answers.judged(demand, names)
        narrowed = table.narrow(names)
        if self.may_be_stale(table, narrowed):
            await self._freshness.catch_up()
            table, narrowed = await self._narrowed_now(pod, demand, names)
        table, narrowed = await self._explained(pod, table, narrowed)
        return table, await self._whatever_was_released(table, narrowed)

    async def _whatever_was_released(self, table: Table, narrowed: Narrowed) -> Narrowed:
        """Without the nodes that would be refused if nothing had been released a moment ago."""
        cases = [(table.demand, node) for node in self._without_releases(table, narrowed.passed)]
        if not cases:
            return narrowed
        verdicts = await self._answers.judge_apart(cases, self._answers.outcomes())
        return narrowed.without({n: v.refusals[0] for n, v in verdicts.items() if not v.fits})

    def lacks_workload(self, pod: core.Pod) -> bool:
        """Whether it is yet to be asked which policy the pod's workload names."""
        return self._freshness.lacks_workload(pod)

    async def learn_workload(self, pod: core.Pod) -> None:
        """Until a view shows it, if that takes only a moment."""
        await self._freshness.learn_workload(pod)

    def shows(self, pod: core.Pod) -> bool:
        """Whether the view shows this very pod, and so all that became of pods before it."""
        known = self._answers.view.pods.get(pod.metadata.key)
        return known is not None and known.metadata.uid == pod.metadata.uid

    async def until_shown(self, pod: core.Pod) -> None:
        """Until a view shows this pod, if one comes in time.

        The API server tells of pods in one order: what a controller reacted to when it created this
        pod came before it.
        """
        if self._freshness.stale:
            await self._freshness.catch_up()
        until = asyncio.get_running_loop().time() + self._waits.newer_view_s
        identity = pod.metadata.controller_identity
        owner = f"owner {identity}" if identity else ""
        pauses_s: Mapping[Hashable, float] = {
            owner: SAME_DEMAND_S,
            "any": self._waits.any_pod_s,
        }

        async def newer(view: View) -> View | None:
            newest = await self._newer_view(view, until)
            return None if newest is view else newest

        waited = await self._patience_for_pods.wait(
            self._answers.view, lambda _: {} if self.shows(pod) else pauses_s, newer
        )
        if waited.result != "no_wait":
            self._metrics.waited(in_vain=waited.result == "in_vain")

    async def _narrowed_now(
        self, pod: core.Pod, demand: Demand, names: list[str]
    ) -> tuple[Table, Narrowed]:
        table = await self._answers.judged(self._answers.demand_now(pod) or demand, names)
        return table, table.narrow(names)

    async def _explained(
        self, pod: core.Pod, table: Table, narrowed: Narrowed
    ) -> tuple[Table, Narrowed]:
        """By the first view that explains why the scheduler asks, if one comes in time."""
        demand, names = table.demand, narrowed.names
        pauses_s = self._retry_pauses_s(demand, pod)
        until = asyncio.get_running_loop().time() + self._waits.newer_view_s

        async def newer(_: tuple[Table, Narrowed]) -> tuple[Table, Narrowed] | None:
            view = self._answers.view
            if await self._newer_view(view, until) is view:
                return None
            return await self._narrowed_now(pod, demand, names)

        found, result = await self._patience.wait(
            (table, narrowed), lambda found: pauses_s if self._is_stale(*found) else {}, newer
        )
        if result != "no_wait":
            self._metrics.waited(in_vain=result == "in_vain")
        return found

    async def _newer_view(self, view: View, until: float) -> View:
        """As `Publisher.newer_than`, but puts what arrives meanwhile into a view soon."""
        now = asyncio.get_running_loop().time
        newest = view
        while newest is view and (at := now()) < until:
            soon = min(at + CHECK_S, until)
            newest = await self._answers.publisher.newer_than(view.generation, soon)
            if newest is view and self._freshness.stale:
                await self._freshness.catch_up()
        return self._answers.view

    def _is_stale(self, table: Table, narrowed: Narrowed) -> bool:
        return is_table_stale(table, narrowed.passed, self._answers.view.nodes)

    def _retry_pauses_s(self, demand: Demand, pod: core.Pod) -> Mapping[Hashable, float]:
        """The keys of a wait for this pod, and for how many seconds each is skipped after a wait
        that brought nothing."""
        namespace = f"namespace {pod.metadata.namespace}"
        any_pod_s = self._waits.any_pod_s
        return {demand: SAME_DEMAND_S, namespace: SAME_NAMESPACE_S, "any": any_pod_s}


def is_near_refusal(table: Table, passed: Sequence[str]) -> bool:
    """Whether a newer view might refuse one of these nodes."""
    return bool(table.near_refusal) and not table.near_refusal.isdisjoint(passed)


def is_table_stale(table: Table, passed: Iterable[str], nodes: Mapping[str, NodeView]) -> bool:
    """Whether some nodes passed, but the table knows none among them that the pod fits on."""
    some = False
    for name in passed:
        if not _is_unexplained(name, table, nodes):
            return False
        some = True
    return some


def _is_unexplained(name: str, table: Table, nodes: Mapping[str, NodeView]) -> bool:
    """Whether the table does not say why the scheduler let this node pass."""
    if name in table.rejected or name not in table.verdicts:
        return True
    if name not in table.undecided:
        return False
    # What stays undecided whatever comes, as by a selector, does not show that the view is old.
    return bool(table.demand.unsettled) or any(pool.unclear for pool in nodes[name].pools)
