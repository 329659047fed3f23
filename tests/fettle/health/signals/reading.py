"""What is read from a node that has these conditions."""

from fettle.health.signals.nodes import report_of_node
from fettle.health.signals.reports import SignalReport
from fettle.health.signals.rule_files import load_rules
from fettle.model import Evidence, NodeId
from tests.fettle.health.signals.objects import NOW, node

RULES = load_rules()
NODE = NodeId("gpu-1")


def report(*conditions: dict[str, object], **kwargs: object) -> SignalReport:
    return report_of_node(node(*conditions, **kwargs), RULES, NOW)  # type: ignore[arg-type]


def only(said: SignalReport) -> Evidence:
    assert len(said.evidence) == 1, said.evidence
    return said.evidence[0]
