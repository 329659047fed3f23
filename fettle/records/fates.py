"""What becomes of pods that were decided on: where they are bound, what Fettle would have said of
that node, and how they end. Pods that only were observed, and that no scheduler asks about, are
decided on here: as long as the webhook may not mark pods with claims, their scheduler does not ask.

It sees each pod as it arrives from the API, and does the rest in a task.
"""

import asyncio
import time
from collections.abc import Callable
from math import inf

from cachetools import FIFOCache

from fettle.api import core
from fettle.api.kinds import WireObject
from fettle.api.meta import unix_s
from fettle.dra import uses_devices
from fettle.explain import text
from fettle.model import SOUND, Mode
from fettle.model.reasons import Reason
from fettle.pacing import keep
from fettle.records.decisions import ENDED, Became, Decided, Decision, Placed
from fettle.records.log import DecisionLog
from fettle.records.recorder import Recorder
from fettle.scheduling import Answers, Demand, Preemption, Verdict, copy_to_place
from fettle.scheduling.placed import Crashes, ExplainedCrash

SWEEP_S = 30.0
"""How often deleted pods are looked for, and whether a pod would be allowed somewhere by now."""
ASKED_WITHIN_S = 1.0
"""A scheduler asks about a pod that it is set up to ask about within so long, or when it binds."""
SHOWN_WITHIN_S = 0.5
"""A view shows the pod and its claims within so long."""
MOST_UNASKED = 2000
OBJECTS_PER_PAUSE = 100
MOST_SWEPT = 200
"""Pods that are judged again in one sweep."""
CLOCKS_DIFFER_S = 5.0
"""A node's clock may differ from the API server's by so much."""
_BY_KUBELET = "TerminationByKubelet"
_LONGEST_END = 300
_PHASES = {"Running": Became.RUNNING, "Succeeded": Became.SUCCEEDED, "Failed": Became.FAILED}


