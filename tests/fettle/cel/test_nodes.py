"""Expressions about the labels of a node."""

import pytest

from fettle.cel.runtime import rows
from fettle.cel.runtime.engine import SelectorEngine
from fettle.cel.runtime.protocol import OutcomeKind
from tests.fettle.cel.devices import DRIVER, GPU

LABELS = {"nvidia.com/cuda.driver.major": "570", "zone": "a"}
MAJOR = 'node.labels["nvidia.com/cuda.driver.major"]'


pytestmark = pytest.mark.asyncio(loop_scope="module")  # that of the worker, which all share


async def judged(engine: SelectorEngine, expression: str, labels: dict[str, str]) -> OutcomeKind:
    node = rows.device_of_node(labels)
    await engine.evaluate([expression], [("", node)])
    outcome = engine.outcome(expression, "", node)
    assert outcome is not None
    return outcome.kind


@pytest.mark.parametrize(
    ("expression", "labels", "kind"),
    [
        (f"int({MAJOR}) >= 550", LABELS, OutcomeKind.MATCH),
        (f"int({MAJOR}) >= 580", LABELS, OutcomeKind.NO_MATCH),
        (f"int({MAJOR}) >= 550", {}, OutcomeKind.WOULD_ABORT),
        ('"zone" in node.labels && node.labels.zone == "a"', LABELS, OutcomeKind.MATCH),
        ('"zone" in node.labels', {"other": "a"}, OutcomeKind.NO_MATCH),
        ("has(node.labels.zone)", LABELS, OutcomeKind.MATCH),
        ("has(node.labels.zone)", {}, OutcomeKind.NO_MATCH),
        ('node.labels[?"zone"].orValue("b") == "b"', {}, OutcomeKind.MATCH),
        ('node.labels.exists(name, name.startsWith("nvidia.com/"))', LABELS, OutcomeKind.MATCH),
        ("size(node.labels) == 0", {}, OutcomeKind.MATCH),
    ],
)
async def test_labels_are_a_map_of_strings(
    engine: SelectorEngine, expression: str, labels: dict[str, str], kind: OutcomeKind
) -> None:
    assert await judged(engine.of_nodes(), expression, labels) is kind


async def test_nodes_that_differ_in_other_labels_share_a_fingerprint(
    engine: SelectorEngine,
) -> None:
    nodes = engine.of_nodes()
    expression = f'{MAJOR} == "570"'
    await judged(nodes, expression, LABELS)
    other = rows.device_of_node({**LABELS, "zone": "b"})
    outcome = nodes.outcome(expression, "", other)  # not evaluated, and yet known
    assert outcome is not None
    assert outcome.matches


async def test_the_variables_node_and_device_exclude_each_other(engine: SelectorEngine) -> None:
    about_node, about_device = f'{MAJOR} == "570"', f'device.driver == "{DRIVER}"'
    nodes = engine.of_nodes()
    for one in (engine, nodes):
        await one.evaluate([about_node, about_device], [])
    assert "undeclared reference" in (engine.refusal(about_node) or "")
    assert "undeclared reference" in (nodes.refusal(about_device) or "")
    assert nodes.refusal(about_node) == engine.refusal(about_device) == ""
    assert engine.refusal("never seen") is None
    await engine.evaluate([about_device], [(DRIVER, GPU)])
    outcome = engine.outcome(about_device, DRIVER, GPU)
    assert outcome is not None
    assert outcome.matches


async def test_an_expression_must_come_to_a_bool(engine: SelectorEngine) -> None:
    nodes = engine.of_nodes()
    await nodes.evaluate([MAJOR], [])
    assert "must evaluate to bool" in (nodes.refusal(MAJOR) or "")
