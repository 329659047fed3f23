"""What is read from a node that has these conditions."""

from fettle.evidence.gathering import of_node
from fettle.evidence.reports import Report
from fettle.evidence.rules import load
from fettle.model import Evidence, NodeId
from tests.fettle.evidence.objects import NOW, node

RULES = load()
NODE = NodeId("gpu-1")


def report(*conditions: dict[str, object], **kwargs: object) -> Report:
    return of_node(node(*conditions, **kwargs), RULES, NOW)  # type: ignore[arg-type]


def only(said: Report) -> Evidence:
    assert len(said.evidence) == 1, said.evidence
    return said.evidence[0]