class PodFates:
    """`put` each pod as it arrives, and `run`. `crashes` explain by a device why a pod failed."""

    def __init__(
        self,
        answers: Answers,
        recorder: Recorder,
        crashes: Crashes | None = None,
        clock: Callable[[], float] = time.time,
        asked_within_s: float = ASKED_WITHIN_S,
    ) -> None:
        self._asked_within_s = asked_within_s
        self._answers = answers
        self._recorder = recorder
        self._log: DecisionLog = recorder.log
        self._clock = clock
        if crashes is not None:
            crashes.on_explained(self._explain_end)
        self._crashes = crashes
        self._unasked: FIFOCache[str, core.Pod] = FIFOCache(MOST_UNASKED)
        """Pods without a node that no scheduler has asked about yet, by UID."""
        self._bound_unasked: FIFOCache[str, core.Pod] = FIFOCache(MOST_UNASKED)
        """Pods that were bound unasked and are about to be decided on, as they are now, by UID."""

    def observe(self, new: WireObject) -> None:
        """An object as it is now."""
        if not isinstance(new, core.Pod):
            return
        uid = new.metadata.uid
        decision = self._recorder.of_pod(uid)
        if decision is not None:
            self._unasked.pop(uid, None)
            self._update(decision, new)
        elif uid in self._bound_unasked:
            self._bound_unasked[uid] = new
        elif uid in self._unasked:
            if new.node_name:
                self._seen(self._unasked.pop(uid), new)
            elif not new.terminal:
                self._unasked[uid] = new
        elif not new.node_name and not new.terminal and uses_devices(new):
            self._unasked[uid] = new
            asyncio.get_running_loop().call_later(self._asked_within_s, self._still_unasked, uid)

    def _update(self, decision: Decision, pod: core.Pod) -> None:
        if pod.node_name and decision.placed is None:
            decision.placed = Placed(node=pod.node_name, at=self._clock())
            self._became(decision, Became.BOUND)
            self._recorder.later(lambda: self._judge_node(decision, pod))
        phase = _PHASES.get(pod.status.phase) if pod.status is not None else None
        if phase is Became.FAILED:
            if decision.became not in ENDED:  # it may be removed later, which was not its end
                failed = Became.DELETED if _was_ended(pod) else Became.FAILED
                self._became(decision, failed, self._end(pod))
        elif phase is not None and phase is not decision.became:
            self._became(decision, phase)

    def _end(self, pod: core.Pod) -> str:
        why = self._crashes.of(pod.metadata.uid) if self._crashes is not None else None
        return _first_of_end(text(why), _end(pod)) if why is not None else _end(pod)

    def _explain_end(self, crash: ExplainedCrash) -> None:
        """A fault became known that explains why a pod had failed."""
        decision = self._recorder.of_pod(crash.pod.metadata.uid)
        if decision is not None and decision.became is Became.FAILED:
            decision.end = _first_of_end(text(crash.why), decision.end)
            self._log.touch(decision)

    def _became(self, decision: Decision, became: Became, end: str = "") -> None:
        decision.became, decision.became_at, decision.end = became, self._clock(), end
        self._log.touch(decision)

    # --- pods that no scheduler asks about

    def _still_unasked(self, uid: str) -> None:
        pod = self._unasked.get(uid)
        if pod is not None and self._recorder.of_pod(uid) is None:
            self._recorder.later(lambda: self._observe(pod))

    def _seen(self, before: core.Pod, bound: core.Pod) -> None:
        """A pod was bound; `before` is how it was while it waited."""
        uid = bound.metadata.uid
        self._bound_unasked[uid] = bound

        async def observe() -> None:
            try:
                await self._observe(before, bound)
            finally:
                now = self._bound_unasked.pop(uid, bound)
            if (decision := self._recorder.of_pod(uid)) is not None:
                self._update(decision, now)

        self._recorder.later(observe)

    async def _observe(self, pod: core.Pod, bound: core.Pod | None = None) -> None:
        """Decide on a pod as it waits; `bound`: as it has a node meanwhile."""
        if self._recorder.of_pod(pod.metadata.uid) is not None:
            return
        demand = self._to_place(pod)
        if demand is None or demand.mode is not Mode.OBSERVE or not self._answers.view.synced:
            return
        verdicts = dict((await self._answers.judged(demand)).verdicts)
        if bound is not None:  # the devices that it took were free when it was placed
            without = {bound.node_name: [bound.metadata.uid]}
            preemption = Preemption(self._answers)
            verdicts |= await preemption.verdicts(copy_to_place(bound), without)
        self._recorder.seen(pod, demand, verdicts)

    def _to_place(self, pod: core.Pod) -> Demand | None:
        """What it takes to place the pod; if its claims are allocated already, another like it."""
        demand = self._answers.demand(pod)
        if demand is not None and demand.bound:
            return self._answers.demand(copy_to_place(pod))
        return demand

    # --- the node that a pod was bound to

    async def _judge_node(self, decision: Decision, pod: core.Pod) -> None:
        placed, answers = decision.placed, self._answers
        demand = await self._given(pod)
        if placed is None or demand is None:
            return
        node = answers.view.nodes.get(placed.node)
        if node is None:
            return
        outcomes = answers.outcomes()
        verdict = (await answers.judge_apart([(demand, node)], outcomes))[node.name]
        if outcomes.missing:
            await answers.evaluate_selectors(demand, [node])
            verdict = (await answers.judge_apart([(demand, node)], outcomes))[node.name]
        against = (*verdict.refusals, *verdict.overruled)
        held = sum(len(bound.held) for bound in demand.bound)
        devices = sum(units.count for units in demand.units) + held
        named = {str(d) for one in against if (d := getattr(one, "device", None)) is not None}
        whole = any(getattr(one, "device", None) is None for one in against)
        decision.placed = Placed(
            node=placed.node,
            at=placed.at,
            reasons=tuple(dict.fromkeys(reason.code for reason in against)),
            why=text(against[0]) if against else "",
            refused_devices=tuple(dict.fromkeys(_about(one, placed.node) for one in against)),
            devices=devices,
            withheld=devices if whole else len(named),
            undecided=bool(verdict.undecided),
            sound=_is_sound(verdict) and node.health == SOUND and not against,
        )
        self._log.touch(decision)

    async def _given(self, pod: core.Pod) -> Demand | None:
        """The demand of a bound pod, by the first view that shows its claims allocated."""
        publisher = self._answers.publisher
        until = asyncio.get_running_loop().time() + SHOWN_WITHIN_S
        while True:
            view = publisher.view
            known = view.pods.get(pod.metadata.key)
            is_it = known is not None and known.metadata.uid == pod.metadata.uid
            demand = self._answers.demand(known if known is not None and is_it else pod)
            shown = is_it and known is not None and bool(known.node_name)
            if demand is None or (shown and not demand.claims):
                return demand
            if await publisher.newer_than(view.generation, until) is view:
                return demand

    # --- what no event tells

    async def run(self) -> None:
        """Look again and again for what no event tells, until cancelled."""
        await keep("fates of pods", self.sweep, every_s=SWEEP_S)

    async def sweep(self) -> None:
        """Pods that are gone, and pods that would be allowed somewhere by now."""
        view = self._answers.view
        if not view.synced:
            return
        swept = 0
        for looked_at, decision in enumerate(self._log.open()):
            if looked_at % OBJECTS_PER_PAUSE == 0:
                await asyncio.sleep(0)
            pod = view.pods.get(decision.key)
            if pod is None or pod.metadata.uid != decision.uid:
                if self._clock() - decision.last >= SWEEP_S:  # it may not be in the view yet
                    self._became(decision, Became.DELETED)
                continue
            self._update(decision, pod)  # as after a restart
            waits = decision.decided is Decided.REFUSED and decision.allowed_at is None
            if waits and decision.mode is not Mode.ENFORCE and swept < MOST_SWEPT:
                swept += 1
                await self._look_again(decision, pod)

    async def _look_again(self, decision: Decision, pod: core.Pod) -> None:
        demand = self._to_place(copy_to_place(pod))
        if demand is None:
            return
        table = await self._answers.judged(demand)
        if not table.verdicts.keys() <= table.refused | table.rejected:
            decision.allowed_at = self._clock()
            self._log.touch(decision)


