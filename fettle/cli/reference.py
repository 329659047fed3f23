"""Generates docs/commands.md from the commands, and tables of other pages from code and `deploy/`.

`python -m fettle.cli.reference > docs/commands.md`, and
`python -m fettle.cli.reference docs/*.md` for what stands between `<!-- made: PART -->` and
`<!-- /made -->`; with `--check` it writes nothing.
"""

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeGuard

import click
import msgspec
import yaml

from fettle.cli.commands import SHELLS, main
from fettle.cli.json_reference import (
    all_constants,
    answers,
    constants,
    event_reasons,
    names_of,
    trees,
)
from fettle.explain import list_codes
from fettle.model import BUILT_IN, Policy

HEAD = """# Commands

<!-- Made by `python -m fettle.cli.reference > docs/commands.md`; a test checks it. -->

What each command and flag means, as `--help` says it. [Without a server](without-a-server.md) says
what commands read where none is named, [JSON](explain-json.md) what `--output json` means.

Output behind `| head` ends without a word, with status 141. Colours are for terminals; `NO_COLOR=1`
takes them away.

Commands and flags are completed in a shell by one line in its configuration:

```sh
{shells}
```
"""
WIDTH = 100


def page() -> str:
    """The whole of docs/commands.md."""
    parts = [HEAD.format(shells="\n".join(SHELLS.values()))]
    for path, command in _commands(main, ("fettle",)):
        context = click.Context(
            command, info_name=" ".join(path), terminal_width=WIDTH, **main.context_settings
        )
        heading = "##" if len(path) <= 2 else "###"
        parts.append(f"{heading} {' '.join(path)}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def _commands(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, each in sorted(command.commands.items()):
            yield from _commands(each, (*path, name))


_ROOT = Path(__file__).parents[2]
_COUNTED = ("fettle/observing/*.py", "webhook/*.py")
_RULES = "fettle/health/signals/rules"
_ALERTS = "deploy/metrics/fettle-alerts.yaml"


def reasons() -> str:
    """Every reason code, by kind and by what comes of it; what refuses a node first."""
    order = sorted(list_codes(), key=lambda one: (one["effect"], one["code"]))
    kinds = sorted(
        {one["kind"] for one in order},
        key=lambda kind: (min(o["effect"][:3] != "A r" for o in order if o["kind"] == kind), kind),
    )
    parts = []
    for kind in kinds:
        parts.append(f"## {kind}\n")
        of_kind = (one for one in order if one["kind"] == kind)
        for effect, codes in groupby(of_kind, key=lambda one: one["effect"]):
            parts.append(f"{effect}\n\n| code | what it means | fields |\n|---|---|---|")
            parts += [
                f"| `{one['code']}` | {one['about']} | {names_of(one['fields'])} |" for one in codes
            ]
            parts.append("")
    return "\n".join(parts)


def alerts() -> str:
    """Each shipped alert: when it fires, and what to do."""
    parts = []
    for rule in (rule for group in _read(_ALERTS)["groups"] for rule in group["rules"]):
        told = rule["annotations"]
        summary, about = (
            re.sub(r"{{ \$(?:labels\.)?(\w+) }}", lambda found: found[1].upper(), told[each])
            for each in ("summary", "description")
        )
        about = re.sub(r"docs/([\w-]+)\.md(#[\w-]+)?", _link, about)
        lasts = f", once it has lasted {rule['for']}" if "for" in rule else ""
        parts += [f"## {rule['alert']}\n", f"*{summary}* ({rule['labels']['severity']}{lasts}).\n"]
        parts += [f"{about}\n", f"```promql\n{rule['expr'].strip()}\n```\n"]
    return "\n".join(parts)


def _link(found: re.Match[str]) -> str:
    page, anchor = found[1], found[2] or ""
    return f"[{(anchor.removeprefix('#') or page).replace('-', ' ')}]({page}.md{anchor})"


def metrics() -> str:
    """Every metric, by its name, with the alerts that ask for it."""
    asked = [
        (rule["alert"], set(re.findall(r"fettle_\w+", rule["expr"])))
        for group in _read(_ALERTS)["groups"]
        for rule in group["rules"]
    ]
    rows = ["| metric | what it says | labels | alert |", "|---|---|---|---|"]
    for name, about, labels in sorted(_metrics()):
        series = {name, *(f"{name}_{end}" for end in ("bucket", "sum", "count"))}
        alerts = [
            f"[{alert}](alerts.md#{alert.lower()})" for alert, names in asked if names & series
        ]
        rows.append(f"| `{name}` | {about} | {names_of(labels)} | {', '.join(alerts)} |")
    return "\n".join(rows) + "\n"


def _metrics() -> Iterator[tuple[str, str, list[str]]]:
    """Name, help and labels, from the calls that make them."""
    for tree in (tree for files in _COUNTED for tree in trees(files)):
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or len(call.args) < 2:
                continue
            name, about, *labels = call.args
            if not isinstance(name, ast.Constant) or not str(name.value).startswith("fettle_"):
                continue
            labels += [given.value for given in call.keywords if given.arg == "labels"]
            whole = str(name.value).removesuffix("_total")
            counter = ast.unparse(call.func).startswith("Counter")
            yield (
                f"{whole}_total" if counter else whole,
                f"{str(ast.literal_eval(about)).rstrip('.')}.",
                ast.literal_eval(labels[0]) if labels else [],
            )


def fields(file: str, part: str) -> str:
    """The fields of a part of a kind, `spec` or `status`, as its CustomResourceDefinition says."""
    (version,) = _read(file)["spec"]["versions"]
    whole = version["schema"]["openAPIV3Schema"]["properties"][part]
    rows = [f"| `{name}` | {values} | {about} |" for name, values, about in _fields(whole, "")]
    return "\n".join(["| field | values | |", "|---|---|---|", *rows]) + "\n"


def _fields(schema: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    """Name, values and description of each field, those within it after it."""
    for name, field in schema.get("properties", {}).items():
        about = " ".join(field.get("description", "").split()).replace("|", "\\|")
        yield f"{prefix}{name}", _values(field), about
        yield from _fields(field, f"{prefix}{name}.")
        yield from _fields(field.get("items", {}), f"{prefix}{name}[].")


def _values(field: dict[str, Any]) -> str:
    """What may stand there, the default last."""
    entries = field.get("items", field.get("additionalProperties", field))
    values = ", ".join(f"`{value}`" for value in entries.get("enum", ()))
    if field["type"] == "object" and "properties" in field:
        return ""
    if "format" in field and field["format"].startswith("date"):
        values = "RFC 3339"
    values = values or entries["type"]
    if "minimum" in field and field.get("maximum", 1e9) < 1e6:
        values += f", {field['minimum']:g} to {field['maximum']:g}"
    if field["type"] == "array":
        most = f", at most {field['maxItems']}" if "maxItems" in field else ""
        values = f"list of {values}{most}"
    default = json.dumps(field["default"]).strip('"') if field.get("default") else ""
    return f"{values}; default `{default}`" if default else values


_ROWS = {
    "families": "How fast each family is forgotten",
    "conditions": "Node conditions",
    "labels": "Labels of Nodes",
    "annotations": "Annotations of Nodes",
    "taints": "Taints of devices",
    "attributes": "Attributes of devices",
    "device_conditions": "Conditions of allocated devices",
    "events": "Events about Nodes",
    "metrics": "Metrics",
    "refusals": "Kubelets' refusals",
    "starts": "Pods that do not start",
    "xid_classes": "Classes of XIDs",
    "xids": "XIDs",
    "recoveries": "Actions that XID 154 names",
    "dcgm_codes": "Error codes of DCGM",
    "actions": "What NVSentinel recommends",
    "signals": "What Fettle concludes by itself",
}
"""By table of the rules files: what it is about. Exporters and vendors weigh nothing."""
_UNTOLD = {"name", "weight", "family", "source", "graded", "kind", "until", "missed", "lost"}


def rows() -> str:
    """What each shipped row about health matches and weighs, and where it comes from."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for file in sorted((_ROOT / _RULES).glob("*.yaml")):
        for table, found in _read(f"{_RULES}/{file.name}").items():
            tables.setdefault(table, []).extend(found)
    parts = []
    for table, about in _ROWS.items():
        parts += [f"## {about} (`{table}`)\n", "| row | says | weight | family | source |"]
        parts += ["|---|---|---|---|---|", *map(_rule, tables[table]), ""]
    return "\n".join(parts)


def _rule(row: dict[str, Any]) -> str:
    told = (f"{key}: {_shown(value)}" for key, value in row.items() if key not in _UNTOLD)
    grades = [f"{weight:g} from {value:g}" for value, weight in row.get("graded", {}).items()]
    weight = f"{row['weight']:g}" if "weight" in row else ", ".join(grades)
    kind = f" {row['kind']}" if row.get("kind", "level") != "level" else ""
    cells = (row["name"], "; ".join(told), f"{weight}{kind}", row.get("family", ""), row["source"])
    return (
        "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
    )


def row_fields() -> str:
    """What a row of each table may hold, by the docstrings of their types."""
    nodes = (node for tree in trees("fettle/health/signals/*.py") for node in tree.body)
    kinds = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    (made,) = (n for n in kinds["SignalRules"].body if getattr(n, "name", "") == "__init__")
    parts = []
    for table in made.args.kwonlyargs if isinstance(made, ast.FunctionDef) else ():
        kind = kinds[re.findall(r"\w+Row", ast.unparse(table.annotation or made))[0]]
        parts += [f"## {table.arg}", "", *(ast.get_docstring(kind) or "").splitlines(), ""]
        fields = [node for node in kind.body if isinstance(node, ast.AnnAssign)]
        for is_needed, each in groupby(fields, key=_is_needed):
            names = ", ".join(f"`{_yaml_name(field)}`" for field in each)
            parts += [f"{'Needed' if is_needed else 'Optional'}: {names}.", ""]
    return "\n".join(parts)


def _is_needed(field: ast.AnnAssign) -> bool:
    return field.value is None or (
        "default" not in ast.unparse(field.value) and bool(_renamed(field))
    )


def _renamed(field: ast.AnnAssign) -> str:
    given = field.value.keywords if isinstance(field.value, ast.Call) else []
    return "".join(str(ast.literal_eval(one.value)) for one in given if one.arg == "name")


def _yaml_name(field: ast.AnnAssign) -> str:
    return _renamed(field) or ast.unparse(field.target)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def names() -> str:
    """Every name under `fettle.dev/`, and the reason of every Event."""
    own = [
        f"| `{name}` | {about} |"
        for name, about in all_constants()
        if name.startswith("fettle.dev/") and name != "fettle.dev/"
    ]
    told = [f"| `{name}` | {when} |" for name, when, _ in event_reasons()]
    head = "| | |\n|---|---|"
    parts = [f"## Names under `fettle.dev/`\n\n{head}", *sorted(own), ""]
    parts += [f"## Events\n\n{head}", *told, ""]
    return "\n".join(parts)


def events() -> str:
    """The reason of every Event, with what to do about it."""
    rows = [f"| `{name}` {when} | {do} |" for name, when, do in event_reasons()]
    return "\n".join(["| Event | what to do |", "|---|---|", *rows]) + "\n"


def values(file: str, kind: str, head: str) -> str:
    """What each value of an enumeration means, as the docstring below it says."""
    (made,) = (node for tree in trees(file) for node in tree.body if _is_named(node, kind))
    rows = [f"| `{value}` | {about} |" for value, about in constants(made)]
    return "\n".join([f"| {head} | what it means |", "|---|---|", *rows]) + "\n"


def _is_named(node: ast.AST, name: str) -> TypeGuard[ast.ClassDef]:
    return isinstance(node, ast.ClassDef) and node.name == name


def _read(file: str) -> Any:
    return yaml.safe_load(_text(file))


def built_in() -> str:
    """What the built-in policies set, beside what a DevicePolicy has where it says nothing."""
    policies = [Policy(name="DevicePolicy"), *BUILT_IN.values()]
    names = [f"`{policy.name}`" for policy in policies[1:]]
    rows = [f"| | {' | '.join(names)} | a DevicePolicy's default |", "|---|---|---|---|---|"]
    for section in ("placement", "tolerations", "failure"):
        told = [msgspec.to_builtins(getattr(policy, section)) for policy in policies]
        for field in told[0]:
            default, *values = (_plain(one[field]) for one in told)
            if {default} != set(values):
                rows.append(f"| `{section}.{field}` | {' | '.join(values)} | {default} |")
    return "\n".join(rows) + "\n"


def _plain(value: object) -> str:
    return "" if value is None else f"`{value if isinstance(value, str) else json.dumps(value)}`"


_EXAMPLES = "deploy/samples/rules/examples.yaml"
_MATCHED = "docs/examples/rules-objects.yaml"


def upgrade() -> str:
    """What whoever upgrades has to do, from the newest version in the changelog."""
    asked = _text("CHANGELOG.md").partition("### What to do\n\n")[2].partition("\n### ")[0]
    return asked.replace("](docs/", "](")


_SHOWN = {
    "saturated, costly failures": "full, costly failures",
    "saturated · DRA": "full, DRA",
    "load 1.15": "load 1.15",
    "load 0.85": "load 0.85",
}
_CONTENDERS = {"default", "cordon", "enforce", "taints", "oracle"}


def goodput() -> str:
    """The settings and columns that most people ask for, of all figures of tests/goodput/."""
    rows, setting = [], ""
    figures = _text("tests/goodput/README.md").partition("## Figures")[2].partition("\n**")[0]
    for line in figures.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        setting = cells[0] or setting
        if setting in _SHOWN and cells[1] in _CONTENDERS:
            name = _SHOWN[setting] if cells[0] else ""
            told = (name, *cells[1:4], *cells[5:7], cells[9])
            rows.append(f"| {' | '.join(told)} |")
    columns = ("useful %", "than default", "starts on visibly bad", "jobs past 6", "gangs placed")
    head = f"| setting | who minds health | {' | '.join(columns)} |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows]) + "\n"


def example(table: str) -> str:
    """The row of a table in the samples, and the objects that it matches."""
    rows = re.split(r"^(?=\w+:)", _text(_EXAMPLES), flags=re.MULTILINE)
    objects = re.split(r"^---\n# (\w+)\n", _text(_MATCHED), flags=re.M)
    (row,) = (one for one in rows if one.startswith(f"{table}:"))
    matched = objects[objects.index(table) + 1]
    return "".join(f"```yaml\n{one.rstrip()}\n```\n" for one in (row, matched))


def _text(file: str) -> str:
    return (_ROOT / file).read_text(encoding="utf-8")


_PARTS: dict[str, Callable[[], str]] = {
    "reasons": reasons,
    "rowfields": row_fields,
    "rows": rows,
    "metrics": metrics,
    "alerts": alerts,
    "builtin": built_in,
    "answers": answers,
    "devicehealth": lambda: fields("deploy/crds/devicehealths.yaml", "status"),
    "names": names,
    "events": events,
    "upgrade": upgrade,
    "goodput": goodput,
    "marks": lambda: values("fettle/steward/eviction_plans.py", "MarkReason", "reason"),
    "results": lambda: values("fettle/scheduling/predictions.py", "Result", "result"),
    "policy": lambda: fields("deploy/crds/devicepolicies.yaml", "spec"),
    **{
        f"example_{table}": partial(example, table)
        for table in (*_ROWS, "objects")
        if table in _read(_EXAMPLES)
    },
}
_MADE = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- /made -->)", re.DOTALL)


def filled(text: str) -> str:
    """The text of a page, with each part that is made as it is now."""
    return _MADE.sub(lambda found: f"{found[1]}{_PARTS[found[2]]()}{found[3]}", text)


def _write(files: list[str], check: bool) -> None:
    """Make the parts of these pages again; with `check`, only say which are not current."""
    for each in map(Path, files):
        now = each.read_text(encoding="utf-8")
        if (made := filled(now)) == now:
            continue
        if check:
            sys.exit(f"{each} is not current, make it again: make format")
        each.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    if files := [given for given in sys.argv[1:] if given != "--check"]:
        _write(files, "--check" in sys.argv)
    else:
        print(page(), end="")
