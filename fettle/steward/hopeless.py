"""Which controllers have pods that no node or device will ever suit, so that whoever wrote one need
not look at pod after pod.

Hopeless is what growth of the cluster could not mend, by the lint rules that deny (decision 0041),
what kubelets of sound nodes refuse each time, and what starts on none of several nodes. Devices
that are in use or ill are worth waiting for. Only what is certain lets a Job be suspended.
"""

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec
from cachetools import TTLCache

from fettle.api import core, kinds
from fettle.api.kinds import Kind, WireObject
from fettle.api.meta import OwnerReference, unix_s
from fettle.cluster import Publisher, View
from fettle.dra import entries_with_claims
from fettle.lint import DEFAULT_LEVELS, Finding, Linter, Manifest, Severity
from fettle.model import RuleSeverity, Validation
from fettle.model.reasons import (
    PodsFitNowhere,
    PodsRefusedEachTime,
    Reason,
    WorkloadStartsNowhere,
)
from fettle.pacing import pause, run_within
from fettle.scheduling.placed import Comebacks, was_taken

WAITED_S = 30.0
"""A pod that has waited less may see its devices published yet: a driver that was just installed
publishes one pool after the other."""
STARTING_S = 300.0
"""So long pods have to fail to start: a driver that is being replaced is back by then."""
LINTED_AGAIN_S = 60.0
MOST_LINTED = 50
"""Claims that are linted in one round."""
FITS_NOWHERE = frozenset(
    ("FTL004", "FTL005", "FTL006", "FTL007", "FTL010", "FTL013", "FTL016", "FTL057", "FTL058")
)
"""Rules that, where they deny, find claims that no device can satisfy. The others that deny find
pods that are placed and go wrong later."""


class Hopeless(NamedTuple):
    """A controller, one of its pods, and why none of them will ever run."""

    owner: OwnerReference
    pod: core.Pod
    why: Reason

    @property
    def identity(self) -> str:
        """`namespace/UID` of the controller."""
        return self.pod.metadata.controller_identity

    @property
    def certain(self) -> bool:
        """Whether nothing but another configuration can mend it."""
        if isinstance(self.why, PodsRefusedEachTime):
            return self.why.certain
        return isinstance(self.why, PodsFitNowhere)