def _about(reason: Reason, node: str) -> str:
    """The device, or else the resource or the node, that a reason is about."""
    if (device := getattr(reason, "device", None)) is not None:
        return str(device)
    resource = getattr(reason, "resource", "")
    return f"{resource} on {node}" if resource else f"node {node}"


def _is_sound(verdict: Verdict) -> bool:
    return all(choice.health == SOUND for choice in verdict.devices) and verdict.value == 1.0


def _first_of_end(why: str, end: str) -> str:
    return end if end.startswith(why) else f"{why}; {end}"[:_LONGEST_END]


def _was_ended(pod: core.Pod) -> bool:
    """Whether somebody ended a pod that failed then: by a deletion, a preemption, an eviction or a
    drain. One with a container that had crashed before failed by itself."""
    if pod.disruption == _BY_KUBELET:  # the kubelet ends it, and says so when that is done
        return True
    if pod.metadata.deletion_timestamp is None:
        return bool(pod.disruption)
    since = pod.metadata.deleted_at - CLOCKS_DIFFER_S
    return not any(
        ended.exit_code and unix_s(ended.finished_at, inf) < since
        for one in pod.container_statuses()
        if (ended := one.state.terminated if one.state is not None else None) is not None
    )


def _end(pod: core.Pod) -> str:
    """Why a pod failed, in a few words."""
    status = pod.status
    assert status is not None
    exits = [
        f"{one.name} {ended.reason or 'ended'} (exit code {ended.exit_code})"
        for one in status.container_statuses or ()
        if (ended := one.state.terminated if one.state is not None else None) and ended.exit_code
    ]
    said = "; ".join(filter(None, (status.reason, pod.disruption, *exits, status.message)))
    return said[:_LONGEST_END] or "no reason given"
