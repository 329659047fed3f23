"""Decisions, and all that is recorded."""

import time
from typing import Any

import msgspec
from aiohttp import web

from fettle.browse.access import DEVICES, PODS, Viewer
from fettle.browse.known import Known, Query, as_json, namespace_of
from fettle.explain import JSON_VERSION, WITHHELD, describe_modes
from fettle.model import BadInput
from fettle.pacing import run_within
from fettle.records import Decision, make_report, merged, seconds_of, wordless

MOST_DECISIONS = 2000
"""Decisions in one answer."""
USUAL = "7d"
"""How far back a report reaches."""
MOST_ROWS = 500
"""Pods in one list of a report."""


class DecisionHandlers:
    def __init__(self, known: Known) -> None:
        self._known = known

    async def decisions(self, query: Query, viewer: Viewer) -> web.Response:
        """?since=1h, and ?pod=NAMESPACE/NAME, ?node=N, ?policy=P, ?namespace=N, ?verb=V: what was
        decided, the newest first, and what became of the pods."""
        try:
            since = time.time() - seconds_of(query.get("since", "1h"))
        except BadInput as error:
            return as_json({"error": str(error)}, 400)
        wanted = {name: query.get(name, "") for name in ("pod", "node", "policy")}
        chosen = await self._known.decisions(since, **wanted)
        if namespace := query.get("namespace", ""):
            chosen = [one for one in chosen if namespace_of(one.key) == namespace]
        if verb := query.get("verb", ""):
            chosen = [one for one in chosen if one.verb == verb]
        found = await self._shown(chosen, viewer)
        return as_json(
            {
                "version": JSON_VERSION,
                "notes": [*self._record_notes(since), *await _notes_for(viewer)],
                "leftOut": max(0, len(found) - MOST_DECISIONS),
                "decisions": found[:MOST_DECISIONS],
            }
        )

    async def _shown(self, found: list[Decision], viewer: Viewer) -> list[Decision]:
        """Those that somebody may see: about their namespaces, and what has none if they may see
        devices."""
        namespaces = {namespace_of(one.key) for one in found}
        shown = {*await viewer.shown(filter(None, namespaces))}
        if await viewer.may(DEVICES):
            return [one for one in found if namespace_of(one.key) in shown | {""}]
        return [wordless(one) for one in found if namespace_of(one.key) in shown]

    def _record_notes(self, since: float) -> list[str]:
        """Where the records are, and whether they reach back so far."""
        return self._known.recorder.notes(since) if self._known.recorder is not None else []

    async def records(self, query: Query, viewer: Viewer) -> web.Response:
        """?since=7d: all that this process has recorded. `fettle report` makes one report of what
        several have; `notes` are about the time since then."""
        try:
            since = time.time() - seconds_of(query.get("since", USUAL))
        except BadInput as error:
            return as_json({"error": str(error)}, 400)
        recorder = self._known.recorder
        notes = [*self._record_notes(since), *await _notes_for(viewer)]
        decisions: object = []
        modes: list[str] = []
        if await viewer.may(DEVICES) and await viewer.may(PODS):
            lines = await run_within(recorder.lines) if recorder is not None else []
            decisions = msgspec.Raw(b"[" + b",".join(lines) + b"]")
            modes = describe_modes(self._known.answers.view, self._known.answers.policies)
        elif recorder is not None:
            decisions = await self._shown(await run_within(recorder.all), viewer)
        found = {"version": JSON_VERSION, "notes": notes, "modes": modes, "decisions": decisions}
        return as_json(found)

    async def report(self, query: Query, viewer: Viewer) -> web.Response:
        """?since=7d: the report of what this process has recorded of what somebody may see.
        `recorded`: whether it records anything; `fettle ui` does not."""
        now = time.time()
        try:
            since = now - seconds_of(query.get("since", USUAL))
        except BadInput as error:
            return as_json({"error": str(error)}, 400)
        recorder = self._known.recorder
        decisions = await run_within(recorder.all) if recorder is not None else []
        shown = await self._shown(decisions, viewer)
        made = await run_within(lambda: make_report(merged([shown]), since, now))
        notes = [*self._record_notes(since), *await _notes_for(viewer)]
        recorded = recorder is not None
        return as_json({"notes": notes, "recorded": recorded, **_shortened(made)})


def _shortened(report: dict[str, Any]) -> dict[str, Any]:
    """With lists of at most MOST_ROWS pods."""
    wrong = {name: rows[:MOST_ROWS] for name, rows in report["wrong"].items()}
    long = {name: report[name][:MOST_ROWS] for name in ("landedOnRefused", "waiting")}
    return {**report, **long, "wrong": wrong}


async def _notes_for(viewer: Viewer) -> list[str]:
    """What somebody is told who does not see all."""
    return [] if await viewer.may(DEVICES) else [WITHHELD]
