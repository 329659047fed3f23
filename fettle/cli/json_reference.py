"""The reference of answers in JSON, from the functions that make them: the comment above a field
says what it holds. Part of docs/explain-json.md (`reference.py`). And what the code says of its
constants, such as the reasons of Events.
"""

import ast
import inspect
from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise, takewhile
from pathlib import Path
from typing import get_args

import msgspec

from fettle.records import Decision, Placed

_ROOT = Path(__file__).parents[2]
_Part = tuple[str, str, str]
_ANSWERS: dict[str, tuple[str, tuple[_Part, ...]]] = {
    "A pod": (
        "`fettle explain pod`, `/explain?pod=NAMESPACE/NAME`.",
        (
            ("browse/pods.py", "explain", ""),
            ("explain/pods.py", "explain_pod", ""),
            ("explain/pods.py", "plain_demand", "demand."),
            ("explain/pods.py", "plain_verdict", "nodes.NAME."),
            ("explain/pods.py", "_plain_choice", "nodes.NAME.devices[]."),
            ("explain/conclusions.py", "conclusion", "answer."),
            ("explain/conclusions.py", "_causes", "answer.causes[]."),
            ("explain/conclusions.py", "_exclusions", "answer.excluded[]."),
        ),
    ),
    "A policy": (
        "`fettle explain policy`, `/policy`.",
        (("explain/pods.py", "explain_policy", ""),),
    ),
    "Health": (
        "Of nodes, devices and units, beside their other fields.",
        (("explain/pods.py", "plain_health", ""),),
    ),
    "Who uses a device": (
        "Of devices and units, beside their other fields. A claim names its devices, so `use` of a "
        "DRA device is never `possible`. A unit is certain where the kubelet names it "
        "(`allocatedResourcesStatus`), or where the node's pods hold so many units that it must be "
        "among them; of a pod that does not run yet nothing is.",
        (("explain/users.py", "plain_users", ""),),
    ),
    "Devices": (
        "`fettle devices`, `/devices`.",
        (
            ("browse/devices.py", "devices", ""),
            ("explain/devices.py", "plain_node", "nodes[]."),
            ("explain/marks.py", "plain_missing", "nodes[].missing[]."),
            ("explain/devices.py", "plain_device", "nodes[].devices[]."),
            ("explain/devices.py", "_why", "nodes[].devices[]."),
            ("explain/pods.py", "plain_unit", "nodes[].resources[].units[]."),
            ("explain/devices.py", "list_network_devices", "network[]."),
            ("explain/marks.py", "list_holds", "holds[]."),
            ("explain/marks.py", "list_taints", "taints[]."),
            ("explain/devices.py", "list_unknown_signals", "unknownSignals[]."),
        ),
    ),
    "One node or device": (
        "`fettle explain node`, `/explain?node=NAME`: the fields of a node in `devices`, with all "
        "its devices. `fettle explain device`, `/explain?device=NAME`: those of a device or unit, "
        "with its node (`null`: of the network). A device is `DRIVER/POOL/DEVICE`, "
        "`NODE/RESOURCE/UNIT`, or any shorter name that only one has, such as a UUID; else `error` "
        "lists names. Besides:",
        (
            ("explain/recoveries.py", "explain_node", ""),
            ("explain/recoveries.py", "explain_device", ""),
            ("explain/recoveries.py", "_recovery", ""),
            ("explain/recoveries.py", "_healthy_again", "healthyAgain."),
            ("explain/recoveries.py", "_awaited", "healthyAgain.awaits[]."),
            ("explain/recoveries.py", "_past", ""),
            ("explain/marks.py", "plain_marks", "marks."),
        ),
    ),
    "Usage": (
        "`fettle top nodes`, `/usage`: each node with devices.",
        (("explain/devices.py", "list_usage", "nodes[]."),),
    ),
    "What if": (
        "`fettle what-if`, `/what-if?pod=NAMESPACE/NAME` with one of `&policy=NAME`, "
        "`&mend=DEVICE` (or a node) and `&cordon=NODE`: judges the pod as filter would if that "
        "were so, and keeps nothing. A mended device has nothing against it but what is against "
        "its node; a mended node nothing against it or its devices. A pod that has a node is "
        "judged as one more like it. `fettle what-if FILE` prints `pods`: this, or what `/explain` "
        "would answer, of each pod and pod template of the file; no server answers it.",
        (
            ("browse/what_if.py", "what_if", ""),
            ("browse/what_if.py", "_differences", "nodes[]."),
            ("browse/what_if.py", "_told", "nodes[].before."),
        ),
    ),
    "Pods that have a node": (
        "`fettle pods`, `/pods`, by node, at most 1000. `placed` of a pod has the fields of "
        "`pods[]`.",
        (
            ("browse/pods.py", "pods", ""),
            ("explain/placed.py", "plain_placed", "pods[]."),
            ("explain/placed.py", "_devices", "pods[].devices[]."),
        ),
    ),
    "The fleet in a few numbers": (
        "`fettle status`, `/status`.",
        (
            ("browse/status.py", "status", ""),
            ("browse/status.py", "_counted", ""),
            ("browse/status.py", "_process", "process."),
        ),
    ),
}
"""By heading: how one asks, and the functions that make the answer, with the path to what each
makes. The comment above a field says what it holds."""
_UNTOLD_FIELDS = {"version", "generation", "error"}


