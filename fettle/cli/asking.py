"""`fettle explain pod` and `fettle devices`: ask a running Fettle, print for people."""

import json
import urllib.parse
from typing import Any

import click

from fettle import explain
from fettle.cli.calling import Answered, call_json, console
from fettle.errors import FettleError


def fetch(server: str, path: str, query: dict[str, str] | None = None) -> Any:
    """The JSON that a running Fettle answers; raises FettleError with what it says is wrong."""
    url = f"{server.rstrip('/')}{path}"
    if query:
        url += "?" + urllib.parse.urlencode(query)
    try:
        return call_json(url)
    except Answered:
        raise
    except FettleError as error:
        raise FettleError(
            f"{error}; is `fettle serve` running there? (set the address with --server or "
            "FETTLE_SERVER)"
        ) from error


LEFT_OUT = (
    "node selectors, taints, cpu and memory are not looked at: the scheduler goes by them too"
)


def explain_pod(server: str, name: str, output: str) -> None:
    """Print a pod's verdicts node by node."""
    data = fetch(server, "/explain", {"pod": name})
    if output == "json":
        click.echo(json.dumps(data, indent=2))
        return
    from rich.markup import escape

    out = console()
    policy = data["policy"]
    out.print(f"[bold]{escape(data['pod'])}[/]  policy {policy['name']} ({policy['origin']})")
    for warning in policy["warnings"]:
        out.print(f"[yellow]{escape(warning)}[/]")
    for note in data["notes"]:
        out.print(f"[yellow]{escape(note)}[/]")
    if data["ask"] is None:
        out.print("needs no devices: every node is allowed")
        return
    out.print(verdict_table(data["nodes"]))
    if any(verdict["fits"] for verdict in data["nodes"].values()):
        out.print(f"[dim]{LEFT_OUT}[/]")
    print_evidence(out, data["nodes"])


def explain_policy(server: str, name: str, output: str) -> None:
    """Print a pod's policy, or one by name: each value with where it comes from."""
    data = fetch(server, "/policy", {"pod" if "/" in name else "name": name})
    if output == "json":
        click.echo(json.dumps(data, indent=2))
        return
    from rich.markup import escape
    from rich.table import Table

    out = console()
    origin = f", chosen by {data['origin']}" if data["origin"] else ""
    out.print(f"[bold]{escape(data['name'])}[/]  {data['source']}{escape(origin)}")
    for warning in data["warnings"]:
        out.print(f"[yellow]{escape(warning)}[/]")
    table = Table(box=None, pad_edge=False)
    for column in ("FIELD", "VALUE", "FROM"):
        table.add_column(column, overflow="fold")
    for value in data["values"]:
        said = "–" if value["value"] in (None, [], {}) else value["value"]
        shown = said if isinstance(said, str) else json.dumps(said)
        table.add_row(value["field"], escape(shown), escape(value["from"]))
    out.print(table)
    for what in ("namespaces", "pods"):
        if data.get(what):
            out.print(f"{what}: {escape(', '.join(data[what]))}")


_COLOURS = {"fits": "green", "undecided": "yellow", "no fit": "magenta", "refused": "red"}