class HopelessOwners:
    """Finds the controllers that are hopeless by now, for the steward and for people."""

    def __init__(
        self,
        publisher: Publisher,
        comebacks: Comebacks,
        linter: Linter,
        levels: Callable[[Manifest, View], Validation] = lambda *_: DEFAULT_LEVELS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`levels`: the severities of rules for an object, as settings and policies have them."""
        self._publisher = publisher
        self._comebacks = comebacks
        self._linter = linter
        self._levels = levels
        self._clock = clock
        self._linted: TTLCache[tuple[str, str], str] = TTLCache(10_000, LINTED_AGAIN_S)
        """By claim or template, and its version: what is wrong with it; "" if nothing is."""

    async def why(self, pod: core.Pod) -> Reason | None:
        """Why no pod of this one's controller will ever run; None if that is not known."""
        owner = pod.metadata.controller_identity
        if not owner:
            return None
        async for one in self.found(self._publisher.view, of=owner):
            if one.identity == owner:
                return one.why
        return None

    async def found(self, view: View, of: str = "") -> AsyncIterator[Hopeless]:
        """All of a view, or only what concerns the controller with the identity `of`, among
        others."""
        pods = await run_within(None, lambda: _by_owner(view, of))
        for pod, refused in await run_within(None, lambda: [*self._comebacks.hopeless(view)]):
            owner = pod.metadata.controller
            if owner is not None and not any(
                map(was_taken, pods.get(pod.metadata.controller_identity, ()))
            ):
                yield Hopeless(owner, pod, refused)
        for one in await run_within(None, lambda: [*self._starting_nowhere(view)]):
            yield one
        left = MOST_LINTED
        for owner, waiting in await run_within(None, lambda: [*self._waiting(pods)]):
            for name, kind, made in _claims(waiting[0], view):
                version = made.metadata.resource_version
                if (name, version) not in self._linted and left:
                    left -= 1
                    self._linted[name, version] = await self._mistake(kind, made, view)
                if mistake := self._linted.get((name, version), ""):
                    yield Hopeless(owner, waiting[0], PodsFitNowhere(len(waiting), name, mistake))
                    break

    def _waiting(
        self, pods: Mapping[str, list[core.Pod]]
    ) -> Iterator[tuple[OwnerReference, list[core.Pod]]]:
        """The controllers of which no pod has a node and one has waited for long enough, and their
        pods that wait, however briefly, that one first: they are told once, so all count."""
        now = self._clock()
        for theirs in pods.values():
            pause()
            owner = theirs[0].metadata.controller
            if owner is None or any(pod.node_name for pod in theirs):
                continue
            waiting = [(at, pod) for pod in theirs if (at := _waits_since(pod, now)) is not None]
            waiting.sort(key=lambda one: one[0])
            if waiting and now - waiting[0][0] >= WAITED_S:
                yield owner, [pod for _, pod in waiting]

    async def _mistake(self, kind: Kind, made: WireObject, view: View) -> str:
        """Why no device can ever satisfy a claim; "" if one might."""
        raw = msgspec.json.decode(msgspec.json.encode(made))
        manifest = Manifest({**raw, "apiVersion": kind.api_version, "kind": kind.name})
        # Who loosens a rule says that it may be wrong here. Who tightens it proves nothing.
        rules = self._levels(manifest, view).rules
        loosened = {rule: how for rule, how in rules.items() if how is not RuleSeverity.DENY}
        found = await self._linter.lint(manifest, view, Validation(rules=loosened))
        return next((_said(one) for one in found if _is_final(one)), "")

    def _starting_nowhere(self, view: View) -> Iterator[Hopeless]:
        """Those whose pods do not start on any of several nodes, for a reason that was told."""
        starts = defaultdict(list)
        for start in view.failed_starts.values():
            owned_by = start.pod.metadata.controller_identity
            if start.blamed and start.message and owned_by:
                starts[owned_by].append(start)
            pause()
        for theirs in starts.values():
            first, owner = min(theirs, key=lambda one: one.at), theirs[0].pod.metadata.controller
            if owner is not None and self._clock() - first.at >= STARTING_S:
                workload = f"{owner.kind} {owner.name}"
                why = WorkloadStartsNowhere(workload, first.blamed, first.message, len(theirs))
                yield Hopeless(owner, first.pod, why)


def _by_owner(view: View, of: str) -> dict[str, list[core.Pod]]:
    """The pods of each controller, by its identity, or of the one with the identity `of`."""
    found: dict[str, list[core.Pod]] = defaultdict(list)
    for pod in view.pods.values():
        owner = pod.metadata.controller_identity
        if owner and of in ("", owner):
            found[owner].append(pod)
        pause()
    return found


def _waits_since(pod: core.Pod, now: float) -> float | None:
    """When a scheduler first found no node for it; None if none has looked."""
    for one in (pod.status.conditions if pod.status is not None else None) or ():
        if one.type == "PodScheduled" and one.status == "False":
            return None if pod.scheduling_gates else unix_s(one.last_transition_time, now)
    return None


def _claims(pod: core.Pod, view: View) -> Iterator[tuple[str, Kind, WireObject]]:
    """The claims that a pod names, and the templates of those that are made for it."""
    for entry in entries_with_claims(pod):
        template, claim = entry.resource_claim_template_name, entry.resource_claim_name
        key = f"{pod.metadata.namespace}/{template or claim}"
        kind = kinds.TEMPLATE if template else kinds.CLAIM
        found = view.templates.get(key) if template else view.claims.get(key)
        if found is not None:
            yield f"{kind.name} {key}", kind, found


def _is_final(finding: Finding) -> bool:
    return finding.severity is Severity.DENY and finding.rule in FITS_NOWHERE


def _said(finding: Finding) -> str:
    return f"{finding.field}: {finding.message} ({finding.rule})"
