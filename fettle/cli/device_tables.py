"""Prints for people what `fettle devices` answers: devices, the worst first, what is missing,
holds, taints and signals that no row knows. Many that are healthy and say the same are one row.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from fettle.cli.calling import fetch
from fettle.cli.printing import (
    MOST_LISTED,
    MOST_NAMED,
    badness,
    check_driver,
    first,
    grouped,
    has_news,
    is_well,
    lowered,
    print_holds,
    span,
)
from fettle.cli.sources import typed
from fettle.cli.tables import (
    console,
    is_plain,
    new_table,
    print_plain,
    readable,
    shown_age,
    shown_time,
)

MOST_ROWS = 64
"""Of one node, in the table of bad devices: eight GPUs of seven MIG devices each, and more."""


class WantedDevices(NamedTuple):
    """What the list is narrowed to. `since`: in Unix seconds, when the state began at the earliest.
    `driver`: or an extended resource. `selector`: of labels of nodes."""

    everything: bool = False
    node: str = ""
    selector: str = ""
    states: tuple[str, ...] = ()
    driver: str = ""
    since: float = 0.0

    @property
    def is_narrow(self) -> bool:
        return self != WantedDevices(self.everything)

    def query(self) -> dict[str, str]:
        """What the server narrows."""
        asked = {"node": self.node, "selector": self.selector}
        asked["unsound"] = "" if self.everything else "true"
        return {name: value for name, value in asked.items() if value}

    def takes(self, health: dict[str, Any], kind: str = "") -> bool:
        """Whether it is meant; `kind`: its driver or resource, "" of a node."""
        return (
            (not self.driver or kind == self.driver)
            and (not self.states or health["state"] in self.states)
            and (not self.since or (health.get("since") or 0.0) >= self.since)
        )

    def of(self, data: dict[str, Any]) -> dict[str, Any]:
        """The answer of `/devices`, narrowed: nodes that are meant, or have something that is."""
        if not self.is_narrow:
            return data
        nodes = [self._of_node(node) for node in data["nodes"]]
        network = [d for d in data["network"] if self.takes(d, _driver(d["device"]))]
        kept = [n for n in nodes if self.takes(n) or n["devices"] or n["resources"]]
        return {**data, "nodes": kept, "network": network}

    def _of_node(self, node: dict[str, Any]) -> dict[str, Any]:
        def units(one: dict[str, Any]) -> list[Any]:
            return [unit for unit in one["units"] if self.takes(unit, one["resource"])]

        resources = [{**one, "units": units(one)} for one in node["resources"]]
        devices = [d for d in node["devices"] if self.takes(d, _driver(d["device"]))]
        return {**node, "devices": devices, "resources": [r for r in resources if r["units"]]}


def list_devices(server: str, output: str, wanted: WantedDevices) -> None:
    """Print devices with their scores, states and reasons."""
    data = wanted.of(fetch(server, "/devices", wanted.query()))
    if not (data["nodes"] or data["network"]):
        check_driver(server, wanted.driver)
    if is_plain(output):
        print_plain(data, output)
    elif output == "name":
        for row in _all_rows(data, wanted):
            click.echo(f"{'node' if row.kind == _NODE else 'device'} {row.name}")
    else:
        print_devices(
            readable(data), everything=wanted.everything, wanted=wanted, wide=output == "wide"
        )


def print_devices(
    data: dict[str, Any],
    *,
    everything: bool,
    wanted: WantedDevices | None = None,
    wide: bool = True,
) -> None:
    """Print the answer of `/devices` as a table, and, unless it is narrowed, all else that it
    says."""
    from rich.markup import escape

    wanted = wanted or WantedDevices(everything)
    table = device_table(data, everything=everything, wanted=wanted, wide=wide)
    out = console(wide=wide)
    for line in data.get("modes", ()):
        out.print(f"[dim]{escape(line)}[/]")
    for problem in (problems := data.get("problems", ())):
        out.print(f"[yellow]{escape(problem)}[/]")
    for one in data.get("setAside", ()):
        out.print(f"[bold red]{escape(one['text'])}[/]")
    if table.row_count:
        out.print(table)
    elif wanted.is_narrow:
        out.print("no device is both worth a word and what you ask for (--all lists sound ones)")
    elif not problems and not _missing(data["nodes"]):
        out.print(_no_devices(data))
    print_missing(out, data["nodes"], everything=everything)
    if wanted.is_narrow:
        return
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


def print_missing(out: Any, nodes: Sequence[dict[str, Any]], *, everything: bool) -> None:
    """The devices that nodes should have and have not, what was missing first at the top."""
    from rich.markup import escape

    missing = sorted(_missing(nodes), key=lambda each: (each[1]["since"] or 0, each[0]["node"]))
    if missing:
        out.print("missing devices, which no pod can be given:")
    lines = [f"{node['node']}: {one['text']}; {_missing_since(one)}" for node, one in missing]
    for line in lines if everything else first(lines, MOST_LISTED, "--all lists them"):
        out.print(f"  {escape(line)}")


def _missing_since(one: dict[str, Any]) -> str:
    if one["since"] is None:
        return "seen now, for how long is not known"
    return f"since {shown_time(one['since'])}, lost from {shown_time(one['lostAt'])} on"


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
        out.print(
            f"[dim]{count}{' more' if lines else ''} would be tainted: {escape(typed(why))}[/]"
        )


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
    """`kind` is the word for many of them in a joined row; "" if it is never joined. `name`: as
    `fettle explain` takes it. `short`: of what is on its node, without what the node says."""

    where: str
    what: str
    kind: str
    health: dict[str, Any]
    name: str = ""
    short: str = ""

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


def device_table(
    data: dict[str, Any],
    *,
    everything: bool,
    wanted: WantedDevices | None = None,
    wide: bool = True,
) -> Any:
    """Nodes, units and devices, the worst first, with their users, notes and evidence.

    Healthy ones that say the same are one row, unless everything is shown, and so is a node with
    its devices against which only the node's own evidence stands.
    """
    from rich.markup import escape

    rows = _all_rows(data, wanted or WantedDevices(everything))
    in_use = any(row.users for row in rows)
    aged = any(row.health.get("since") for row in rows)
    more = (*(["SINCE" if wide else "AGE"] if aged else []), *(["USED BY"] if in_use else []))
    table = new_table("NODE", "DEVICE", "SCORE", "STATE", *more, "WHY")

    def key(row: _Row) -> tuple[str, str] | None:
        counted = row.kind and is_well(row.health) and not everything
        return (row.kind, row.why) if counted else None

    shown: Counter[str] = Counter()
    for group in grouped(rows, key):
        first = group[0]
        shown[first.where] += 1
        if shown[first.where] > MOST_ROWS and not everything:
            continue  # one node's devices would hide all others
        where, what = first.where, first.what if wide else first.short or first.what
        if len(group) > 1:
            nodes = {row.where for row in group}
            where = f"{len(nodes)} nodes" if len(nodes) > 1 else where
            what = _NODE if first.kind == _NODE else f"{len(group)} of {first.kind}"
        score = span(f"{row.health['score']:.2f}" for row in group)
        users = _some([*dict.fromkeys(user for row in group for user in row.users)])
        if not users and all(row.is_free for row in group):
            users = "nobody"
        state = first.health["state"] + lowered(first.health)
        since = first.health.get("since") if len(group) == 1 else None
        begun = shown_time(since or None) if wide else shown_age(since)
        between = (*([begun] if aged else []), *([users] if in_use else []))
        table.add_row(*map(escape, (where, what, score, state, *between, first.why)))
    for where, number in shown.items():
        if number > MOST_ROWS and not everything:
            why = typed(f"{number - MOST_ROWS} more: `fettle explain node {where}` lists them")
            table.add_row(escape(where), "…", "", "", *([""] * len(more)), escape(why))
    return table


def _some(names: list[str]) -> str:
    """The first few names, one a line."""
    return "\n".join(first(names, MOST_NAMED))


def _used_by(nodes: list[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"({len(nodes)} nodes)"


def _driver(device: str) -> str:
    return device.partition("/")[0]


def _all_rows(data: dict[str, Any], wanted: WantedDevices) -> list[_Row]:
    """The worst first."""
    rows = [row for node in data["nodes"] for row in _rows(node, wanted)]
    rows += [_Row(_used_by(d["nodes"]), d["device"], "", d, d["device"]) for d in data["network"]]
    return sorted(rows, key=lambda row: badness(row.health))


def _rows(node: dict[str, Any], wanted: WantedDevices) -> Iterator[_Row]:
    name, everything = node["node"], wanted.everything
    takes_node = wanted.takes(node)
    joins = takes_node and not everything and has_news(node)
    units = [(r["resource"], unit) for r in node["resources"] for unit in r["units"]]
    devices = [d for d in node["devices"] if everything or has_news(d)]
    parts = [
        *(
            _Row(name, f"{kind} {u['unit']}", kind, u, f"{name}/{kind}/{u['unit']}", u["unit"])
            for kind, u in units
        ),
        *(
            _Row(name, d["device"], _driver(d["device"]), d, d["device"], _short(d["device"], name))
            for d in devices
        ),
    ]
    own = [row for row in parts if not (joins and _is_of_node(row.health, node))]
    if takes_node and (has_news(node) or (everything and not node["devices"])):
        covered = len(parts) - len(own)
        yield _Row(name, f"(node, {covered} devices)" if covered else _NODE, _NODE, node, name)
    yield from own


def _short(device: str, node: str) -> str:
    """Without the driver, and the pool if it is the node's."""
    _, _, rest = device.partition("/")
    return rest.removeprefix(f"{node}/")


