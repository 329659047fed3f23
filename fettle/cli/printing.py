"""Prints for people what Fettle answers of pods: `fettle explain pod`, `pods` and `status`.

The worst comes first; of a pod's verdicts, the best. Many rows that are healthy and say the same
become one row.
"""

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from fettle.cli.calling import fetch
from fettle.cli.decision_tables import decision_line
from fettle.cli.tables import console, new_table, shown_time
from fettle.explain import LOWERED, SUSPECTED, result_word, summary

AT_RISK = 3
"""The exit status of `fettle pods --at-risk` if there are any."""
LATELY_S = 3600.0
"""If a pod was bound so shortly before Fettle started, that is said: perhaps nobody could ask."""
FEW = 5
"""Up to this many rows that say the same are listed one by one."""
_STATES = ("Unhealthy", "Degraded", "Unknown", "Healthy")

_AnyRow = TypeVar("_AnyRow")
LEFT_OUT = (
    "node selectors, taints, cpu and memory are not considered here: the scheduler checks them too"
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
    mode = f"mode {policy['mode']} ({policy['modeOrigin']})"
    out.print(
        f"[bold]{escape(data['pod'])}[/]  policy {policy['name']} ({policy['origin']}), {mode}"
    )
    for warning in policy["warnings"]:
        out.print(f"[yellow]{escape(warning)}[/]")
    if placed := data.get("placed"):
        print_placed(out, placed)
    for note, reason in zip(data["notes"], data["reasons"]["notes"], strict=True):
        if placed is None or reason["code"] != "PodHolds":  # it was said above
            out.print(f"[yellow]{escape(note)}[/]")
    if data["demand"] is None:
        out.print("needs no devices: every node is allowed")
        return
    if said := data.get("decisions"):
        out.print("last decisions:")
        for one in said:
            out.print(f"  {escape(decision_line(one))}")
    out.print(verdict_table(data["nodes"]))
    print_holds(out, data.get("holds", ()))
    if any(verdict["fits"] for verdict in data["nodes"].values()):
        out.print(f"[dim]{LEFT_OUT}[/]")
    print_evidence(out, data["nodes"])


def print_placed(out: Any, placed: dict[str, Any]) -> None:
    """What a pod that has a node holds there, and what its policy says of that now."""
    from rich.markup import escape

    of = f", of {_owned_by(placed)}" if placed["owner"] else ""
    where = f"{placed['phase']} on {placed['node']} since {shown_time(placed['boundAt'])}{of}"
    out.print(escape(where))
    for resource, count in placed["units"].items():
        out.print(f"  was given {count} {escape(resource)}")
    for device in placed["devices"]:
        out.print(f"  {escape(_held(device))}")
    if placed["atRisk"]:
        since = f" since {shown_time(placed['since'])}"
        out.print(f"[red]its policy refuses where it is{since}:[/]")
    elif not placed["conceded"]:
        out.print("its policy accepts where it is")
    for why in placed["refusals"]:
        out.print(f"  [red]{escape(why)}[/]")
    for why in placed["conceded"]:
        out.print(f"  [yellow]{escape(f'taken as the last choice: {why}')}[/]")


def _held(device: dict[str, Any]) -> str:
    what = device.get("device") or f"{device['resource']} {device['unit']}"
    holds = "holds" if device["use"] == "certain" else "may hold"
    if device.get("adminAccess"):
        holds = "has admin access to"
    if "state" not in device:  # withheld from whoever may not see devices
        return f"{holds} {what}"
    said = "; ".join(e["text"] for e in device["evidence"])
    state = f"{device['state']} {device['score']:.2f}{lowered(device)}"
    return f"{holds} {what}: {state}{f': {said}' if said else ''}"


def _owned_by(placed: dict[str, Any]) -> str:
    owner = placed["owner"]
    return f"{owner['kind']} {owner['name']}" if owner else "–"


def list_pods(server: str, output: str, *, at_risk: bool, node: str, namespace: str) -> int:
    """Print pods that have a node. If those at risk are asked for, the exit status is 3 if there
    are some, and 1 if there may be some that are not seen."""
    asked = {"at-risk": "true" if at_risk else "", "node": node, "namespace": namespace}
    data = fetch(server, "/pods", {name: value for name, value in asked.items() if value})
    if output == "json":
        click.echo(json.dumps(data, indent=2))
    else:
        print_pods(data, at_risk=at_risk)
    if at_risk and any(pod["atRisk"] for pod in data["pods"]):
        return AT_RISK
    return 1 if at_risk and data.get("unseen") else 0


def print_pods(data: dict[str, Any], *, at_risk: bool) -> None:
    """Print the answer of `/pods` as a table."""
    from rich.markup import escape

    out = console()
    for problem in data["problems"]:
        out.print(f"[yellow]{escape(problem)}[/]")
    if not data["pods"]:
        out.print(_no_pods(at_risk=at_risk, may_be_hidden=bool(data.get("unseen"))))
        return
    started = None if "cluster" in data else data["startedAt"]
    table = new_table(
        "POD", "OWNER", "POLICY", "NODE", "STATUS", "BOUND", "USE", "REFUSED SINCE", "WHY"
    )
    for pod in data["pods"]:
        cells = (
            pod["pod"],
            _owned_by(pod),
            pod["policy"],
            pod["node"],
            pod["phase"],
            _bound(pod["boundAt"], started),
            pod["use"] or "–",
            shown_time(pod["since"]),
            _why(pod),
        )
        table.add_row(*map(escape, cells))
    out.print(table)
    if (left := data["total"] - len(data["pods"])) > 0:
        out.print(f"… {left} more")


def _no_pods(*, at_risk: bool, may_be_hidden: bool) -> str:
    if at_risk:
        return f"no pod is {'seen ' if may_be_hidden else ''}on what its policy refuses"
    return f"no pod with devices {'is seen' if may_be_hidden else 'runs'}"


def _why(pod: dict[str, Any]) -> str:
    """The gravest reason why its policy refuses where the pod is, or else what it has."""
    if pod["worst"] is None:
        has = [device["device"] for device in pod["devices"] if "device" in device]
        return ", ".join([*(f"{count} {name}" for name, count in pod["units"].items()), *has])
    more = len(pod["refusals"]) - 1
    return f"{pod['worst']}{f' (+{more} more)' if more else ''}"


def _bound(at: float | None, started: float | None) -> str:
    """When a pod was bound, and how long before Fettle started, if that is short. `started`: None
    if no Fettle was asked."""
    if at is None or started is None or not 0 <= (before := started - at) < LATELY_S:
        return shown_time(at)
    return f"{shown_time(at)}, {before:.0f} s before Fettle started"


def explain_policy(server: str, name: str, output: str) -> None:
    """Print a pod's policy, or one by name: each value with where it comes from."""
    data = fetch(server, "/policy", {"pod" if "/" in name else "name": name})
    if output == "json":
        click.echo(json.dumps(data, indent=2))
        return
    from rich.markup import escape

    out = console()
    origin = f", chosen by {data['origin']}" if data["origin"] else ""
    out.print(f"[bold]{escape(data['name'])}[/]  {data['source']}{escape(origin)}")
    for warning in data["warnings"]:
        out.print(f"[yellow]{escape(warning)}[/]")
    table = new_table("FIELD", "VALUE", "FROM")
    for value in data["values"]:
        said = "–" if value["value"] in (None, [], {}) else value["value"]
        shown = said if isinstance(said, str) else json.dumps(said)
        if value.get("note"):
            shown += f" ({value['note']})"
        table.add_row(value["field"], escape(shown), escape(value["from"]))
    out.print(table)
    for what in ("namespaces", "pods"):
        if data.get(what):
            out.print(f"{what}: {escape(', '.join(data[what]))}")


def show_status(server: str, output: str) -> None:
    """Print how the fleet is, in a few lines."""
    data = fetch(server, "/status")
    if output == "json":
        click.echo(json.dumps(data, indent=2))
        return
    from rich.markup import escape

    out = console()
    said_by = f"read from {data['cluster']}" if "cluster" in data else server.partition("#")[0]
    for line in (said_by, *data["modes"]):
        out.print(escape(line))
    for problem in data["problems"]:
        out.print(f"[yellow]{escape(problem)}[/]")
    for one in data["setAside"]:
        out.print(f"[bold red]{escape(one['text'])}[/]")
    for note in data.get("objectRules", ()):
        out.print(f"[yellow]{escape(note)}[/]")
    out.print(f"nodes with devices: {_counts(data['nodes'])}")
    for kind, counts in data["devices"].items():
        out.print(escape(f"{kind}: {_counts(counts)}"))
    for name, counts in data.get("missing", {}).items():
        said = (
            f"{counts['devices']} {name} missing on {counts['nodes']} nodes, {counts['lost']} lost"
        )
        out.print(f"[yellow]{escape(said)} (`fettle devices` names the nodes)[/]")
    pods = data["pods"]
    out.print(
        f"pods with devices: {pods['placed']} have a node, {pods['atRisk']} of them at risk; "
        f"{pods['waiting']} wait for one"
    )
    if number := data["quarantined"]:
        out.print(f"[yellow]objects that cannot be read: {number} (`fettle devices` names them)[/]")
    for one in data.get("mechanisms", ()):
        out.print(escape(f"{one['name']}: {_ACTS[one['acts']]}; {one['text']}"))


def _counts(by_state: dict[str, int]) -> str:
    """As 12, of these 1 Unhealthy, 2 Degraded."""
    bad = [f"{by_state[state]} {state}" for state in _STATES[:-1] if by_state.get(state)]
    return ", of these ".join(filter(None, (str(sum(by_state.values())), ", ".join(bad))))


_ACTS = {True: "acts here", False: "does nothing here", None: "not known"}
MOST_NAMED = 3
"""How many nodes of a joined row are named, and how many pods that use a device."""
MOST_LISTED = 10
"""How many holds, and conditions that no rule names, are listed."""
_OBEYED = {
    "Scheduler": "the scheduler itself obeys",
    "Fettle": "obeyed only while Fettle is asked",
}
_COLOURS = {"fits": "green", "undecided": "yellow", "refused": "red", "no fit": "magenta"}
"""By verdict, in the order of the table: where the pod may go, then why it may not."""


def print_holds(out: Any, holds: Sequence[dict[str, Any]]) -> None:
    """What operators hold, and who obeys it."""
    from rich.markup import escape

    if holds:
        out.print("holds (`fettle holds` lists them all):")
    lines = [f"{one['subject']}: {one['text']}  [{_OBEYED[one['obeyedBy']]}]" for one in holds]
    for line in first(lines, MOST_LISTED):
        out.print(f"  {escape(line)}")


def verdict_table(nodes: dict[str, Any]) -> Any:
    """Nodes with score, verdict and reason: those that fit first, by score; then why others do not.

    Many nodes that say the same, but for the names of their own devices, are one row. Nodes that
    fit are joined only if they are Healthy.
    """
    from rich.markup import escape

    table = new_table("NODE", "SCORE", "VERDICT", "REASON")
    ranks = list(_COLOURS)
    rows = [(name, result_word(v), v, summary(v)) for name, v in nodes.items()]
    rows.sort(key=lambda row: (ranks.index(row[1]), -row[2]["score"] * row[2]["fits"], row[0]))

    def key(row: tuple[str, str, dict[str, Any], str]) -> tuple[str, str] | None:
        name, word, v, reason = row
        joins = word != "fits" or "health" not in v or is_well(v["health"])
        return (word, _unnamed(reason, name, v)) if joins else None

    for group in grouped(rows, key):
        name, word, v, reason = group[0]
        where = name
        if len(group) > 1:
            some = (row[0] for row in group[:MOST_NAMED])
            where = "\n".join((f"{len(group)} nodes:", *some, "…"))
            same = len({row[3] for row in group}) == 1
            reason = reason if same else _unnamed(reason, name, v)
        score = span(str(row[2]["score"]) for row in reversed(group)) if v["fits"] else "–"
        table.add_row(escape(where), score, f"[{_COLOURS[word]}]{word}[/]", escape(reason))
    return table


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


def badness(health: dict[str, Any]) -> tuple[int, float]:
    """Sorts the worst first: by state, then by score as it is shown."""
    return _STATES.index(health["state"]), round(health["score"], 2)


def lowered(health: dict[str, Any]) -> str:
    """Why the score is worse than what refusals go by; "" if it is not."""
    if health.get("suspected"):
        return f", {SUSPECTED}"
    return f", {LOWERED}" if health["proven"] != health["score"] else ""


def has_news(health: dict[str, Any]) -> bool:
    """Whether there is anything to report; a state may outlast all evidence."""
    return bool(health["evidence"]) or not is_well(health)


def is_well(health: dict[str, Any]) -> bool:
    return bool(health["state"] == "Healthy")


def grouped(
    rows: Iterable[_AnyRow], key_of: Callable[[_AnyRow], Hashable | None]
) -> list[list[_AnyRow]]:
    """Rows in groups of equal keys, ordered by the first row of each group.

    A row whose key is None, or is shared by few rows, is a group of its own.
    """
    groups: dict[Hashable, list[_AnyRow]] = {}
    for at, row in enumerate(rows):
        key = key_of(row)
        groups.setdefault((at,) if key is None else ("key", key), []).append(row)
    return [
        part
        for group in groups.values()
        for part in ([group] if len(group) > FEW else [[row] for row in group])
    ]


def span(shown: Iterable[str]) -> str:
    """One score, or the first and the last of several; `shown` has the lowest first."""
    values = list(shown)
    return values[0] if values[0] == values[-1] else f"{values[0]}–{values[-1]}"


def first(names: list[str], most: int) -> list[str]:
    more = len(names) - most
    return [*names[:most], *([f"… {more} more"] if more > 0 else [])]
