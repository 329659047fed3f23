"""A node as an ask sees it: without what is known to be about other device plugins. Pure.

A kubelet that cannot give a pod its `smarter-devices/fuse` says nothing about the node's GPUs,
which another device plugin hands out. Resources of one domain are taken to be of one plugin, or of
one vendor's; a pod with claims minds it all.
"""

from collections.abc import Collection

import msgspec

from fettle.cluster import NodeView, PluginView
from fettle.config import HealthSettings
from fettle.dra import domain_of
from fettle.model import Health
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge import tolerated


def domains(demand: Demand, node: NodeView) -> list[str]:
    """Those of which something is known on the node that the ask does not mind."""
    known = {weighed.evidence.domain for weighed in node.health.evidence} - {""}
    if not known or demand.claims or demand.bound or any(units.backing for units in demand.units):
        return []
    return sorted(known - {domain_of(units.resource) for units in demand.units})


def without(others: Collection[str], node: NodeView, thresholds: HealthSettings) -> NodeView:
    """The node without the evidence about device plugins of these domains."""
    if not others:
        return node

    def health(whole: Health) -> Health:
        left = tuple(w for w in whole.evidence if w.evidence.domain not in others)
        return whole if len(left) == len(whole.evidence) else tolerated.by(left, thresholds)

    def plugin(whole: PluginView) -> PluginView:
        units = tuple(
            msgspec.structs.replace(unit, health=health(unit.health)) for unit in whole.units
        )
        return msgspec.structs.replace(whole, units=units)

    plugins = {name: plugin(each) for name, each in node.plugins.items()}
    return msgspec.structs.replace(node, health=health(node.health), plugins=plugins)
