"""Devices and nodes: what is known of their health."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from aiohttp import web

from fettle.browse.access import DEVICES, Viewer
from fettle.browse.known import Known, Query, as_json
from fettle.browse.selectors import read_selector
from fettle.cluster import View
from fettle.explain import (
    JSON_VERSION,
    Recoveries,
    describe_modes,
    explain_device,
    explain_node,
    find_node,
    list_holds,
    list_network_devices,
    list_nodes,
    list_unknown_signals,
    list_usage,
    plain_reason,
    with_former,
)
from fettle.model import BadInput, reasons
from fettle.pacing import run_within

SetAside = Sequence[reasons.RuleSetAside]
ExplainHealth = Callable[[str, View, Recoveries, float, SetAside], dict[str, Any]]


class DeviceHandlers:
    def __init__(self, known: Known) -> None:
        self._known = known

    async def explain(self, query: Query, viewer: Viewer) -> web.Response:
        """?node=NAME, ?device=NAME: its health, each piece of evidence, who uses it, and what has
        to happen for it to be Healthy again."""
        await viewer.require(DEVICES)
        if name := query.get("node", ""):
            return await self._explain(explain_node, name)
        return await self._explain(explain_device, query.get("device", ""))

    async def _explain(self, explain: ExplainHealth, name: str) -> web.Response:
        recoveries, view, now = self._known.recoveries, self._known.answers.view, time.time()
        if recoveries is None:
            return as_json({"error": "this process does not follow the health of devices"}, 404)
        try:
            set_aside = self._known.answers.set_aside()
            explained = await run_within(lambda: explain(name, view, recoveries, now, set_aside))
        except BadInput as error:
            return as_json({"error": "; ".join([str(error), *self._known.unready()])}, error.status)
        if "device" in explained:
            taints = await self._known.taints()
            explained["taint"] = next((t for t in taints if t["device"] == explained["name"]), None)
        return as_json({**explained, "problems": self._known.unready()})

    async def devices(self, query: Query, viewer: Viewer) -> web.Response:
        """Every node with its devices, and the devices of the network. ?unsound=true: only those
        with evidence against them, or that are not Healthy. ?node=NAME, ?selector=LABELS: only of
        these nodes. `problems` say why answers may be incomplete, `unknownSignals` what no rule
        names, `taints` which devices Fettle taints or would taint, `nodesWithDevices` how many of
        the nodes have devices, sound or not.
        """
        await viewer.require(DEVICES)
        unsound = query.get("unsound", "") in ("true", "1")
        view, taints = self._known.answers.view, await self._known.taints()
        try:
            names = _names(view, query.get("node", ""), query.get("selector", ""))
        except BadInput as error:
            return as_json({"error": "; ".join([str(error), *self._known.unready()])}, error.status)
        listed = await run_within(
            lambda: {
                "generation": view.generation,
                "version": JSON_VERSION,
                # Why the answer may be incomplete.
                "problems": self._known.unready(),
                # Reasons (`RuleSetAside`): the rules that the [breaker](operating.md#the-breaker)
                # set aside, what condemns most first.
                "setAside": [*map(plain_reason, self._known.answers.set_aside())],
                # Sentences about the mode and who has another one.
                "modes": describe_modes(view, self._known.answers.policies),
                # How many nodes have devices, also those not listed.
                "nodesWithDevices": sum(
                    bool(n.pools or n.plugins)
                    for n in view.nodes.values()
                    if names is None or n.name in names
                ),
                # Each with its health; only those with evidence, that are not Healthy or lack
                # devices, if `?unsound=true`.
                "nodes": list_nodes(view, only_unsound=unsound, names=names),
                # Devices that belong to no node, with health and users.
                "network": list_network_devices(view, only_unsound=unsound, names=names),
                # What operators [hold](holds.md).
                "holds": list_holds(view),
                # [Taints by health](failed-devices.md#taints-by-health) that devices have or would
                # have.
                "taints": taints,
                # What cannot be read, and why.
                "quarantined": dict(view.quarantined),
                # What no [rule](scores.md#conditions-of-your-own) names; also of one node.
                "unknownSignals": list_unknown_signals(view),
            },
        )
        return as_json(with_former(listed))

    async def usage(self, query: Query, viewer: Viewer) -> web.Response:
        """Each node with devices: how many it has, how many are in use, in which state, and
        missing. ?selector=LABELS: only of these nodes."""
        await viewer.require(DEVICES)
        view = self._known.answers.view
        try:
            names = _names(view, "", query.get("selector", ""))
        except BadInput as error:
            return as_json({"error": str(error)}, error.status)
        listed = await run_within(lambda: list_usage(view))
        return as_json(
            {
                "version": JSON_VERSION,
                "generation": view.generation,
                "problems": self._known.unready(),
                "nodes": [one for one in listed if names is None or one["node"] in names],
            }
        )


def _names(view: View, node: str, selector: str) -> Collection[str] | None:
    """The nodes that are asked for; None: all. Raises BadInput."""
    if not node and not selector:
        return None
    among = [find_node(view, node)] if node else view.nodes.values()
    selects = read_selector(selector)
    return {one.name for one in among if selects(one.labels)}
