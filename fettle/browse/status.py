"""How the fleet is, in a few numbers."""

import time
from collections import Counter
from typing import Any

from aiohttp import web

from fettle.browse.access import DEVICES, PODS, Viewer
from fettle.browse.known import Known, Query, as_json
from fettle.client import DENIED
from fettle.cluster import View, readiness
from fettle.explain import JSON_VERSION, describe_modes, plain_reason
from fettle.observing import count_devices, count_missing
from fettle.pacing import pause, run_within


class StatusHandlers:
    def __init__(self, known: Known) -> None:
        self._known = known

    async def status(self, _query: Query, viewer: Viewer) -> web.Response:
        """How many nodes with devices there are by state, how many devices by driver or resource
        and state, how many are missing, and how many pods with devices have a node, are at risk
        there, or wait for one; and which mechanisms keep pods off bad devices here."""
        await viewer.require(DEVICES)
        await viewer.require(PODS)
        answers = self._known.answers
        at_risk = await self._known.pods.at_risk.current()
        counted = await run_within(lambda: _counted(answers.view, time.time()))
        counted["pods"]["atRisk"] = sum(placed.at_risk for placed in at_risk.values())
        mechanisms = await self._known.mechanisms()
        return as_json(
            {
                "version": JSON_VERSION,
                "generation": answers.view.generation,
                "problems": self._known.unready(),
                "setAside": [*map(plain_reason, answers.set_aside())],
                "objectRules": self._known.object_notes(),
                "modes": describe_modes(answers.view, answers.policies),
                "mechanisms": mechanisms,
                "process": _process(self._known),
                **counted,
            }
        )


def _process(known: Known) -> dict[str, Any]:
    """How this process is, and who asks it."""
    sources, now = known.answers.publisher.sources.values(), time.monotonic()
    leader = known.leader()
    return {
        "ready": known.is_ready(),
        # Names of files need not be text.
        "problems": [*map(_readable, dict.fromkeys(known.problems()))],
        "roles": sorted(known.roles),
        "asked": {role: last.ages_s() for role, last in known.asked().items()},
        "callers": known.caller_notes(),
        "leader": leader._asdict() if leader is not None else None,
        "certificates": [
            {"listener": one.listener, "of": one.of, "endsAt": one.ends_at}
            for one in known.certificates()
        ],
        "denied": [
            *map(
                _readable,
                (t for t in (*readiness.report(sources, now), *known.notes()) if DENIED in t),
            )
        ],
        "sources": [
            {
                "name": one.name,
                "served": one.served,
                "synced": one.synced,
                "ageSeconds": round(max(0.0, now - one.contact_at), 1) if one.synced else None,
                "note": one.note,
            }
            for one in sources
        ],
    }


def _readable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _counted(view: View, now: float) -> dict[str, Any]:
    nodes: Counter[str] = Counter()
    for node in view.nodes.values():
        if node.pools or node.plugins:
            nodes[node.health.shown_state] += 1
        pause()
    devices: dict[str, dict[str, int]] = {}
    for (kind, state), number in sorted(count_devices(view).items()):
        if number:
            devices.setdefault(kind, {})[state] = number
    placed = 0
    for pod in view.pods.values():
        placed += bool(pod.node_name)
        pause()
    pods = {"placed": placed, "waiting": len(view.pods) - placed}
    return {
        "nodes": nodes,
        "devices": devices,
        "missing": {name: one._asdict() for name, one in sorted(count_missing(view, now).items())},
        "pods": pods,
        "quarantined": len(view.quarantined),
    }
