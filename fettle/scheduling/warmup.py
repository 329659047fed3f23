"""Selectors evaluated before a pod asks, and waited for within a bound.

`WarmUp` evaluates the selectors of classes, policies and templates when a view is published, so
that requests find the outcomes in memory. `Evaluations` evaluates the selectors of a demand when it
comes, in the background, and lets a request wait. Both serve `answers`.
"""

import asyncio
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from fettle.api.resource import Device
from fettle.cel import Engines, SelectorEngine
from fettle.cluster import (
    Attribute,
    AttributeFingerprints,
    NodeView,
    Publisher,
    View,
    attribute_digests,
    attributes_read,
)
from fettle.dra import PoolView, cel_expressions, claim_of_spec
from fettle.logs import Logger
from fettle.model import Policies, Policy, Requirement
from fettle.pacing import Backoff, pause, run_within
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.requirements import rows_of

_LOG = Logger(__name__)

NODES_AT_ONCE = 64
RETRY_S = 1.0
"""The first pause before a failed evaluation is tried again; each next one is 4 times as long."""
LONGEST_RETRY_S = 300.0


class WarmUpTargets(NamedTuple):
    """What to evaluate on all nodes of a view."""

    selectors: frozenset[str]
    requirements: frozenset[Requirement] = frozenset()


WantedIn = Callable[[View], WarmUpTargets]
Done = Callable[[View, WarmUpTargets], None]


class _Retry:
    """When a failed evaluation is tried again, in the loop's time; `at` is None if none failed."""

    def __init__(self) -> None:
        self.at: float | None = None
        self._backoff = Backoff(RETRY_S, LONGEST_RETRY_S, factor=4.0)

    def take(self) -> bool:
        """Whether it is time to try again; if so, that counts as done."""
        if self.at is None or asyncio.get_running_loop().time() < self.at:
            return False
        self.at = None
        return True

    def in_s(self) -> float | None:
        """In how many seconds that is."""
        return None if self.at is None else self.at - asyncio.get_running_loop().time()

    def tried(self, *, complete: bool) -> None:
        """Note an evaluation; set the time for the next one unless it was `complete`."""
        if self.at is not None:
            return
        if complete:
            self._backoff.succeeded()
        else:
            self.at = asyncio.get_running_loop().time() + self._backoff.next_s()


class _Warmed:
    """What is warm: of which view, and which nodes' devices, as they were."""

    def __init__(self) -> None:
        self.view: View | None = None
        self.basis = -1
        self.known = WarmUpTargets(frozenset())
        self.ready: dict[str, list[AttributeFingerprints]] = {}
        self.retry = _Retry()


