"""Pods that are on devices or nodes which their own policy refuses now, kept up to date.

A view that changes a node, or a pod or claim there, costs the judging of that node's pods. Only
another policy or another state of a breaker costs all of them. Steward, metrics and the browse
listener ask here.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from itertools import chain

import msgspec

from fettle.api import core
from fettle.cluster import EMPTY, NodeView, View, changed_keys
from fettle.dra import device_units
from fettle.logs import Logger
from fettle.model import Health, Policy, State, reasons
from fettle.model.reasons import Reason
from fettle.pacing import pause, run_within
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Bound, Demand, Units, held_claims, resolve_policy
from fettle.scheduling.judge.placed import HeldUnit, PluginUse, judge_placed
from fettle.scheduling.judge.verdicts import Verdict, after_patience
from fettle.scheduling.waits import bound_at

_LOG = Logger(__name__)

EVERY_S = 1.0
"""The shortest pause between two looks at the newest view."""
REST = 4.0
"""After a look, pause for so many times as long."""
LATELY_S = 600.0
"""The log counts pods that were bound so shortly before Fettle started."""
MOST_NAMED = 3
_STATES = (State.UNHEALTHY, State.DEGRADED, State.UNKNOWN, State.HEALTHY)


class PlacedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that has a node, and what its policy says of where it is.

    - `verdict`: its `refusals` are why the policy refuses the node, or devices that the pod holds
      or may hold; its `devices` are those of the pod's claims.
    - `units`: units of device plugins that it holds or may hold, as far as they have names.
    - `since`: since when the policy refuses where it is, in Unix seconds; 0 if it does not.
    """

    pod: core.Pod
    policy: Policy
    verdict: Verdict
    units: tuple[HeldUnit, ...]
    since: float = 0.0

    @property
    def key(self) -> str:
        return self.pod.metadata.key

    @property
    def at_risk(self) -> bool:
        """Whether the policy refuses where the pod is."""
        return bool(self.verdict.refusals)

    @property
    def worst(self) -> Reason | None:
        """The gravest reason why the policy refuses where it is."""
        return min(self.verdict.refusals, key=_gravity, default=None)

    @property
    def certain(self) -> bool:
        """Whether the pod certainly is on something that the policy refuses."""
        return self.worst is not None and is_certain(self.worst)


def is_certain(refusal: Reason) -> bool:
    """Whether a refusal is about something that the pod certainly is on."""
    return not isinstance(refusal, reasons.UnitNotAcceptable) or refusal.certain


def worst_first(found: Iterable[PlacedPod], most: int) -> list[PlacedPod]:
    """At most so many of the pods at risk, in an order for people: what a breaker overrules comes
    last, then what is only possible; then the worst comes first, and what has lasted longest."""

    def order(placed: PlacedPod) -> tuple[object, ...]:
        pause()
        worst = placed.worst
        gravity = _gravity(worst) if worst is not None else (True, len(_STATES), 1.0)
        return not placed.at_risk, *gravity, placed.since, placed.key

    return nsmallest(most, found, key=order)


def _gravity(refusal: Reason) -> tuple[bool, int, float]:
    """The gravest sorts first: certain ones, then by health."""
    health = _health(refusal)
    if health is None:  # a requirement that is not met
        return not is_certain(refusal), len(_STATES), 1.0
    return not is_certain(refusal), _STATES.index(health.state), health.proven


def _health(refusal: Reason) -> Health | None:
    return getattr(refusal, "health", None)


