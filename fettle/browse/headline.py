"""What the page says first: mode, breakers, who asks, and which pods wait: `/headline`."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from aiohttp import web

from fettle.api import core
from fettle.browse.access import DEVICES, Viewer
from fettle.browse.known import Known, Query, as_json
from fettle.cluster import readiness
from fettle.explain import JSON_VERSION, WITHHELD, describe_modes, plain_reason
from fettle.model import Mode
from fettle.pacing import pause, run_within
from fettle.records import Decided, Decision, wordless
from fettle.scheduling import resolve_policy

MOST_WAITING = 500
"""Pods that wait in one answer, those that waited longest."""


class HeadlineHandlers:
    def __init__(self, known: Known) -> None:
        self._known = known
        self._unplaced: tuple[int, Sequence[core.Pod]] = (-1, ())

    async def headline(self, _query: Query, viewer: Viewer) -> web.Response:
        """The pods with devices that have no node, each with what was last said of it, and how many
        pods are where their policy refuses; of the namespaces that the viewer may see. Whoever may
        see devices is told of modes, breakers and who asks, too."""
        known, answers = self._known, self._known.answers
        view = answers.view
        if self._unplaced[0] != view.generation:
            found = await run_within(None, lambda: _unplaced(view.pods.values()))
            self._unplaced = view.generation, found
        at_risk = await known.pods.at_risk.current()
        risky = [one.pod.metadata.namespace for one in at_risk.values() if one.at_risk]
        unplaced = self._unplaced[1]
        shown = await viewer.shown({*risky, *(pod.metadata.namespace for pod in unplaced)})
        waiting = [pod for pod in unplaced if pod.metadata.namespace in shown]
        sees_devices = await viewer.may(DEVICES)
        rows = await run_within(None, lambda: [*map(self._waiting, waiting[:MOST_WAITING])])
        told: dict[str, Any] = {
            "version": JSON_VERSION,
            "generation": view.generation,
            "now": time.time(),
            "notes": [] if sees_devices else [WITHHELD],
            "waiting": rows if sees_devices else [_wordless(row) for row in rows],
            "waitingTotal": len(waiting),
            "atRisk": sum(namespace in shown for namespace in risky),
        }
        if sees_devices:
            told |= {
                "mode": str(answers.policies.mode),
                "modes": describe_modes(view, answers.policies),
                "setAside": [*map(plain_reason, answers.set_aside())],
                "problems": known.unready(),
                "unseen": readiness.unseen(answers.publisher.sources.values()),
                "roles": sorted(known.roles),
                "asked": {role: last.ages_s() for role, last in known.asked().items()},
                "callers": known.caller_notes(),
                "quarantined": len(view.quarantined),
            }
        return as_json(told)

    def _waiting(self, pod: core.Pod) -> dict[str, Any]:
        pause()
        answers, recorder = self._known.answers, self._known.recorder
        resolved = resolve_policy(pod, answers.view, answers.policies)
        said = recorder.of_pod(pod.metadata.uid) if recorder is not None else None
        created = pod.metadata.creation_timestamp
        return {
            "pod": pod.metadata.key,
            "policy": resolved.policy.name,
            "mode": str(resolved.mode.mode),
            "since": created.timestamp() if created is not None else None,
            "scheduler": pod.scheduler_name,
            "gates": list(pod.scheduling_gates),
            "refused": said is not None and said.decided is Decided.REFUSED,
            "enforced": resolved.mode.mode is Mode.ENFORCE,
            "said": said,
        }


def _unplaced(pods: Iterable[core.Pod]) -> Sequence[core.Pod]:
    """Pods without a node, the oldest first."""
    found = []
    for pod in pods:
        if not pod.node_name and not pod.terminal:
            found.append(pod)
        pause()
    return sorted(found, key=_age)


def _age(pod: core.Pod) -> tuple[float, str]:
    created = pod.metadata.creation_timestamp
    return (created.timestamp() if created is not None else 0.0), pod.metadata.key


def _wordless(row: dict[str, Any]) -> dict[str, Any]:
    said = row["said"]
    return {**row, "said": wordless(said) if isinstance(said, Decision) else None}