def verdict_table(nodes: dict[str, Any]) -> Any:
    """Nodes with score, verdict and reason; those that can be used first, by score."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("NODE", "SCORE", "VERDICT", "REASON"):
        table.add_column(column, overflow="fold", justify="right" if column == "SCORE" else "left")
    words = {name: explain.word(v) for name, v in nodes.items()}
    ranks = list(_COLOURS)
    for name, v in sorted(
        nodes.items(), key=lambda i: (ranks.index(words[i[0]]), -i[1]["score"], i[0])
    ):
        word = words[name]
        score = str(v["score"]) if v["fits"] else "–"
        shown = f"[{_COLOURS[word]}]{word}[/]"
        table.add_row(escape(name), score, shown, escape(explain.reason(v)))
    return table


def print_evidence(out: Any, nodes: dict[str, Any]) -> None:
    """The evidence about each node, and about its units and devices. A device that several nodes
    can use is shown once.
    """
    from rich.markup import escape

    devices: set[str] = set()
    for name, v in nodes.items():
        own = evidence_lines(v["health"]["evidence"])
        told = [(name, v["health"], own)]
        for unit in v.get("units", ()):
            lines = _beside(own, unit)
            about = f" ({unit['about']})" if unit.get("about") else ""
            told.append((f"{unit['resource']} {unit['unit']} on {name}{about}", unit, lines))
        for device in v["devices"]:
            if device["device"] not in devices and (lines := _beside(own, device)):
                devices.add(device["device"])
                told.append((f"{device['device']} on {name}", device, lines))
        for what, health, lines in told:
            if lines:
                out.print(f"\n{escape(what)}: {health['state']} {health['score']:.2f}")
            for line in lines:
                out.print("  " + escape(line))


def _beside(own: list[str], health: dict[str, Any]) -> list[str]:
    return [line for line in evidence_lines(health["evidence"]) if line not in own]


def evidence_lines(evidence: list[dict[str, Any]]) -> list[str]:
    """One line per piece of evidence: weight, time, text, source and the object that says it."""
    from datetime import UTC, datetime

    return [
        f"-{e['weight']:.2f}  {datetime.fromtimestamp(e['observedAt'], UTC):%Y-%m-%d %H:%M:%SZ}  "
        f"{e['text']}  [{e['family']}, {e['source']}, {e['reporter']}{_witness(e)}]"
        for e in evidence
    ]


def _witness(one: dict[str, Any]) -> str:
    witness = one.get("witness")
    return f"; reported only by {witness}: lowers the score, refuses nothing" if witness else ""


def devices(server: str, output: str, *, everything: bool) -> None:
    """Print devices with scores, states and reasons."""
    data = fetch(server, "/devices", {} if everything else {"unsound": "true"})
    if output == "json":
        click.echo(json.dumps(data, indent=2))
        return
    print_devices(data, everything=everything)


def print_devices(data: dict[str, Any], *, everything: bool) -> None:
    """What `/devices` answers, as a table."""
    from rich.markup import escape

    table = device_table(data, everything=everything)
    out = console()
    for problem in (problems := data.get("problems", ())):
        out.print(f"[yellow]{escape(problem)}[/]")
    if table.row_count:
        out.print(table)
    elif not problems:
        out.print("no evidence concerns any device: all are sound")
    for text in data["quarantined"].values():
        out.print(f"[yellow]cannot be read: {escape(text)}[/]")


def device_table(data: dict[str, Any], *, everything: bool) -> Any:
    """Nodes, units and devices, with what is special of each and its evidence."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("NODE", "DEVICE", "SCORE", "STATE", "WHY"):
        table.add_column(column, overflow="fold", justify="right" if column == "SCORE" else "left")
    rows = [
        (node["node"], what, health)
        for node in data["nodes"]
        for what, health in _rows(node, everything=everything)
    ]
    rows += [(_used_by(device["nodes"]), device["device"], device) for device in data["network"]]
    for where, what, health in rows:
        said = [e["text"] for e in health["evidence"]]
        why = "; ".join(filter(None, (health.get("about"), health.get("withheld"), *said)))
        score = f"{health['score']:.2f}"
        table.add_row(escape(where), escape(what), score, health["state"], escape(why))
    return table


def _used_by(nodes: list[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"({len(nodes)} nodes)"


def _rows(node: dict[str, Any], *, everything: bool) -> list[tuple[str, dict[str, Any]]]:
    rows: list[tuple[str, dict[str, Any]]] = []
    if node["evidence"] or (everything and not node["devices"]):
        rows.append(("(node)", node))
    for resource in node["resources"]:
        rows += [(f"{resource['resource']} {u['unit']}", u) for u in resource["units"]]
    rows += [(d["device"], d) for d in node["devices"] if d["evidence"] or everything]
    return rows
