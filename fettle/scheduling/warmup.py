"""Selectors evaluated before anybody asks, as views turn: so a request finds them in memory.

Those of classes, which only administrators write, do not wait for those of templates, which any
tenant may; a claim's own selectors come with the claim. Beside `answering`, which asks for them.
"""

import asyncio
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from fettle.api.resource import Device
from fettle.cel import SelectorEngine
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
from fettle.model import Policies, Policy, Requirement
from fettle.pacing import Backoff, pause, run_within
from fettle.scheduling.judge.requirements import Engines

READY_NODES = 64
AGAIN_S = 1.0
"""A pause before what could not be evaluated is tried again; the next ones are four times as long
as the one before."""
LONGEST_AGAIN_S = 300.0


class WarmUpTargets(NamedTuple):
    """What is to be evaluated on all nodes of a view."""

    selectors: frozenset[str]
    requirements: frozenset[Requirement] = frozenset()


class _Retry:
    """When what could not be evaluated is tried again, as a time of the loop; `at` is None where
    there is no such thing."""

    def __init__(self) -> None:
        self.at: float | None = None
        self._backoff = Backoff(AGAIN_S, LONGEST_AGAIN_S, factor=4.0)

    def take(self) -> bool:
        """Whether it is time: then it is tried now."""
        if self.at is None or asyncio.get_running_loop().time() < self.at:
            return False
        self.at = None
        return True

    def tried(self, *, complete: bool) -> None:
        if self.at is not None:
            return
        if complete:
            self._backoff.succeeded()
        else:
            self.at = asyncio.get_running_loop().time() + self._backoff.next_s()


