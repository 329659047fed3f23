"""Prints for people what Fettle answers: `fettle explain`, `devices`, `pods` and `status`.

The worst comes first; of a pod's verdicts, the best. Many rows that are healthy and say the same
become one row.
"""

import json
import re
from collections import Counter
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
    out.print(f"nodes with devices: {_counts(data['nodes'])}")
    for kind, counts in data["devices"].items():
        out.print(escape(f"{kind}: {_counts(counts)}"))
    pods = data["pods"]
    out.print(
        f"pods with devices: {pods['placed']} have a node, {pods['atRisk']} of them at risk; "
        f"{pods['waiting']} wait for one"
    )
    if number := data["quarantined"]:
        out.print(f"[yellow]objects that cannot be read: {number} (`fettle devices` names them)[/]")


def _counts(by_state: dict[str, int]) -> str:
    """As 12, of these 1 Unhealthy, 2 Degraded."""
    bad = [f"{by_state[state]} {state}" for state in _STATES[:-1] if by_state.get(state)]
    return ", of these ".join(filter(None, (str(sum(by_state.values())), ", ".join(bad))))


MOST_NAMED = 3
"""How many nodes of a joined row are named, and how many pods that use a device."""
MOST_LISTED = 10
"""How many holds, and conditions that no rule names, are listed."""
MOST_ROWS = 64
"""Of one node, in the table of bad devices: eight GPUs of seven MIG devices each, and more."""
_COLOURS = {"fits": "green", "undecided": "yellow", "refused": "red", "no fit": "magenta"}
"""By verdict, in the order of the table: where the pod may go, then why it may not."""


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


def list_devices(server: str, output: str, *, everything: bool) -> None:
    """Print devices with their scores, states and reasons."""
    data = fetch(server, "/devices", {} if everything else {"unsound": "true"})
    if output == "json":
        click.echo(json.dumps(data, indent=2))
        return
    print_devices(data, everything=everything)


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
            "what no rule names (conditions, reasons, XIDs, labels and annotations of vendors); a "
            "row in `health.rulesFile` makes it count:"
        )
        for line in _first([_unknown_signal(one) for one in unknown], MOST_LISTED):
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
    for line in _first(lines, MOST_LISTED):
        out.print(f"  {escape(line)}")


def _missing(nodes: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each node with each thing that it lacks; a server of before says nothing of that."""
    return [(node, one) for node in nodes for one in node.get("missing", ())]


_OBEYED = {
    "Scheduler": "the scheduler itself obeys",
    "Fettle": "obeyed only while Fettle is asked",
}


def print_holds(out: Any, holds: Sequence[dict[str, Any]]) -> None:
    """What operators hold, and who obeys it."""
    from rich.markup import escape

    if holds:
        out.print("holds (`fettle holds` lists them all):")
    lines = [f"{one['subject']}: {one['text']}  [{_OBEYED[one['obeyedBy']]}]" for one in holds]
    for line in _first(lines, MOST_LISTED):
        out.print(f"  {escape(line)}")


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
    for line in _first(lines, MOST_LISTED):
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
    return "\n".join(_first(names, MOST_NAMED))


def _first(names: list[str], most: int) -> list[str]:
    more = len(names) - most
    return [*names[:most], *([f"… {more} more"] if more > 0 else [])]


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
