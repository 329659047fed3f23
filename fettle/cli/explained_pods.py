"""Prints for people what Fettle answers of one pod: `fettle explain pod`.

The answer comes first, in one line; then the nodes that can matter, the best first; what is behind
it only on request. Nothing is told twice.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from fettle.cli.calling import fetch
from fettle.cli.decision_tables import decision_line
from fettle.cli.printing import (
    MOST_NAMED,
    badness,
    first,
    grouped,
    is_well,
    lowered,
    owned_by,
    print_holds,
    span,
)
from fettle.cli.sources import typed
from fettle.cli.tables import console, is_plain, new_table, print_plain, readable, shown_time
from fettle.explain import brief, conclusion, excluded_by, exclusion, near, result_word, summary
from fettle.model import NO_SETTINGS, FettleError

LEFT_OUT = "cpu, memory and other pods are left to the scheduler"
MOST_ROWS = 8
"""Of the table without evidence: with what stands around it, 20 lines."""
_COLOURS = {"fits": "green", "undecided": "yellow", "refused": "red", "no fit": "magenta"}
"""By verdict, in the order of the table: where the pod may go, then why it may not."""
_SAID_ABOVE = frozenset(("PodHolds", "PodPlaced", "NotEnforced"))
"""Notes about a pod that has a node, or about the mode: another line says the same."""


MOST_HELD = 2
"""Devices of a pod, and reasons against them, that are told without evidence."""


class Extent(NamedTuple):
    """How much to print. `node`: of this one alone, and all of it. `hints`: say how to see more."""

    node: str = ""
    evidence: bool = False
    summary: bool = False
    hints: bool = True


def explain_pod(server: str, name: str, output: str, wanted: Extent) -> None:
    """Print what a pod's verdicts come to, and the verdicts node by node."""
    data = fetch(server, "/explain", {"pod": name})
    if wanted.node:
        data = of_node(data, wanted.node)
    if is_plain(output):
        print_plain(data, output)
    else:
        print_pod(readable(data), wanted)


def of_node(data: dict[str, Any], name: str) -> dict[str, Any]:
    """The explanation as far as it is about this node."""
    if data["demand"] is None:
        return data
    if name not in data["nodes"]:
        like = near(name, data["nodes"])
        raise FettleError(
            f"{data['pod']} has no verdict for node {name}: there is no such node{like}"
        )
    return {**data, "nodes": {name: data["nodes"][name]}}


