"""Prints for people what `fettle devices` answers: devices, the worst first, what is missing,
holds, taints and signals that no row knows. Many that are healthy and say the same are one row.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from fettle.cli.calling import fetch
from fettle.cli.printing import (
    MOST_LISTED,
    MOST_NAMED,
    badness,
    first,
    grouped,
    has_news,
    is_well,
    lowered,
    print_holds,
    span,
)
from fettle.cli.tables import console, new_table, readable, shown_time

MOST_ROWS = 64
"""Of one node, in the table of bad devices: eight GPUs of seven MIG devices each, and more."""


def list_devices(server: str, output: str, *, everything: bool) -> None:
    """Print devices with their scores, states and reasons."""
    data = fetch(server, "/devices", {} if everything else {"unsound": "true"})
    if output == "json":
        click.echo(json.dumps(data, indent=2))
        return
    print_devices(readable(data), everything=everything)


def print_devices(data: dict[str, Any], *, everything: bool) -> None:
    """Print the answer of `/devices` as a table."""
    from rich.markup import escape

    table = device_table(data, everything=everything)
    out = console()
    for line in data.get("modes", ()):
        out.print(f"[dim]{escape(line)}[/]")
    for problem in (problems := data.get("problems", ())):
        out.print(f"[yellow]{escape(problem)}[/]")
    for one in data.get("setAside", ()):
        out.print(f"[bold red]{escape(one['text'])}[/]")
    if table.row_count:
        out.print(table)
    elif not problems and not _missing(data["nodes"]):
        out.print(_no_devices(data))
    print_missing(out, data["nodes"])
    print_holds(out, data.get("holds", ()))
    _print_taints(out, data.get("taints", ()))
    for text in sorted({one["text"] for node in data["nodes"] for one in node["disputed"]}):
        out.print(f"[yellow]{escape(text)}[/]")
    for text in data["quarantined"].values():
        out.print(f"[yellow]cannot be read: {escape(text)}[/]")
    if unknown := data.get("unknownSignals", ()):
        out.print(
            "what no rule names (conditions, reasons, XIDs, labels and annotations); a row in "
            "`health.rulesFile` makes it count:"
        )
        for line in first([_unknown_signal(one) for one in unknown], MOST_LISTED):
            out.print(f"  {escape(line)}")


def _no_devices(data: dict[str, Any]) -> str:
    """Why none is listed."""
    may_be_hidden = bool(data.get("unseen"))
    if not data.get("nodesWithDevices", 1):
        return "no node with devices is seen" if may_be_hidden else "no node has devices"
    if may_be_hidden:
        return "no evidence is seen about any device"
    return "no evidence concerns any device: all are sound"


def print_missing(out: Any, nodes: Sequence[dict[str, Any]]) -> None:
    """The devices that nodes should have and have not, what was missing first at the top."""
    from rich.markup import escape

    missing = sorted(_missing(nodes), key=lambda each: each[1]["since"])
    if missing:
        out.print("missing devices, which no pod can be given:")
    lines = [
        f"{node['node']}: {one['text']}; since {shown_time(one['since'])}, lost from "
        f"{shown_time(one['lostAt'])} on"
        for node, one in missing
    ]
    for line in first(lines, MOST_LISTED):
        out.print(f"  {escape(line)}")


def _missing(nodes: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each node with each thing that it lacks; a server of before says nothing of that."""
    return [(node, one) for node in nodes for one in node.get("missing", ())]


def _print_taints(out: Any, taints: Sequence[dict[str, Any]]) -> None:
    """The taints that devices have by their health, and those that they lack, with the reason."""
    from rich.markup import escape

    lines = []
    lacking: dict[str, int] = {}
    for one in taints:
        if one["there"] is None:
            lacking[one["whyNot"]] = lacking.get(one["whyNot"], 0) + 1
        else:
            wants = f" ({one['effect']}: {one['whyNot']})" if one["whyNot"] else ""
            lines.append(f"{one['device']}: {one['key']}:{one['there']}{wants}")
    if lines:
        out.print("tainted by Fettle, so the scheduler itself keeps pods off:")
    for line in first(lines, MOST_LISTED):
        out.print(f"  {escape(line)}")
    for why, count in lacking.items():
        out.print(f"[dim]{count} more would be tainted: {escape(why)}[/]")


