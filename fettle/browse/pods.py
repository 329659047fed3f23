"""Pods: where one may go and why, how those fare that have a node, and which policy applies to one,
and what that says."""

import time
from collections.abc import Collection, Iterable, Iterator
from heapq import nsmallest
from typing import Any

from aiohttp import web

from fettle.api import core, known_as
from fettle.browse.access import DEVICES, PODS, Viewer, pods_in
from fettle.browse.known import Known, Query, as_json, namespace_of
from fettle.browse.reviews import Right
from fettle.browse.selectors import read_selector
from fettle.cluster import View
from fettle.dra import device_units
from fettle.explain import (
    JSON_VERSION,
    WITHHELD,
    conclusion,
    exclusion,
    explain_pod,
    explain_policy,
    nearest_devices,
    plain_placed,
    withhold_of_placed,
    withhold_of_pod,
)
from fettle.model import ANNOTATION, BadInput, Mode, State, reasons, why_unreadable
from fettle.model.reasons import Reason
from fettle.pacing import pause, run_within
from fettle.records import seconds_of, wordless
from fettle.scheduling import NEUTRAL, Preemption, bound_at, copy_to_place, resolve_policy
from fettle.scheduling.placed import PlacedPod, stuck, worst_first
from fettle.scheduling.plans import node_exclusion

MOST_PODS = 1000
"""Pods that one answer lists."""
MOST_EXPLAINED = 3
"""Decisions on a pod that its explanation shows."""