class WarmUp:
    """Keeps the outcomes for the publisher's newest view in the engines' memory."""

    def __init__(self, publisher: Publisher, engines: Engines, policies: Policies) -> None:
        self._publisher = publisher
        self._engine: SelectorEngine = engines.devices
        self._engines = engines
        self._policies = policies

    async def keep(self) -> None:
        """Evaluate the selectors in each new view, until cancelled."""
        # Two tasks: only administrators write classes, any tenant may write templates, and the
        # selectors of classes must not wait for those.
        async with asyncio.TaskGroup() as group:
            for name, wanted_in, done in (
                ("selectors of classes", self._of_administrators, self._of_administrators_done),
                ("selectors of templates", self._of_templates, self._of_templates_done),
            ):
                group.create_task(self._keep(name, wanted_in, done))

    def policies_of(self, view: View) -> Iterable[Policy]:
        """All policies that apply in a view."""
        return (*self._policies.by_name.values(), *view.policies.values())

    def _of_administrators(self, view: View) -> WarmUpTargets:
        required = (r for policy in self.policies_of(view) for r in policy.placement.requires)
        return WarmUpTargets(_of_classes(view), frozenset(required))

    def _of_templates(self, view: View) -> WarmUpTargets:
        selectors: set[str] = set()
        for template in view.templates.values():
            claim = claim_of_spec("", template.spec.spec, view.classes)
            selectors.update(e for a in claim.alternatives() for e in a.selectors)
            pause()
        return WarmUpTargets(frozenset(selectors) - _of_classes(view))

    def _of_administrators_done(self, view: View, wanted: WarmUpTargets) -> None:
        self._engine.pin(wanted.selectors | {r.expression for r in wanted.requirements})
        self._engines.warn(self.policies_of(view))

    def _of_templates_done(self, _view: View, wanted: WarmUpTargets) -> None:
        self._engine.use(wanted.selectors)

    async def _keep(self, name: str, wanted_in: WantedIn, done: Done) -> None:
        """Evaluate what each new view wants on the nodes that changed, then call `done`."""
        kept = _Warmed()

        async def look(view: View) -> float | None:
            nonlocal kept
            warmed, kept = kept, _Warmed()  # if this fails, the next look begins anew
            await self._warm(warmed, view, wanted_in, done)
            kept = warmed
            return warmed.retry.in_s()

        await self._publisher.keep_looking(name, look)

    async def _warm(self, warmed: _Warmed, view: View, wanted_in: WantedIn, done: Done) -> None:
        again = warmed.retry.take()
        if view.basis == warmed.basis and not again:
            return
        basis, known, ready = warmed.basis, warmed.known, warmed.ready
        changed = self._publisher.changed_since(basis) if basis >= 0 else None
        before, warmed.view = warmed.view, view
        same = before is not None and _has_same_sources(before, view)
        wanted = known if same else await run_within(partial(wanted_in, view))
        if changed is None or _has_more(wanted, known):  # then no node is ready
            changed = frozenset(view.nodes)
            ready.clear()
        for name in changed:  # not a difference of sets: that would go through all nodes
            if name not in view.nodes:
                ready.pop(name, None)
        if again:
            changed |= view.nodes.keys() - ready.keys()
        warmed.basis, warmed.known = view.basis, wanted
        if any(wanted):
            complete = await self._evaluate(wanted, view, changed, ready, before)
            warmed.retry.tried(complete=complete)
            done(view, wanted)

    async def _evaluate(
        self,
        wanted: WarmUpTargets,
        view: View,
        changed: Iterable[str],
        ready: dict[str, list[AttributeFingerprints]],
        before: View | None,
    ) -> bool:
        """Evaluate on these nodes; false if something is left. Nodes it is left on are not `ready`.

        Devices already evaluated in the view `before` are skipped; one pool stands for all with the
        same fingerprint.
        """
        selectors, required = wanted
        complete = await self._engines.evaluate(required)  # also where there are no nodes
        evaluated: set[Hashable] = set()
        for batch in _batches(sorted(changed), NODES_AT_ONCE):
            nodes = [view.nodes[name] for name in batch if name in view.nodes]
            fresh = [n for n in nodes if not _is_same(_published(n), ready.get(n.name))]
            attributes = attributes_read(map(self._engine.reads, selectors))
            pools = await run_within(partial(_by_fingerprint, fresh, attributes))
            new = partial(_devices_of, pools, evaluated, before, ready)
            devices = await run_within(new)
            done = await self._engine.evaluate(selectors, devices)
            done = await self._engines.evaluate(required, *rows_of(nodes)) and done
            if done:
                ready.update((node.name, _published(node)) for node in fresh)
                evaluated.update(pools)
            else:
                complete = False
                for node in nodes:
                    ready.pop(node.name, None)
            await asyncio.sleep(0)
        return complete


def _has_same_sources(before: View, now: View) -> bool:
    """Whether the objects that selectors are written in are the same."""
    return (
        now.classes is before.classes
        and now.templates is before.templates
        and now.policies is before.policies
    )


def _of_classes(view: View) -> frozenset[str]:
    """The selectors of all device classes."""
    return frozenset(e for c in view.classes.values() for e in cel_expressions(c.selectors))


def _has_more(wanted: WarmUpTargets, known: WarmUpTargets) -> bool:
    now = {requirement.expression for requirement in wanted.requirements}
    before = {requirement.expression for requirement in known.requirements}
    return bool(wanted.selectors - known.selectors or now - before)


def _published(node: NodeView) -> list[AttributeFingerprints]:
    """The attributes that the node's devices publish, as fingerprints."""
    # The same objects until slices change, whatever claims allocate.
    return [pool.attribute_fingerprints for pool in node.pools]


def _is_same(
    now: Sequence[AttributeFingerprints], before: Sequence[AttributeFingerprints] | None
) -> bool:
    """Whether the fingerprints are the same objects; false if there are none."""
    if before is None or len(before) != len(now):
        return False
    return all(new and new is old for new, old in zip(now, before, strict=True))