class WarmUp:
    """Keeps the engines' memory filled for the publisher's newest view."""

    def __init__(self, publisher: Publisher, engines: Engines, policies: Policies) -> None:
        self._publisher = publisher
        self._engine: SelectorEngine = engines.devices
        self._engines = engines
        self._policies = policies

    async def keep(self) -> None:
        """Evaluate what stands in views, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep(self._of_administrators, self._of_administrators_done))
            group.create_task(self._keep(self._of_templates, self._of_templates_done))

    def of_view(self, view: View) -> Iterable[Policy]:
        """All policies that count in it."""
        return (*self._policies.by_name.values(), *view.policies.values())

    def _of_administrators(self, view: View) -> WarmUpTargets:
        required = (r for policy in self.of_view(view) for r in policy.placement.requires)
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
        self._engines.warn(self.of_view(view))

    def _of_templates_done(self, _view: View, wanted: WarmUpTargets) -> None:
        self._engine.use(wanted.selectors)

    async def _keep(
        self,
        wanted_in: Callable[[View], WarmUpTargets],
        done: Callable[[View, WarmUpTargets], None],
    ) -> None:
        generation, basis, known = 0, -1, WarmUpTargets(frozenset())
        seen: View | None = None
        ready: dict[str, list[AttributeFingerprints]] = {}
        retry = _Retry()
        while True:
            view = await self._publisher.newer_than(generation, retry.at)
            generation = view.generation
            again = retry.take()
            if view.basis == basis and not again:
                continue
            changed = self._publisher.changed_since(basis) if basis >= 0 else None
            before, seen = seen, view
            same = before is not None and _stands_as(before, view)
            wanted = known if same else await run_within(None, partial(wanted_in, view))
            if changed is None or _has_more(wanted, known):
                changed = frozenset(view.nodes)
                ready.clear()
            for name in changed:  # not a difference of sets: that would go through all nodes
                if name not in view.nodes:
                    ready.pop(name, None)
            if again:
                changed |= view.nodes.keys() - ready.keys()
            basis, known = view.basis, wanted
            if any(wanted):
                retry.tried(complete=await self._evaluate(wanted, view, changed, ready, before))
                done(view, wanted)

    async def _evaluate(
        self,
        wanted: WarmUpTargets,
        view: View,
        changed: Iterable[str],
        ready: dict[str, list[AttributeFingerprints]],
        before: View | None,
    ) -> bool:
        """Whether nothing is left of it; nodes that something is left of are not `ready`. What was
        published in the view `before` by nodes that are, is evaluated; of pools alike, so is all
        once one is."""
        selectors, required = wanted
        complete = await self._engines.evaluate(required)  # also where there are no nodes
        evaluated: set[Hashable] = set()
        for batch in _batches(sorted(changed), READY_NODES):
            nodes = [view.nodes[name] for name in batch if name in view.nodes]
            fresh = [n for n in nodes if not _is_same(_published(n), ready.get(n.name))]
            attributes = attributes_read(map(self._engine.reads, selectors))
            looks = await run_within(None, partial(_looks, fresh, attributes))
            new = partial(_devices_of, looks, evaluated, before, ready)
            devices = await run_within(None, new)
            done = await self._engine.evaluate(selectors, devices)
            done = await self._engines.evaluate(required, nodes) and done
            if done:
                ready.update((node.name, _published(node)) for node in fresh)
                evaluated.update(looks)
            else:
                complete = False
                for node in nodes:
                    ready.pop(node.name, None)
            await asyncio.sleep(0)
        return complete


def _stands_as(before: View, now: View) -> bool:
    """Whether what selectors stand in is the same."""
    return (
        now.classes is before.classes
        and now.templates is before.templates
        and now.policies is before.policies
    )


def _of_classes(view: View) -> frozenset[str]:
    return frozenset(e for c in view.classes.values() for e in cel_expressions(c.selectors))


def _has_more(wanted: WarmUpTargets, known: WarmUpTargets) -> bool:
    texts = {requirement.expression for requirement in wanted.requirements}
    seen = {requirement.expression for requirement in known.requirements}
    return bool(wanted.selectors - known.selectors or texts - seen)


def _published(node: NodeView) -> list[AttributeFingerprints]:
    """What its devices say of themselves: the same objects until slices change, whatever claims
    take of the devices."""
    return [pool.attribute_fingerprints for pool in node.pools]


def _is_same(
    now: Sequence[AttributeFingerprints], before: Sequence[AttributeFingerprints] | None
) -> bool:
    """Never, where there are no digests to tell."""
    if before is None or len(before) != len(now):
        return False
    return all(new and new is old for new, old in zip(now, before, strict=True))


def _look(pool: PoolView, attributes: Sequence[Attribute]) -> Hashable:
    """The same of pools whose devices are the same to selectors that read these attributes; of no
    other where there are no digests to tell."""
    return (
        (attributes, pool.fingerprint, *attribute_digests(pool, attributes))
        if pool.fingerprint
        else id(pool)
    )


def _looks(
    nodes: Iterable[NodeView], attributes: Sequence[Attribute]
) -> dict[Hashable, tuple[NodeView, PoolView]]:
    """A pool for each look."""
    looks: dict[Hashable, tuple[NodeView, PoolView]] = {}
    for node in nodes:
        for pool in node.pools:
            looks[_look(pool, attributes)] = node, pool
            pause()
    return looks


def _devices_of(
    looks: Mapping[Hashable, tuple[NodeView, PoolView]],
    evaluated: Container[Hashable],
    before: View | None,
    ready: Container[str],
) -> list[tuple[str, Device]]:
    """Those of pools that are not evaluated."""
    found: list[tuple[str, Device]] = []
    for look, (node, pool) in looks.items():
        if look not in evaluated:
            earlier = before.nodes.get(node.name) if before else None
            for device in _new(pool, earlier, ready):
                found.append((pool.driver, device))
                pause()
    return found


def _new(pool: PoolView, before: NodeView | None, ready: Container[str]) -> Iterator[Device]:
    """Its devices, but for those of slices that are as before on a node that was ready."""
    pools = before.pools if before is not None and before.name in ready else ()
    of_pool = (p for p in pools if (p.driver, p.name) == (pool.driver, pool.name))
    known = {id(d.device) for p in of_pool for d in p.devices}
    return (d.device for d in pool.devices if id(d.device) not in known)


def _batches(names: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    for start in range(0, len(names), size):
        yield names[start : start + size]