class PodHandlers:
    def __init__(self, known: Known) -> None:
        self._known = known

    async def explain(self, query: Query, viewer: Viewer) -> web.Response:
        """?pod=NAMESPACE/NAME: its policy, its demand, and every node's verdict with reasons.

        A pod that has or had a node is explained as if one more like it were to be placed. `placed`
        says what it holds itself, and what its policy says of that; None if it has no node now.
        """
        key = query.get("pod", "")
        if key.count("/") != 1:
            how = "/explain?pod=NAMESPACE/NAME, ?node=NAME or ?device=NAME"
            return as_json({"error": f"specify a pod, a node or a device: {how}"}, 400)
        await viewer.require(pods_in(namespace_of(key)))
        pod = self._known.pod(key)
        if pod is None:
            return self._known.unknown_pod(key)
        demand = self._known.answers.demand_now(copy_to_place(pod) if pod.node_name else pod)
        verdicts = {}
        if demand is not None:
            verdicts = await self._known.answers.explained(demand)
            verdicts = await Preemption(self._known.answers).with_notes(pod, verdicts)
        view = self._known.answers.view
        resolved = resolve_policy(pod, view, self._known.answers.policies)
        notes: list[Reason] = [*map(reasons.FettleNotReady, self._known.stale())]
        name = resolved.policy.name
        notes += [one for one in self._known.answers.set_aside() if name in one.policies]
        if demand is not None:
            notes += self._notes_about(key, pod)
            concerns = any(one.refusals or one.conceded for one in verdicts.values())
            if concerns and (patience := self._known.answers.demands.patience(pod)) is not None:
                notes.append(patience)
            notes += await nearest_devices(
                demand.claims, verdicts, view, self._known.answers.inspector
            )
            if demand.mode is not Mode.ENFORCE:
                notes.insert(0, reasons.NotEnforced(demand.mode, resolved.mode.origin))
        finished = None if key in view.pods else self._known.pods.finished.get(key)
        placed = await self._known.pods.at_risk.placed([pod] if key in view.pods else [])
        notes += self._troubles(pod, view, placed)
        if (
            self._known.hopeless is not None
            and (why := await self._known.hopeless(pod)) is not None
        ):
            notes = [*(one for one in notes if one.code != why.code), why]
        avoided = self._known.pods.refusals.nodes_for(pod)
        leaning = self._known.pods.leanings.of(pod, demand) if demand is not None else NEUTRAL
        explained = await run_within(
            lambda: explain_pod(
                *(key, resolved, demand, verdicts, view, notes, finished, avoided, leaning),
                node_exclusion(pod),
            ),
        )
        decisions = (await self._known.decisions(0.0, pod=key))[:MOST_EXPLAINED]
        told = {
            **explained,
            # [Where it is](#pods-that-have-a-node), or `null`.
            "placed": next(map(plain_placed, placed), None),
        }
        if not await viewer.may(DEVICES):
            told, decisions = withhold_of_pod(told), [*map(wordless, decisions)]
        answer = None
        if demand is not None:
            answer = await run_within(lambda: _concluded(told))
        sees_all = await viewer.may(DEVICES) and await viewer.may(PODS)
        mechanisms = await self._known.mechanisms() if sees_all else []
        return as_json(
            {
                **told,
                # What the verdicts come to; `null` if the pod needs no devices.
                "answer": answer,
                # The last three [decisions](#decisions) on the pod.
                "decisions": decisions,
                # As of [`status`](#the-fleet-in-a-few-numbers); empty for whoever may not see
                # devices and all pods.
                "mechanisms": mechanisms,
            }
        )

    def _troubles(self, pod: core.Pod, view: View, placed: Iterable[PlacedPod]) -> Iterator[Reason]:
        """What is amiss with a pod that has a node, or with the others of its workload."""
        now = time.time()
        yield from filter(None, (stuck(one, now) for one in placed))
        if (crash := self._known.pods.crashes.of(pod.metadata.uid)) is not None:
            yield crash
        workload = known_as(pod)
        for start in view.failed_starts.values():
            if start.blamed and start.workload.uid == workload.uid:
                name = f"{workload.kind} {workload.name}"
                yield reasons.WorkloadStartsNowhere(name, start.blamed, start.message)
                break

    def _notes_about(self, key: str, pod: core.Pod) -> list[Reason]:
        """A note if the pod's scheduler is not set up to call Fettle, and has not called for it."""
        name = pod.scheduler_name
        if name in self._known.settings.scheduler.names or key in self._known.pods.recent:
            return []
        return [reasons.SchedulerDoesNotAsk(name, tuple(self._known.settings.scheduler.names))]

    async def pods(self, query: Query, viewer: Viewer) -> web.Response:
        """Pods with devices that have a node, at most `MOST_PODS`, of `total`. ?at-risk=true: only
        those whose policy refuses where they are, the worst first. ?node=NAME and ?namespace=NAME:
        only those there; ?selector=LABELS: with these labels; ?since=DURATION: bound within;
        ?state=STATE,…: with a device in one of these; ?driver=NAME: with devices of this driver or
        resource. `startedAt` is when this process started, in Unix seconds.
        """
        try:
            selects = read_selector(query.get("selector", ""))
            since = time.time() - seconds_of(age) if (age := query.get("since", "")) else 0.0
            states = _states(query.get("state", ""))
        except BadInput as error:
            return as_json({"error": str(error)}, 400)
        at_risk = query.get("at-risk", "") in ("true", "1")
        found = await self._known.pods.at_risk.current()
        candidates = (
            [p.pod for p in found.values()] if at_risk else self._known.answers.view.pods.values()
        )
        node, namespace = query.get("node", ""), query.get("namespace", "")
        pods = [
            pod
            for pod in candidates
            if pod.node_name
            and (not node or pod.node_name == node)
            and (not namespace or pod.metadata.namespace == namespace)
            and selects(pod.metadata.labels)
            and (not since or bound_at(pod) >= since)
        ]
        shown = await viewer.shown(pod.metadata.namespace for pod in pods)
        pods = [pod for pod in pods if pod.metadata.namespace in shown]
        total, driver = len(pods), query.get("driver", "")
        if by_device := bool(states or driver):
            await viewer.require(DEVICES)
        sees_devices = await viewer.may(DEVICES)
        if not at_risk and not by_device:
            pods = nsmallest(MOST_PODS, pods, key=lambda pod: (pod.node_name, pod.metadata.key))
        placed = await self._known.pods.at_risk.placed(pods)
        if by_device:
            placed = [one for one in placed if _has(one, states, driver, self._known.answers.view)]
            total = len(placed)
            if not at_risk:
                placed = nsmallest(MOST_PODS, placed, key=lambda p: (p.pod.node_name, p.key))
        if at_risk:
            refused = [one for one in placed if one.worst is not None]
            total = len(refused)
            placed = await run_within(lambda: worst_first(refused, MOST_PODS))
        listed, problems = await run_within(lambda: _plain(placed)), self._known.unready()
        if not sees_devices:
            listed, problems = [*map(withhold_of_placed, listed)], [*problems, WITHHELD]
        return as_json(
            {
                "version": JSON_VERSION,
                "generation": self._known.answers.view.generation,
                # Why the list may be incomplete.
                "problems": problems,
                # When this Fettle started.
                "startedAt": self._known.pods.at_risk.started_at,
                # How many there are.
                "total": total,
                "pods": listed,
            }
        )