def print_pod(data: dict[str, Any], wanted: Extent, out: Any = None) -> None:
    """`out`: a console of rich; by default standard output."""
    from rich.markup import escape

    out = out or console()
    if data["demand"] is None:
        out.print(f"[bold]{escape(data['pod'])}[/] needs no devices: every node is allowed")
        _print_notes(out, data, "")
        return
    answer = data.get("answer") or conclusion(data)  # a server of before concludes nothing
    said = _of_one(data, wanted.node) if wanted.node else answer["text"]
    shown = typed(said)  # a command in it is not broken
    out.print(f"[bold]{escape(shown)}[/]", soft_wrap="`" in shown)
    if wanted.summary:
        return
    everything = wanted.evidence or bool(wanted.node)
    _print_policy(out, data)
    if everything and (line := mechanisms_line(data.get("mechanisms", ()))):
        out.print(escape(line))
    _print_notes(out, data, said)
    if placed := data.get("placed"):
        print_placed(out, placed, everything=everything)
    matters = {n: v for n, v in data["nodes"].items() if not exclusion(v)}
    matters, left = (matters or data["nodes"]), answer["excluded"] if matters else []
    unlisted = 0
    if everything:
        out.print(verdict_table(matters))
    elif matters:
        table, unlisted = brief_table(matters, MOST_ROWS // 2 if placed else MOST_ROWS)
        out.print(table)
    if everything:
        if left and not wanted.node:
            out.print(escape(_not_listed(left)))
        if any(verdict["fits"] for verdict in matters.values()):
            out.print(f"[dim]{LEFT_OUT}[/]")
        _print_behind(out, data, matters)
        return
    if end := _end(matters, unlisted):
        out.print(f"[dim]{end}[/]")
    if wanted.hints and (unlisted or any(True for one in _evidence(matters) if one.lines)):
        more = typed(f"`fettle explain pod {data['pod']} --evidence` tells more")
        out.print(f"[dim]{escape(more)}[/]", soft_wrap=True)


def _end(matters: dict[str, Any], unlisted: int) -> str:
    """What is not listed, and what is not considered."""
    parts = [f"{unlisted} more nodes"] if unlisted else []
    if any(verdict["fits"] for verdict in matters.values()):
        parts.append(LEFT_OUT)
    return "; ".join(parts)


def mechanisms_line(mechanisms: Iterable[dict[str, Any]]) -> str:
    """Which mechanisms keep pods off bad devices here, and which do not; "" if nothing is told."""
    said: dict[str, list[str]] = {}
    for one in mechanisms:
        words = {True: "act here", False: "do not act here", None: "not known here"}
        said.setdefault(words[one["acts"]], []).append(one["name"])
    return "; ".join(f"{words}: {', '.join(names)}" for words, names in said.items())


def _print_policy(out: Any, data: dict[str, Any]) -> None:
    from rich.markup import escape

    policy = data["policy"]
    mode = policy["mode"] if policy["modeOrigin"] != NO_SETTINGS else "not known"
    said = f"policy {policy['name']} ({policy['origin']}), mode {mode} "
    out.print(escape(f"{said}({policy['modeOrigin']})"))
    for warning in policy["warnings"]:
        out.print(f"[yellow]{escape(warning)}[/]")


def _print_notes(out: Any, data: dict[str, Any], said: str) -> None:
    """The notes about the pod as a whole that no other line says."""
    from rich.markup import escape

    for note, reason in zip(data["notes"], data["reasons"]["notes"], strict=True):
        is_above = reason["code"] in _SAID_ABOVE and data.get("placed")
        if not is_above and reason["code"] != "NotEnforced" and note not in said:
            out.print(f"[yellow]{escape(note)}[/]")


def _of_one(data: dict[str, Any], node: str) -> str:
    verdict = data["nodes"][node]
    by = verdict.get("excluded")
    excluded = f"; excluded by {excluded_by([by])}" if by else ""
    return f"{data['pod']} on {node}: {result_word(verdict)}{excluded}"


def _not_listed(excluded: list[dict[str, Any]]) -> str:
    """The nodes that can never matter, in a line that names the first of them."""
    number = sum(one["nodes"] for one in excluded)
    names = ", ".join(one["first"] for one in excluded[:MOST_NAMED])
    more = ", …" if number > min(len(excluded), MOST_NAMED) else ""
    are = "1 node is" if number == 1 else f"{number} nodes are"
    return f"{are} not listed ({names}{more}): excluded by {excluded_by(excluded)}"


def _print_behind(out: Any, data: dict[str, Any], matters: dict[str, Any]) -> None:
    """The evidence, the holds and the last decisions."""
    from rich.markup import escape

    if said := data.get("decisions"):
        out.print("last decisions:")
        for one in said:
            out.print(f"  {escape(decision_line(one))}")
    print_holds(out, data.get("holds", ()))
    if codes := _codes(matters):
        how = typed(f"`fettle explain reason {codes[0]}` explains the first")
        out.print(escape(f"codes ({how}): {', '.join(codes)}"))
    print_evidence(out, matters)


def _codes(nodes: dict[str, Any]) -> list[str]:
    """Of all reasons that are told of these nodes."""
    lists = (told for v in nodes.values() for told in v.get("reasons", {}).values())
    return sorted({reason["code"] for told in lists for reason in told})


def print_placed(out: Any, placed: dict[str, Any], *, everything: bool) -> None:
    """What a pod that has a node holds there, and what its policy says of that now. Unless
    everything is wanted, a line each of the worst, without evidence."""
    from rich.markup import escape

    of = f", of {owned_by(placed)}" if placed["owner"] else ""
    began = placed.get("deletedAt") or placed["boundAt"]
    out.print(escape(f"{placed['phase']} since {shown_time(began)}{of}"))
    for resource, count in placed["units"].items():
        out.print(f"  was given {count} {escape(resource)}")
    devices = placed["devices"]
    if not everything:
        devices = sorted(devices, key=lambda one: badness(one) if "state" in one else (0, 0.0))
    held = [_held(device, evidence=everything) for device in devices]
    for line in held if everything else first(held, MOST_HELD):
        out.print(f"  {escape(line)}")
    if placed["atRisk"]:
        since = f" since {shown_time(placed['since'])}"
        out.print(f"[red]its policy refuses where it is{since}:[/]")
    whys = [f"[red]{escape(why)}[/]" for why in placed["refusals"]]
    whys += [f"[yellow]taken as the last choice: {escape(why)}[/]" for why in placed["conceded"]]
    for why in whys if everything else first(whys, MOST_HELD):
        out.print(f"  {why}", no_wrap=not everything, overflow="ellipsis")


def _held(device: dict[str, Any], *, evidence: bool) -> str:
    what = device.get("device") or f"{device['resource']} {device['unit']}"
    holds = "holds" if device["use"] == "certain" else "may hold"
    if device.get("adminAccess"):
        holds = "has admin access to"
    if "state" not in device:  # withheld from whoever may not see devices
        return f"{holds} {what}"
    said = "; ".join(e["text"] for e in device["evidence"]) if evidence else ""
    state = f"{device['state']} {device['score']:.2f}{lowered(device)}"
    return f"{holds} {what}: {state}{f': {said}' if said else ''}"


def verdict_table(nodes: dict[str, Any]) -> Any:
    """Nodes with score, verdict and reason: those that fit first, by score; then why others do not.

    Many nodes that say the same, but for the names of their own devices, are one row. Nodes that
    fit are joined only if they are Healthy.
    """
    from rich.markup import escape

    table = new_table("NODE", "SCORE", "VERDICT", "REASON")
    for group in _joined(nodes, summary):
        name, word, v, reason = group[0]
        where = name
        if len(group) > 1:
            some = (row[0] for row in group[:MOST_NAMED])
            where = "\n".join((f"{len(group)} nodes:", *some, "…"))
            same = len({row[3] for row in group}) == 1
            reason = reason if same else _unnamed(reason, name, v)
        table.add_row(escape(where), _scores(group), f"[{_COLOURS[word]}]{word}[/]", escape(reason))
    return table


def brief_table(nodes: dict[str, Any], most: int) -> tuple[Any, int]:
    """As `verdict_table`, but each row is one line with a reason in few words, and only so many of
    the first rows are there; and how many nodes are not."""
    from rich.markup import escape

    table = new_table("NODE", "SCORE", "VERDICT", "REASON", cut=True)
    groups = _joined(nodes, brief)
    for group in groups[:most]:
        name, word, v, reason = group[0]
        if len({row[3] for row in group}) > 1:
            reason = _unnamed(reason, name, v)
        where = f"{name} (+{len(group) - 1})" if len(group) > 1 else name
        table.add_row(escape(where), _scores(group), f"[{_COLOURS[word]}]{word}[/]", escape(reason))
    return table, sum(map(len, groups[most:]))


_Row = tuple[str, str, dict[str, Any], str]


def _joined(nodes: dict[str, Any], say: Callable[[dict[str, Any]], str]) -> list[list[_Row]]:
    """Node, verdict in a word, verdict, and reason of each node, in groups that say the same."""
    ranks = list(_COLOURS)
    rows = [(name, result_word(v), v, say(v)) for name, v in nodes.items()]
    rows.sort(key=lambda row: (ranks.index(row[1]), -row[2]["score"] * row[2]["fits"], row[0]))

    def key(row: _Row) -> tuple[str, str] | None:
        name, word, v, reason = row
        joins = word != "fits" or "health" not in v or is_well(v["health"])
        return (word, _unnamed(reason, name, v)) if joins else None

    return grouped(rows, key)


def _scores(group: list[_Row]) -> str:
    fits = group[0][2]["fits"]
    return span(str(row[2]["score"]) for row in reversed(group)) if fits else "–"


def _unnamed(reason: str, name: str, v: dict[str, Any]) -> str:
    """The reason without the names of the node's own devices and pools."""
    for pool in {device["device"].rpartition("/")[0] for device in v["devices"]}:
        one = f"a device of {pool.split('/')[0]}"
        reason = re.sub(rf"(?<![\w./-]){re.escape(pool)}/[a-z0-9-]+", one, reason)
    reason = re.sub(rf"/{re.escape(name)}(?![\w.-])", "/…", reason)
    return _SEVERAL.sub(lambda found: _several(found.group(), found["one"]), reason)


_SEVERAL = re.compile(r"(?P<one>a device of [\w.-]+)(, (?P=one)(?![\w.-]))+")


def _several(listed: str, one: str) -> str:
    return f"{listed.count(one)} devices {one.removeprefix('a device ')}"


class _Described(NamedTuple):
    """A node, or a unit or device of it, with its health and the lines of its evidence."""

    what: str
    health: dict[str, Any]
    lines: list[str]
    is_node: bool = False


def print_evidence(out: Any, nodes: dict[str, Any]) -> None:
    """The evidence about each node, its units and its devices, the worst first.

    A device that several nodes can use is shown once.
    """
    from rich.markup import escape

    shown = [one for one in _evidence(nodes) if one.lines or one.health.get("kept")]
    shown.sort(key=lambda one: badness(one.health))
    for group in grouped(shown, _evidence_texts):
        first = group[0]
        what, lines = first.what, first.lines
        if len(group) > 1:
            what = f"{len(group)} nodes"
            lines = [
                f"{e['text']}  [{e['family']}, {e['source']}]" for e in first.health["evidence"]
            ]
        kept = f"; {first.health['kept']}" if first.health.get("kept") else ""
        score = span(f"{one.health['score']:.2f}" for one in group)
        out.print(f"\n{escape(what)}: {first.health['state']} {score}{lowered(first.health)}{kept}")
        for line in lines:
            out.print("  " + escape(line))


def _evidence_texts(one: _Described) -> tuple[str, ...] | None:
    """The texts of a Healthy node's evidence, without times and sources; None for others."""
    if not one.is_node or not is_well(one.health):
        return None
    return tuple(e["text"] for e in one.health["evidence"])


def _evidence(nodes: dict[str, Any]) -> Iterator[_Described]:
    devices: set[str] = set()
    for name, v in nodes.items():
        if "health" not in v:  # withheld
            continue
        own = evidence_lines(v["health"]["evidence"])
        yield _Described(name, v["health"], own, is_node=True)
        for unit in v.get("units", ()):
            about = f" ({unit['about']})" if unit.get("about") else ""
            yield _Described(
                f"{unit['resource']} {unit['unit']} on {name}{about}", unit, _beside(own, unit)
            )
        for device in v["devices"]:
            lines = _beside(own, device)
            if device["device"] not in devices and (lines or device.get("kept")):
                devices.add(device["device"])
                yield _Described(f"{device['device']} on {name}", device, lines)


def _beside(own: list[str], health: dict[str, Any]) -> list[str]:
    return [line for line in evidence_lines(health["evidence"]) if line not in own]


def evidence_lines(evidence: list[dict[str, Any]]) -> list[str]:
    """One line per piece of evidence: weight, time, text, source and the reporting object."""
    return [
        f"-{e['weight']:.2f}  {shown_time(e['observedAt'])}  "
        f"{e['text']}  [{e['family']}, {e['source']}, {e['reporter']}{_whose_word(e)}]"
        for e in evidence
    ]


def _whose_word(one: dict[str, Any]) -> str:
    namespace = one.get("reportingNamespace")
    if not namespace:
        return ""
    return f"; reported only by namespace {namespace}: lowers the score, refuses nothing"


# --- what if


def what_if(server: str, name: str, output: str, change: dict[str, str]) -> None:
    """Print what would become of a pod, and each node whose answer changes."""
    data = fetch(server, "/what-if", {"pod": name, **change})
    if is_plain(output):
        print_plain(data, output)
        return
    print_change(readable(data))


def suppose(file: str, namespace: str, output: str, change: dict[str, str]) -> None:
    """Print where the pods of a file could go now, or what would become of them by a change. Raises
    BadInput if the file is not of use."""
    from fettle.cli import direct  # heavy

    told = direct.suppose(file, namespace, change)
    if is_plain(output):
        print_plain({"pods": told}, output)
        return
    for at, data in enumerate(map(readable, told)):
        if at:
            console().print()
        if change:
            print_change(data)
        else:
            print_pod(data, Extent(hints=False))


def print_change(data: dict[str, Any]) -> None:
    """Print the answer of `/what-if`."""
    from rich.markup import escape

    out = console()
    for problem in data["problems"]:
        out.print(f"[yellow]{escape(problem)}[/]")
    if data["after"] is None:
        out.print(escape(f"{data['pod']} needs no devices: every node is allowed, then as now"))
        return
    out.print(escape(typed(f"now: {data['before']['text']}")))
    out.print(f"[bold]{escape(typed(_then(data)))}[/]")
    if data["nodes"]:
        table = new_table("NODE", "NOW", "THEN", "REASON THEN")
        for one in data["nodes"]:
            now, then = one["before"], one["after"]
            table.add_row(*map(escape, (one["node"], _word(now), _word(then), then["reason"])))
        out.print(table)


def _then(data: dict[str, Any]) -> str:
    said = data["after"]["text"] if data["nodes"] else "no answer would change"
    return f"if {data['change']}: {said}"


def _word(answer: dict[str, Any] | None) -> str:
    if answer is None:
        return "–"
    return f"fits {answer['score']}" if answer["verdict"] == "fits" else str(answer["verdict"])
