"""What is read from a node that has these conditions."""

from fettle.health.signals.gathering import of_node
from fettle.health.signals.reports import SignalReport
from fettle.health.signals.rules import load
from fettle.model import Evidence, NodeId
from tests.fettle.health.signals.objects import NOW, node

RULES = load()
NODE = NodeId("gpu-1")


def report(*conditions: dict[str, object], **kwargs: object) -> SignalReport:
    return of_node(node(*conditions, **kwargs), RULES, NOW)  # type: ignore[arg-type]


def only(said: SignalReport) -> Evidence:
    assert len(said.evidence) == 1, said.evidence
    return said.evidence[0]