def _unknown_signal(condition: dict[str, Any]) -> str:
    # Statuses come with the rarest first: that one may be the fault.
    statuses = []
    for one in condition["statuses"]:
        more = one["nodes"] - 1
        statuses.append(
            f"{one['status']} on {one['first']}" + (f" and {more} more" if more else "")
        )
    return f"{condition['condition']}: {', '.join(statuses)}"


class _Row(NamedTuple):
    """`kind` is the word for many of them in a joined row; "" if it is never joined."""

    where: str
    what: str
    kind: str
    health: dict[str, Any]

    @property
    def users(self) -> list[str]:
        """The certain users, and the others that may be."""
        certain, possible = self.health.get("usedBy", []), self.health.get("possiblyUsedBy", [])
        how = "one of" if self.health.get("use") == "certain" and not certain else "possibly"
        known = [*certain, *(f"{how} {name}" for name in possible)]
        unknown = self.health.get("use") not in (None, "nobody")
        return known or (["nobody knows"] if unknown else [])

    @property
    def is_free(self) -> bool:
        """Whether it is a device that nobody can be using."""
        return self.health.get("use") == "nobody"

    @property
    def why(self) -> str:
        first = (self.health.get(part) for part in ("about", "withheld", "kept"))
        said = (e["text"] for e in self.health["evidence"])
        return "; ".join(filter(None, (*first, *said)))


_NODE = "(node)"


def device_table(data: dict[str, Any], *, everything: bool) -> Any:
    """Nodes, units and devices, the worst first, with their users, notes and evidence.

    Healthy ones that say the same are one row, unless everything is shown.
    """
    from rich.markup import escape

    rows = [row for node in data["nodes"] for row in _rows(node, everything=everything)]
    rows += [_Row(_used_by(d["nodes"]), d["device"], "", d) for d in data["network"]]
    rows.sort(key=lambda row: badness(row.health))
    in_use = any(row.users for row in rows)

    table = new_table("NODE", "DEVICE", "SCORE", "STATE", *(["USED BY"] if in_use else []), "WHY")

    def key(row: _Row) -> tuple[str, str] | None:
        counted = row.kind and is_well(row.health) and not everything
        return (row.kind, row.why) if counted else None

    shown: Counter[str] = Counter()
    for group in grouped(rows, key):
        first = group[0]
        shown[first.where] += 1
        if shown[first.where] > MOST_ROWS and not everything:
            continue  # one node's devices would hide all others
        where, what = first.where, first.what
        if len(group) > 1:
            nodes = {row.where for row in group}
            where = f"{len(nodes)} nodes" if len(nodes) > 1 else where
            what = _NODE if first.kind == _NODE else f"{len(group)} of {first.kind}"
        score = span(f"{row.health['score']:.2f}" for row in group)
        users = _some([*dict.fromkeys(user for row in group for user in row.users)])
        if not users and all(row.is_free for row in group):
            users = "nobody"
        state = first.health["state"] + lowered(first.health)
        cells = (where, what, score, state, *([users] if in_use else []), first.why)
        table.add_row(*map(escape, cells))
    for where, number in shown.items():
        if number > MOST_ROWS and not everything:
            why = f"{number - MOST_ROWS} more: `fettle explain node {where}` lists them"
            table.add_row(escape(where), "…", "", "", *([""] if in_use else []), escape(why))
    return table


def _some(names: list[str]) -> str:
    """The first few names, one a line."""
    return "\n".join(first(names, MOST_NAMED))


def _used_by(nodes: list[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"({len(nodes)} nodes)"


def _rows(node: dict[str, Any], *, everything: bool) -> Iterator[_Row]:
    name = node["node"]
    if has_news(node) or (everything and not node["devices"]):
        yield _Row(name, _NODE, _NODE, node)
    for resource in node["resources"]:
        kind = resource["resource"]
        yield from (_Row(name, f"{kind} {u['unit']}", kind, u) for u in resource["units"])
    for device in node["devices"]:
        if everything or has_news(device):
            yield _Row(name, device["device"], device["device"].split("/")[0], device)


# --- rows of a table
