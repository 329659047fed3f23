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
                # With `setAside` and `modes` as of [`devices`](#devices).
                "problems": self._known.unready(),
                "setAside": [*map(plain_reason, answers.set_aside())],
                # Sentences about what [rules about objects](rules-file.md#any-object-by-cel) do
                # not hear.
                "objectRules": self._known.object_notes(),
                "modes": describe_modes(answers.view, answers.policies),
                # Which [mechanisms](managed-clusters.md) keep pods off bad devices here: `name`
                # (`extender`, `second scheduler`, `affinity`, `taints`, `cordon`), `acts` (`null`
                # if this process cannot know), and `text`.
                "mechanisms": mechanisms,
                # How the process is that answers.
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
        # Why it is not ready.
        "problems": [*map(_readable, dict.fromkeys(known.problems()))],
        "roles": sorted(known.roles),
        # By role, how many seconds ago what was asked; `null`: never.
        "asked": {role: last.ages_s() for role, last in known.last_requests().items()},
        # What is odd about them.
        "callers": known.caller_notes(),
        # Of the stewards: its `name`, and whether it is `here`.
        "leader": leader._asdict() if leader is not None else None,
        "certificates": [
            {
                "listener": one.listener,
                # Whose it is.
                "of": one.of,
                "endsAt": one.ends_at,
            }
            for one in known.certificates()
        ],
        # Rights that it was denied.
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
                # Since its last word.
                "ageSeconds": round(max(0.0, now - one.contact_at), 1) if one.synced else None,
                "note": one.note,
            }
            for one in sources
        ],
    }


def _readable(text: str) -> str:
    """Names of files need not be text."""
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
    return {
        # How many with devices are in each state.
        "nodes": nodes,
        # By driver or extended resource: how many devices, or units that may be allocated, are in
        # each state.
        "devices": devices,
        # By driver or extended resource of which nodes have [fewer than
        # expected](missing-devices.md): how many `devices` are missing, how many of them are
        # `lost`, on how many `nodes`, and of how many it is not known for how long (`undated`).
        "missing": {name: one._asdict() for name, one in sorted(count_missing(view, now).items())},
        # Of those with devices, how many have a node (`placed`), are on what their policy refuses
        # (`atRisk`), and have none yet (`waiting`).
        "pods": {"placed": placed, "waiting": len(view.pods) - placed},
        # How many objects cannot be read.
        "quarantined": len(view.quarantined),
    }