def _is_of_node(health: dict[str, Any], node: dict[str, Any]) -> bool:
    """Whether only the node's own evidence is against this device of it, and nothing else is to be
    said."""
    said = [health.get(part) for part in ("about", "withheld")]
    of_node = all(e.get("subject") == f"node {node['node']}" for e in health["evidence"])
    alike = health["state"] == node["state"] and bool(health["evidence"])
    return alike and of_node and not any(said)


# --- fettle top

_BAD = ("Unhealthy", "Degraded", "Unknown")


def list_usage(server: str, output: str, selector: str) -> None:
    """Print nodes by what is bad on them, then by what is in use."""
    data = fetch(server, "/usage", {"selector": selector} if selector else {})
    if is_plain(output):
        print_plain(data, output)
        return
    data["nodes"].sort(key=by_usage)
    if output == "name":
        for one in data["nodes"]:
            click.echo(f"node {one['node']}")
    else:
        print_usage(readable(data))


def by_usage(one: dict[str, Any]) -> tuple[Any, ...]:
    """Sorts nodes: most that is bad first, then most in use."""
    bad = [-one["byState"].get(state, 0) for state in _BAD]
    return (*bad, -one["missing"], -one["inUse"], one["node"])


def print_usage(data: dict[str, Any]) -> None:
    """Print the answer of `/usage` as a table."""
    from rich.markup import escape

    out = console()
    for problem in data["problems"]:
        out.print(f"[yellow]{escape(problem)}[/]")
    if not data["nodes"]:
        out.print("no node with devices is seen" if data.get("unseen") else "no node has devices")
        return
    table = new_table(
        *("NODE", "SCORE", "STATE", "DEVICES", "IN USE", "BAD", "MISSING", "HELD", "PODS")
    )
    for one in data["nodes"]:
        bad = ", ".join(f"{n} {state}" for state in _BAD if (n := one["byState"].get(state)))
        share = f" ({100 * one['inUse'] // one['devices']}%)" if one["devices"] else ""
        cells = (
            *(one["node"], f"{one['score']:.2f}", one["state"], str(one["devices"])),
            *(f"{one['inUse']}{share}", bad or "–", str(one["missing"] or "–")),
            *("yes" if one["held"] else "–", str(one["pods"])),
        )
        table.add_row(*map(escape, cells))
    out.print(table)