def answers() -> str:
    """The fields of all answers in JSON, from where they are made, and of a recorded decision."""
    parts = []
    for heading, (asked, made) in _ANSWERS.items():
        fields: dict[str, str] = {}
        for file, function, prefix in made:
            for name, about in _made_by(_ROOT / "fettle" / file, function):
                fields[f"{prefix}{name}"] = fields.get(f"{prefix}{name}") or about
        in_order = sorted(fields.items(), key=lambda one: one[0].count("."))
        told = [f"| `{name}` | {about} |" for name, about in in_order if about]
        plain = names_of([name for name, about in in_order if not about])
        parts += [f"## {heading}\n", asked, "\n| field | what it holds |\n|---|---|", *told, ""]
        parts += [f"And {plain}.\n"] if plain else []
    rows = [*_documented(Decision, ""), *_documented(Placed, "placed.")]
    parts += [
        "## Decisions\n",
        "`fettle decisions`, `/decisions`. What has its default is left out.",
    ]
    return "\n".join([*parts, "", "| field | values | |", "|---|---|---|", *rows]) + "\n"


def _made_by(file: Path, function: str) -> Iterator[tuple[str, str]]:
    """Each field of the dictionaries that a function writes out, with the comment above it."""
    source = file.read_text(encoding="utf-8")
    (made,) = (
        node for node in ast.walk(ast.parse(source)) if getattr(node, "name", "") == function
    )
    yield from _keys(made, "", source.splitlines())


def _keys(node: ast.AST, prefix: str, lines: list[str], told: int = 0) -> Iterator[tuple[str, str]]:
    """`told`: the line whose comment is told already, of the field that holds these."""
    if isinstance(node, ast.Assign) and isinstance(to := node.targets[0], ast.Subscript):
        prefix = f"{prefix}{ast.unparse(to.value)}.NAME."
    if not isinstance(node, ast.Dict):
        for child in ast.iter_child_nodes(node):
            yield from _keys(child, prefix, lines, told)
        return
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant):
            continue
        name = f"{prefix}{ast.literal_eval(key)}"
        if name not in _UNTOLD_FIELDS:
            yield name, "" if key.lineno == told else _comment(lines, key.lineno - 1)
        many = isinstance(value, (ast.List, ast.ListComp))
        yield from _keys(value, f"{name}[]." if many else f"{name}.", lines, key.lineno)


def _comment(lines: list[str], at: int) -> str:
    above = takewhile(lambda line: line.startswith("#"), map(str.strip, reversed(lines[:at])))
    return " ".join(line.lstrip("# ") for line in reversed([*above])).replace("|", "\\|")


def _documented(kind: type[msgspec.Struct], prefix: str) -> Iterator[str]:
    """A row for each field, with the docstring below it, which Python does not keep."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    hints = {field.name: field for field in msgspec.structs.fields(kind)}
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    for field, doc in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
            found = hints[ast.unparse(field.target)]
            kinds = (found.type, *get_args(found.type))
            enums = [k for k in kinds if isinstance(k, type) and issubclass(k, StrEnum)]
            about = " ".join(str(ast.literal_eval(doc.value)).split())
            values = names_of([str(value) for enum in enums for value in enum])
            yield f"| `{prefix}{found.encode_name}` | {values} | {about} |"


def names_of(names: list[str]) -> str:
    """As a list of code."""
    return ", ".join(f"`{name}`" for name in names)


def event_reasons() -> list[tuple[str, str, str]]:
    """Reason, when it comes, and what to do, as the docstring below the reason says."""
    return sorted(
        (name, when, do)
        for name, about in all_constants('"""An Event ')
        if about.startswith("An Event ")
        for when, _, do in (about.removeprefix("An Event ").partition(" What to do: "),)
    )


def all_constants(said: str = "") -> Iterator[tuple[str, str]]:
    """Those of all modules in which this is said."""
    for files in ("fettle/**/*.py", "webhook/**/*.py"):
        for tree in trees(files, said):
            yield from constants(tree)


def constants(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The value and the docstring of each constant that is a text."""
    for made, doc in pairwise(tree.body):
        given = made.value if isinstance(made, ast.Assign) else None
        if isinstance(given, ast.Constant) and isinstance(doc, ast.Expr):
            yield str(given.value), " ".join(str(ast.literal_eval(doc.value)).split())


def trees(files: str, said: str = "") -> Iterator[ast.Module]:
    for file in sorted(_ROOT.glob(files)):
        if said in (text := file.read_text(encoding="utf-8")):
            yield ast.parse(text)