class AtRisk:
    """The pods at risk in the newest view. `started_at` is when this process started, and `now` the
    clock, both in Unix seconds."""

    def __init__(
        self,
        answers: Answers,
        started_at: float | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._answers = answers
        self._now = now
        self.started_at = now() if started_at is None else started_at
        self.found: Mapping[str, PlacedPod] = {}
        """By `namespace/name`, the pods whose policy refuses where they are. It is never changed,
        but replaced."""
        self._view = EMPTY
        self._on_node: dict[str, dict[str, core.Pod]] = defaultdict(dict)
        self._places: dict[str, tuple[str, str]] = {}
        """By UID: the node and the name of each pod that has a node."""
        self._updating = asyncio.Lock()
        self._logged = False

    async def keep(self) -> None:
        """Follow the views until cancelled; the pods of the first view are logged."""
        publisher = self._answers.publisher
        await publisher.keep_looking("pods at risk", self._look, every_s=EVERY_S, rest=REST)

    async def _look(self, _: View) -> None:
        found = await self.current()
        if not self._logged and self._view.synced:
            self._logged = True
            self.log_first(found)

    def log_first(self, found: Mapping[str, PlacedPod]) -> None:
        refused = [placed for placed in found.values() if placed.at_risk]
        if not refused:
            _LOG.info("no pod is on what its policy refuses")
            return
        since = self.started_at - LATELY_S
        newest = nsmallest(MOST_NAMED, refused, key=lambda placed: -bound_at(placed.pod))
        _LOG.warning(
            "pods are on what their policy refuses: fettle pods --at-risk lists them",
            pods=len(refused),
            certain=sum(placed.certain for placed in refused),
            bound_in_the_last_10_minutes=sum(bound_at(p.pod) > since for p in refused),
            newest=", ".join(placed.key for placed in newest),
        )

    async def current(self) -> Mapping[str, PlacedPod]:
        """The pods at risk in the newest view."""
        async with self._updating:
            view = self._answers.view
            if view.generation != self._view.generation:
                await self._update(view)
        return self.found

    async def placed(self, pods: Iterable[core.Pod]) -> list[PlacedPod]:
        """What the policies of these pods say of where they are now; pods without a node, and those
        whose node is not known, are left out."""
        found = await self.current()
        view = self._view

        def judge_all() -> list[PlacedPod]:
            uses: dict[str, Mapping[str, PluginUse]] = {}
            judged = []
            for pod in pods:
                if (node := view.nodes.get(pod.node_name)) is not None:
                    if node.name not in uses:
                        uses[node.name] = self._uses(node)
                    known = found.get(pod.metadata.key)
                    if known is None or known.pod is not pod:
                        known = self._judge(pod, view, uses[node.name])
                    judged.append(known)
                pause()
            return judged

        return await run_within(judge_all)

    def as_it_ran(self, pod: core.Pod, claims: tuple[Bound, ...]) -> PlacedPod | None:
        """What the policy of a pod, which may have ended, says of where it is or was: of what it
        held by these claims, and of units that no other pod can have held. By the view for which
        pods were found last; None if its node is not known there."""
        view = self._view
        if (node := view.nodes.get(pod.node_name)) is None:
            return None
        status = msgspec.structs.replace(pod.status or core.PodStatus(), phase="Running")
        ran = msgspec.structs.replace(pod, status=status)
        uses = {name: PluginUse(plugin, [ran]) for name, plugin in node.plugins.items()}
        return self._judge(ran, view, uses, claims)

    def count(self) -> Mapping[tuple[str, bool], int]:
        """How many pods are at risk, by policy and whether that is certain; of each policy that
        there is, also if none is."""
        counts = Counter(
            (placed.policy.name, placed.certain) for placed in self.found.values() if placed.at_risk
        )
        names = self._answers.policies.names(self._view.policies)
        return {
            (name, certain): counts[name, certain] for name in names for certain in (True, False)
        }

    async def _update(self, view: View) -> None:
        before = self._view
        nodes = self._answers.publisher.changed_since(before.basis) if before.synced else None
        dirty = await run_within(lambda: self._take_in(before, view))
        if nodes is None or view.policies is not before.policies:
            dirty = set(self._on_node)
        else:
            dirty |= nodes & self._on_node.keys()
        self.found = await run_within(lambda: self._judged(dirty, self.found, view))
        self._view = view

    def _take_in(self, before: View, view: View) -> set[str]:
        """Take in which pods are where; returns the nodes whose pods, or their claims, changed."""
        dirty: set[str] = set()
        for key in changed_keys(before.pods, view.pods):
            old, new = before.pods.get(key), view.pods.get(key)
            if old is not None and old.node_name:
                dirty.add(old.node_name)
                self._leave(old)
            if new is not None and new.node_name:
                dirty.add(new.node_name)
                self._on_node[new.node_name][key] = new
                self._places[new.metadata.uid] = new.node_name, key
            pause()
        for claims in (
            (before.claims, view.claims),
            (before.extended_claims, view.extended_claims),
        ):
            for key in changed_keys(*claims):
                there = (claim.reserved_for for c in claims if (claim := c.get(key)) is not None)
                uids = chain.from_iterable(there)
                dirty.update(self._places[uid][0] for uid in uids if uid in self._places)
                pause()
        if view.namespaces is not before.namespaces:
            dirty |= self._nodes_with_pods_of(_relabelled(before.namespaces, view.namespaces))
        if told := set(changed_keys(before.inherited, view.inherited)):
            dirty |= self._nodes_with_heirs_of(told)
        return dirty

    def _nodes_with_heirs_of(self, controllers: set[str]) -> set[str]:
        return {
            node
            for node, pods in self._on_node.items()
            if any(pod.metadata.controller_identity in controllers for pod in pods.values())
        }

    def _nodes_with_pods_of(self, namespaces: set[str]) -> set[str]:
        if not namespaces:
            return set()
        where = self._places.values()
        return {node for node, key in where if key.partition("/")[0] in namespaces}

    def _leave(self, pod: core.Pod) -> None:
        there = self._on_node[pod.node_name]
        there.pop(pod.metadata.key, None)
        if not there:
            del self._on_node[pod.node_name]
        self._places.pop(pod.metadata.uid, None)

    def _judged(
        self, dirty: set[str], before: Mapping[str, PlacedPod], view: View
    ) -> dict[str, PlacedPod]:
        """The pods at risk, with those of these nodes judged anew."""
        found = {
            key: placed
            for key, placed in before.items()
            if key in view.pods and placed.pod.node_name not in dirty
        }
        pause()
        for name in dirty:
            node, pods = view.nodes.get(name), self._on_node.get(name)
            if node is not None and pods:
                uses = self._uses(node)
                for key, pod in pods.items():
                    placed = self._judge(pod, view, uses)
                    if placed.worst is not None:
                        found[key] = placed
                    pause()
            pause()
        return found

    def _uses(self, node: NodeView) -> Mapping[str, PluginUse]:
        pods = self._on_node.get(node.name, {}).values()
        return {name: PluginUse(plugin, pods) for name, plugin in node.plugins.items()}

    def _policy(self, pod: core.Pod, view: View) -> Policy:
        return resolve_policy(pod, view, self._answers.policies).policy

    def _judge(
        self,
        pod: core.Pod,
        view: View,
        uses: Mapping[str, PluginUse],
        claims: tuple[Bound, ...] | None = None,
    ) -> PlacedPod:
        policy, node = self._policy(pod, view), view.nodes[pod.node_name]
        units = tuple(
            Units(name, count)
            for name, count in device_units(pod)
            if (plugin := node.plugins.get(name)) is not None and plugin.capacity
        )
        bound = tuple(held_claims(pod, view)) if claims is None else claims
        demand = Demand(policy, units, bound=bound)
        at, placement = bound_at(pod), policy.placement
        acceptance = self._answers.acceptance(placement)
        verdict, held = judge_placed(pod, demand, node, acceptance, uses, at)
        # What was wrong already when an impatient pod was bound, it took as its last choice.
        took_it = self._answers.demands.waits.is_over(pod, placement) and not any(
            (health := _health(why)) is not None and health.since > at for why in verdict.refusals
        )
        if took_it and not verdict.fits:
            late = judge_placed(pod, demand, node, acceptance.after_patience(), uses, at)
            verdict = after_patience(verdict, late.verdict)
        placed = PlacedPod(pod, policy, verdict, held)
        return msgspec.structs.replace(placed, since=self._since(placed, at))

    def _since(self, placed: PlacedPod, bound_s: float) -> float:
        if (worst := placed.worst) is None:
            return 0.0
        if (health := _health(worst)) is not None:
            return max(health.since, bound_s)
        before = self.found.get(placed.key)
        known = before is not None and before.pod.metadata.uid == placed.pod.metadata.uid
        # No object says since when a requirement is not met, so it counts from when it was seen.
        return before.since if before is not None and known else max(self._now(), bound_s)


def _relabelled(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """The namespaces whose labels are not the same."""
    return {name for name in {**before, **after} if before.get(name) != after.get(name)}
