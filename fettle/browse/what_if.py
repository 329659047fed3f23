"""What would become of a pod if its policy were another, a device were mended, or a node cordoned:
`/what-if`. Judged by the code that answers filter, on nodes that are changed; nothing is kept.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from fettle.api import core
from fettle.browse.access import DEVICES, Viewer, pods_in
from fettle.browse.known import Known, Query, as_json, namespace_of
from fettle.cluster import NodeView, PluginView, View
from fettle.dra import PoolView
from fettle.explain import (
    JSON_VERSION,
    FoundDevice,
    conclusion,
    excluded_by,
    exclusion,
    explain_pod,
    find_device,
    find_node,
    result_word,
    summary,
)
from fettle.model import ANNOTATION, SOUND, BadInput
from fettle.pacing import run_within
from fettle.scheduling import NEUTRAL, Demand, Verdict, copy_to_place, resolve_policy
from fettle.scheduling.plans import node_exclusion

_HOW = "/what-if?pod=NAMESPACE/NAME with one of &policy=NAME, &mend=DEVICE and &cordon=NODE"


class _Case(NamedTuple):
    """A pod in a view, as it is or as it would be."""

    pod: core.Pod
    view: View


class WhatIfHandlers:
    def __init__(self, known: Known) -> None:
        self._known = known

    async def what_if(self, query: Query, viewer: Viewer) -> web.Response:
        """?pod=NAMESPACE/NAME, and ?policy=NAME, ?mend=DEVICE or ?cordon=NODE: what the pod's
        verdicts come to `before` and `after` that, and each of the `nodes` whose answer changes."""
        key = query.get("pod", "")
        asked = {name: query[name] for name in ("policy", "mend", "cordon") if query.get(name)}
        if key.count("/") != 1 or len(asked) != 1:
            return as_json({"error": f"write {_HOW}"}, 400)
        await viewer.require(pods_in(namespace_of(key)))
        await viewer.require(DEVICES)
        pod = self._known.pod(key)
        if pod is None:
            return self._known.unknown_pod(key)
        now = _Case(copy_to_place(pod) if pod.node_name else pod, self._known.answers.view)
        try:
            then, change = await run_within(lambda: self._changed(now, asked))
        except BadInput as error:
            return as_json({"error": "; ".join([str(error), *self._known.unready()])}, error.status)
        before, after = await self._explained(key, now), await self._explained(key, then)
        return as_json(
            {
                "version": JSON_VERSION,
                "pod": key,
                # What is supposed, as the end of a sentence.
                "change": change,
                "problems": self._known.unready(),
                # The `answer` [of a pod](#a-pod) as it is; `after`: as it would be.
                "before": before and before["answer"],
                "after": after and after["answer"],
                # Those whose answer changes.
                "nodes": [*_differences(before, after)] if before and after else [],
            }
        )

    def _changed(self, now: _Case, asked: Mapping[str, str]) -> tuple[_Case, str]:
        """The other case, and the change in words. Raises BadInput."""
        ((how, name),) = asked.items()
        if how == "policy":
            return self._by_policy(now, name), f"its policy were {name}"
        if how == "cordon":
            node = find_node(now.view, name)
            changed = [msgspec.structs.replace(node, unschedulable=True)]
            return _with_nodes(now, changed), f"node {name} were cordoned"
        if name in now.view.nodes:
            node = now.view.nodes[name]
            words = f"node {name} and its devices were sound, without taints on them"
            return _with_nodes(now, [_mended_node(node)]), words
        found = find_device(now.view, name)
        changed = [*_mended(found, now.view)]
        return _with_nodes(now, changed), f"{found.name} were sound, without taints"

    def _by_policy(self, now: _Case, name: str) -> _Case:
        policies = self._known.answers.policies
        if policies.named(name, now.view.policies) is None:
            known = ", ".join(policies.names(now.view.policies))
            raise BadInput(f"there is no policy {name[:80]!r}; known: {known}", status=404)
        meta = now.pod.metadata
        annotated = {**(meta.annotations or {}), ANNOTATION: name}
        changed = msgspec.structs.replace(meta, annotations=annotated)
        return now._replace(pod=msgspec.structs.replace(now.pod, metadata=changed))

    async def _explained(self, key: str, case: _Case) -> dict[str, Any] | None:
        """As `/explain` tells it of the pod, with the `answer`; None if it needs no devices."""
        pod, view = case
        answers, pods = self._known.answers, self._known.pods
        demand = answers.demand_in(view, pod)
        if demand is None:
            return None
        verdicts = await self._verdicts(demand, view)
        resolved = resolve_policy(pod, view, answers.policies)
        avoided = pods.refusals.nodes_for(pod)
        leaning = pods.leanings.of(pod, demand) or NEUTRAL

        def explain() -> dict[str, Any]:
            told = explain_pod(
                *(key, resolved, demand, verdicts, view, (), None, avoided, leaning),
                node_exclusion(pod),
            )
            told["placed"] = None
            return {**told, "answer": conclusion(told)}

        return await run_within(explain)

    async def _verdicts(self, demand: Demand, view: View) -> dict[str, Verdict]:
        answers = self._known.answers
        await answers.judged(demand)  # waits for selectors
        cases = [(demand, node) for node in view.nodes.values()]
        outcomes = answers.outcomes()
        verdicts = await answers.judge_apart(cases, outcomes, explains=True)
        if outcomes.missing:
            await answers.evaluate_selectors(demand, [*view.nodes.values()])
            verdicts = await answers.judge_apart(cases, answers.outcomes(), explains=True)
        return verdicts


def _with_nodes(now: _Case, changed: Iterable[NodeView]) -> _Case:
    nodes = {**now.view.nodes, **{node.name: node for node in changed}}
    return now._replace(view=msgspec.structs.replace(now.view, nodes=nodes))


def _mended(found: FoundDevice, view: View) -> Iterator[NodeView]:
    """The nodes that have the device, as they were if it were sound."""
    if found.device is None:
        yield _with_sound_unit(found)
        return
    id_ = found.device.id
    for node in view.nodes.values():
        pools = tuple(_with_sound(pool, node, id_) for pool in node.pools)
        if pools != node.pools:
            yield msgspec.structs.replace(node, pools=pools)


def _with_sound(pool: PoolView, node: NodeView, id_: object) -> PoolView:
    if not any(one.id == id_ for one in pool.devices):
        return pool
    devices = tuple(
        msgspec.structs.replace(one, health=node.health, taints=()) if one.id == id_ else one
        for one in pool.devices
    )
    return msgspec.structs.replace(pool, devices=devices)


def _with_sound_unit(found: FoundDevice) -> NodeView:
    node, plugin, unit = found.node, found.plugin, found.unit
    assert plugin is not None
    if unit is None:
        return node
    others = tuple(one for one in plugin.units if one.unit != unit.unit)
    sound = msgspec.structs.replace(unit, health=node.health, withdrawn=0)
    offered = min(plugin.capacity, plugin.allocatable + unit.withdrawn)
    mended: PluginView = msgspec.structs.replace(
        plugin, units=(*others, sound), allocatable=offered
    )
    return msgspec.structs.replace(node, plugins={**node.plugins, plugin.resource: mended})


def _mended_node(node: NodeView) -> NodeView:
    """The node if nothing were held against it and its devices, and all units were offered."""
    pools = []
    for pool in node.pools:
        devices = (msgspec.structs.replace(d, health=SOUND, taints=()) for d in pool.devices)
        pools.append(msgspec.structs.replace(pool, devices=tuple(devices)))
    plugins = {}
    for name, plugin in node.plugins.items():
        units = (msgspec.structs.replace(u, health=SOUND, withdrawn=0) for u in plugin.units)
        offered = max(plugin.capacity, plugin.allocatable)
        plugins[name] = msgspec.structs.replace(plugin, units=tuple(units), allocatable=offered)
    return msgspec.structs.replace(node, health=SOUND, pools=tuple(pools), plugins=plugins)


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes whose answer changes, with both."""
    for name in sorted({*before["nodes"], *after["nodes"]}):
        was, would = _told(before["nodes"].get(name)), _told(after["nodes"].get(name))
        if was != would:
            yield {"node": name, "before": was, "after": would}


def _told(verdict: dict[str, Any] | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    if (excluded := exclusion(verdict)) is not None:
        return {"verdict": "excluded", "score": 0, "reason": excluded_by([excluded])}
    return {
        "verdict": result_word(verdict),
        "score": verdict["score"],
        "reason": summary(verdict),
    }
