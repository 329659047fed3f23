"""Incidents as tests tell them: a book that hears of objects, and what it makes of them."""

from fettle.api import core
from fettle.health import HealthBook
from fettle.health.signals.nodes import report_of_node
from fettle.health.signals.rule_files import load_rules
from fettle.model import DeviceId, Health, NodeId, Subject

RULES = load_rules()
NODE = NodeId("gpu-1")
DEVICE = DeviceId("gpu.nvidia.com", "gpu-1", "gpu-0")
MINUTE, HOUR = 60.0, 3600.0


def tell(book: HealthBook, node: core.Node, at: float) -> None:
    book.ledger.report(report_of_node(node, RULES, at), at)


def of(book: HealthBook, subject: Subject, at: float) -> Health:
    return book.assess(subject, (subject, NODE), at)
