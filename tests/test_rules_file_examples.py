"""docs/rules-file.md: each example does what it says."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from fettle.api import ObjectReported, kinds
from fettle.api.kinds import Kind
from fettle.cel import ObjectJudge
from fettle.cli import explaining
from fettle.explain import explain_device, explain_node
from fettle.health import SignalRules, load_rules, rule_mistakes
from tests.fettle.cluster.inventory.fleets import Fleet

PAGE = Path(__file__).parent.parent / "docs/rules-file.md"
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"```(?:yaml)?\n(.*?)```", re.DOTALL)
_KINDS: dict[str, Kind] = {
    "Node": kinds.NODE,
    "Pod": kinds.POD,
    "ResourceSlice": kinds.SLICE,
    "ResourceClaim": kinds.CLAIM,
    "Event": kinds.EVENT,
}
GPUS = {"nvidia.com/gpu": "8"}
NODE = {"metadata": {"name": "gpu-7"}, "status": {"capacity": GPUS, "allocatable": GPUS}}


class Example(NamedTuple):
    title: str
    rules: str
    objects: str
    said: str


def examples() -> list[Example]:
    sections = _SECTION.findall(PAGE.read_text())
    return [Example(title, *_BLOCK.findall(text)[:3]) for title, text in sections]


async def judged(one: dict[str, Any], rules: SignalRules, now: float) -> ObjectReported:
    """What rows say of an object of any kind."""
    rows, judge = [row for row in rules.objects.values() if row.kind == one["kind"]], ObjectJudge()
    try:
        raw = json.dumps(one).encode()
        outcomes = await judge.judge([row.expressions for row in rows], raw, now)
    finally:
        await judge.close()
    facts = {row.name: found.facts for row, found in zip(rows, outcomes, strict=True)}
    metadata = one["metadata"]
    return ObjectReported(one["kind"], f"{metadata['namespace']}/{metadata['name']}", "u", facts)


def explained(example: Example, *, with_rules: bool) -> dict[str, Any]:
    """What is said of the device, or the node, that the example is about."""
    rules = load_rules("rules.yaml", example.rules if with_rules else "")
    fleet = Fleet(rules=rules)
    fleet.now = 1_790_000_000.0
    objects = list(yaml.safe_load_all(example.objects))
    if all(one["kind"] != "Node" for one in objects):
        objects.append({"kind": "Node", **NODE})
    for one in objects:
        if (kind := _KINDS.get(one["kind"])) is not None:
            fleet.put(kind, {k: v for k, v in one.items() if k != "kind"})
        else:
            fleet.inventory.take_report(asyncio.run(judged(one, rules, fleet.now)), fleet.now)
    view, name = fleet.look(), example.said.split("  ")[0]
    if name.startswith("node "):
        found = explain_node(name.removeprefix("node "), view, fleet.inventory, fleet.now)
    else:
        found = explain_device(name, view, fleet.inventory, fleet.now)
    return {**found, "problems": []}


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.title)
def test_each_example_says_what_the_page_says(
    example: Example, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rule_mistakes(example.rules, "rules.yaml") == []
    found = explained(example, with_rules=True)
    show = explaining.print_node if example.said.startswith("node ") else explaining.print_device
    show(found)
    assert capsys.readouterr().out.startswith(example.said.strip())
    assert explained(example, with_rules=False)["score"] != found["score"]


def test_every_kind_of_object_that_may_speak_has_an_example() -> None:
    shown = {table for example in examples() for table in yaml.safe_load(example.rules)}
    assert shown >= {"conditions", "labels", "annotations", "taints", "attributes"}
    assert shown >= {"device_conditions", "refusals", "starts", "events", "xids", "objects"}