def _plain(placed: Iterable[PlacedPod]) -> list[dict[str, Any]]:
    listed = []
    for one in placed:
        listed.append(plain_placed(one))
        pause()
    return listed


def _states(listed: str) -> frozenset[str]:
    """Raises BadInput."""
    found = frozenset(filter(None, listed.split(",")))
    if unknown := found - frozenset(map(str, State)):
        known = ", ".join(map(str, State))
        raise BadInput(f"state {min(unknown)[:40]!r}: write one of {known}")
    return found


def _has(placed: PlacedPod, states: Collection[str], driver: str, view: View) -> bool:
    """Whether it holds, or may hold, a device in one of these states and of this driver. Where no
    device is known by name, the node's state counts, and so does each other than Healthy."""
    held = [(one.device.driver, one.health) for one in placed.verdict.devices]
    held += [(one.resource, one.health) for one in placed.units]
    names = {*dict(device_units(placed.pod)), *(name for name, _ in held)}
    if driver and driver not in names:
        return False
    if not states:
        return True
    node = view.nodes.get(placed.pod.node_name)
    if node is not None and (not held or node.health.shown_state is not State.HEALTHY):
        held += [(driver, node.health)]
    return any(
        (not driver or name == driver) and str(health.shown_state) in states
        for name, health in held
    )


class PolicyHandlers:
    def __init__(self, known: Known) -> None:
        self._known = known

    async def policy(self, query: Query, viewer: Viewer) -> web.Response:
        """?pod=NAMESPACE/NAME: the policy that applies to it. ?name=NAME: that policy, the
        namespaces that name it, and the pods that it applies to. Each value says where it is from.
        """
        view, policies = self._known.answers.view, self._known.answers.policies
        if key := query.get("pod", ""):
            await viewer.require(pods_in(namespace_of(key)))
            pod = self._known.pod(key)
            if pod is None:
                return self._known.unknown_pod(key)
            resolved = resolve_policy(pod, view, policies)
            ignored = await self._known.answers.ignored(resolved.policy)
            return as_json(explain_policy(resolved, ignored, self._known.stewardship))
        name = query.get("name", "")
        await viewer.require(Right("get", "devicepolicies", "fettle.dev", name=name))
        found = policies.named(name, view.policies)
        if found is None:
            known = ", ".join(policies.names(view.policies))
            why = why_unreadable(name, view.quarantined)
            no = f"{name!r} cannot be read ({why})" if why else f"there is no policy {name!r}"
            return as_json({"error": f"{no}; known: {known}"}, 404)
        named = [n for n, labels in view.namespaces.items() if labels.get(ANNOTATION) == name]
        pods = await run_within(lambda: self._pods_of(name, view))
        ignored = await self._known.answers.ignored(found.policy)
        shown = await viewer.shown([*named, *map(namespace_of, pods)])
        users = {
            "namespaces": sorted(name for name in named if name in shown),
            "pods": sorted(key for key in pods if namespace_of(key) in shown),
        }
        return as_json({**explain_policy(found, ignored, self._known.stewardship), **users})

    def _pods_of(self, policy: str, view: View) -> list[str]:
        """Keys of the pods that a policy applies to."""
        found = []
        for key, pod in view.pods.items():
            if resolve_policy(pod, view, self._known.answers.policies).policy.name == policy:
                found.append(key)
            pause()
        return found


def _concluded(told: dict[str, Any]) -> dict[str, Any]:
    """What the verdicts come to. Each node says whether it counts, so that all count alike."""
    for verdict in told["nodes"].values():
        verdict["excluded"] = exclusion(verdict)
        pause()
    return conclusion(told)