def _fingerprint(pool: PoolView, attributes: Sequence[Attribute]) -> Hashable:
    """The same for pools whose devices are the same to selectors that read these attributes.

    A pool without digests is the same as no other.
    """
    return (
        (attributes, pool.fingerprint, *attribute_digests(pool, attributes))
        if pool.fingerprint
        else id(pool)
    )


def _by_fingerprint(
    nodes: Iterable[NodeView], attributes: Sequence[Attribute]
) -> dict[Hashable, tuple[NodeView, PoolView]]:
    """One pool for each fingerprint, with its node."""
    pools: dict[Hashable, tuple[NodeView, PoolView]] = {}
    for node in nodes:
        for pool in node.pools:
            pools[_fingerprint(pool, attributes)] = node, pool
            pause()
    return pools


def _devices_of(
    pools: Mapping[Hashable, tuple[NodeView, PoolView]],
    evaluated: Container[Hashable],
    before: View | None,
    ready: Container[str],
) -> list[tuple[str, Device]]:
    """The devices that are not evaluated yet, with their drivers."""
    found: list[tuple[str, Device]] = []
    for fingerprint, (node, pool) in pools.items():
        if fingerprint not in evaluated:
            earlier = before.nodes.get(node.name) if before else None
            for device in _new_devices(pool, earlier, ready):
                found.append((pool.driver, device))
                pause()
    return found


def _new_devices(
    pool: PoolView, before: NodeView | None, ready: Container[str]
) -> Iterator[Device]:
    """The pool's devices, except those of unchanged slices on a node that was ready."""
    pools = before.pools if before is not None and before.name in ready else ()
    of_pool = (p for p in pools if (p.driver, p.name) == (pool.driver, pool.name))
    known = {id(d.device) for p in of_pool for d in p.devices}
    return (d.device for d in pool.devices if id(d.device) not in known)


def _batches(names: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    for start in range(0, len(names), size):
        yield names[start : start + size]


# Evaluations that requests wait for


class _Evaluation:
    """An evaluation under way; `quick` is set once only costly selectors are left of it."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.quick = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Evaluations:
    """Evaluations of what demands select by, at most one for a demand at a time."""

    def __init__(self, engines: Engines, wait_s: float) -> None:
        self._engines = engines
        self._wait_s = wait_s
        self._under_way: dict[Demand, _Evaluation] = {}

    async def wait(self, demand: Demand, nodes: Sequence[NodeView]) -> None:
        """Wait until what a demand selects by is evaluated on these nodes, or takes too long."""
        # A request waits only for what may be decided soon: neither for selectors that have proved
        # costly, nor again for what an earlier request waited for to no avail.
        running = self._under_way.get(demand)
        if running is not None and not await _ended(running):
            return
        await _ended(self._start(demand, nodes))

    def _start(self, demand: Demand, nodes: Sequence[NodeView]) -> _Evaluation:
        """Start an evaluation that runs to its end, so that later demands find it in memory."""
        evaluation = _Evaluation(asyncio.get_running_loop().time() + self._wait_s)
        evaluation.task = asyncio.ensure_future(self._evaluate(demand, nodes, evaluation.quick))
        self._under_way[demand] = evaluation

        def end(task: "asyncio.Task[None]") -> None:
            evaluation.quick.set()
            if self._under_way.get(demand) is evaluation:
                del self._under_way[demand]
            if not task.cancelled() and (error := task.exception()) is not None:
                _LOG.error("selectors could not be evaluated for a demand", exc_info=error)

        evaluation.task.add_done_callback(end)
        return evaluation

    async def _evaluate(
        self, demand: Demand, nodes: Sequence[NodeView], quick: asyncio.Event
    ) -> None:
        await self._engines.evaluate(demand.policy.placement.requires, *rows_of(nodes))
        devices = [(d.id.driver, d.device) for n in nodes for p in n.pools for d in p.devices]
        await self._engines.devices.evaluate(demand.selectors, devices, quick)


async def _ended(evaluation: _Evaluation) -> bool:
    """Wait until only costly selectors are left, or it took too long; true if it has ended."""
    assert evaluation.task is not None
    with suppress(TimeoutError):
        async with asyncio.timeout_at(evaluation.until):
            await evaluation.quick.wait()
    return evaluation.task.done()
